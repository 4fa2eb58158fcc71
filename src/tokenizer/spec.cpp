// Texts of a spec.
#include "tokenizer/spec.h"

namespace qinfer::tokenizer {

Status TokenizerSpec::Store(std::string_view text, Piece* piece) {
  if (text.size() > 0xffffffffu - arena.size())
    return FormatError("the texts of the tokenizer are longer than 4 GiB");
  *piece = {static_cast<uint32_t>(arena.size()), static_cast<uint32_t>(text.size())};
  arena.insert(arena.end(), text.begin(), text.end());
  return OkStatus();
}

}  // namespace qinfer::tokenizer
