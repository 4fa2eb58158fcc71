// AVX-512: a block of INT8 keys and values for many rows. Tiles of four rows go through a pipeline:
// between the products of keys of one lie the exponentials of the tile before, and the weights of
// that one are made between the products of values of an earlier one, so that no tile waits for its
// own maximum, division or conversion. The order of instructions matters: the processor does not
// look ahead over a whole phase.
#pragma once

#include "kernels/cpu/avx512/attention_values.h"

namespace qinfer::kernels::avx512 {
namespace {

constexpr int kRows = 4;                           // of a tile
constexpr uint32_t kSteps = layout::kKvGroup / 4;  // products of a group, and sixteens of a tile

// Scores, then probabilities of a tile; of each row, in sixteen lanes, the largest score and the
// sum of probabilities; the new maximum.
struct Scored {
  alignas(64) float p[kRows][kAttentionBlock];
  alignas(64) float top[kRows][16];
  alignas(64) float sum[kRows][16];
  float m[kRows];
  float decay[kRows];
  uint16_t visible[kRows][4];  // not where all rows see all keys of the block
  uint32_t row;
};
// Weights of a tile for a group of values.
struct Weighed {
  alignas(64) uint8_t codes[kRows][kAttentionBlock];
  float inverse[kRows];
  float scales[kRows];
  float decay[kRows];
  uint32_t row, at;
};

// The block's keys as they are multiplied: [four inputs][key][4] without a sign, then their scales.
QINFER_FN uint8_t* BlockKeys(const State& st) {
  return st.block_values + layout::VCodeStride(st.args->v_head_dim) * kAttentionBlock;
}
QINFER_FN float* BlockValueScales(const State& st) {
  return reinterpret_cast<float*>(BlockKeys(st) +
                                  (st.args->head_dim + st.groups * size_t{4}) * kAttentionBlock);
}
// Copies these and the scales of values, and asks for the next block's lines. What no row sees
// stays as it is: masks cover it.
QINFER_FN void PrepareBlock(const State& st, uint32_t base, Range keys) {
  const AttentionArgs& args = *st.args;
  const size_t codes = layout::KCodeBytes(args.head_dim);
  const __m512i flip = _mm512_set1_epi8(-128);
  for (uint32_t key = keys.begin; key < keys.end; key += kPageTokens) {
    uint8_t* const out = BlockKeys(st) + (key - base) * 4;
    float* const value_scales = BlockValueScales(st) + (key - base);
    const uint8_t* plane = fold::Page(args, key) + args.k_offset;
    const ptrdiff_t ahead = fold::Ahead(args, key);
    const size_t end = codes + st.groups * size_t{64};
    for (size_t at = 0; at < end; at += 64) {
      const __m512i line = Load(plane + at);
      fold::Ask(plane + at, ahead);
      _mm512_storeu_si512(out + at * 4, at < codes ? _mm512_xor_si512(line, flip) : line);
    }
    for (uint32_t g = 0; g * layout::kKvGroup < args.v_head_dim; ++g)
      _mm512_storeu_ps(value_scales + g * kAttentionBlock,
                       _mm512_loadu_ps(fold::ValueScales(st, key, g)));
    const uint8_t* values = fold::ValuePlane(st, key);
    const ptrdiff_t values_ahead = fold::ValuesAhead(args, key);
    for (size_t at = 0; at < layout::ValuePlaneBytes(KvType::kInt8, args.v_head_dim); at += 64)
      fold::Ask(values + at, values_ahead);
  }
}

// A sixteen of the tile before: scores become probabilities.
template <bool kWhole>
QINFER_FN void ExpStep(Scored& tile, uint32_t r, uint32_t i, __m512& sum) {
  float* at = tile.p[r] + i * 16;
  __m512 p = ExpBelowZero(_mm512_sub_ps(_mm512_loadu_ps(at), Set(tile.m[r])));
  if constexpr (!kWhole) p = _mm512_maskz_mov_ps(tile.visible[r][i], p);
  _mm512_storeu_ps(at, p);
  sum = _mm512_add_ps(sum, p);
}

// Keys times the queries of four rows from `row`; with kExp the exponentials of the tile before.
template <bool kWhole, bool kExp>
QINFER_FN void TileScores(const State& st, uint32_t base, uint32_t row, Scored& tile,
                          Scored& before) {
  const size_t stride = st.q_stride, groups = st.groups;
  const int8_t* q = st.q_codes + row * stride;
  const size_t first = row * groups;
  const uint8_t* keys = BlockKeys(st);
  const uint8_t* scales = keys + size_t{st.args->head_dim} * kAttentionBlock;
  __m512 s[kRows][4];
  alignas(64) static constexpr float kNone[kRows][kAttentionBlock] = {};
  const float(*sums)[kAttentionBlock] = kNone;
  for (size_t g = 0;; scales += 256) {
    __m512i acc[kRows][4];
    Unroll<kRows>([&](auto r) QINFER_LAMBDA {
      const __m512i start = _mm512_set1_epi32(st.q_starts[first + r * groups + g]);
      Unroll<4>([&](auto p) QINFER_LAMBDA { acc[r][p] = start; });
    });
    const auto multiply = [&](uint32_t i) QINFER_LAMBDA {
      __m512i k[4];
      Unroll<4>([&](auto p) QINFER_LAMBDA { k[p] = Load(keys + i * 256 + p * 64); });
      Unroll<kRows>([&](auto r) QINFER_LAMBDA {
        const __m512i codes = Broadcast4(q + r * stride + i * 4);
        Unroll<4>([&](auto p) QINFER_LAMBDA {
          acc[r][p] = _mm512_dpbusd_epi32(acc[r][p], k[p], codes);
          QINFER_PIN(acc[r][p]);
        });
      });
    };
    if (kExp && g == 0) {
      for (uint32_t r = 0; r < kRows; ++r) {
        __m512 sum = _mm512_setzero_ps();
        Unroll<4>([&](auto i) QINFER_LAMBDA {
          ExpStep<kWhole>(before, r, static_cast<uint32_t>(i), sum);
          multiply(static_cast<uint32_t>(i));
        });
        _mm512_storeu_ps(before.sum[r], sum);
        keys += 4 * 256;
        q += 16;
      }
    } else {
      for (uint32_t i = 0; i < kSteps; i += 4) {
        Unroll<4>([&](auto j) QINFER_LAMBDA { multiply(static_cast<uint32_t>(j)); });
        keys += 4 * 256;
        q += 16;
      }
    }
    Unroll<4>([&](auto p) QINFER_LAMBDA {
      const __m512 sk = _mm512_loadu_ps(reinterpret_cast<const float*>(scales + p * 64));
      Unroll<kRows>([&](auto r) QINFER_LAMBDA {
        s[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][p]),
                                  _mm512_mul_ps(Set(st.q_scales[first + r * groups + g]), sk),
                                  _mm512_loadu_ps(sums[r] + p * 16));
      });
    });
    if (++g == groups) break;
    Unroll<kRows>([&](auto r) QINFER_LAMBDA {
      Unroll<4>([&](auto p) QINFER_LAMBDA { _mm512_storeu_ps(tile.p[r] + p * 16, s[r][p]); });
    });
    sums = tile.p;
  }
  const __m512 scale = Set(st.args->scale);
  Unroll<kRows>([&](auto r) QINFER_LAMBDA {
    __m512 top = Set(-__builtin_inff());
    Range visible = {};
    if constexpr (!kWhole)
      visible =
          fold::Visible(*st.args, (row + static_cast<uint32_t>(r)) / st.args->group_heads, base);
    Unroll<4>([&](auto p) QINFER_LAMBDA {
      const __m512 x = _mm512_mul_ps(s[r][p], scale);
      _mm512_storeu_ps(tile.p[r] + p * 16, x);
      // max_ps gives its second operand where one is NaN.
      if constexpr (kWhole) {
        top = _mm512_max_ps(x, top);
      } else {
        tile.visible[r][p] = VisibleMask(visible, base + p * 16);
        top = _mm512_mask_max_ps(top, tile.visible[r][p], x, top);
      }
    });
    _mm512_storeu_ps(tile.top[r], top);
  });
  tile.row = row;
}

template <bool kWhole>
QINFER_FN void ExpTile(Scored& tile) {
  for (uint32_t r = 0; r < kRows; ++r) {
    __m512 sum = _mm512_setzero_ps();
    Unroll<4>([&](auto i)
                  QINFER_LAMBDA { ExpStep<kWhole>(tile, r, static_cast<uint32_t>(i), sum); });
    _mm512_storeu_ps(tile.sum[r], sum);
  }
}

// The parts of a tile's softmax and weights that lie between values of an earlier one.
QINFER_FN void MoveMaxima(const State& st, Scored& tile) {
  __m512 top[kRows];
  Unroll<kRows>([&](auto r) QINFER_LAMBDA { top[r] = _mm512_loadu_ps(tile.top[r]); });
  const __m512 before = Spread(st.m + tile.row, 15);
  const __m512 m = _mm512_max_ps(
      TreeOfRows(top, [](__m512 x, __m512 y) QINFER_LAMBDA { return _mm512_max_ps(x, y); }),
      before);
  Gather(tile.m, 15, m);
  Gather(st.m + tile.row, 15, m);
  Gather(tile.decay, 15, ExpBelowZero(_mm512_sub_ps(before, m)));
}
QINFER_FN void AddSums(const State& st, const Scored& tile) {
  __m512 sum[kRows];
  Unroll<kRows>([&](auto r) QINFER_LAMBDA { sum[r] = _mm512_loadu_ps(tile.sum[r]); });
  const __m512 total =
      TreeOfRows(sum, [](__m512 x, __m512 y) QINFER_LAMBDA { return _mm512_add_ps(x, y); });
  float* l = st.l + tile.row;
  Gather(l, 15, _mm512_fmadd_ps(Spread(l, 15), Spread(tile.decay, 15), total));
}
template <bool kWhole>
QINFER_FN __m512 Weight(const Scored& tile, const float* scales, int r, int i) {
  const __m512 w =
      _mm512_mul_ps(_mm512_loadu_ps(tile.p[r] + i * 16), _mm512_loadu_ps(scales + i * 16));
  return kWhole ? w : _mm512_maskz_mov_ps(tile.visible[r][i], w);
}
template <bool kWhole>
QINFER_FN __m512 LargestWeights(const Scored& tile, const float* scales, int r) {
  return LargerWeight(
      LargerWeight(Weight<kWhole>(tile, scales, r, 0), Weight<kWhole>(tile, scales, r, 1)),
      LargerWeight(Weight<kWhole>(tile, scales, r, 2), Weight<kWhole>(tile, scales, r, 3)));
}
QINFER_FN void ScaleWeights(const __m512* top, const Scored& tile, Weighed& out) {
  __m512 inverse;
  const __m512 scale = WeightFactors(TreeOfRows(top, LargerWeight), &inverse);
  Gather(out.scales, 15, scale);
  Gather(out.inverse, 15, inverse);
  memcpy(out.decay, tile.decay, sizeof(out.decay));
  out.row = tile.row;
}
template <bool kWhole>
QINFER_FN void WriteWeights(const Scored& tile, const float* scales, int r, int i, Weighed& out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.codes[r] + i * 16),
                   WeightCodes(Weight<kWhole>(tile, scales, r, i), Set(out.inverse[r])));
}

// o of four rows, 64 values: * decay + weights * values of `done`, while those of `tile` for
// `group` become `next`, and the maxima of the tile `after` it move on.
template <bool kWhole, bool kAdd, bool kWeigh>
QINFER_FN void Values(const State& st, const Weighed& done, const Scored& tile, uint32_t group,
                      Weighed& next, Scored* after) {
  const size_t four = st.args->v_head_dim * size_t{4};
  const uint8_t* values = st.block_values + done.at * 4;
  const float* scales = BlockValueScales(st) + group * size_t{kAttentionBlock};
  __m512i sum[kRows][4];
  __m512 top[kRows];
  if constexpr (kAdd) {
    Unroll<kRows>([&](auto r) QINFER_LAMBDA {
      Unroll<4>([&](auto c) QINFER_LAMBDA { sum[r][c] = _mm512_setzero_si512(); });
    });
  }
  const auto multiply = [&](int i) QINFER_LAMBDA {
    __m512i v[4];
    Unroll<4>([&](auto c) QINFER_LAMBDA { v[c] = Load(values + c * 64); });
    values += four;
    Unroll<kRows>([&](auto r) QINFER_LAMBDA {
      const __m512i codes = Broadcast4(done.codes[r] + i * 4);
      Unroll<4>([&](auto c) QINFER_LAMBDA {
        sum[r][c] = _mm512_dpbusd_epi32(sum[r][c], codes, v[c]);
        QINFER_PIN(sum[r][c]);
      });
    });
  };
  Unroll<16>([&](auto i) QINFER_LAMBDA {
    if constexpr (kAdd) multiply(i);
    if constexpr (kWeigh) {
      if constexpr (i < 4) top[i] = LargestWeights<kWhole>(tile, scales, i);
      if constexpr (i == 4) ScaleWeights(top, tile, next);
      if constexpr (i == 5)
        if (after != nullptr) MoveMaxima(st, *after);
      if constexpr (i == 6)
        if (group == 0) AddSums(st, tile);
      if constexpr (i >= 8) {
        WriteWeights<kWhole>(tile, scales, i / 2 - 4, i % 2 * 2, next);
        WriteWeights<kWhole>(tile, scales, i / 2 - 4, i % 2 * 2 + 1, next);
      }
    }
  });
  next.at = group * layout::kKvGroup;
  if constexpr (kAdd) {
    Unroll<kRows>([&](auto r) QINFER_LAMBDA {
      float* o = st.o + (done.row + static_cast<uint32_t>(r)) * st.o_stride + done.at;
      Unroll<4>([&](auto c) QINFER_LAMBDA {
        float* to = o + c * 16;
        _mm512_storeu_ps(to,
                         _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][c]), Set(done.scales[r]),
                                         _mm512_mul_ps(_mm512_loadu_ps(to), Set(done.decay[r]))));
      });
    });
  }
}

// Tiles of rows [row, end). kWhole: all of them see all keys of the block. A function of its own,
// for its registers.
template <bool kWhole>
__attribute__((noinline)) void Tiles(const State& st, uint32_t base, uint32_t row, uint32_t end) {
  if (row >= end) return;
  Scored scored[2];
  Weighed weighed[2];
  const uint32_t groups = st.args->v_head_dim / layout::kKvGroup;
  TileScores<kWhole, false>(st, base, row, scored[0], scored[0]);
  MoveMaxima(st, scored[0]);
  uint32_t unit = 0;
  for (uint32_t t = 0; row < end; ++t, row += kRows) {
    Scored& tile = scored[t % 2];
    Scored* after = row + kRows < end ? &scored[(t + 1) % 2] : nullptr;
    if (after != nullptr)
      TileScores<kWhole, true>(st, base, row + kRows, *after, tile);
    else
      ExpTile<kWhole>(tile);
    for (uint32_t g = 0; g < groups; ++g, ++unit) {
      Weighed &next = weighed[unit % 2], &done = weighed[(unit + 1) % 2];
      if (unit == 0)
        Values<kWhole, false, true>(st, done, tile, g, next, after);
      else
        Values<kWhole, true, true>(st, done, tile, g, next, g == 0 ? after : nullptr);
    }
  }
  Values<kWhole, true, false>(st, weighed[(unit + 1) % 2], scored[0], 0, weighed[unit % 2],
                              nullptr);
}

}  // namespace
}  // namespace qinfer::kernels::avx512
