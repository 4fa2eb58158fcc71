// Tiles of the integer matrix product on AVX2 and AVX-VNNI: one panel (16 rows, two vectors of
// eight) by up to four tokens and all inputs, for float scales and for sub-scales. Internal
// linkage.
#pragma once

#if defined(QINFER_DPBUSD)
#include "kernels/cpu/avx2/granule_dpbusd.h"
#else
#include "kernels/cpu/avx2/granule.h"
#endif

namespace qinfer::kernels::avx2 {
namespace {

enum Mode { kSym, kMin, kSubSym, kSubMin, kSubFloat };
constexpr int kBlocks32 = -32;  // as a unit: units and blocks of 32 (kSub8: -16 too)

// A panel as a tile reads it: codes in place or widened to bytes, scales widened to 32 bits.
struct Panel {
  const uint8_t* codes;
  const float* scales;  // [group][16 scales, then with a minimum 16 minima]
  // kSub8: [group][16]; integers with kWideningFactors in both halves of a lane
  const int32_t* subs;
  const int32_t* pairs;  // kSub8: [block][pair of its units][16]: minima (symmetric: sub-scales)
  const float* supers;   // kSub8: [super][16 d, then with a minimum 16 dmin]
};

// How sub-scales are multiplied: as integers, as floats (TileSub16), or by their super scale
// beforehand, so that they are float scales (panel16::FloatScales).
enum class Subs { kIntegers, kFloats, kScales };

// What does not depend on the panel.
struct Call {
  const Matrix* m;
  const Activations* x;
  uint32_t padded, group, unit;
  Subs subs;  // of kSub8
  // Per token: float scales [units]: -zero * A (symmetric; where kSignedInt8 it is 0) or float(A).
  // kSub8 [block][pair of its units]: two 16-bit A.
  int32_t* correction;
  uint32_t corrections;  // per token
};

QINFER_FN void StoreRow(__m256 low, __m256 high, uint32_t rows, float* to) {
  if (rows >= 16) {
    _mm256_storeu_ps(to, low);
    _mm256_storeu_ps(to + 8, high);
  } else {
    StoreTail(to, low, rows);
    if (rows > 8) StoreTail(to + 8, high, rows - 8);
  }
}

// `token`: of the tile's first row of activations, which with two planes are neighbours.
template <int T>
QINFER_FN void Store(const Call& call, uint32_t token, uint32_t row, const __m256 (&total)[T][2],
                     float* out, size_t out_stride) {
  const uint32_t rows = call.m->rows - row;
  if constexpr (T > 1) {
    if (call.x->planes == 2) {
#pragma GCC unroll 2
      for (int t = 0; t < T; t += 2)
        StoreRow(_mm256_add_ps(total[t][0], total[t + 1][0]),
                 _mm256_add_ps(total[t][1], total[t + 1][1]), rows,
                 out + (token + t) / 2 * out_stride + row);
      return;
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t)
    StoreRow(total[t][0], total[t][1], rows, out + (token + t) * out_stride + row);
}

// How far ahead of what is read memory is asked for.
constexpr size_t kPrefetchBytes = 2048;

QINFER_FN void PrefetchLine(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchBytes), _MM_HINT_T0);
}

template <class L>
QINFER_FN void Prefetch(const uint8_t* p) {
#pragma GCC unroll 8
  for (size_t line = 0; line < L::kGranule; line += 64) PrefetchLine(p + line);
}

// part = fma(scale, I, part), and with a minimum fma(min, A, part).
template <bool kHasMin, int T>
QINFER_FN void Finish(const Panel& panel, uint32_t group, const int32_t* const* correction,
                      uint32_t unit, const __m256i (&acc)[T][2], __m256 (&part)[T][2]) {
  const float* at = panel.scales + group * (kHasMin ? 32 : 16);
#pragma GCC unroll 2
  for (int r = 0; r < 2; ++r, at += 8) {
    const __m256 scale = _mm256_loadu_ps(at);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      part[t][r] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(acc[t][r]), part[t][r]);
      if constexpr (kHasMin)
        part[t][r] = _mm256_fmadd_ps(_mm256_loadu_ps(at + 16),
                                     _mm256_castsi256_ps(_mm256_set1_epi32(correction[t][unit])),
                                     part[t][r]);
    }
  }
}

// What a unit's sum starts from, so that it ends as the contract's I.
template <WeightKind K, bool kHasMin>
QINFER_FN __m256i Start(int32_t correction) {
  if constexpr (!kHasMin) return _mm256_set1_epi32(correction);
  if constexpr (K != WeightKind::kInt8 || !kSignedInt8) return _mm256_setzero_si256();
  const __m256 sum = _mm256_castsi256_ps(_mm256_set1_epi32(correction));
  return _mm256_slli_epi32(_mm256_cvttps_epi32(sum), 7);
}

// Where a tile's rows of activations begin, and no sums yet.
template <int T>
QINFER_FN void Begin(const Call& call, uint32_t token, const int8_t* (&a)[T],
                     const float* (&scale_a)[T], const int32_t* (&correction)[T],
                     __m256 (&total)[T][2]) {
  const Activations& x = *call.x;
  Unroll<T>([&](auto t) QINFER_LAMBDA {
    a[t] = x.codes + (token + t) * x.code_stride;
    scale_a[t] = x.scales + (token + t) * x.scale_stride;
    correction[t] = call.correction + (token + t) * static_cast<size_t>(call.corrections);
    total[t][0] = total[t][1] = _mm256_setzero_ps();
  });
}

// Float scales. kUnit: 16, 32, or 0 for any multiple of 32 (call.unit).
template <WeightKind K, class L, int T, bool kHasMin, int kUnit>
QINFER_FN void TileFloat(const Call& call, const Panel& panel, uint32_t token, uint32_t row,
                         float* out, size_t out_stride, bool prefetch) {
  const Activations& x = *call.x;
  const int8_t* a[T];
  const float* scale_a[T];
  const int32_t* correction[T];
  __m256 total[T][2];
  Begin(call, token, a, scale_a, correction, total);
  const uint8_t* p = panel.codes;
  uint32_t unit = 0;
  for (uint32_t k = 0, block = 0; k < call.padded; ++block) {
    const uint32_t end = Min(call.padded, k + x.block);
    __m256 part[T][2];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) part[t][0] = part[t][1] = _mm256_setzero_ps();
    while (k < end) {
      __m256i acc[T][2], high[T][2];
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        acc[t][0] = acc[t][1] = Start<K, kHasMin>(correction[t][unit]);
        if constexpr (kUnit == 16)
          high[t][0] = high[t][1] = Start<K, kHasMin>(correction[t][unit + 1]);
      }
      const uint32_t first = k, unit_end = kUnit == 0 ? Min(end, k + call.unit) : k + 32;
      do {
        if (prefetch) Prefetch<L>(p);
        Granule<K, L, T, kUnit == 16>(p, a, k, acc, high);
        p += L::kGranule;
        k += 32;
      } while (kUnit == 0 && k < unit_end);
      // With units of 32, groups may still be wider (a block of 32).
      const uint32_t group =
          kUnit == 16 || (kUnit == 32 && call.group == 32) ? unit : first / call.group;
      Finish<kHasMin>(panel, group, correction, unit, acc, part);
      ++unit;
      if constexpr (kUnit == 16) {
        Finish<kHasMin>(panel, unit, correction, unit, high, part);
        ++unit;
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const __m256 by = _mm256_set1_ps(scale_a[t][block]);
      total[t][0] = _mm256_fmadd_ps(by, part[t][0], total[t][0]);
      total[t][1] = _mm256_fmadd_ps(by, part[t][1], total[t][1]);
    }
  }
  Store<T>(call, token, row, total, out, out_stride);
}

// Float scales with blocks of 32, each one unit: the common case of small groups, without a loop
// over the units of a block.
template <WeightKind K, class L, int T, bool kHasMin>
QINFER_FN void TileBlocks32(const Call& call, const Panel& panel, uint32_t token, uint32_t row,
                            float* out, size_t out_stride, bool prefetch) {
  const int8_t* a[T];
  const float* scale_a[T];
  const int32_t* correction[T];
  __m256 total[T][2];
  Begin(call, token, a, scale_a, correction, total);
  const uint8_t* p = panel.codes;
  const uint32_t granules = call.padded / kInputGranule;
  for (uint32_t g = 0; g < granules; ++g, p += L::kGranule) {
    if (prefetch) Prefetch<L>(p);
    __m256i acc[T][2];
    Unroll<T>([&](auto t)
                  QINFER_LAMBDA { acc[t][0] = acc[t][1] = Start<K, kHasMin>(correction[t][g]); });
    Granule<K, L, T, false>(p, a, g * kInputGranule, acc, acc);
    const uint32_t group = call.group == 32 ? g : g * kInputGranule / call.group;
    const float* at = panel.scales + group * (kHasMin ? 32 : 16);
    Unroll<2>([&](auto r) QINFER_LAMBDA {
      const __m256 scale = _mm256_loadu_ps(at + r * 8);
      Unroll<T>([&](auto t) QINFER_LAMBDA {
        // The contract's fma(scale, I, 0): a zero of the other sign ends as the same total.
        __m256 part = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(acc[t][r]));
        if constexpr (kHasMin)
          part = _mm256_fmadd_ps(_mm256_loadu_ps(at + 16 + r * 8),
                                 _mm256_castsi256_ps(_mm256_set1_epi32(correction[t][g])), part);
        total[t][r] = _mm256_fmadd_ps(_mm256_set1_ps(scale_a[t][g]), part, total[t][r]);
      });
    });
  }
  Store<T>(call, token, row, total, out, out_stride);
}

// Sub-scales, in groups of 16 or 32: whole blocks in integers. The sums of minimum times A
// (symmetric: sub-scale times A) are one instruction per pair of units.
// kOne: blocks of 32, so that a block is one granule and one pair.
template <WeightKind K, class L, int T, bool kHasMin, int kUnit, bool kOne>
QINFER_FN void TileSub(const Call& call, const Panel& panel, uint32_t token, uint32_t row,
                       float* out, size_t out_stride, bool prefetch) {
  constexpr int kZeroBits = K == WeightKind::kInt4 ? 3 : 5;
  const Activations& x = *call.x;
  const int8_t* a[T];
  const float* scale_a[T];
  const int32_t* correction[T];
  __m256 total[T][2];
  Begin(call, token, a, scale_a, correction, total);
  const uint8_t* p = panel.codes;
  const int32_t* sub = panel.subs;
  uint32_t pair = 0;
  for (uint32_t k = 0, block = 0; k < call.padded; ++block) {
    const float* super = panel.supers + k / layout::kSuperGroup * (kHasMin ? 32 : 16);
    const uint32_t end = Min(call.padded, k + x.block);
    const uint32_t pair_end = pair + ((end - k) / kUnit + 1) / 2;
    __m256i sum[T][2], second[T][2];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t)
      sum[t][0] = sum[t][1] = second[t][0] = second[t][1] = _mm256_setzero_si256();
    do {
      if (prefetch) Prefetch<L>(p);
      ScaledGranule<K, L, T, kUnit>(p, a, k, sub, sum);
      p += L::kGranule;
      sub += kUnit == 16 ? 32 : 16;
      k += 32;
    } while (!kOne && k < end);
    do {
      const __m256i w0 = Load(panel.pairs + pair * 16), w1 = Load(panel.pairs + pair * 16 + 8);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const __m256i sums = _mm256_set1_epi32(correction[t][pair]);
        second[t][0] = _mm256_add_epi32(second[t][0], _mm256_madd_epi16(w0, sums));
        second[t][1] = _mm256_add_epi32(second[t][1], _mm256_madd_epi16(w1, sums));
      }
    } while (!kOne && ++pair < pair_end);
    if (kOne) ++pair;
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const __m256 by = _mm256_set1_ps(scale_a[t][block]);
#pragma GCC unroll 2
      for (int r = 0; r < 2; ++r) {
        __m256i first = sum[t][r];
        if constexpr (!kHasMin)
          first = _mm256_sub_epi32(first, _mm256_slli_epi32(second[t][r], kZeroBits));
        __m256 part = _mm256_fmadd_ps(_mm256_loadu_ps(super + r * 8), _mm256_cvtepi32_ps(first),
                                      _mm256_setzero_ps());
        if constexpr (kHasMin)
          part = _mm256_fnmadd_ps(_mm256_loadu_ps(super + 16 + r * 8),
                                  _mm256_cvtepi32_ps(second[t][r]), part);
        total[t][r] = _mm256_fmadd_ps(by, part, total[t][r]);
      }
    }
  }
  Store<T>(call, token, row, total, out, out_stride);
}

#if defined(QINFER_DPBUSD)
// Whether the sum of sub-scale times I over the units of a block is an integer that floats hold:
// for two units of 16 six-bit codes less 32 it is below 2^24 (2 * 128 * 32 * 127 * 16).
template <WeightKind K>
QINFER_FN bool FloatSubs(const Call& call) {
  return K == WeightKind::kInt6 && call.m->scale == ScaleKind::kSub8 && !call.m->has_min &&
         call.unit == 16 && call.x->block == 32;
}

// Those sub-scales as floats, which is less work than products of integers.
template <class L, int T>
QINFER_FN void TileSub16(const Call& call, const Panel& panel, uint32_t token, uint32_t row,
                         float* out, size_t out_stride, bool prefetch) {
  const int8_t* a[T];
  const float* scale_a[T];
  const int32_t* correction[T];
  __m256 total[T][2];
  Begin(call, token, a, scale_a, correction, total);
  const uint8_t* p = panel.codes;
  const float* sub = reinterpret_cast<const float*>(panel.subs);
  const uint32_t granules = call.padded / kInputGranule;
  for (uint32_t g = 0; g < granules; ++g, p += L::kGranule, sub += 32) {
    if (prefetch) Prefetch<L>(p);
    __m256i acc[T][2];
    __m256 part[T][2];
    Unroll<2>([&](auto half) QINFER_LAMBDA {
      Unroll<T>([&](auto t) QINFER_LAMBDA {
        acc[t][0] = acc[t][1] = _mm256_set1_epi32(correction[t][2 * g + half]);
      });
      HalfGranule<L, T, half>(p, a, g * kInputGranule, acc);
      Unroll<2>([&](auto r) QINFER_LAMBDA {
        const __m256 by = _mm256_loadu_ps(sub + half * 16 + r * 8);
        Unroll<T>([&](auto t) QINFER_LAMBDA {
          const __m256 sum = _mm256_cvtepi32_ps(acc[t][r]);
          part[t][r] = half == 0 ? _mm256_mul_ps(by, sum) : _mm256_fmadd_ps(by, sum, part[t][r]);
        });
      });
    });
    const float* super = panel.supers + g * kInputGranule / layout::kSuperGroup * 16;
    Unroll<2>([&](auto r) QINFER_LAMBDA {
      const __m256 d = _mm256_loadu_ps(super + r * 8);
      Unroll<T>([&](auto t) QINFER_LAMBDA {
        total[t][r] = _mm256_fmadd_ps(_mm256_set1_ps(scale_a[t][g]), _mm256_mul_ps(d, part[t][r]),
                                      total[t][r]);
      });
    });
  }
  Store<T>(call, token, row, total, out, out_stride);
}
#endif

template <WeightKind K, class L, int T, Mode M, int kUnit>
QINFER_FN void Tile(const Call& call, const Panel& panel, uint32_t token, uint32_t row, float* out,
                    size_t out_stride, bool prefetch) {
  if constexpr (kUnit == kBlocks32 && (M == kSym || M == kMin))
    TileBlocks32<K, L, T, M == kMin>(call, panel, token, row, out, out_stride, prefetch);
#if defined(QINFER_DPBUSD)
  else if constexpr (M == kSubFloat)
    TileSub16<L, T>(call, panel, token, row, out, out_stride, prefetch);
#endif
  else if constexpr (M == kSym || M == kMin)
    TileFloat<K, L, T, M == kMin, kUnit>(call, panel, token, row, out, out_stride, prefetch);
  else
    TileSub < K, L, T, M == kSubMin,
        kUnit<0 ? -kUnit : kUnit, (kUnit < 0)>(call, panel, token, row, out, out_stride, prefetch);
}

}  // namespace
}  // namespace qinfer::kernels::avx2
