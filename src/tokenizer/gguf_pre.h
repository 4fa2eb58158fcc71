// What the names in tokenizer.ggml.pre mean: GGUF gives a name where tokenizer.json spells patterns
// out. Reading the rest of the metadata is in from_gguf.cpp.
#pragma once

#include <string_view>

#include "tokenizer/spec.h"

namespace qinfer::tokenizer {

// Normalizer, pre-tokenizer and model flags of a byte-level vocabulary; *adds_bos is its default.
// UnsupportedError lists the known names.
Status ApplyGgufPre(std::string_view name, TokenizerSpec* spec, bool* adds_bos);

}  // namespace qinfer::tokenizer
