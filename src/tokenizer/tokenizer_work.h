// Making a tokenizer a piece at a time: reading the source, compiling, checking and opening. A
// piece is about 0.2 ms of work, whatever the size of the vocabulary.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/gguf.h"
#include "tokenizer/tokenizer.h"

namespace qinfer::tokenizer {

// A document and where it is, for messages.
struct NamedText {
  std::string_view text;
  std::string name;
};

class TokenizerWork {
 public:
  virtual ~TokenizerWork() = default;

  // What they are made from outlives the work. `name` is for messages. `config_json`:
  // tokenizer_config.json, or empty.
  static std::unique_ptr<TokenizerWork> OfJson(NamedText tokenizer_json, NamedText config_json,
                                               Memory* memory);
  static std::unique_ptr<TokenizerWork> OfGguf(const format::Gguf& gguf, Memory* memory);
  // The compiled form, validated and then used in place: `bytes`, 64-byte aligned, outlive the
  // tokenizer. Memory beyond the bytes stays small (compiled patterns, caches).
  static std::unique_ptr<TokenizerWork> OfCompiled(absl::Span<const uint8_t> bytes,
                                                   std::string name, Memory* memory);

  // True when it is made. Not called again after that, or after an error.
  virtual StatusOr<bool> Step() = 0;
  virtual std::shared_ptr<const Tokenizer> Take() = 0;
};

}  // namespace qinfer::tokenizer
