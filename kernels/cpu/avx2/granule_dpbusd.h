// Sums of products of one granule of codes (32 inputs, 16 rows) and a few tokens' activations by
// dot product instructions: QINFER_DPBUSD, of kernels/cpu/avxvnni. Sums are exact in 32 bits for
// all kinds. Internal linkage.
#pragma once

#include "kernels/cpu/avx2/lines.h"

namespace qinfer::kernels::avx2 {
namespace {

constexpr bool kSignedInt8 = false;
constexpr bool kWideningFactors = false;

// Adds the products of the first (kHalf 0) or last 16 of 32 inputs.
template <class L, int T, int kHalf>
QINFER_FN void HalfGranule(const uint8_t* p, const int8_t* const* a, uint32_t k,
                           __m256i (&acc)[T][2]) {
  Unroll<4>([&](auto j) QINFER_LAMBDA {
    const Lines w = L::Get(p, j);
    Unroll<T>([&](auto t) QINFER_LAMBDA {
      const __m256i x = Broadcast4(a[t] + k + kHalf * 16 + j * 4);
      acc[t][0] = QINFER_DPBUSD(acc[t][0], kHalf == 0 ? w.low0 : w.high0, x);
      acc[t][1] = QINFER_DPBUSD(acc[t][1], kHalf == 0 ? w.low1 : w.high1, x);
    });
  });
}

// Adds the sums of 32 inputs (kSplit: of the last 16 to acc_high).
template <WeightKind K, class L, int T, bool kSplit>
QINFER_FN void Granule(const uint8_t* p, const int8_t* const* a, uint32_t k, __m256i (&acc)[T][2],
                       __m256i (&acc_high)[T][2]) {
  if constexpr (!kSplit && T == 1) {
    // Chains of half the length. High nibbles stay where they are, 16 times too large.
    constexpr bool kNibbles = K == WeightKind::kInt4 && L::kGranule == Nibbles::kGranule;
    __m256i high0 = _mm256_setzero_si256(), high1 = high0;
    Unroll<4>([&](auto j) QINFER_LAMBDA {
      const __m256i x = Broadcast4(a[0] + k + j * 4), y = Broadcast4(a[0] + k + 16 + j * 4);
      Lines w = L::Get(p, j);
      if constexpr (kNibbles) {
        const __m256i mask = _mm256_set1_epi8(-16);
        w.high0 = _mm256_and_si256(Load(p + j * 64), mask);
        w.high1 = _mm256_and_si256(Load(p + j * 64 + 32), mask);
      }
      acc[0][0] = QINFER_DPBUSD(acc[0][0], w.low0, x);
      acc[0][1] = QINFER_DPBUSD(acc[0][1], w.low1, x);
      high0 = QINFER_DPBUSD(high0, w.high0, y);
      high1 = QINFER_DPBUSD(high1, w.high1, y);
    });
    acc[0][0] = _mm256_add_epi32(acc[0][0], kNibbles ? _mm256_srai_epi32(high0, 4) : high0);
    acc[0][1] = _mm256_add_epi32(acc[0][1], kNibbles ? _mm256_srai_epi32(high1, 4) : high1);
    return;
  }
  __m256i(&second)[T][2] = kSplit ? acc_high : acc;
  Unroll<4>([&](auto j) QINFER_LAMBDA {
    const Lines w = L::Get(p, j);
    Unroll<T>([&](auto t) QINFER_LAMBDA {
      const __m256i low = Broadcast4(a[t] + k + j * 4);
      acc[t][0] = QINFER_DPBUSD(acc[t][0], w.low0, low);
      acc[t][1] = QINFER_DPBUSD(acc[t][1], w.low1, low);
    });
    Unroll<T>([&](auto t) QINFER_LAMBDA {
      const __m256i high = Broadcast4(a[t] + k + 16 + j * 4);
      second[t][0] = QINFER_DPBUSD(second[t][0], w.high0, high);
      second[t][1] = QINFER_DPBUSD(second[t][1], w.high1, high);
    });
  });
}

template <int T>
QINFER_FN void Clear(__m256i (&sum)[T][2]) {
  Unroll<T>([&](auto t) QINFER_LAMBDA { sum[t][0] = sum[t][1] = _mm256_setzero_si256(); });
}
// acc += sum * subs, by row.
template <int T>
QINFER_FN void AddScaled(const __m256i (&sum)[T][2], const int32_t* subs, __m256i (&acc)[T][2]) {
  Unroll<2>([&](auto r) QINFER_LAMBDA {
    const __m256i by = Load(subs + r * 8);
    Unroll<T>([&](auto t) QINFER_LAMBDA {
      acc[t][r] = _mm256_add_epi32(acc[t][r], _mm256_mullo_epi32(sum[t][r], by));
    });
  });
}

// Adds the sums of 32 inputs times the sub-scales of their one group or (kUnit 16) two.
template <WeightKind K, class L, int T, int kUnit>
QINFER_FN void ScaledGranule(const uint8_t* p, const int8_t* const* a, uint32_t k,
                             const int32_t* subs, __m256i (&acc)[T][2]) {
  __m256i sum[T][2];
  Clear(sum);
  if constexpr (kUnit == 16) {
    HalfGranule<L, T, 0>(p, a, k, sum);
    AddScaled(sum, subs, acc);
    Clear(sum);
    HalfGranule<L, T, 1>(p, a, k, sum);
    AddScaled(sum, subs + 16, acc);
  } else {
    Granule<K, L, T, false>(p, a, k, sum, sum);
    AddScaled(sum, subs, acc);
  }
}

}  // namespace
}  // namespace qinfer::kernels::avx2
