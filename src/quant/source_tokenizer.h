// The tokenizer of a checkpoint, whatever holds it.
#pragma once

#include <memory>

#include "core/memory.h"
#include "format/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace qinfer::quant {

// Null where the checkpoint has none. The checkpoint outlives the tokenizer.
StatusOr<std::shared_ptr<const tokenizer::Tokenizer>> SourceTokenizer(
    const format::Checkpoint& checkpoint, Memory* memory);

}  // namespace qinfer::quant
