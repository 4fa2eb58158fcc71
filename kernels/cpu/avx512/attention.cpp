// AVX-512 attention: blocks of 64 keys outside, tiles of up to four (token, head) rows inside; each
// row's running maximum, sum and value live in scratch. Rows of a tile share the loads of K and V.
#include "kernels/cpu/avx512/avx512.h"

namespace qinfer::kernels::avx512 {
namespace {

constexpr uint32_t kTile = 4;

// Everything that lives in scratch, by row.
struct State {
  const AttentionArgs* args;
  float* o;  // [rows][o_stride]
  size_t o_stride;
  float* m;
  float* l;
  float* q_scales;    // INT8 keys: [rows][groups]
  int32_t* q_starts;  // [rows][groups]: -128 times the sum of the query's codes
  int8_t* q_codes;    // [rows][q_stride]
  size_t q_stride;
  uint32_t groups;
};

struct Range {
  uint32_t begin, end;
};

struct Tile {
  uint32_t row;          // first
  Range visible[kTile];  // in this block, absolute keys; empty if begin >= end
  Range all;             // their union
  alignas(32) float s[kTile][kAttentionBlock];
  float decay[kTile];
};

QINFER_FN const uint8_t* Page(const AttentionArgs& args, uint32_t key) {
  return args.pages[key / kPageTokens - args.first_page];
}
QINFER_FN const float* QueryRow(const AttentionArgs& args, uint32_t row) {
  return args.q + row / args.group_heads * args.q_stride +
         row % args.group_heads * static_cast<size_t>(args.head_dim);
}

// ---- Scores
// ---------------------------------------------------------------------------------------
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
  const uint8_t* plane[P];
  const float* q[R];
  __m512 s[R][P];
  QINFER_UNROLL(4)
  for (int p = 0; p < P; ++p)
    plane[p] = Page(args, key + static_cast<uint32_t>(p) * kPageTokens) + args.k_offset;
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
      QINFER_UNROLL(4)
      for (int r = 0; r < R; ++r) acc[r] = _mm512_dpbusd_epi32(acc[r], k, Broadcast4(q[r] + d));
    }
    const __m512 sk = _mm512_loadu_ps(scales + g * kPageTokens);
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

// ---- Softmax of one row: scores become probabilities, m and l move on
// ------------------------------
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

// ---- Values
// --------------------------------------------------------------------------------------- Sixteen
// values at `at` of a slot's row of V; `n` of them exist.
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
  const size_t stride = V == KvType::kInt8  ? layout::VCodeStride(args.v_head_dim)
                        : V == KvType::kF16 ? size_t{args.v_head_dim} * 2
                                            : size_t{args.v_head_dim} * 4;
  for (uint32_t key = keys.begin; key < keys.end;) {
    const uint8_t* row = Page(args, key) + args.v_offset + key % kPageTokens * stride;
    const uint32_t stop = Min(keys.end, key / kPageTokens * kPageTokens + kPageTokens);
    for (; key < stop; ++key, row += stride) {
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

// All values of a range for R rows, chunk by chunk.
template <KvType V, int R>
QINFER_FN void ValueRange(const State& st, float* const* o, const float (*p)[kAttentionBlock],
                          Range keys, uint32_t base) {
  if (keys.begin >= keys.end) return;
  constexpr int C = 4;
  const AttentionArgs& args = *st.args;
  alignas(32) float scaled[R][kAttentionBlock];
  const float* by[R];
  for (uint32_t g = 0; g * layout::kKvGroup < args.v_head_dim; ++g) {
    for (int r = 0; r < R; ++r) by[r] = p[r];
    if constexpr (V == KvType::kInt8) {  // fold the group's scales into the probabilities
      for (uint32_t key = keys.begin / kPageTokens * kPageTokens; key < keys.end;
           key += kPageTokens) {
        const float* sv = reinterpret_cast<const float*>(Page(args, key) + args.v_offset +
                                                         layout::VCodeBytes(args.v_head_dim)) +
                          g * kPageTokens;
        const __m512 scale = _mm512_loadu_ps(sv);
        for (int r = 0; r < R; ++r) {
          const uint32_t at = key - base;
          _mm512_storeu_ps(scaled[r] + at, _mm512_mul_ps(_mm512_loadu_ps(p[r] + at), scale));
          by[r] = scaled[r];
        }
      }
    }
    const uint32_t end = Min(args.v_head_dim, (g + 1) * layout::kKvGroup);
    uint32_t at = g * layout::kKvGroup;
    for (; at + C * 16 <= end; at += C * 16) AddValues<V, R, C>(st, o, by, keys, base, at);
    for (; at < end; at += 16) AddValues<V, R, 1>(st, o, by, keys, base, at);
  }
}

template <KvType V, int R>
QINFER_FN void Values(const State& st, const Tile& tile, uint32_t base) {
  float* o[R];
  Range common = tile.visible[0];
  for (int r = 0; r < R; ++r) {
    o[r] = st.o + (tile.row + r) * st.o_stride;
    const __m512 decay = Set(tile.decay[r]);
    for (size_t i = 0; i < st.o_stride; i += 16)
      _mm512_storeu_ps(o[r] + i, _mm512_mul_ps(_mm512_loadu_ps(o[r] + i), decay));
    if (tile.visible[r].begin > common.begin) common.begin = tile.visible[r].begin;
    if (tile.visible[r].end < common.end) common.end = tile.visible[r].end;
  }
  if constexpr (R == 1) {
    ValueRange<V, 1>(st, o, tile.s, common, base);
  } else {
    if (common.begin >= common.end) {  // nothing shared
      for (int r = 0; r < R; ++r) ValueRange<V, 1>(st, o + r, tile.s + r, tile.visible[r], base);
      return;
    }
    for (int r = 0; r < R; ++r)
      ValueRange<V, 1>(st, o + r, tile.s + r, {tile.visible[r].begin, common.begin}, base);
    ValueRange<V, R>(st, o, tile.s, common, base);
    for (int r = 0; r < R; ++r)
      ValueRange<V, 1>(st, o + r, tile.s + r, {common.end, tile.visible[r].end}, base);
  }
}

// One block of keys for R rows, all of which see some of it.
template <int R>
void Block(const State& st, Tile& tile, uint32_t base) {
  Scores<R>(st, tile, base);
  for (int r = 0; r < R; ++r) Softmax(st, tile, r, base);
  switch (st.args->v_type) {
    case KvType::kF32:
      return Values<KvType::kF32, R>(st, tile, base);
    case KvType::kF16:
      return Values<KvType::kF16, R>(st, tile, base);
    default:
      return Values<KvType::kInt8, R>(st, tile, base);
  }
}

QINFER_FN Range Visible(const AttentionArgs& args, uint32_t row, uint32_t base) {
  const uint32_t position = args.first_position + row / args.group_heads;
  const uint32_t first =
      args.window != 0 && position >= args.window ? position - args.window + 1 : 0;
  return {base > first ? base : first, Min(base + kAttentionBlock, position + 1)};
}

State Prepare(const AttentionArgs& args) {
  const uint32_t rows = args.tokens * args.group_heads;
  State st;
  st.args = &args;
  st.groups = static_cast<uint32_t>(layout::CeilDiv(args.head_dim, layout::kKvGroup));
  st.o_stride = layout::CeilDiv(args.v_head_dim, 16) * 16;
  st.q_stride = layout::RoundToLine(args.head_dim);
  st.o = static_cast<float*>(args.scratch);
  st.m = st.o + rows * st.o_stride;
  st.l = st.m + rows;
  st.q_scales = st.l + rows;
  const size_t groups = static_cast<size_t>(rows) * st.groups;
  st.q_starts = reinterpret_cast<int32_t*>(st.q_scales + groups);
  st.q_codes = reinterpret_cast<int8_t*>(st.q_starts + groups);
  memset(st.o, 0, rows * st.o_stride * sizeof(float));
  for (uint32_t row = 0; row < rows; ++row) {
    st.m[row] = args.sinks != nullptr ? args.sinks[row % args.group_heads] : -__builtin_inff();
    st.l[row] = args.sinks != nullptr ? 1.0f : 0.0f;
    if (args.k_type != KvType::kInt8) continue;
    const float* q = QueryRow(args, row);
    int8_t* codes = st.q_codes + row * st.q_stride;
    for (uint32_t g = 0; g < st.groups; ++g) {
      const uint32_t at = g * layout::kKvGroup;
      const size_t index = row * static_cast<size_t>(st.groups) + g;
      const uint32_t count = Min(layout::kKvGroup, args.head_dim - at);
      st.q_scales[index] = QuantizeBlock(q + at, count, codes + at);
      int32_t sum = 0;
      for (uint32_t i = 0; i < count; ++i) sum += codes[at + i];
      st.q_starts[index] = -128 * sum;
    }
    memset(codes + args.head_dim, 0, st.q_stride - args.head_dim);
  }
  return st;
}

}  // namespace

void Attention(const AttentionArgs& args) {
  const State st = Prepare(args);
  const uint32_t rows = args.tokens * args.group_heads;
  const uint32_t first = args.window != 0 && args.first_position >= args.window
                             ? args.first_position - args.window + 1
                             : 0;
  Tile tile;
  memset(tile.s, 0, sizeof(tile.s));
  for (uint32_t base = first / kAttentionBlock * kAttentionBlock;
       base < args.first_position + args.tokens; base += kAttentionBlock) {
    for (uint32_t row = 0; row < rows;) {
      Range r = Visible(args, row, base);
      if (r.begin >= r.end) {
        ++row;
        continue;
      }
      // Rows that follow and see some of this block too.
      uint32_t count = 0;
      tile.row = row;
      tile.all = r;
      while (count < kTile && row + count < rows) {
        r = Visible(args, row + count, base);
        if (r.begin >= r.end) break;
        tile.visible[count++] = r;
        if (r.begin < tile.all.begin) tile.all.begin = r.begin;
        if (r.end > tile.all.end) tile.all.end = r.end;
      }
      if (count == 4)
        Block<4>(st, tile, base);
      else if (count == 3)
        Block<3>(st, tile, base);
      else if (count == 2)
        Block<2>(st, tile, base);
      else
        Block<1>(st, tile, base);
      row += count;
    }
  }
  for (uint32_t row = 0; row < rows; ++row) {
    const __m512 inverse = Set(1.0f / st.l[row]);
    float* out = args.out + row / args.group_heads * args.out_stride +
                 row % args.group_heads * static_cast<size_t>(args.v_head_dim);
    const float* o = st.o + row * st.o_stride;
    for (uint32_t i = 0; i < args.v_head_dim; i += 16)
      StoreTail(out + i, _mm512_mul_ps(_mm512_loadu_ps(o + i), inverse), args.v_head_dim - i);
  }
}

namespace {

void Write(uint8_t* plane, KvType type, uint32_t slot, const float* x, uint32_t head_dim,
           bool is_key) {
  const size_t stride = is_key ? kPageTokens : 1;
  const size_t first = is_key ? slot : size_t{slot} * head_dim;
  if (type == KvType::kF32) {
    for (uint32_t i = 0; i < head_dim; ++i) memcpy(plane + (first + i * stride) * 4, x + i, 4);
    return;
  }
  if (type == KvType::kF16) {
    for (uint32_t i = 0; i < head_dim; i += 16) {
      uint16_t half[16];
      const uint32_t n = Min(16, head_dim - i);
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(half),
          _mm512_cvtps_ph(LoadTail(x + i, n), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
      for (uint32_t j = 0; j < n; ++j) memcpy(plane + (first + (i + j) * stride) * 2, half + j, 2);
    }
    return;
  }
  float* scales = reinterpret_cast<float*>(
      plane + (is_key ? layout::KCodeBytes(head_dim) : layout::VCodeBytes(head_dim)));
  for (uint32_t i = 0; i < head_dim; i += layout::kKvGroup) {
    int8_t codes[layout::kKvGroup] = {};
    const uint32_t count = Min(layout::kKvGroup, head_dim - i);
    scales[i / layout::kKvGroup * kPageTokens + slot] = QuantizeBlock(x + i, count, codes);
    if (is_key) {
      for (uint32_t j = 0; j < count; j += 4) memcpy(plane + (i + j) * 16 + slot * 4, codes + j, 4);
    } else {
      const size_t padded = layout::CeilDiv(count, 16) * 16;
      memcpy(plane + slot * layout::VCodeStride(head_dim) + i, codes, padded);
    }
  }
}

}  // namespace

void WriteK(uint8_t* plane, KvType type, uint32_t slot, const float* k, uint32_t head_dim) {
  Write(plane, type, slot, k, head_dim, true);
}

void WriteV(uint8_t* plane, KvType type, uint32_t slot, const float* v, uint32_t head_dim) {
  Write(plane, type, slot, v, head_dim, false);
}

}  // namespace qinfer::kernels::avx512
