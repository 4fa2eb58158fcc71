// How functions of kernels/cpu are declared so that nothing compiled with instruction-set flags can
// be linked into code for an older processor: internal linkage and always inlined. No kernels here.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

#define QINFER_FN static inline __attribute__((always_inline))
#if !defined(QINFER_UNROLL)  // tests define it away
#define QINFER_PRAGMA(text) _Pragma(#text)
#define QINFER_UNROLL(n) QINFER_PRAGMA(GCC unroll n)
#endif

#define QINFER_LAMBDA __attribute__((always_inline))

namespace qinfer::kernels {

// f(0), ..., f(N - 1) with constants. Loops that a pragma unrolls are unrolled too late for arrays
// of vectors to become registers.
template <int kValue>
struct Index {
  constexpr operator int() const { return kValue; }  // NOLINT(google-explicit-constructor)
};
template <int N, int I = 0, typename F>
QINFER_FN void Unroll(F&& f) {
  if constexpr (I < N) {
    f(Index<I>());
    Unroll<N, I + 1>(f);
  }
}

QINFER_FN uint32_t Min(uint32_t a, uint32_t b) { return a < b ? a : b; }

// Table::quantize and quantize_static around their blocks: block(x, count, codes) writes codes and
// returns the scale; sum(codes, padded, sums) adds up sixteen codes each.
template <typename B, typename S>
QINFER_FN void QuantizeRow(const float* x, uint32_t cols, uint32_t token, const Activations& out,
                           B&& block, S&& sum) {
  const uint32_t padded = (cols + kInputGranule - 1) / kInputGranule * kInputGranule;
  int8_t* codes = out.codes + token * out.code_stride;
  float* scales = out.scales + token * out.scale_stride;
  for (uint32_t k = 0; k < cols; k += out.block)
    scales[k / out.block] = block(x + k, Min(out.block, cols - k), codes + k);
  if (padded != cols) memset(codes + cols, 0, padded - cols);
  sum(codes, padded, out.sums + token * out.sum_stride);
}

// panel_maxima of a panel of less than 16 values, at least one; false where one is not finite.
QINFER_FN bool ShortPanelMaximum(const float* x, size_t n, float* maximum) {
  bool finite = true;
  float top = -__builtin_inff();
  for (size_t i = 0; i < n; ++i) {
    finite = finite && __builtin_isfinite(x[i]);
    top = x[i] > top ? x[i] : top;
  }
  *maximum = top;
  return finite;
}

}  // namespace qinfer::kernels
