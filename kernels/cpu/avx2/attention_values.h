// AVX2: sums of values of attention.
#pragma once

#include "kernels/cpu/attention_fold.h"
#include "kernels/cpu/avx2/avx2.h"

namespace qinfer::kernels::avx2 {
namespace {

using fold::Range;
using fold::State;
using fold::Tile;

// Which of the eight keys from `key` on are visible.
QINFER_FN __m256 VisibleMask(Range visible, int key) {
  const __m256i lane =
      _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(key));
  const __m256i low = _mm256_set1_epi32(static_cast<int32_t>(visible.begin) - 1);
  const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(visible.end));
  return _mm256_castsi256_ps(
      _mm256_and_si256(_mm256_cmpgt_epi32(lane, low), _mm256_cmpgt_epi32(high, lane)));
}

// ---- Floats -----------------------------------------------------------------------------------
// Eight values at `at` of a slot's row of V; `n` of them exist.
template <KvType V>
QINFER_FN __m256 LoadValue(const uint8_t* row, uint32_t at, uint32_t n) {
  if constexpr (V == KvType::kF32) {
    return LoadTail(reinterpret_cast<const float*>(row) + at, n);
  } else {
    if (n >= 8) return LoadHalf(row + at * 2);
    uint16_t tail[8] = {};
    memcpy(tail, row + at * 2, n * 2);
    return LoadHalf(tail);
  }
}

// o[R][at .. at + 8C) = fma(p, v, o) over keys [begin, end) in order, of o * decay;
// p[r][key - base].
template <KvType V, int R, int C>
QINFER_FN void AddValues(const State& st, float* const* o, const float (*p)[kAttentionBlock],
                         Range keys, uint32_t base, uint32_t at, const float* decay) {
  const AttentionArgs& args = *st.args;
  __m256 sum[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c)
      sum[r][c] = _mm256_mul_ps(_mm256_loadu_ps(o[r] + at + c * 8), Set(decay[r]));
  constexpr size_t kBytes = C * 8 * fold::kItemBytes<V>;
  const size_t stride = fold::ValueStride<V>(args);
  for (uint32_t key = keys.begin; key < keys.end;) {
    const uint8_t* row = fold::ValuePlane(st, key) + key % kPageTokens * stride;
    const ptrdiff_t ahead = fold::ValuesAhead(args, key);
    const uint32_t stop = Min(keys.end, key / kPageTokens * kPageTokens + kPageTokens);
    for (; key < stop; ++key, row += stride) {
#pragma GCC unroll 4
      for (size_t line = 0; line < kBytes; line += 64)
        fold::Ask(row + at * fold::kItemBytes<V> + line, ahead);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const __m256 v = LoadValue<V>(row, at + c * 8, args.v_head_dim - at - c * 8);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
          sum[r][c] = _mm256_fmadd_ps(Set(p[r][key - base]), v, sum[r][c]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) _mm256_storeu_ps(o[r] + at + c * 8, sum[r][c]);
}

// ---- INT8 ---------------------------------------------------------------------------------------
// [two keys][values][2] of 16 bits: eight values of two keys are a vector.
QINFER_FN void PrepareInt8(const State& st, uint32_t key, uint32_t base) {
  const size_t stride = layout::VCodeStride(st.args->v_head_dim);
  const uint8_t* row = fold::ValuePlane(st, key);
  const ptrdiff_t ahead = fold::ValuesAhead(*st.args, key);
  uint8_t* out = st.block_values + (key - base) * stride * 2;
  for (uint32_t two = 0; two < kPageTokens; two += 2, row += 2 * stride) {
    for (size_t at = 0; at < stride; at += 16, out += 64) {
      const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + at));
      const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + stride + at));
      fold::Ask(row + at * 2, ahead);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                          _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32),
                          _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b)));
    }
  }
}

// One row's weights; returns their scale.
QINFER_FN float QuantizeWeights(const State& st, const Tile& tile, int r, uint32_t base,
                                Range pages, uint32_t g, uint16_t* weights) {
  const Range visible = {tile.visible[r].begin - base, tile.visible[r].end - base};
  __m256 w[8];
  __m256i top = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const uint32_t key = base + static_cast<uint32_t>(i) * 8;
    w[i] = _mm256_setzero_ps();
    if (key >= pages.begin && key < pages.end) {
      const float* scales =
          fold::ValueScales(st, key / kPageTokens * kPageTokens, g) + key % kPageTokens;
      w[i] = _mm256_mul_ps(_mm256_load_ps(tile.s[r] + i * 8), _mm256_loadu_ps(scales));
      if (!tile.whole) w[i] = _mm256_and_ps(w[i], VisibleMask(visible, i * 8));
    }
    // As integers weights have the same order, and what is no weight lies above.
    top = _mm256_max_epu32(top, _mm256_castps_si256(w[i]));
  }
  __m128i b = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4e));
  b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0xb1));
  const fold::WeightScale scale = fold::ScaleOfWeights(static_cast<uint32_t>(_mm_cvtsi128_si32(b)));
  const __m256 inverse = Set(scale.inverse);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    const __m256i codes = _mm256_packus_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(w[i], inverse)),
                                              _mm256_cvtps_epi32(_mm256_mul_ps(w[i + 1], inverse)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(weights + i * 8),
                       _mm256_permute4x64_epi64(codes, 0xd8));
  }
  return scale.factor;
}

template <int R, int C>
QINFER_FN void AddInt8(const State& st, float* const* o, const uint16_t (*weights)[kAttentionBlock],
                       const float* scales, const float* decay, Range pages, uint32_t base,
                       uint32_t at) {
  const size_t two = layout::VCodeStride(st.args->v_head_dim) * 4;
  const uint8_t* values = st.block_values + (pages.begin - base) / 2 * two + at * 4;
  __m256i sum[R][C];
  Unroll<R>([&](auto r) QINFER_LAMBDA {
    Unroll<C>([&](auto c) QINFER_LAMBDA { sum[r][c] = _mm256_setzero_si256(); });
  });
  for (uint32_t i = pages.begin - base; i < pages.end - base; i += 2, values += two) {
    __m256i v[C];
    Unroll<C>([&](auto c) QINFER_LAMBDA {
      v[c] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + c * 32));
    });
    Unroll<R>([&](auto r) QINFER_LAMBDA {
      int32_t pair;
      memcpy(&pair, weights[r] + i, 4);
      const __m256i w = _mm256_set1_epi32(pair);
      Unroll<C>([&](auto c) QINFER_LAMBDA {
        sum[r][c] = _mm256_add_epi32(sum[r][c], _mm256_madd_epi16(v[c], w));
        Pin(sum[r][c]);
      });
    });
  }
  Unroll<R>([&](auto r) QINFER_LAMBDA {
    Unroll<C>([&](auto c) QINFER_LAMBDA {
      float* to = o[r] + at + c * 8;
      _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][c]), Set(scales[r]),
                                           _mm256_mul_ps(_mm256_loadu_ps(to), Set(decay[r]))));
    });
  });
}

}  // namespace
}  // namespace qinfer::kernels::avx2
