// Sums of products of signed bytes on NEON: with the dot product instruction where the compiler's
// flags have it (kernels/cpu/neon_dotprod), else by widening multiplications. Internal linkage.
#pragma once

#include "kernels/cpu/neon/lines.h"

namespace qinfer::kernels::neon {
namespace {

// Four bytes to all lanes.
QINFER_FN int8x16_t Broadcast4(const int8_t* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(v));
}
template <int kLane>
QINFER_FN int8x16_t Spread4(int8x16_t a) {
  return vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(a), kLane));
}

#if defined(__ARM_FEATURE_DOTPROD)

// Per lane, adds the four products of bytes.
QINFER_FN int32x4_t Dot(int32x4_t sum, int8x16_t w, int8x16_t a) { return vdotq_s32(sum, w, a); }

template <class L, int J, int T, int R, bool kSplit>
QINFER_FN void DotLine(const uint8_t* p, uint32_t r0, const int8x16_t (&low)[T],
                       const int8x16_t (&high)[T], int32x4_t (&acc)[T][R],
                       int32x4_t (&acc_high)[T][R]) {
  QINFER_UNROLL(4)
  for (uint32_t r = 0; r < R; ++r) {
    const Lines w = L::Get(p, J, r0 + r);
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) {
      int32x4_t& second = kSplit ? acc_high[t][r] : acc[t][r];
      acc[t][r] = vdotq_laneq_s32(acc[t][r], w.low, low[t], J);
      second = vdotq_laneq_s32(second, w.high, high[t], J);
    }
  }
}

// Adds the sums of products of 32 inputs (kSplit: of the last 16 to acc_high) for T tokens and the
// rows 4 r0 .. 4 (r0 + R) - 1.
template <WeightKind K, class L, int T, int R, bool kSplit>
QINFER_FN void Granule(const uint8_t* p, const int8_t* const* a, uint32_t k, uint32_t r0,
                       int32x4_t (&acc)[T][R], int32x4_t (&acc_high)[T][R]) {
  int8x16_t low[T], high[T];
  QINFER_UNROLL(4)
  for (int t = 0; t < T; ++t) {
    low[t] = vld1q_s8(a[t] + k);
    high[t] = vld1q_s8(a[t] + k + 16);
  }
  DotLine<L, 0, T, R, kSplit>(p, r0, low, high, acc, acc_high);
  DotLine<L, 1, T, R, kSplit>(p, r0, low, high, acc, acc_high);
  DotLine<L, 2, T, R, kSplit>(p, r0, low, high, acc, acc_high);
  DotLine<L, 3, T, R, kSplit>(p, r0, low, high, acc, acc_high);
}

#else

// Sums of products in 16 bits: rows 0 and 1, rows 2 and 3, four inputs of each.
struct Sums16 {
  int16x8_t low, high;
};
QINFER_FN Sums16 Products(int8x16_t w, int8x16_t a) {
  return {vmull_s8(vget_low_s8(w), vget_low_s8(a)), vmull_high_s8(w, a)};
}
QINFER_FN Sums16 Products(Sums16 sums, int8x16_t w, int8x16_t a) {
  return {vmlal_s8(sums.low, vget_low_s8(w), vget_low_s8(a)), vmlal_high_s8(sums.high, w, a)};
}
// Adds neighbours in 16 bits, the next neighbours in 32.
QINFER_FN int32x4_t Fold(int32x4_t sum, Sums16 sums) {
  return vpadalq_s16(sum, vpaddq_s16(sums.low, sums.high));
}

// Per lane, adds the four products of bytes; a sum of two products fits 16 bits unless all four
// factors are -128, and activations never are.
QINFER_FN int32x4_t Dot(int32x4_t sum, int8x16_t w, int8x16_t a) {
  return Fold(sum, Products(w, a));
}

// Lines J and J + 1. INT4: codes up to 15, sixteen products fit 16 bits, so sums go on over the
// granule. INT6: codes up to 63, four do (and FP4's). INT8: two do.
template <WeightKind K, class L, int J, int T, bool kSplit>
QINFER_FN void TwoLines(const uint8_t* p, uint32_t r, const int8x16_t (&low)[T],
                        const int8x16_t (&high)[T], Sums16 (&sums)[T], int32x4_t* const (&acc)[T],
                        int32x4_t* const (&acc_high)[T]) {
  const Lines w = L::Get(p, J, r), v = L::Get(p, J + 1, r);
  QINFER_UNROLL(4)
  for (int t = 0; t < T; ++t) {
    const int8x16_t a0 = Spread4<J>(low[t]), a1 = Spread4<J + 1>(low[t]);
    const int8x16_t b0 = Spread4<J>(high[t]), b1 = Spread4<J + 1>(high[t]);
    int32x4_t& second = kSplit ? *acc_high[t] : *acc[t];
    if constexpr (K == WeightKind::kInt4) {
      sums[t] = J == 0 ? Products(w.low, a0) : Products(sums[t], w.low, a0);
      sums[t] = Products(Products(Products(sums[t], v.low, a1), w.high, b0), v.high, b1);
    } else if constexpr (K == WeightKind::kInt6 || K == WeightKind::kFp4) {
      *acc[t] = Fold(*acc[t], Products(Products(w.low, a0), v.low, a1));
      second = Fold(second, Products(Products(w.high, b0), v.high, b1));
    } else {
      *acc[t] = Dot(Dot(*acc[t], w.low, a0), v.low, a1);
      second = Dot(Dot(second, w.high, b0), v.high, b1);
    }
  }
}

// Adds the sums of products of 32 inputs (kSplit: of the last 16 to acc_high; never INT4) for T
// tokens and the rows 4 r0 .. 4 (r0 + R) - 1.
template <WeightKind K, class L, int T, int R, bool kSplit>
QINFER_FN void Granule(const uint8_t* p, const int8_t* const* a, uint32_t k, uint32_t r0,
                       int32x4_t (&acc)[T][R], int32x4_t (&acc_high)[T][R]) {
  constexpr bool kTwo = kSplit && K != WeightKind::kInt4;
  int8x16_t low[T], high[T];
  QINFER_UNROLL(4)
  for (int t = 0; t < T; ++t) {
    low[t] = vld1q_s8(a[t] + k);
    high[t] = vld1q_s8(a[t] + k + 16);
  }
  QINFER_UNROLL(4)
  for (uint32_t r = 0; r < R; ++r) {
    Sums16 sums[T];
    int32x4_t *first[T], *second[T];
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) {
      first[t] = &acc[t][r];
      second[t] = &acc_high[t][r];
    }
    TwoLines<K, L, 0, T, kTwo>(p, r0 + r, low, high, sums, first, second);
    TwoLines<K, L, 2, T, kTwo>(p, r0 + r, low, high, sums, first, second);
    if constexpr (K == WeightKind::kInt4) {
      QINFER_UNROLL(4)
      for (int t = 0; t < T; ++t) acc[t][r] = Fold(acc[t][r], sums[t]);
    }
  }
}

#endif

}  // namespace
}  // namespace qinfer::kernels::neon
