// The tokenizer of a checkpoint, kept together with the bytes it may be used in place from.
#include "quant/source_tokenizer.h"

#include "exec/text_parts.h"

namespace qinfer::quant {

StatusOr<std::shared_ptr<const tokenizer::Tokenizer>> SourceTokenizer(
    const format::Checkpoint& checkpoint, Memory* memory) {
  QINFER_ASSIGN_OR_RETURN(exec::TextParts parts, exec::LoadTextParts(checkpoint, nullptr, memory));
  if (parts.tokenizer == nullptr) return std::shared_ptr<const tokenizer::Tokenizer>();
  auto holder = std::make_shared<exec::TextParts>(std::move(parts));
  return std::shared_ptr<const tokenizer::Tokenizer>(holder, holder->tokenizer.get());
}

}  // namespace qinfer::quant
