// AVX2's part of kernels/cpu/attention_fold.h: scores of keys, softmax of a block, sums of values.
// Internal linkage.
#pragma once

#if defined(QINFER_DPBUSD)
#include "kernels/cpu/avx2/attention_int8_dpbusd.h"
#else
#include "kernels/cpu/avx2/attention_int8.h"
#endif

namespace qinfer::kernels::avx2 {
namespace {

using fold::QueryRow;

// ---- Scores -----------------------------------------------------------------------------------
template <KvType K>
QINFER_FN __m256 LoadKey(const uint8_t* plane, size_t index) {
  if constexpr (K == KvType::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(plane) + index);
  } else {
    return LoadHalf(plane + index * 2);
  }
}

// R rows by P pages from `key`.
template <KvType K, int R, int P>
QINFER_FN void ScoreFloat(const State& st, Tile& tile, uint32_t key, uint32_t base) {
  const AttentionArgs& args = *st.args;
  constexpr size_t kKeyBytes = kPageTokens * fold::kItemBytes<K>;  // of an input
  const uint8_t* plane[P];
  ptrdiff_t ahead[P];
  const float* q[R];
  __m256 s[R][P][2];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    plane[p] = Page(args, key + p * kPageTokens) + args.k_offset;
    ahead[p] = fold::Ahead(args, key + p * kPageTokens);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    q[r] = QueryRow(args, tile.row + r);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) s[r][p][0] = s[r][p][1] = _mm256_setzero_ps();
  }
  for (uint32_t d = 0; d < args.head_dim; ++d) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const __m256 k0 = LoadKey<K>(plane[p], size_t{d} * kPageTokens);
      const __m256 k1 = LoadKey<K>(plane[p], size_t{d} * kPageTokens + 8);
      fold::Ask(plane[p] + d * kKeyBytes, ahead[p]);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256 by = Set(q[r][d]);
        s[r][p][0] = _mm256_fmadd_ps(by, k0, s[r][p][0]);
        s[r][p][1] = _mm256_fmadd_ps(by, k1, s[r][p][1]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      float* to = tile.s[r] + (key - base) + p * kPageTokens;
      _mm256_storeu_ps(to, s[r][p][0]);
      _mm256_storeu_ps(to + 8, s[r][p][1]);
    }
}

template <int R>
QINFER_FN void Scores(const State& st, Tile& tile, uint32_t base) {
  constexpr int P = R == 1 ? 4 : R == 2 ? 2 : 1;
  const KvType type = st.args->k_type;
  uint32_t key = tile.all.begin / kPageTokens * kPageTokens;
  if (type == KvType::kInt8) return ScoresInt8<R>(st, tile, key, base);
  for (; key + (P - 1) * kPageTokens < tile.all.end; key += P * kPageTokens) {
    if (type == KvType::kF16)
      ScoreFloat<KvType::kF16, R, P>(st, tile, key, base);
    else
      ScoreFloat<KvType::kF32, R, P>(st, tile, key, base);
  }
  if constexpr (P > 1) {
    for (; key < tile.all.end; key += kPageTokens) {
      if (type == KvType::kF16)
        ScoreFloat<KvType::kF16, R, 1>(st, tile, key, base);
      else
        ScoreFloat<KvType::kF32, R, 1>(st, tile, key, base);
    }
  }
}

// Exp for what is at most 0, or NaN: the same bits, and anything where x is greater. From -104 on
// the result is +0 anyway. The exponent is added 64 too large, so that nothing is lost before the
// one rounding, as in Exp.
QINFER_FN __m256 ExpBelowZero(__m256 x) {
  const __m256 magic = Set(12582912.0f + 64.0f);
  x = _mm256_max_ps(Set(-104.0f), x);  // NaN stays
  const __m256 t = _mm256_add_ps(_mm256_mul_ps(x, Set(1.44269502f)), magic);
  const __m256 n = _mm256_sub_ps(t, magic);
  __m256 p = ExpOfRest(x, n);
  p = _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
  p = _mm256_mul_ps(p, Set(0x1p-64f));
  return _mm256_blendv_ps(p, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

// ---- Softmax of one row: scores become probabilities, m and l move on -------------------------
QINFER_FN void Softmax(const State& st, Tile& tile, int r, uint32_t base) {
  const AttentionArgs& args = *st.args;
  float* s = tile.s[r];
  const Range visible = {tile.visible[r].begin - base, tile.visible[r].end - base};
  const __m256 minus_infinity = Set(-__builtin_inff());
  __m256 masks[8], values[8];
  __m256 top = Set(st.m[tile.row + r]);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    masks[i] = VisibleMask(visible, i * 8);
    __m256 v = _mm256_mul_ps(_mm256_load_ps(s + i * 8), Set(args.scale));
    if (args.softcap != 0.0f)
      v = _mm256_mul_ps(Set(args.softcap), Tanh(_mm256_div_ps(v, Set(args.softcap))));
    values[i] = v;
    top = _mm256_max_ps(_mm256_blendv_ps(minus_infinity, v, masks[i]), top);
  }
  const float m = MaxTree(top);
  const __m256 shift = Set(m);
  __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m256 p = _mm256_and_ps(ExpBelowZero(_mm256_sub_ps(values[i], shift)), masks[i]);
    _mm256_store_ps(s + i * 8, p);
    if (i % 2 == 0)
      sum0 = _mm256_add_ps(sum0, p);
    else
      sum1 = _mm256_add_ps(sum1, p);
  }
  const float decay = _mm256_cvtss_f32(ExpBelowZero(Set(st.m[tile.row + r] - m)));
  const __m128 l = _mm_set_ss(st.l[tile.row + r]);
  st.l[tile.row + r] =
      _mm_cvtss_f32(_mm_fmadd_ss(l, _mm_set_ss(decay), _mm_set_ss(Tree(sum0, sum1))));
  st.m[tile.row + r] = m;
  tile.decay[r] = decay;
}

// Sums of INT8 values: as many keys at a time as weights fill 32 bits.
template <int R, int C>
QINFER_FN void AddInt8(const State& st, float* const* o, const Weight (*weights)[kAttentionBlock],
                       const float* scales, const float* decay, Range pages, uint32_t base,
                       uint32_t at) {
  constexpr uint32_t kKeys = 4 / sizeof(Weight);
  const size_t line = layout::VCodeStride(st.args->v_head_dim) * 4;
  const uint8_t* values = st.block_values + (pages.begin - base) / kKeys * line + at * 4;
  __m256i sum[R][C];
  Unroll<R>([&](auto r) QINFER_LAMBDA {
    Unroll<C>([&](auto c) QINFER_LAMBDA { sum[r][c] = _mm256_setzero_si256(); });
  });
  for (uint32_t i = pages.begin - base; i < pages.end - base; i += kKeys, values += line) {
    __m256i v[C];
    Unroll<C>([&](auto c) QINFER_LAMBDA { v[c] = Load(values + c * 32); });
    Unroll<R>([&](auto r) QINFER_LAMBDA {
      const __m256i w = Broadcast4(weights[r] + i);
      Unroll<C>([&](auto c) QINFER_LAMBDA { AddWeighted(v[c], w, sum[r][c]); });
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

struct AttentionSimd {
  QINFER_FN float Quantize(const float* x, uint32_t count, int8_t* codes) {
    return QuantizeBlock(x, count, codes);
  }
  template <int R>
  QINFER_FN void Scores(const State& st, Tile& tile, uint32_t base) {
    avx2::Scores<R>(st, tile, base);
  }
  template <int R>
  QINFER_FN void Softmax(const State& st, Tile& tile, uint32_t base) {
    for (int r = 0; r < R; ++r) avx2::Softmax(st, tile, r, base);
  }
  QINFER_FN float ExpOne(float x) { return _mm256_cvtss_f32(Exp(Set(x))); }
  QINFER_FN void Scale(float* x, float by, size_t n) {
    for (size_t i = 0; i < n; i += 8)
      _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), Set(by)));
  }
  QINFER_FN void ScaleTo(const float* x, float by, uint32_t n, float* out) {
    for (uint32_t i = 0; i < n; i += 8)
      StoreTail(out + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), Set(by)), n - i);
  }
  static constexpr uint32_t kValueLanes = 8;
  static constexpr int ValueVectors(int rows) { return rows == 1 ? 8 : rows < 4 ? 4 : 2; }
  template <KvType V, int R, int C>
  QINFER_FN void AddValues(const State& st, float* const* o, const float (*p)[kAttentionBlock],
                           Range keys, uint32_t base, uint32_t at, const float* decay) {
    avx2::AddValues<V, R, C>(st, o, p, keys, base, at, decay);
  }
  using Weight = avx2::Weight;
  static constexpr int Int8Vectors(int rows) { return rows < 3 ? 4 : 2; }
  QINFER_FN void PrepareInt8(const State& st, uint32_t key, uint32_t base) {
    avx2::PrepareInt8(st, key, base);
  }
  template <int R>
  QINFER_FN void QuantizeWeights(const State& st, const Tile& tile, uint32_t base, Range pages,
                                 uint32_t g, Weight (*weights)[kAttentionBlock], float* scales) {
    for (int r = 0; r < R; ++r)
      scales[r] = avx2::QuantizeWeights(st, tile, r, base, pages, g,
                                        [&](const __m256i(&codes)[8])
                                            QINFER_LAMBDA { StoreWeights(codes, weights[r]); });
  }
  template <int R, int C>
  QINFER_FN void AddInt8(const State& st, float* const* o, const Weight (*weights)[kAttentionBlock],
                         const float* scales, const float* decay, Range pages, uint32_t base,
                         uint32_t at) {
    avx2::AddInt8<R, C>(st, o, weights, scales, decay, pages, base, at);
  }
  QINFER_FN void ToHalf(const float* x, uint32_t n, uint16_t* out) {
    for (uint32_t i = 0; i < n; i += 8)
      _mm_storeu_si128(
          reinterpret_cast<__m128i*>(out + i),
          _mm256_cvtps_ph(LoadTail(x + i, n - i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

}  // namespace
}  // namespace qinfer::kernels::avx2
