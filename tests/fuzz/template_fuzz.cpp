// Fuzz target: any text as a chat template, rendered within small limits over fixed messages. The
// result must be the same twice, and no limit may be passed by much.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tokenizer/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using qinfer::tokenizer::ChatTemplate;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = ChatTemplate::Parse(text, "fuzz");
  if (!parsed.ok()) return 0;
  qinfer::tokenizer::RenderInput input;
  input.messages_json =
      R"([{"role": "user", "content": "Hi ä"}, {"role": "assistant", "content": null,
          "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]}])";
  input.tools_json = R"([{"function": {"name": "f", "parameters": {}}}])";
  input.extra_json = R"({"xs": [3, 1, 2], "s": "Hello", "d": {"k": 1}, "n": null})";
  input.bos_token = "<s>";
  qinfer::tokenizer::RenderLimits limits;
  limits.max_steps = 50'000;
  limits.max_output_bytes = 1 << 16;
  limits.max_memory_bytes = 1 << 20;
  const auto first = (*parsed)->Render(input, limits);
  const auto second = (*parsed)->Render(input, limits);
  if (first.ok() != second.ok() || (first.ok() && *first != *second)) std::abort();
  if (first.ok() && first->size() > limits.max_output_bytes) std::abort();
  return 0;
}
