// AVX2 attention: sums of float values, and the weights of INT8 ones.
#pragma once

#include "kernels/cpu/attention_fold.h"
#include "kernels/cpu/avx2/avx2.h"

namespace qinfer::kernels::avx2 {
namespace {

using fold::Page;
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
// One row's weights as codes, put(codes) with those of all keys; returns their scale.
template <typename F>
QINFER_FN float QuantizeWeights(const State& st, const Tile& tile, int r, uint32_t base,
                                Range pages, uint32_t g, F&& put) {
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
  __m256i codes[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(w[i], inverse));
  put(codes);
  return scale.factor;
}

}  // namespace
}  // namespace qinfer::kernels::avx2
