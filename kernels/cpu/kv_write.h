// How a token's key or value is written into its plane, on all instruction sets. Internal linkage
// only.
#pragma once

#include <string.h>

#include "kernels/cpu/inline.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"

namespace qinfer::kernels::fold {
namespace {

// Table::write_k and write_v. ToHalf(x, n, out): up to 16 floats as halves.
template <class Simd>
QINFER_FN void Write(uint8_t* plane, KvType type, uint32_t slot, const float* x, uint32_t head_dim,
                     bool is_key) {
  const size_t stride = is_key ? kPageTokens : 1;
  const size_t first = is_key ? slot : size_t{slot} * head_dim;
  if (type == KvType::kF32) {
    for (uint32_t i = 0; i < head_dim; ++i) memcpy(plane + (first + i * stride) * 4, x + i, 4);
    return;
  }
  if (type == KvType::kF16) {
    for (uint32_t i = 0; i < head_dim; i += 16) {
      uint16_t half[16];
      const uint32_t n = Min(16, head_dim - i);
      Simd::ToHalf(x + i, n, half);
      for (uint32_t j = 0; j < n; ++j) memcpy(plane + (first + (i + j) * stride) * 2, half + j, 2);
    }
    return;
  }
  float* scales = reinterpret_cast<float*>(
      plane + (is_key ? layout::KCodeBytes(head_dim) : layout::VCodeBytes(head_dim)));
  for (uint32_t i = 0; i < head_dim; i += layout::kKvGroup) {
    int8_t codes[layout::kKvGroup] = {};
    const uint32_t count = Min(layout::kKvGroup, head_dim - i);
    scales[i / layout::kKvGroup * kPageTokens + slot] = Simd::Quantize(x + i, count, codes);
    if (is_key) {
      for (uint32_t j = 0; j < count; j += 4) memcpy(plane + (i + j) * 16 + slot * 4, codes + j, 4);
    } else {
      const size_t padded = layout::CeilDiv(count, 16) * 16;
      memcpy(plane + slot * layout::VCodeStride(head_dim) + i, codes, padded);
    }
  }
}

}  // namespace
}  // namespace qinfer::kernels::fold
