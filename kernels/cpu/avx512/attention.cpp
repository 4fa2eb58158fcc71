// AVX-512 attention (its part of kernels/cpu/attention_fold.h): scores of keys, softmax of a block,
// sums of values; and the KV planes it reads.
#include "kernels/cpu/attention_fold.h"
#include "kernels/cpu/avx512/avx512.h"

namespace qinfer::kernels::avx512 {
namespace {

using fold::Page;
using fold::QueryRow;
using fold::Range;
using fold::State;
using fold::Tile;

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

// INT8: u8 (code + 128) times s8 query; the accumulators start at -128 times the query's sum.
template <int R>
QINFER_FN void ScoreInt8(const State& st, Tile& tile, uint32_t key, uint32_t base) {
  const AttentionArgs& args = *st.args;
  const uint8_t* plane = Page(args, key) + args.k_offset;
  const ptrdiff_t ahead = fold::Ahead(args, key);
  const float* scales = reinterpret_cast<const float*>(plane + layout::KCodeBytes(args.head_dim));
  const int8_t* q[R];
  size_t first[R];  // of the row's groups
  __m512 s[R];
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    q[r] = st.q_codes + (tile.row + static_cast<uint32_t>(r)) * st.q_stride;
    first[r] = (tile.row + static_cast<uint32_t>(r)) * static_cast<size_t>(st.groups);
    s[r] = _mm512_setzero_ps();
  }
  const __m512i flip = _mm512_set1_epi8(-128);
  for (uint32_t g = 0; g < st.groups; ++g) {
    const uint32_t end = Min(args.head_dim, (g + 1) * layout::kKvGroup);
    __m512i acc[R];
    QINFER_UNROLL(4)
    for (int r = 0; r < R; ++r) acc[r] = _mm512_set1_epi32(st.q_starts[first[r] + g]);
    for (uint32_t d = g * layout::kKvGroup; d < end; d += 4) {
      const __m512i k = _mm512_xor_si512(Load(plane + d * 16), flip);
      fold::Ask(plane + d * 16, ahead);
      QINFER_UNROLL(4)
      for (int r = 0; r < R; ++r) acc[r] = _mm512_dpbusd_epi32(acc[r], k, Broadcast4(q[r] + d));
    }
    const __m512 sk = _mm512_loadu_ps(scales + g * kPageTokens);
    fold::Ask(reinterpret_cast<const uint8_t*>(scales + g * kPageTokens), ahead);
    QINFER_UNROLL(4)
    for (int r = 0; r < R; ++r)
      s[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r]),
                             _mm512_mul_ps(Set(st.q_scales[first[r] + g]), sk), s[r]);
  }
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(tile.s[r] + (key - base), s[r]);
}

template <int R>
QINFER_FN void Scores(const State& st, Tile& tile, uint32_t base) {
  constexpr int P = R == 1 ? 4 : 2;
  const KvType type = st.args->k_type;
  uint32_t key = tile.all.begin / kPageTokens * kPageTokens;
  if (type == KvType::kInt8) {
    for (; key < tile.all.end; key += kPageTokens) ScoreInt8<R>(st, tile, key, base);
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

// ---- Softmax of one row: scores become probabilities, m and l move on -------------------------
QINFER_FN void Softmax(const State& st, Tile& tile, int r, uint32_t base) {
  const AttentionArgs& args = *st.args;
  float* s = tile.s[r];
  const uint32_t row = tile.row + static_cast<uint32_t>(r);
  const uint32_t begin = tile.visible[r].begin - base, end = tile.visible[r].end - base;
  __mmask16 masks[4];
  __m512 values[4];
  __m512 top = Set(st.m[row]);
  QINFER_UNROLL(4)
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t at = i * 16;
    masks[i] = static_cast<__mmask16>(TailMask(end > at ? end - at : 0) &
                                      ~TailMask(begin > at ? begin - at : 0));
    __m512 v = _mm512_mul_ps(_mm512_loadu_ps(s + at), Set(args.scale));
    if (args.softcap != 0.0f)
      v = _mm512_mul_ps(Set(args.softcap), Tanh(_mm512_div_ps(v, Set(args.softcap))));
    values[i] = v;
    const __mmask16 more =
        static_cast<__mmask16>(_mm512_cmp_ps_mask(v, top, _CMP_GT_OQ) & masks[i]);
    top = _mm512_mask_mov_ps(top, more, v);
  }
  const float m = MaxTree(top);
  __m512 sum = _mm512_setzero_ps();
  QINFER_UNROLL(4)
  for (uint32_t i = 0; i < 4; ++i) {
    const __m512 p = _mm512_maskz_mov_ps(masks[i], Exp(_mm512_sub_ps(values[i], Set(m))));
    _mm512_storeu_ps(s + i * 16, p);
    sum = _mm512_add_ps(sum, p);
  }
  const float decay =
      _mm_cvtss_f32(_mm256_castps256_ps128(_mm512_castps512_ps256(Exp(Set(st.m[row] - m)))));
  st.l[row] =
      _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(st.l[row]), _mm_set_ss(decay), _mm_set_ss(Tree(sum))));
  st.m[row] = m;
  tile.decay[r] = decay;
}

// ---- Values -----------------------------------------------------------------------------------
// Sixteen values at `at` of a slot's row of V; `n` of them exist.
template <KvType V>
QINFER_FN __m512 LoadValue(const uint8_t* row, uint32_t at, uint32_t n) {
  if constexpr (V == KvType::kInt8) {
    return _mm512_cvtepi32_ps(WidenS8(row + at));
  } else if constexpr (V == KvType::kF32) {
    return LoadTail(reinterpret_cast<const float*>(row) + at, n);
  } else {
    if (n >= 16) return LoadHalf(row + at * 2);
    uint16_t tail[16] = {};
    memcpy(tail, row + at * 2, n * 2);
    return LoadHalf(tail);
  }
}

// o[R][at .. at + 16C) = fma(p, v, o) over keys [begin, end) in order; p[r][key - base].
template <KvType V, int R, int C>
QINFER_FN void AddValues(const State& st, float* const* o, const float* const* p, Range keys,
                         uint32_t base, uint32_t at) {
  const AttentionArgs& args = *st.args;
  __m512 sum[R][C];
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) QINFER_UNROLL(4)
  for (int c = 0; c < C; ++c) sum[r][c] = _mm512_loadu_ps(o[r] + at + c * 16);
  constexpr size_t kBytes = C * 16 * fold::kItemBytes<V>;
  const size_t stride = fold::ValueStride<V>(args);
  for (uint32_t key = keys.begin; key < keys.end;) {
    const uint8_t* row = fold::ValuePlane(st, key) + key % kPageTokens * stride;
    const ptrdiff_t ahead = fold::ValuesAhead(args, key);
    const uint32_t stop = Min(keys.end, key / kPageTokens * kPageTokens + kPageTokens);
    for (; key < stop; ++key, row += stride) {
      QINFER_UNROLL(4)
      for (size_t line = 0; line < kBytes; line += 64)
        fold::Ask(row + at * fold::kItemBytes<V> + line, ahead);
      QINFER_UNROLL(4)
      for (uint32_t c = 0; c < C; ++c) {
        const __m512 v = LoadValue<V>(row, at + c * 16, args.v_head_dim - at - c * 16);
        QINFER_UNROLL(4)
        for (int r = 0; r < R; ++r)
          sum[r][c] = _mm512_fmadd_ps(Set(p[r][key - base]), v, sum[r][c]);
      }
    }
  }
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) QINFER_UNROLL(4)
  for (int c = 0; c < C; ++c) _mm512_storeu_ps(o[r] + at + c * 16, sum[r][c]);
}

struct AttentionSimd {
  QINFER_FN float Quantize(const float* x, uint32_t count, int8_t* codes) {
    return QuantizeBlock(x, count, codes);
  }
  template <int R>
  QINFER_FN void Scores(const State& st, Tile& tile, uint32_t base) {
    avx512::Scores<R>(st, tile, base);
  }
  QINFER_FN void Softmax(const State& st, Tile& tile, int r, uint32_t base) {
    avx512::Softmax(st, tile, r, base);
  }
  QINFER_FN void Scale(float* x, float by, size_t n) {
    for (size_t i = 0; i < n; i += 16)
      _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), Set(by)));
  }
  QINFER_FN void ScaleTo(const float* x, float by, uint32_t n, float* out) {
    for (uint32_t i = 0; i < n; i += 16)
      StoreTail(out + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), Set(by)), n - i);
  }
  QINFER_FN void Multiply16(const float* x, const float* y, float* out) {
    _mm512_storeu_ps(out, _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_loadu_ps(y)));
  }
  static constexpr uint32_t kValueLanes = 16;
  static constexpr int ValueVectors(int /*rows*/) { return 4; }
  template <KvType V, int R, int C>
  QINFER_FN void AddValues(const State& st, float* const* o, const float* const* p, Range keys,
                           uint32_t base, uint32_t at) {
    avx512::AddValues<V, R, C>(st, o, p, keys, base, at);
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
