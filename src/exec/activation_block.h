// How many inputs share a scale when activations are quantized for a linear weight, where the file
// does not say: a property of the layer, not of the machine.
#pragma once

#include <cstdint>

#include "model/spec.h"
#include "weights/format.h"

namespace qinfer::exec {

// Weights with small groups are scaled every 32 inputs anyway, and blocks of 32 lose the least
// (SmolLM2 Q4_1, mean KL from float activations: 32 0.0023, 64 0.0038, 128 0.0066). Coarser weights
// keep their long integer sums.
inline uint32_t DefaultActivationBlock(model::LinearRole, const weights::Format& format) {
  return format.group_size != 0 && format.group_size <= 32 ? 32 : 64;
}

}  // namespace qinfer::exec
