// AVX-512 attention (its part of kernels/cpu/attention_fold.h): scores of keys, softmax of a block,
// sums of values; and the KV planes it reads.
#include "kernels/cpu/avx512/attention_pipeline.h"
#include "kernels/cpu/kv_write.h"

namespace qinfer::kernels::avx512 {
namespace {

using fold::Page;
using fold::QueryRow;

// ---- Scores -----------------------------------------------------------------------------------
template <KvType K>
QINFER_FN __m512 LoadKey(const uint8_t* plane, size_t index) {
  if constexpr (K == KvType::kF32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(plane) + index);
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
  __m512 s[R][P];
  QINFER_UNROLL(4)
  for (int p = 0; p < P; ++p) {
    const uint32_t at = key + static_cast<uint32_t>(p) * kPageTokens;
    plane[p] = Page(args, at) + args.k_offset;
    ahead[p] = fold::Ahead(args, at);
  }
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    q[r] = QueryRow(args, tile.row + static_cast<uint32_t>(r));
    QINFER_UNROLL(4)
    for (int p = 0; p < P; ++p) s[r][p] = _mm512_setzero_ps();
  }
  for (uint32_t d = 0; d < args.head_dim; ++d) {
    QINFER_UNROLL(4)
    for (int p = 0; p < P; ++p) {
      const __m512 k = LoadKey<K>(plane[p], size_t{d} * kPageTokens);
      fold::Ask(plane[p] + d * kKeyBytes, ahead[p]);
      QINFER_UNROLL(4)
      for (int r = 0; r < R; ++r) s[r][p] = _mm512_fmadd_ps(Set(q[r][d]), k, s[r][p]);
    }
  }
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) QINFER_UNROLL(4)
  for (int p = 0; p < P; ++p)
    _mm512_storeu_ps(tile.s[r] + (key - base) + static_cast<uint32_t>(p) * kPageTokens, s[r][p]);
}

// INT8: u8 (code + 128) times s8 query; the accumulators start at -128 times the query's sum. R
// rows by P pages from `key`.
template <int R, int P>
QINFER_FN void ScoreInt8(const State& st, Tile& tile, uint32_t key, uint32_t base) {
  const AttentionArgs& args = *st.args;
  const uint8_t* plane[P];
  ptrdiff_t ahead[P];
  Unroll<P>([&](auto p) QINFER_LAMBDA {
    const uint32_t at = key + static_cast<uint32_t>(p) * kPageTokens;
    plane[p] = Page(args, at) + args.k_offset;
    ahead[p] = fold::Ahead(args, at);
  });
  const int8_t* const q = st.q_codes + tile.row * st.q_stride;
  const size_t first = tile.row * static_cast<size_t>(st.groups);
  const size_t q_stride = st.q_stride, groups = st.groups, head_dim = args.head_dim;
  const size_t scales = layout::KCodeBytes(args.head_dim);
  const __m512i flip = _mm512_set1_epi8(-128);
  for (size_t g = 0; g < groups; ++g) {
    const size_t begin = g * layout::kKvGroup;
    const size_t end = begin + layout::kKvGroup < head_dim ? begin + layout::kKvGroup : head_dim;
    __m512i acc[R][P];
    Unroll<R>([&](auto r) QINFER_LAMBDA {
      const __m512i start = _mm512_set1_epi32(st.q_starts[first + r * groups + g]);
      Unroll<P>([&](auto p) QINFER_LAMBDA { acc[r][p] = start; });
    });
    for (size_t d = begin; d < end; d += 4) {
      __m512i k[P];
      Unroll<P>([&](auto p) QINFER_LAMBDA {
        k[p] = _mm512_xor_si512(Load(plane[p] + d * 16), flip);
        fold::Ask(plane[p] + d * 16, ahead[p]);
      });
      Unroll<R>([&](auto r) QINFER_LAMBDA {
        const __m512i codes = Broadcast4(q + r * q_stride + d);
        Unroll<P>([&](auto p) QINFER_LAMBDA {
          acc[r][p] = _mm512_dpbusd_epi32(acc[r][p], k[p], codes);
          QINFER_PIN(acc[r][p]);
        });
      });
    }
    Unroll<P>([&](auto p) QINFER_LAMBDA {
      const uint8_t* line = plane[p] + scales + g * kPageTokens * sizeof(float);
      const __m512 sk = _mm512_loadu_ps(reinterpret_cast<const float*>(line));
      fold::Ask(line, ahead[p]);
      Unroll<R>([&](auto r) QINFER_LAMBDA {
        float* out = tile.s[r] + (key - base) + static_cast<uint32_t>(p) * kPageTokens;
        const __m512 s = g == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(out);
        _mm512_storeu_ps(
            out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][p]),
                                 _mm512_mul_ps(Set(st.q_scales[first + r * groups + g]), sk), s));
      });
    });
  }
}

template <int R>
QINFER_FN void Scores(const State& st, Tile& tile, uint32_t base) {
  constexpr int P = R == 1 ? 4 : 2;
  const KvType type = st.args->k_type;
  uint32_t key = tile.all.begin / kPageTokens * kPageTokens;
  if (type == KvType::kInt8) {
    if (key == base && base + kAttentionBlock - kPageTokens < tile.all.end)
      return ScoreInt8<R, 4>(st, tile, key, base);
    for (; key < tile.all.end; key += kPageTokens) ScoreInt8<R, 1>(st, tile, key, base);
    return;
  }
  for (; key + (P - 1) * kPageTokens < tile.all.end; key += P * kPageTokens) {
    if (type == KvType::kF16)
      ScoreFloat<KvType::kF16, R, P>(st, tile, key, base);
    else
      ScoreFloat<KvType::kF32, R, P>(st, tile, key, base);
  }
  for (; key < tile.all.end; key += kPageTokens) {
    if (type == KvType::kF16)
      ScoreFloat<KvType::kF16, R, 1>(st, tile, key, base);
    else
      ScoreFloat<KvType::kF32, R, 1>(st, tile, key, base);
  }
}

// ---- Softmax: scores become probabilities, m and l move on -------------------------------------
// kWhole: all rows see all keys of the block.
template <int R, bool kWhole>
QINFER_FN void SoftmaxRows(const State& st, Tile& tile, uint32_t base) {
  const AttentionArgs& args = *st.args;
  constexpr __mmask8 kRows = (1 << R) - 1;
  const __m512 scale = Set(args.scale);
  __mmask16 masks[R][4];
  __m512 s[R][4], top[4] = {}, sum[4] = {};
  Unroll<R>([&](auto r) QINFER_LAMBDA {
    Unroll<4>([&](auto i) QINFER_LAMBDA {
      constexpr uint32_t at = i * 16;
      s[r][i] = _mm512_mul_ps(_mm512_loadu_ps(tile.s[r] + at), scale);
      if constexpr (!kWhole) masks[r][i] = VisibleMask(tile.visible[r], base + at);
    });
  });
  if (args.softcap != 0.0f) {
    const __m512 cap = Set(args.softcap);
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < 4; ++i) s[r][i] = _mm512_mul_ps(cap, Tanh(_mm512_div_ps(s[r][i], cap)));
  }
  // max_ps gives its second operand where one is NaN.
  Unroll<R>([&](auto r) QINFER_LAMBDA {
    top[r] = Set(-__builtin_inff());
    Unroll<4>([&](auto i) QINFER_LAMBDA {
      if constexpr (kWhole)
        top[r] = _mm512_max_ps(s[r][i], top[r]);
      else
        top[r] = _mm512_mask_max_ps(top[r], masks[r][i], s[r][i], top[r]);
    });
  });
  const __m512 before = Spread(st.m + tile.row, kRows);
  const __m512 m = _mm512_max_ps(
      TreeOfRows(top, [](__m512 x, __m512 y) QINFER_LAMBDA { return _mm512_max_ps(x, y); }),
      before);
  Unroll<R>([&](auto r) QINFER_LAMBDA {
    const __m512 m_r = _mm512_shuffle_f32x4(m, m, r * 0x55);
    Unroll<4>([&](auto i) QINFER_LAMBDA {
      __m512 p = ExpBelowZero(_mm512_sub_ps(s[r][i], m_r));
      if constexpr (!kWhole) p = _mm512_maskz_mov_ps(masks[r][i], p);
      _mm512_storeu_ps(tile.s[r] + i * 16, p);
      sum[r] = _mm512_add_ps(sum[r], p);
    });
  });
  const __m512 decay = ExpBelowZero(_mm512_sub_ps(before, m));
  const __m512 total =
      TreeOfRows(sum, [](__m512 x, __m512 y) QINFER_LAMBDA { return _mm512_add_ps(x, y); });
  Gather(st.l + tile.row, kRows, _mm512_fmadd_ps(Spread(st.l + tile.row, kRows), decay, total));
  Gather(st.m + tile.row, kRows, m);
  Gather(tile.decay, kRows, decay);
}

struct AttentionSimd {
  QINFER_FN float Quantize(const float* x, uint32_t count, int8_t* codes) {
    return QuantizeBlock(x, count, codes);
  }
  template <int R>
  QINFER_FN void Scores(const State& st, Tile& tile, uint32_t base) {
    avx512::Scores<R>(st, tile, base);
  }
  template <int R>
  QINFER_FN void Softmax(const State& st, Tile& tile, uint32_t base) {
    if (tile.whole)
      SoftmaxRows<R, true>(st, tile, base);
    else
      SoftmaxRows<R, false>(st, tile, base);
  }
  QINFER_FN float ExpOne(float x) { return _mm_cvtss_f32(_mm512_castps512_ps128(Exp(Set(x)))); }
  QINFER_FN void Scale(float* x, float by, size_t n) {
    for (size_t i = 0; i < n; i += 16)
      _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), Set(by)));
  }
  QINFER_FN void ScaleTo(const float* x, float by, uint32_t n, float* out) {
    for (uint32_t i = 0; i < n; i += 16)
      StoreTail(out + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), Set(by)), n - i);
  }
  static constexpr uint32_t kValueLanes = 16;
  static constexpr int ValueVectors(int /*rows*/) { return 4; }
  template <KvType V, int R, int C>
  QINFER_FN void AddValues(const State& st, float* const* o, const float (*p)[kAttentionBlock],
                           Range keys, uint32_t base, uint32_t at, const float* decay) {
    avx512::AddValues<V, R, C>(st, o, p, keys, base, at, decay);
  }
  using Weight = uint8_t;
  static constexpr int Int8Vectors(int /*rows*/) { return 4; }
  QINFER_FN void PrepareInt8(const State& st, uint32_t key, uint32_t base) {
    avx512::PrepareInt8(st, key, base);
  }
  template <int R>
  QINFER_FN void QuantizeWeights(const State& st, const Tile& tile, uint32_t base, Range pages,
                                 uint32_t g, Weight (*weights)[kAttentionBlock], float* scales) {
    if (tile.whole)
      avx512::QuantizeWeights<R, true>(st, tile, base, pages, g, weights, scales);
    else
      avx512::QuantizeWeights<R, false>(st, tile, base, pages, g, weights, scales);
  }
  template <int R, int C>
  QINFER_FN void AddInt8(const State& st, float* const* o, const Weight (*weights)[kAttentionBlock],
                         const float* scales, const float* decay, Range pages, uint32_t base,
                         uint32_t at) {
    avx512::AddInt8<R, C>(st, o, weights, scales, decay, pages, base, at);
  }
  // Measured: with fewer tiles it does not pay.
  QINFER_FN bool Pipelines(const AttentionArgs& args, uint32_t rows) {
    return rows >= 6 * kRows && args.k_type == KvType::kInt8 && args.v_type == KvType::kInt8 &&
           args.softcap == 0.0f && (args.head_dim | args.v_head_dim) % layout::kKvGroup == 0;
  }
  QINFER_FN void Pipeline(const State& st, Tile& tile, uint32_t base, uint32_t row, Range whole,
                          uint32_t end) {
    PrepareBlock(st, base, tile.unprepared);
    for (uint32_t& key = tile.unprepared.begin; key < tile.unprepared.end; key += kPageTokens)
      avx512::PrepareInt8(st, key, base);
    Tiles<false>(st, base, row, whole.begin);
    Tiles<true>(st, base, whole.begin, whole.end);
    Tiles<false>(st, base, whole.end, end);
  }
  QINFER_FN void ToHalf(const float* x, uint32_t n, uint16_t* out) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(out),
        _mm512_cvtps_ph(LoadTail(x, n), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

}  // namespace

void Attention(const AttentionArgs& args) { fold::Attention<AttentionSimd>(args); }

void WriteK(uint8_t* plane, KvType type, uint32_t slot, const float* k, uint32_t head_dim) {
  fold::Write<AttentionSimd>(plane, type, slot, k, head_dim, true);
}

void WriteV(uint8_t* plane, KvType type, uint32_t slot, const float* v, uint32_t head_dim) {
  fold::Write<AttentionSimd>(plane, type, slot, v, head_dim, false);
}

}  // namespace qinfer::kernels::avx512
