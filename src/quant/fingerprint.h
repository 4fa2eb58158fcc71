// Hashes that tell whether two runs mean the same thing: of a model's shape, of a checkpoint's
// contents, and of bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "format/checkpoint.h"
#include "model/spec.h"

namespace qinfer::quant {

uint64_t HashBytes(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t HashText(std::string_view text) { return HashBytes(text.data(), text.size()); }

// Sizes and structure, not names: the same for one model in different containers.
uint64_t ShapeFingerprint(const model::ModelSpec& spec);
// The table of tensors and samples of their contents: beginning, middle and end of each.
StatusOr<uint64_t> WeightsFingerprint(const format::Checkpoint& checkpoint);

}  // namespace qinfer::quant
