// Packing floats as FP4 (MXFP4): powers of two for scales, and steps that grow with the value.
#pragma once

#include <cstdint>

namespace qinfer::weights {

// The power of two under which the `n` values of a group lose least (weighted by w, or equally for
// null), of those near the one where the largest just fits; that one itself without `search`. A
// normal number.
float FitFp4(const float* x, const float* w, uint32_t n, bool search);
// The nibbles (kernels::layout::kFp4Codes) nearest to x / scale; halves go to the even nibble.
void EncodeFp4(float scale, const float* x, uint32_t n, uint8_t* codes);

}  // namespace qinfer::weights
