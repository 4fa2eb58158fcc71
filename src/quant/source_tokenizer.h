// The tokenizer of a checkpoint, made once for all that need it in a quantization: the plan, a
// calibration by text or by the model itself, and the documents of the output; and what that takes.
#pragma once

#include <cstdint>
#include <memory>

#include "core/memory.h"
#include "exec/text_parts.h"
#include "format/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace qinfer::quant {

class SourceTokenizer {
 public:
  // Makes it, in one go. The checkpoint outlives it.
  static StatusOr<std::shared_ptr<const SourceTokenizer>> Make(const format::Checkpoint& checkpoint,
                                                               Memory* memory);
  // One that somebody else has made and keeps, as a loaded model does; or none (null).
  static std::shared_ptr<const SourceTokenizer> Of(
      std::shared_ptr<const tokenizer::Tokenizer> tokenizer);

  // Null where the checkpoint has none.
  const std::shared_ptr<const tokenizer::Tokenizer>& get() const { return tokenizer_; }
  uint64_t bytes() const { return account_.used_bytes(); }  // that it holds of the memory
  uint64_t peak_bytes() const { return peak_bytes_; }       // that making it took

 private:
  SourceTokenizer(Memory* memory, uint64_t limit) : account_(AccountOf(memory), limit) {}
  SourceTokenizer() = default;
  static AllocatorHooks AccountOf(Memory* memory);

  Memory account_;  // outlives what lies in it
  format::QinferBytes compiled_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  uint64_t peak_bytes_ = 0;
};

// The same tokenizer, which keeps `source` alive; null where there is none.
std::shared_ptr<const tokenizer::Tokenizer> Share(
    const std::shared_ptr<const SourceTokenizer>& source);

}  // namespace qinfer::quant
