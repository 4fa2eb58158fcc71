// AVX2 attention: scores of INT8 keys and sums of INT8 values in 16 bits, then 32.
// attention_int8_dpbusd.h has the same by dot product instructions. Internal linkage.
#pragma once

#include "kernels/cpu/avx2/attention_values.h"

namespace qinfer::kernels::avx2 {
namespace {

template <int R>
QINFER_FN void ScoreInt8(const State& st, Tile& tile, uint32_t key, uint32_t base) {
  const AttentionArgs& args = *st.args;
  const uint8_t* plane = Page(args, key) + args.k_offset;
  const ptrdiff_t ahead = fold::Ahead(args, key);
  const float* scales = reinterpret_cast<const float*>(plane + layout::KCodeBytes(args.head_dim));
  const int8_t* q[R];
  __m256 s[R][2];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    q[r] = st.q_codes + (tile.row + r) * st.q_stride;
    s[r][0] = s[r][1] = _mm256_setzero_ps();
  }
  const __m256i ones = _mm256_set1_epi16(1);
  for (uint32_t g = 0; g < st.groups; ++g) {
    const uint32_t end = Min(args.head_dim, (g + 1) * layout::kKvGroup);
    __m256i acc[R][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    for (uint32_t d = g * layout::kKvGroup; d < end; d += 4) {
      const __m256i k0 = Load(plane + d * 16), k1 = Load(plane + d * 16 + 32);
      fold::Ask(plane + d * 16, ahead);
      const __m256i m0 = _mm256_abs_epi8(k0), m1 = _mm256_abs_epi8(k1);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256i b = Broadcast4(q[r] + d);
        const __m256i p0 = _mm256_maddubs_epi16(m0, _mm256_sign_epi8(b, k0));
        const __m256i p1 = _mm256_maddubs_epi16(m1, _mm256_sign_epi8(b, k1));
        acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(p0, ones));
        acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(p1, ones));
      }
    }
    const __m256 sk0 = _mm256_loadu_ps(scales + g * kPageTokens);
    const __m256 sk1 = _mm256_loadu_ps(scales + g * kPageTokens + 8);
    fold::Ask(reinterpret_cast<const uint8_t*>(scales + g * kPageTokens), ahead);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256 sq = Set(st.q_scales[(tile.row + r) * static_cast<size_t>(st.groups) + g]);
      s[r][0] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][0]), _mm256_mul_ps(sq, sk0), s[r][0]);
      s[r][1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][1]), _mm256_mul_ps(sq, sk1), s[r][1]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    _mm256_storeu_ps(tile.s[r] + (key - base), s[r][0]);
    _mm256_storeu_ps(tile.s[r] + (key - base) + 8, s[r][1]);
  }
}

template <int R>
QINFER_FN void ScoresInt8(const State& st, Tile& tile, uint32_t key, uint32_t base) {
  for (; key < tile.all.end; key += kPageTokens) ScoreInt8<R>(st, tile, key, base);
}

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

using Weight = uint16_t;

QINFER_FN void StoreWeights(const __m256i (&codes)[8], Weight* weights) {
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2)
    _mm256_store_si256(reinterpret_cast<__m256i*>(weights + i * 8),
                       _mm256_permute4x64_epi64(_mm256_packus_epi32(codes[i], codes[i + 1]), 0xd8));
}

// sum += values times their weights, a vector of both.
QINFER_FN void AddWeighted(__m256i values, __m256i weights, __m256i& sum) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(values, weights));
  Pin(sum);
}

}  // namespace
}  // namespace qinfer::kernels::avx2
