// What attention has in common on all instruction sets: blocks of 64 keys outside, tiles of up to
// four (token, head) rows inside; each row's running maximum, sum and value live in scratch. Rows
// of a tile share the loads of K and V. The arithmetic on keys and values is the instruction set's
// (a struct Simd, described at Attention). Internal linkage.
#pragma once

#include "kernels/cpu/attention_state.h"

namespace qinfer::kernels::fold {
namespace {

// All values of a range for R rows, C vectors of Simd::kValueLanes at a time: Simd::AddValues.
template <class Simd, KvType V, int R, int C>
QINFER_FN void ValueRange(const State& st, float* const* o, const float (*p)[kAttentionBlock],
                          Range keys, uint32_t base, const float* decay) {
  if (keys.begin >= keys.end) return;
  constexpr uint32_t kLanes = Simd::kValueLanes;
  const uint32_t end = st.args->v_head_dim;
  uint32_t at = 0;
  for (; at + C * kLanes <= end; at += C * kLanes)
    Simd::template AddValues<V, R, C>(st, o, p, keys, base, at, decay);
  for (; at < end; at += kLanes) Simd::template AddValues<V, R, 1>(st, o, p, keys, base, at, decay);
}

template <class Simd, KvType V, int R>
QINFER_FN void Values(const State& st, const Tile& tile, uint32_t base) {
  constexpr int C = Simd::ValueVectors(R), C1 = Simd::ValueVectors(1);
  float* o[R];
  Range common = tile.visible[0];
  for (int r = 0; r < R; ++r) {
    o[r] = st.o + (tile.row + static_cast<uint32_t>(r)) * st.o_stride;
    if (tile.visible[r].begin > common.begin) common.begin = tile.visible[r].begin;
    if (tile.visible[r].end < common.end) common.end = tile.visible[r].end;
  }
  // Decay goes along where all rows begin together, which only a window prevents.
  constexpr float kNone[kTile] = {1.0f, 1.0f, 1.0f, 1.0f};
  const bool together = R == 1 || (tile.all.begin == common.begin && common.begin < common.end);
  if (!together) {
    for (int r = 0; r < R; ++r) Simd::Scale(o[r], tile.decay[r], st.o_stride);
    if (common.begin >= common.end) {  // nothing shared
      for (int r = 0; r < R; ++r)
        ValueRange<Simd, V, 1, C1>(st, o + r, tile.s + r, tile.visible[r], base, kNone);
      return;
    }
    for (int r = 0; r < R; ++r)
      ValueRange<Simd, V, 1, C1>(st, o + r, tile.s + r, {tile.visible[r].begin, common.begin}, base,
                                 kNone);
  }
  ValueRange<Simd, V, R, C>(st, o, tile.s, common, base, together ? tile.decay : kNone);
  if constexpr (R > 1) {
    for (int r = 0; r < R; ++r)
      ValueRange<Simd, V, 1, C1>(st, o + r, tile.s + r, {common.end, tile.visible[r].end}, base,
                                 kNone);
  }
}

// What turns weights into codes of 8 bits, and sums of them back, from the bits of the largest
// weight: as integers weights have the same order, and what is no weight lies above.
struct WeightScale {
  float inverse, factor;
};
QINFER_FN WeightScale ScaleOfWeights(uint32_t top) {
  if (top >= 0x7f800000u) return {0.0f, __builtin_nanf("")};
  float largest;
  memcpy(&largest, &top, 4);
  if (largest < 0x1p-110f) return {0.0f, 0.0f};
  return {255.0f / largest, largest * (1.0f / 255.0f)};
}

// INT8: whole pages, since the weights of masked keys are zero.
template <class Simd, int R>
QINFER_FN void Int8Values(const State& st, Tile& tile, uint32_t base) {
  constexpr int C = Simd::Int8Vectors(R);
  constexpr uint32_t kLanes = Simd::kValueLanes;
  const Range pages = {tile.all.begin / kPageTokens * kPageTokens,
                       (tile.all.end + kPageTokens - 1) / kPageTokens * kPageTokens};
  // Not before scores: by then what the block before has asked for is there.
  for (uint32_t& key = tile.unprepared.begin; key < tile.unprepared.end; key += kPageTokens)
    Simd::PrepareInt8(st, key, base);
  alignas(64) typename Simd::Weight weights[R][kAttentionBlock];
  float scales[kTile];
  float* o[R];
  for (int r = 0; r < R; ++r) o[r] = st.o + (tile.row + static_cast<uint32_t>(r)) * st.o_stride;
  for (uint32_t g = 0; g * layout::kKvGroup < st.args->v_head_dim; ++g) {
    Simd::template QuantizeWeights<R>(st, tile, base, pages, g, weights, scales);
    const uint32_t end = Min(st.args->v_head_dim, (g + 1) * layout::kKvGroup);
    uint32_t at = g * layout::kKvGroup;
    for (; at + C * kLanes <= end; at += C * kLanes)
      Simd::template AddInt8<R, C>(st, o, weights, scales, tile.decay, pages, base, at);
    for (; at < end; at += kLanes)
      Simd::template AddInt8<R, 1>(st, o, weights, scales, tile.decay, pages, base, at);
  }
}

// One block of keys for R rows, all of which see some of it.
template <class Simd, int R>
void Block(const State& st, Tile& tile, uint32_t base) {
  Simd::template Scores<R>(st, tile, base);
  Simd::template Softmax<R>(st, tile, base);
  switch (st.args->v_type) {
    case KvType::kF32:
      return Values<Simd, KvType::kF32, R>(st, tile, base);
    case KvType::kF16:
      return Values<Simd, KvType::kF16, R>(st, tile, base);
    default:
      return Int8Values<Simd, R>(st, tile, base);
  }
}

QINFER_FN Range Visible(const AttentionArgs& args, uint32_t token, uint32_t base) {
  const uint32_t first = args.FirstKey(token);
  return {base > first ? base : first,
          Min(base + kAttentionBlock, args.first_position + token + 1)};
}

template <class Simd>
QINFER_FN State Prepare(const AttentionArgs& args) {
  const uint32_t rows = args.tokens * args.group_heads;
  State st;
  st.args = &args;
  st.groups = static_cast<uint32_t>(layout::CeilDiv(args.head_dim, layout::kKvGroup));
  st.o_stride = layout::CeilDiv(args.v_head_dim, 16) * 16;
  st.q_stride = layout::RoundToLine(args.head_dim);
  st.o = static_cast<float*>(args.scratch);
  st.m = st.o + rows * st.o_stride;
  st.l = st.m + rows;
  st.before = st.l + rows;
  st.before_m = st.before + rows * st.o_stride;
  st.before_l = st.before_m + rows;
  st.q_scales = st.before_l + rows;
  const size_t groups = static_cast<size_t>(rows) * st.groups;
  st.q_starts = reinterpret_cast<int32_t*>(st.q_scales + groups);
  st.q_codes = reinterpret_cast<int8_t*>(st.q_starts + groups);
  st.latent_values = static_cast<uint8_t*>(args.scratch) +
                     layout::AttentionStateBytes(rows, args.head_dim, args.v_head_dim);
  st.latent_stride = layout::ValuePlaneBytes(args.k_type, args.v_head_dim);
  st.latent_base = 0;
  st.block_values = st.latent_values;
  if (args.latent) st.block_values += kAttentionBlock / kPageTokens * st.latent_stride;
  memset(st.o, 0, rows * st.o_stride * sizeof(float));
  for (uint32_t row = 0; row < rows; ++row) {
    // Sinks are in the first span that a row sees.
    const bool sinks = args.sinks != nullptr &&
                       (args.span == kAllSpans ||
                        args.FirstKey(row / args.group_heads) / kAttentionSpan == args.span);
    st.m[row] = sinks ? args.sinks[row % args.group_heads] : -__builtin_inff();
    st.l[row] = sinks ? 1.0f : 0.0f;
  }
  if (args.k_type != KvType::kInt8) return st;
  for (uint32_t row = 0; row < rows; ++row) {
    const float* q = QueryRow(args, row);
    int8_t* codes = st.q_codes + row * st.q_stride;
    for (uint32_t g = 0; g < st.groups; ++g) {
      const uint32_t at = g * layout::kKvGroup;
      st.q_scales[row * size_t{st.groups} + g] =
          Simd::Quantize(q + at, Min(layout::kKvGroup, args.head_dim - at), codes + at);
    }
    memset(codes + args.head_dim, 0, st.q_stride - args.head_dim);
  }
  // Not before all codes are written: wide loads wait for narrow stores.
  static_assert(layout::kKvGroup == layout::kLine);  // no gaps between rows
  for (size_t g = 0; g < groups; ++g) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < layout::kKvGroup; ++i) sum += st.q_codes[g * layout::kKvGroup + i];
    st.q_starts[g] = -128 * sum;
  }
  return st;
}

// Merges a row's state into that of the spans before, which is none where this is the first.
template <class Simd>
QINFER_FN void Merge(const State& st, uint32_t row, bool first) {
  float* __restrict o = st.o + row * st.o_stride;
  float* __restrict before = st.before + row * st.o_stride;
  float& m = st.before_m[row];
  if (first) {
    memcpy(before, o, st.o_stride * sizeof(float));
    m = st.m[row];
    st.before_l[row] = st.l[row];
    return;
  }
  const float top = st.m[row] > m ? st.m[row] : m;
  const float a = Simd::ExpOne(m - top), b = Simd::ExpOne(st.m[row] - top);
  m = top;
  st.before_l[row] = st.before_l[row] * a + st.l[row] * b;
  for (size_t d = 0; d < st.o_stride; ++d) before[d] = before[d] * a + o[d] * b;
}

// At the begin of a span: rows that see both it and the one before merge that one.
template <class Simd>
QINFER_FN void CloseSpan(const State& st, uint32_t base) {
  const AttentionArgs& args = *st.args;
  uint32_t token = base > args.first_position ? base - args.first_position : 0;
  for (; token < args.tokens; ++token) {
    const uint32_t first_key = args.FirstKey(token);
    if (first_key >= base) return;  // nor do later ones see what is before
    for (uint32_t h = 0; h < args.group_heads; ++h) {
      const uint32_t row = token * args.group_heads + h;
      Merge<Simd>(st, row, first_key + kAttentionSpan >= base);
      memset(st.o + row * st.o_stride, 0, st.o_stride * sizeof(float));
      st.m[row] = -__builtin_inff();
      st.l[row] = 0.0f;
    }
  }
}

// What the call is for: the outputs, or the states of its span.
template <class Simd>
QINFER_FN void Finish(const State& st, uint32_t rows) {
  const AttentionArgs& args = *st.args;
  if (args.span != kAllSpans) {
    const size_t stride = AttentionStateStride(args.v_head_dim);
    float* state = args.states + (args.span - args.FirstKey(0) / kAttentionSpan) * rows * stride;
    for (uint32_t row = 0; row < rows; ++row, state += stride) {
      memcpy(state, st.o + row * st.o_stride, st.o_stride * sizeof(float));
      float* sums = state + AttentionSumsAt(args.v_head_dim);
      sums[0] = st.m[row];
      sums[1] = st.l[row];
    }
    return;
  }
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t token = row / args.group_heads;
    float* out = args.out + token * args.out_stride +
                 row % args.group_heads * static_cast<size_t>(args.v_head_dim);
    const float* o = st.o;
    float l = st.l[row];
    if (args.FirstKey(token) / kAttentionSpan != (args.first_position + token) / kAttentionSpan) {
      Merge<Simd>(st, row, false);
      o = st.before;
      l = st.before_l[row];
    }
    Simd::ScaleTo(o + row * st.o_stride, 1.0f / l, args.v_head_dim, out);
  }
}

// Rows [row, end) in tiles, for a block.
template <class Simd>
QINFER_FN void Rows(const State& st, Tile& tile, uint32_t base, uint32_t row, uint32_t end) {
  const AttentionArgs& args = *st.args;
  uint32_t token = row / args.group_heads, head = row % args.group_heads, count = 0;
  for (; row < end; row += count) {
    tile.row = row;
    for (count = 0; count < kTile && row + count < end; ++count) {
      tile.visible[count] = Visible(args, token, base);
      if (++head < args.group_heads) continue;
      head = 0;
      ++token;
    }
    tile.all = {tile.visible[0].begin, tile.visible[count - 1].end};
    tile.whole =
        tile.visible[count - 1].begin == base && tile.visible[0].end == base + kAttentionBlock;
    if (count == 4)
      Block<Simd, 4>(st, tile, base);
    else if (count == 3)
      Block<Simd, 3>(st, tile, base);
    else if (count == 2)
      Block<Simd, 2>(st, tile, base);
    else
      Block<Simd, 1>(st, tile, base);
  }
}

// The rows of tokens [token, tokens). Full tiles of them go to Simd's pipeline, where it has one.
template <class Simd>
QINFER_FN void Tokens(const State& st, Tile& tile, uint32_t base, uint32_t token, uint32_t tokens) {
  const AttentionArgs& args = *st.args;
  uint32_t row = token * args.group_heads;
  const uint32_t end = tokens * args.group_heads;
  if constexpr (requires { Simd::Pipeline; }) {
    if (token < tokens && Simd::Pipelines(args, end - row)) {
      const uint32_t last = base + kAttentionBlock - 1;
      if (last > args.first_position + token) token = Min(tokens, last - args.first_position);
      while (tokens > token && args.FirstKey(tokens - 1) > base) --tokens;
      const uint32_t stop = end - (end - row) % kTile;
      Range whole = {row + (token * args.group_heads - row + kTile - 1) / kTile * kTile,
                     row + (tokens * args.group_heads - row) / kTile * kTile};
      if (whole.begin >= whole.end) whole = {stop, stop};
      Simd::Pipeline(st, tile, base, row, whole, stop);
      row = stop;
    }
  }
  Rows<Simd>(st, tile, base, row, end);
}

// Table::attention. Simd has, all static:
//   ExpOne(x): e^x
//   Quantize(x, count, codes): QuantizeBlock
//   Scores<R>(st, tile, base): tile.s of R rows for the pages of tile.all, before `scale`
//   Softmax<R>(st, tile, base): scores of R rows become probabilities (+0 where masked), their m
//     and l move on, tile.decay is what o is multiplied by
//   Scale(x, by, n), ScaleTo(x, by, n, out): n a multiple of 16 for Scale, any for ScaleTo
//   kValueLanes, ValueVectors(R), AddValues<V, R, C>(st, o, p, keys, base, at, decay):
//     o[r][at .. at + C * lanes) = fma(p[r][key - base], v, o) over keys in order, of o * decay[r]
//   INT8: Weight, Int8Vectors(R),
//     PrepareInt8(st, key, base): a page's codes into st.block_values
//     QuantizeWeights<R>(st, tile, base, pages, g, weights, scales): 0 for all keys of these pages
//       that are masked
//     AddInt8<R, C>(st, o, weights, scales, decay, pages, base, at): o[r][at .. at + C * lanes) =
//       fma(sum of weights[r][key - base] * code over whole pages, scales[r], o * decay[r])
//   Optional: Pipeline(st, tile, base, row, whole, end): a block for rows [row, end), full tiles of
//     which those of `whole` see all keys; where Pipelines(args, rows) says that it is worth it
template <class Simd>
QINFER_FN void Attention(const AttentionArgs& args) {
  State st = Prepare<Simd>(args);
  const uint32_t rows = args.tokens * args.group_heads;
  const uint32_t first = args.FirstKey(0);
  uint32_t begin = first / kAttentionBlock * kAttentionBlock;
  uint32_t end = args.first_position + args.tokens;
  if (args.span != kAllSpans) {
    const uint32_t span = args.span * kAttentionSpan;
    begin = begin > span ? begin : span;
    end = Min(end, span + kAttentionSpan);
  }
  Tile tile;
  memset(tile.s, 0, sizeof(tile.s));
  for (uint32_t base = begin; base < end; base += kAttentionBlock) {
    if (base % kAttentionSpan == 0 && base != begin) CloseSpan<Simd>(st, base);
    tile.unprepared = {base > first ? base : first / kPageTokens * kPageTokens,
                       Min(base + kAttentionBlock, args.first_position + args.tokens)};
    if (args.latent) {
      st.latent_base = base;
      for (uint32_t key = tile.unprepared.begin; key < tile.unprepared.end; key += kPageTokens) {
        layout::LatentToValues(Page(args, key) + args.k_offset, args.k_type, args.head_dim,
                               args.v_head_dim,
                               st.latent_values + (key - base) / kPageTokens * st.latent_stride);
      }
    }
    // The tokens that see some of this block follow each other.
    const uint32_t last = base + kAttentionBlock - 1;
    uint32_t token = base > args.first_position ? base - args.first_position : 0;
    uint32_t tokens = args.tokens;
    if (args.window != 0 && uint64_t{last} + args.window < uint64_t{args.first_position} + tokens)
      tokens = last + args.window - args.first_position;
    Tokens<Simd>(st, tile, base, token, tokens);
  }
  Finish<Simd>(st, rows);
}

}  // namespace
}  // namespace qinfer::kernels::fold
