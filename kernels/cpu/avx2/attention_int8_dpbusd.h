// AVX2 attention: scores of INT8 keys and sums of INT8 values by dot product instructions:
// QINFER_DPBUSD, of kernels/cpu/avxvnni. Internal linkage.
#pragma once

#include "kernels/cpu/avx2/attention_values.h"

namespace qinfer::kernels::avx2 {
namespace {

// u8 (code + 128) times s8 query; the accumulators start at -128 times the query's sum. R rows by P
// pages from `key`.
template <int R, int P>
QINFER_FN void ScoreInt8(const State& st, Tile& tile, uint32_t key, uint32_t base) {
  const AttentionArgs& args = *st.args;
  const uint8_t* plane[P];
  ptrdiff_t ahead[P];
  Unroll<P>([&](auto p) QINFER_LAMBDA {
    const uint32_t at = key + static_cast<uint32_t>(p) * kPageTokens;
    plane[p] = fold::Page(args, at) + args.k_offset;
    ahead[p] = fold::Ahead(args, at);
  });
  const int8_t* const q = st.q_codes + tile.row * st.q_stride;
  const size_t q_stride = st.q_stride, groups = st.groups, head_dim = args.head_dim;
  const size_t first = tile.row * groups, scales = layout::KCodeBytes(args.head_dim);
  const __m256i flip = _mm256_set1_epi8(-128);
  for (size_t g = 0; g < groups; ++g) {
    const size_t begin = g * layout::kKvGroup;
    const size_t end = begin + layout::kKvGroup < head_dim ? begin + layout::kKvGroup : head_dim;
    __m256i acc[R][P][2];
    Unroll<R>([&](auto r) QINFER_LAMBDA {
      const __m256i start = _mm256_set1_epi32(st.q_starts[first + r * groups + g]);
      Unroll<P>([&](auto p) QINFER_LAMBDA { acc[r][p][0] = acc[r][p][1] = start; });
    });
    for (size_t d = begin; d < end; d += 4)
      Unroll<P>([&](auto p) QINFER_LAMBDA {
        const __m256i k0 = _mm256_xor_si256(Load(plane[p] + d * 16), flip);
        const __m256i k1 = _mm256_xor_si256(Load(plane[p] + d * 16 + 32), flip);
        fold::Ask(plane[p] + d * 16, ahead[p]);
        Unroll<R>([&](auto r) QINFER_LAMBDA {
          const __m256i codes = Broadcast4(q + r * q_stride + d);
          acc[r][p][0] = QINFER_DPBUSD(acc[r][p][0], k0, codes);
          acc[r][p][1] = QINFER_DPBUSD(acc[r][p][1], k1, codes);
        });
      });
    Unroll<P>([&](auto p) QINFER_LAMBDA {
      const uint8_t* line = plane[p] + scales + g * kPageTokens * sizeof(float);
      fold::Ask(line, ahead[p]);
      Unroll<2>([&](auto half) QINFER_LAMBDA {
        const __m256 sk = _mm256_loadu_ps(reinterpret_cast<const float*>(line) + half * 8);
        Unroll<R>([&](auto r) QINFER_LAMBDA {
          float* out = tile.s[r] + (key - base) + p * kPageTokens + half * 8;
          const __m256 s = g == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(out);
          const __m256 by = _mm256_mul_ps(Set(st.q_scales[first + r * groups + g]), sk);
          _mm256_storeu_ps(out, _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][p][half]), by, s));
        });
      });
    });
  }
}

template <int R>
QINFER_FN void ScoresInt8(const State& st, Tile& tile, uint32_t key, uint32_t base) {
  constexpr int P = R == 1 ? 4 : R == 2 ? 2 : 1;
  for (; key + (P - 1) * kPageTokens < tile.all.end; key += P * kPageTokens)
    ScoreInt8<R, P>(st, tile, key, base);
  for (; key < tile.all.end; key += kPageTokens) ScoreInt8<R, 1>(st, tile, key, base);
}

// [four keys][values][4]: eight values of four keys are a vector.
QINFER_FN void PrepareInt8(const State& st, uint32_t key, uint32_t base) {
  const size_t stride = layout::VCodeStride(st.args->v_head_dim);
  const uint8_t* row = fold::ValuePlane(st, key);
  const ptrdiff_t ahead = fold::ValuesAhead(*st.args, key);
  uint8_t* out = st.block_values + (key - base) * stride;
  for (uint32_t four = 0; four < kPageTokens; four += 4, row += 4 * stride) {
    for (size_t at = 0; at < stride; at += 16, out += 64) {
      const auto load = [&](size_t i) QINFER_LAMBDA {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i * stride + at));
      };
      const auto store = [&](int i, __m128i v) QINFER_LAMBDA {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out) + i, v);
      };
      fold::Ask(row + at * 4, ahead);
      const __m128i a = load(0), b = load(1), c = load(2), d = load(3);
      const __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
      store(0, _mm_unpacklo_epi16(ab, cd));
      store(1, _mm_unpackhi_epi16(ab, cd));
      const __m128i ab_high = _mm_unpackhi_epi8(a, b), cd_high = _mm_unpackhi_epi8(c, d);
      store(2, _mm_unpacklo_epi16(ab_high, cd_high));
      store(3, _mm_unpackhi_epi16(ab_high, cd_high));
    }
  }
}

using Weight = uint8_t;

QINFER_FN void StoreWeights(const __m256i (&codes)[8], Weight* weights) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    const __m256i low = _mm256_packus_epi32(codes[i], codes[i + 1]);
    const __m256i high = _mm256_packus_epi32(codes[i + 2], codes[i + 3]);
    _mm256_store_si256(reinterpret_cast<__m256i*>(weights + i * 8),
                       _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
  }
}

// sum += values times their weights, a vector of both.
QINFER_FN void AddWeighted(__m256i values, __m256i weights, __m256i& sum) {
  sum = QINFER_DPBUSD(sum, weights, values);
}

}  // namespace
}  // namespace qinfer::kernels::avx2
