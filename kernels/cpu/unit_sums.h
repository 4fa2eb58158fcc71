// The sums of one row's activations by units, which symmetric codes and minima need: made once per
// product and row, so they must cost little where a product has few panels. Internal linkage.
#pragma once

#include "kernels/cpu/inline.h"

namespace qinfer::kernels {

// put(u, sum) for each unit of `unit` inputs (a multiple of 16) of a row of `padded`. The usual
// units have loops of their own, which compilers turn into vectors.
template <typename F>
QINFER_FN void SumUnits(const int32_t* __restrict sums, uint32_t padded, uint32_t unit, F&& put) {
  const uint32_t sixteens = padded / 16;
  if (unit == 16) {
    for (uint32_t u = 0; u < sixteens; ++u) put(u, sums[u]);
  } else if (unit == 32) {
    for (uint32_t u = 0; u < sixteens / 2; ++u) put(u, sums[2 * u] + sums[2 * u + 1]);
  } else {
    for (uint32_t u = 0, i = 0; i < sixteens; ++u) {
      int32_t sum = 0;
      for (const uint32_t end = Min(sixteens, i + unit / 16); i < end; ++i) sum += sums[i];
      put(u, sum);
    }
  }
}

}  // namespace qinfer::kernels
