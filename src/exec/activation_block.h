// How activations are quantized for a linear weight. How many inputs share a scale, where the file
// does not say, is a property of the layer, not of the machine.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "model/spec.h"
#include "weights/format.h"

namespace qinfer::exec {

// Weights with small groups are scaled every 32 inputs anyway, and blocks of 32 lose the least
// (SmolLM2 Q4_1, mean KL from float activations: 32 0.0023, 64 0.0038, 128 0.0066). Coarser weights
// keep their long integer sums.
inline uint32_t DefaultActivationBlock(model::LinearRole, const weights::Format& format) {
  return format.group_size != 0 && format.group_size <= 32 ? 32 : 64;
}

// One token's codes; `static_scale` 0 = each block has a scale of its own.
inline void QuantizeRow(const kernels::Table& table, const float* x, uint32_t cols, uint32_t token,
                        float static_scale, const kernels::Activations& codes) {
  if (static_scale != 0.0f) {
    table.quantize_static(x, cols, token, static_scale, codes);
  } else {
    table.quantize(x, cols, token, codes);
  }
}

}  // namespace qinfer::exec
