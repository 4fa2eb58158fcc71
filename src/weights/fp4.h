// Packing floats as FP4 (MXFP4): powers of two for scales, and steps that grow with the value.
#pragma once

#include <cstdint>

#include "kernels/layout.h"

namespace qinfer::weights {

// What a nibble stands for, in half steps: 0, 1, 2, 3, 4, 6, 8, 12 and a sign.
inline int32_t Fp4Value(uint8_t nibble) {
  return kernels::layout::kFp4Codes[nibble] - kernels::layout::ZeroPoint(kernels::WeightKind::kFp4);
}

// The power of two under which the `n` values of a group lose least (weighted by w, or equally for
// null), of those near the one where the largest just fits; that one itself without `search`. A
// normal number.
float FitFp4(const float* x, const float* w, uint32_t n, bool search);
// The nibbles (kernels::layout::kFp4Codes) nearest to x / scale; halves go to the even nibble.
void EncodeFp4(float scale, const float* x, uint32_t n, uint8_t* codes);

}  // namespace qinfer::weights
