// Sums of products of one granule of codes (32 inputs, 16 rows) and a few tokens' activations, on
// AVX2: in 16 bits as long as they are exact, then in 32. granule_dpbusd.h has the same by dot
// product instructions. Internal linkage.
#pragma once

#include "kernels/cpu/avx2/lines.h"

namespace qinfer::kernels::avx2 {
namespace {

// INT8 codes are multiplied less 128.
constexpr bool kSignedInt8 = true;
// Sub-scales come for free, as factors of the widening: in both halves of a lane.
constexpr bool kWideningFactors = true;

QINFER_FN __m256i Dot16(__m256i u, __m256i a) { return _mm256_maddubs_epi16(u, a); }
// Widens 16-bit sums to 32 bits, times a factor per row: nothing, or the group's sub-scale in both
// halves of a lane.
QINFER_FN __m256i Widen(__m256i sums16, const int32_t* factor) {
  return _mm256_madd_epi16(sums16, factor == nullptr ? _mm256_set1_epi16(1) : Load(factor));
}

QINFER_FN const int32_t* Row(const int32_t* factors, int half) {
  return factors == nullptr ? nullptr : factors + half * 8;
}

// Adds the sums of 32 inputs (kSplit: of the last 16 to acc_high) to 32-bit accumulators. `low_by`,
// `high_by`: factors of the 16 rows for the first and last 16 inputs, or null (always, for FP4).
// INT4: codes up to 15, so eight products of two fit 16 bits. FP4: up to 24, four do. INT6: up to
// 63, two do. INT8: one, of the magnitude and the activation with the weight's sign (both at most
// 128 * 127 * 2).
template <WeightKind K, class L, int T, bool kSplit>
QINFER_FN void Granule(const uint8_t* p, const int8_t* const* a, uint32_t k, const int32_t* low_by,
                       const int32_t* high_by, __m256i (&acc)[T][2], __m256i (&acc_high)[T][2]) {
  if constexpr (K == WeightKind::kInt4) {
    __m256i s[T][2];
    Unroll<4>([&](auto j) QINFER_LAMBDA {
      const Lines w = L::Get(p, j);
      Unroll<T>([&](auto t) QINFER_LAMBDA {
        const __m256i low = Broadcast4(a[t] + k + j * 4);
        const __m256i s0 = Dot16(w.low0, low), s1 = Dot16(w.low1, low);
        s[t][0] = j == 0 ? s0 : _mm256_add_epi16(s[t][0], s0);
        s[t][1] = j == 0 ? s1 : _mm256_add_epi16(s[t][1], s1);
        Pin(s[t][0]);
        Pin(s[t][1]);
      });
      Unroll<T>([&](auto t) QINFER_LAMBDA {
        const __m256i high = Broadcast4(a[t] + k + 16 + j * 4);
        s[t][0] = _mm256_add_epi16(s[t][0], Dot16(w.high0, high));
        s[t][1] = _mm256_add_epi16(s[t][1], Dot16(w.high1, high));
        Pin(s[t][0]);
        Pin(s[t][1]);
      });
    });
    Unroll<T>([&](auto t) QINFER_LAMBDA {
      acc[t][0] = _mm256_add_epi32(acc[t][0], Widen(s[t][0], Row(low_by, 0)));
      acc[t][1] = _mm256_add_epi32(acc[t][1], Widen(s[t][1], Row(low_by, 1)));
    });
  } else if constexpr (K == WeightKind::kFp4) {
    Unroll<2>([&](auto half) QINFER_LAMBDA {
      __m256i s[T][2];
      Unroll<4>([&](auto j) QINFER_LAMBDA {
        const Lines w = L::Get(p, j);
        Unroll<T>([&](auto t) QINFER_LAMBDA {
          const __m256i x = Broadcast4(a[t] + k + half * 16 + j * 4);
          const __m256i s0 = Dot16(half == 0 ? w.low0 : w.high0, x);
          const __m256i s1 = Dot16(half == 0 ? w.low1 : w.high1, x);
          s[t][0] = j == 0 ? s0 : _mm256_add_epi16(s[t][0], s0);
          s[t][1] = j == 0 ? s1 : _mm256_add_epi16(s[t][1], s1);
          Pin(s[t][0]);
          Pin(s[t][1]);
        });
      });
      Unroll<T>([&](auto t) QINFER_LAMBDA {
        acc[t][0] = _mm256_add_epi32(acc[t][0], Widen(s[t][0], nullptr));
        acc[t][1] = _mm256_add_epi32(acc[t][1], Widen(s[t][1], nullptr));
      });
    });
  } else if constexpr (K == WeightKind::kInt6) {
#pragma GCC unroll 2
    for (uint32_t j = 0; j < 4; j += 2) {
      const Lines w = L::Get(p, j), v = L::Get(p, j + 1);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const int8_t* at = a[t] + k + j * 4;
        const __m256i low = Broadcast4(at), low2 = Broadcast4(at + 4);
        acc[t][0] = _mm256_add_epi32(
            acc[t][0],
            Widen(_mm256_add_epi16(Dot16(w.low0, low), Dot16(v.low0, low2)), Row(low_by, 0)));
        acc[t][1] = _mm256_add_epi32(
            acc[t][1],
            Widen(_mm256_add_epi16(Dot16(w.low1, low), Dot16(v.low1, low2)), Row(low_by, 1)));
        const __m256i high = Broadcast4(at + 16), high2 = Broadcast4(at + 20);
        __m256i(&second)[T][2] = kSplit ? acc_high : acc;
        second[t][0] = _mm256_add_epi32(
            second[t][0],
            Widen(_mm256_add_epi16(Dot16(w.high0, high), Dot16(v.high0, high2)), Row(high_by, 0)));
        second[t][1] = _mm256_add_epi32(
            second[t][1],
            Widen(_mm256_add_epi16(Dot16(w.high1, high), Dot16(v.high1, high2)), Row(high_by, 1)));
        Pin(acc[t][0]);
        Pin(acc[t][1]);
        if constexpr (kSplit) {
          Pin(second[t][0]);
          Pin(second[t][1]);
        }
      }
    }
  } else {
    const __m256i flip = _mm256_set1_epi8(-128);
#pragma GCC unroll 8
    for (uint32_t j = 0; j < 8; ++j) {
      const __m256i w0 = _mm256_xor_si256(Load(p + j * 64), flip);
      const __m256i w1 = _mm256_xor_si256(Load(p + j * 64 + 32), flip);
      const __m256i m0 = _mm256_abs_epi8(w0), m1 = _mm256_abs_epi8(w1);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const __m256i b = Broadcast4(a[t] + k + j * 4);
        acc[t][0] = _mm256_add_epi32(acc[t][0], Widen(Dot16(m0, _mm256_sign_epi8(b, w0)), nullptr));
        acc[t][1] = _mm256_add_epi32(acc[t][1], Widen(Dot16(m1, _mm256_sign_epi8(b, w1)), nullptr));
        Pin(acc[t][0]);
        Pin(acc[t][1]);
      }
    }
  }
}

template <WeightKind K, class L, int T, bool kSplit>
QINFER_FN void Granule(const uint8_t* p, const int8_t* const* a, uint32_t k, __m256i (&acc)[T][2],
                       __m256i (&acc_high)[T][2]) {
  Granule<K, L, T, kSplit>(p, a, k, nullptr, nullptr, acc, acc_high);
}

// Adds the sums of 32 inputs times the sub-scales of their one group or (kUnit 16) two.
template <WeightKind K, class L, int T, int kUnit>
QINFER_FN void ScaledGranule(const uint8_t* p, const int8_t* const* a, uint32_t k,
                             const int32_t* subs, __m256i (&acc)[T][2]) {
  Granule<K, L, T, false>(p, a, k, subs, subs + (kUnit == 16 ? 16 : 0), acc, acc);
}

}  // namespace
}  // namespace qinfer::kernels::avx2
