// Measured by an account of its own, that lives as long as what it counts.
#include "quant/source_tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/account.h"

namespace qinfer::quant {

AllocatorHooks SourceTokenizer::AccountOf(Memory* memory) { return qinfer::AccountOf(memory); }

StatusOr<std::shared_ptr<const SourceTokenizer>> SourceTokenizer::Make(
    const format::Checkpoint& checkpoint, Memory* memory) {
  const uint64_t used = memory->used_bytes() + memory->mapped_bytes();
  // Under the limit of the whole, so that passing it is told from a host without memory.
  const uint64_t limit = memory->limit_bytes();
  std::shared_ptr<SourceTokenizer> made(new SourceTokenizer(
      memory, limit == 0 ? 0 : std::max<uint64_t>(limit - std::min(limit, used), 1)));
  {
    QINFER_ASSIGN_OR_RETURN(exec::TextParts parts,
                            exec::LoadTextParts(checkpoint, nullptr, &made->account_));
    made->tokenizer_ = std::move(parts.tokenizer);
    made->compiled_ = std::move(parts.compiled);
  }
  made->peak_bytes_ = made->account_.peak_bytes();
  return std::shared_ptr<const SourceTokenizer>(std::move(made));
}

std::shared_ptr<const SourceTokenizer> SourceTokenizer::Of(
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  std::shared_ptr<SourceTokenizer> made(new SourceTokenizer());
  made->tokenizer_ = std::move(tokenizer);
  return made;
}

std::shared_ptr<const tokenizer::Tokenizer> Share(
    const std::shared_ptr<const SourceTokenizer>& source) {
  if (source == nullptr || source->get() == nullptr) return nullptr;
  return std::shared_ptr<const tokenizer::Tokenizer>(source, source->get().get());
}

}  // namespace qinfer::quant
