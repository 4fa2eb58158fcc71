// Chat templates: Jinja text plus messages in, prompt text out, as transformers'
// apply_chat_template renders it. The interpreter is in jinja_*.{h,cpp}; nothing here tokenizes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/memory.h"
#include "core/status.h"

namespace qinfer::tokenizer {

struct RenderLimits {
  uint64_t max_steps = 10'000'000;  // evaluated nodes and loop turns
  uint32_t max_depth = 128;         // nested expressions, blocks and macro calls
  uint64_t max_output_bytes = 64u << 20;
  // Of all that a rendering allocates: values, texts being written, what operations take meanwhile.
  uint64_t max_memory_bytes = 64u << 20;
};

struct RenderInput {
  std::string_view messages_json;         // an array of {"role", "content", ...}
  std::string_view tools_json;            // an array, or empty
  std::string_view extra_json;            // an object of further variables, or empty
  std::string_view bos_token, eos_token;  // texts, may be empty
  bool add_generation_prompt = true;
  int64_t now_unix_seconds = 0;  // for strftime_now (UTC)
};

// A parsed template; immutable and thread-safe.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // FormatError with line number and reason. `name` is for messages.
  static StatusOr<std::shared_ptr<const ChatTemplate>> Parse(std::string_view text,
                                                             const std::string& name);
  // Shows the text to `take`, once and only then, and returns what that returns. A template's own
  // raise_exception(...) is a MisuseError with its text. What the rendering allocates comes from
  // `memory` (null = the process's), whose limit is a BudgetError.
  using TakeText = std::function<Status(std::string_view text)>;
  virtual Status Render(const RenderInput& input, const RenderLimits& limits, Memory* memory,
                        const TakeText& take) const = 0;
  // A copy of the text, in the process's memory.
  StatusOr<std::string> Render(const RenderInput& input, const RenderLimits& limits = {}) const;
  virtual const std::string& text() const = 0;
};

}  // namespace qinfer::tokenizer
