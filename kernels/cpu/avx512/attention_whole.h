// AVX-512: blocks of INT8 keys and values that many rows see whole. Tiles of four rows go through
// a pipeline: while the keys of one are multiplied, the exponentials of the tile before fill the
// gaps, and the weights of that one are made while values of an earlier one are added up, so that
// no tile waits for its own maximum, division or conversion.
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
QINFER_FN void PrepareBlock(const State& st, uint32_t base) {
  const AttentionArgs& args = *st.args;
  uint8_t* const out = BlockKeys(st);
  float* const value_scales = BlockValueScales(st);
  const size_t codes = layout::KCodeBytes(args.head_dim);
  const __m512i flip = _mm512_set1_epi8(-128);
  for (uint32_t i = 0; i < kAttentionBlock / kPageTokens; ++i) {
    const uint32_t key = base + i * kPageTokens;
    const uint8_t* plane = fold::Page(args, key) + args.k_offset;
    const ptrdiff_t ahead = fold::Ahead(args, key);
    const size_t end = codes + st.groups * size_t{64};
    for (size_t at = 0; at < end; at += 64) {
      const __m512i line = Load(plane + at);
      fold::Ask(plane + at, ahead);
      _mm512_storeu_si512(out + at * 4 + i * 64, at < codes ? _mm512_xor_si512(line, flip) : line);
    }
    for (uint32_t g = 0; g * layout::kKvGroup < args.v_head_dim; ++g)
      _mm512_storeu_ps(value_scales + g * kAttentionBlock + i * kPageTokens,
                       _mm512_loadu_ps(fold::ValueScales(st, key, g)));
  }
}

// Zen 5: stores of 64 bytes take turns with multiply-adds, two of 32 bytes do not.
QINFER_FN void StoreHalves(float* p, __m512 v) {
#if defined(X64)
  _mm512_storeu_ps(p, v);
#else
  _mm256_storeu_ps(p, _mm512_castps512_ps256(v));
  _mm256_storeu_ps(p + 8, _mm512_extractf32x8_ps(v, 1));
#endif
}

// A sixteen of the tile before: scores become probabilities.
QINFER_FN void ExpStep(Scored& tile, uint32_t r, uint32_t i, __m512& sum) {
  float* at = tile.p[r] + i * 16;
  const __m512 p = ExpBelowZero(_mm512_sub_ps(_mm512_loadu_ps(at), Set(tile.m[r])));
  StoreHalves(at, p);
  sum = _mm512_add_ps(sum, p);
}

// Keys times the queries of four rows from `row`; with kExp the exponentials of the tile before.
template <bool kExp>
QINFER_FN void WholeScores(const State& st, uint32_t row, Scored& tile, Scored& before) {
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
          ExpStep(before, r, static_cast<uint32_t>(i), sum);
          multiply(static_cast<uint32_t>(i));
        });
        StoreHalves(before.sum[r], sum);
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
      Unroll<4>([&](auto p) QINFER_LAMBDA { StoreHalves(tile.p[r] + p * 16, s[r][p]); });
    });
    sums = tile.p;
  }
  const __m512 scale = Set(st.args->scale);
  Unroll<kRows>([&](auto r) QINFER_LAMBDA {
    __m512 top = Set(-__builtin_inff());
    Unroll<4>([&](auto p) QINFER_LAMBDA {
      const __m512 x = _mm512_mul_ps(s[r][p], scale);
      StoreHalves(tile.p[r] + p * 16, x);
      top = _mm512_max_ps(x, top);  // the second operand where one is NaN
    });
    StoreHalves(tile.top[r], top);
  });
  tile.row = row;
}

QINFER_FN void ExpTile(Scored& tile) {
  for (uint32_t r = 0; r < kRows; ++r) {
    __m512 sum = _mm512_setzero_ps();
    Unroll<4>([&](auto i) QINFER_LAMBDA { ExpStep(tile, r, static_cast<uint32_t>(i), sum); });
    StoreHalves(tile.sum[r], sum);
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
QINFER_FN __m512 Weight(const Scored& tile, const float* scales, int r, int i) {
  return _mm512_mul_ps(_mm512_loadu_ps(tile.p[r] + i * 16), _mm512_loadu_ps(scales + i * 16));
}
QINFER_FN __m512 LargestWeights(const Scored& tile, const float* scales, int r) {
  return LargerWeight(LargerWeight(Weight(tile, scales, r, 0), Weight(tile, scales, r, 1)),
                      LargerWeight(Weight(tile, scales, r, 2), Weight(tile, scales, r, 3)));
}
QINFER_FN void ScaleWeights(const __m512* top, const Scored& tile, Weighed& out) {
  __m512 inverse;
  const __m512 scale = WeightFactors(TreeOfRows(top, LargerWeight), &inverse);
  Gather(out.scales, 15, scale);
  Gather(out.inverse, 15, inverse);
  memcpy(out.decay, tile.decay, sizeof(out.decay));
  out.row = tile.row;
}
QINFER_FN void WriteWeights(const Scored& tile, const float* scales, int r, int i, Weighed& out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.codes[r] + i * 16),
                   WeightCodes(Weight(tile, scales, r, i), Set(out.inverse[r])));
}

// o of four rows, 64 values: * decay + weights * values of `done`, while those of `tile` for
// `group` become `next`; of the last group also the maxima of the tile after that.
template <bool kAdd, bool kWeigh>
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
      if constexpr (i < 4) top[i] = LargestWeights(tile, scales, i);
      if constexpr (i == 4) ScaleWeights(top, tile, next);
      if constexpr (i == 5)
        if (after != nullptr) MoveMaxima(st, *after);
      if constexpr (i == 6)
        if (group == 0) AddSums(st, tile);
      if constexpr (i >= 8) {
        WriteWeights(tile, scales, i / 2 - 4, i % 2 * 2, next);
        WriteWeights(tile, scales, i / 2 - 4, i % 2 * 2 + 1, next);
      }
    }
  });
  next.at = group * layout::kKvGroup;
  if constexpr (kAdd) {
    Unroll<kRows>([&](auto r) QINFER_LAMBDA {
      float* o = st.o + (done.row + static_cast<uint32_t>(r)) * st.o_stride + done.at;
      Unroll<4>([&](auto c) QINFER_LAMBDA {
        float* to = o + c * 16;
        StoreHalves(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][c]), Set(done.scales[r]),
                                        _mm512_mul_ps(_mm512_loadu_ps(to), Set(done.decay[r]))));
      });
    });
  }
}

// `tiles` tiles from `row`.
QINFER_FN void WholeTiles(const State& st, uint32_t base, uint32_t row, uint32_t tiles) {
  Scored scored[2];
  Weighed weighed[2];
  const uint32_t groups = st.args->v_head_dim / layout::kKvGroup;
  PrepareBlock(st, base);
  WholeScores<false>(st, row, scored[0], scored[0]);
  MoveMaxima(st, scored[0]);
  uint32_t unit = 0;
  for (uint32_t t = 0; t < tiles; ++t) {
    Scored& tile = scored[t % 2];
    Scored* after = t + 1 < tiles ? &scored[(t + 1) % 2] : nullptr;
    if (after != nullptr)
      WholeScores<true>(st, row + (t + 1) * kRows, *after, tile);
    else
      ExpTile(tile);
    for (uint32_t g = 0; g < groups; ++g, ++unit) {
      Weighed &next = weighed[unit % 2], &done = weighed[(unit + 1) % 2];
      if (unit == 0)
        Values<false, true>(st, done, tile, g, next, after);
      else
        Values<true, true>(st, done, tile, g, next, g == 0 ? after : nullptr);
    }
  }
  Values<true, false>(st, weighed[(unit + 1) % 2], scored[0], 0, weighed[unit % 2], nullptr);
}

}  // namespace
}  // namespace qinfer::kernels::avx512
