// AVX-512: what four rows of attention share (masks, trees of four rows), and sums of values.
#pragma once

#include "kernels/cpu/attention_fold.h"
#include "kernels/cpu/avx512/avx512.h"

namespace qinfer::kernels::avx512 {
namespace {

using fold::Range;
using fold::State;
using fold::Tile;

// Which of the sixteen keys from `key` on are visible.
QINFER_FN __mmask16 VisibleMask(Range visible, uint32_t key) {
  const __mmask16 before = TailMask(visible.begin > key ? visible.begin - key : 0);
  return static_cast<__mmask16>(TailMask(visible.end > key ? visible.end - key : 0) & ~before);
}
// One number of each of four rows: four lanes each.
QINFER_FN __m512 Spread(const float* x, __mmask8 rows) {
  const __m512i by = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(by, _mm512_castps128_ps512(_mm_maskz_loadu_ps(rows, x)));
}
QINFER_FN void Gather(float* x, __mmask8 rows, __m512 v) {
  const __m512i by = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  _mm_mask_storeu_ps(x, rows, _mm512_castps512_ps128(_mm512_permutexvar_ps(by, v)));
}
// The fixed tree of four rows, spread.
template <typename F>
QINFER_FN __m512 TreeOfRows(const __m512* v, F&& f) {
  const auto halves = [&](__m512 x, __m512 y) QINFER_LAMBDA {
    return f(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  };
  const __m512 x = halves(v[0], v[1]), y = halves(v[2], v[3]);
  __m512 z = f(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
  z = f(z, _mm512_permute_ps(z, 0x4e));
  return f(z, _mm512_permute_ps(z, 0xb1));
}

// ---- Floats -----------------------------------------------------------------------------------
// Sixteen values at `at` of a slot's row of V; `n` of them exist.
template <KvType V>
QINFER_FN __m512 LoadValue(const uint8_t* row, uint32_t at, uint32_t n) {
  if constexpr (V == KvType::kF32) {
    return LoadTail(reinterpret_cast<const float*>(row) + at, n);
  } else {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(TailMask(n), row + at * 2));
  }
}

// o[R][at .. at + 16C) = fma(p, v, o) over keys [begin, end) in order, of o * decay;
// p[r][key - base].
template <KvType V, int R, int C>
QINFER_FN void AddValues(const State& st, float* const* o, const float (*p)[kAttentionBlock],
                         Range keys, uint32_t base, uint32_t at, const float* decay) {
  const AttentionArgs& args = *st.args;
  __m512 sum[R][C];
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) QINFER_UNROLL(4)
  for (int c = 0; c < C; ++c)
    sum[r][c] = _mm512_mul_ps(_mm512_loadu_ps(o[r] + at + c * 16), Set(decay[r]));
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

// ---- INT8 -------------------------------------------------------------------------------------
// [four keys][values][4]: sixteen values of four keys are a vector.
QINFER_FN void PrepareInt8(const State& st, uint32_t key, uint32_t base) {
  const size_t stride = layout::VCodeStride(st.args->v_head_dim);
  const uint8_t* row = fold::ValuePlane(st, key);
  uint8_t* out = st.block_values + (key - base) * stride;
  const __m512i bytes = _mm512_set4_epi32(0x0f0b0703, 0x0e0a0602, 0x0d090501, 0x0c080400);
  for (uint32_t four = 0; four < kPageTokens; four += 4, row += 4 * stride) {
    for (size_t at = 0; at < stride; at += 16, out += 64) {
      const auto load = [&](size_t t) QINFER_LAMBDA {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + t * stride + at));
      };
      __m512i v = _mm512_castsi128_si512(load(0));
      v = _mm512_inserti32x4(v, load(1), 1);
      v = _mm512_inserti32x4(v, load(2), 2);
      v = _mm512_inserti32x4(v, load(3), 3);
      v = _mm512_shuffle_epi8(Transpose4x4(v), bytes);
      _mm512_storeu_si512(out, v);
    }
  }
}

// As integers weights have the same order, and what is no weight lies above.
QINFER_FN __m512 LargerWeight(__m512 x, __m512 y) {
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(x), _mm512_castps_si512(y)));
}
// From the largest weights: what makes codes of weights, and (the result) weights of codes.
QINFER_FN __m512 WeightFactors(__m512 largest, __m512* inverse) {
  const __mmask16 none = _mm512_cmp_ps_mask(largest, Set(0x1p-110f), _CMP_LT_OQ);
  const __mmask16 bad = _mm512_cmpge_epu32_mask(_mm512_castps_si512(largest),
                                                _mm512_castps_si512(Set(__builtin_inff())));
  const __mmask16 good = static_cast<__mmask16>(~(none | bad));
  *inverse = _mm512_maskz_mov_ps(good, _mm512_div_ps(Set(255.0f), largest));
  const __m512 scale = _mm512_maskz_mov_ps(good, _mm512_mul_ps(largest, Set(1.0f / 255.0f)));
  return _mm512_mask_mov_ps(scale, bad, Set(__builtin_nanf("")));
}
QINFER_FN __m128i WeightCodes(__m512 weights, __m512 inverse) {
  return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(weights, inverse)));
}

// kWhole: all rows see all keys of the block.
template <int R, bool kWhole>
QINFER_FN void QuantizeWeights(const State& st, const Tile& tile, uint32_t base, Range pages,
                               uint32_t g, uint8_t (*weights)[kAttentionBlock], float* scales) {
  constexpr __mmask8 kRows = (1 << R) - 1;
  __m512 w[R][4], top[4] = {};
  Unroll<4>([&](auto i) QINFER_LAMBDA {
    constexpr uint32_t at = i * 16;
    const bool there = kWhole || (base + at >= pages.begin && base + at < pages.end);
    const __m512 scale =
        there ? _mm512_loadu_ps(fold::ValueScales(st, base + at, g)) : _mm512_setzero_ps();
    Unroll<R>([&](auto r) QINFER_LAMBDA {
      w[r][i] = _mm512_mul_ps(_mm512_loadu_ps(tile.s[r] + at), scale);
      if constexpr (!kWhole)
        w[r][i] = _mm512_maskz_mov_ps(VisibleMask(tile.visible[r], base + at), w[r][i]);
    });
  });
  Unroll<R>([&](auto r) QINFER_LAMBDA {
    top[r] = LargerWeight(LargerWeight(w[r][0], w[r][1]), LargerWeight(w[r][2], w[r][3]));
  });
  __m512 inverse;
  Gather(scales, kRows, WeightFactors(TreeOfRows(top, LargerWeight), &inverse));
  Unroll<R>([&](auto r) QINFER_LAMBDA {
    const __m512 by = _mm512_shuffle_f32x4(inverse, inverse, r * 0x55);
    Unroll<4>([&](auto i) QINFER_LAMBDA {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(weights[r] + i * 16), WeightCodes(w[r][i], by));
    });
  });
}

template <int R, int C>
QINFER_FN void AddInt8(const State& st, float* const* o, const uint8_t (*weights)[kAttentionBlock],
                       const float* scales, const float* decay, Range pages, uint32_t base,
                       uint32_t at) {
  const size_t four = layout::VCodeStride(st.args->v_head_dim) * 4;
  __m512i sum[R][C];
  Unroll<R>([&](auto r) QINFER_LAMBDA {
    Unroll<C>([&](auto c) QINFER_LAMBDA { sum[r][c] = _mm512_setzero_si512(); });
  });
  for (uint32_t key = pages.begin; key < pages.end; key += kPageTokens) {
    const uint8_t* values = st.block_values + (key - base) / 4 * four + at * 4;
    const uint8_t* plane = fold::ValuePlane(st, key) + at * 4;
    const ptrdiff_t ahead = fold::ValuesAhead(*st.args, key);
    Unroll<4>([&](auto i) QINFER_LAMBDA {
      __m512i v[C];
      Unroll<C>([&](auto c) QINFER_LAMBDA {
        v[c] = Load(values + i * four + c * 64);
        fold::Ask(plane + i * four + c * 64, ahead);
      });
      Unroll<R>([&](auto r) QINFER_LAMBDA {
        const __m512i w = Broadcast4(weights[r] + (key - base) + i * 4);
        Unroll<C>([&](auto c) QINFER_LAMBDA {
          sum[r][c] = _mm512_dpbusd_epi32(sum[r][c], w, v[c]);
          QINFER_PIN(sum[r][c]);
        });
      });
    });
  }
  Unroll<R>([&](auto r) QINFER_LAMBDA {
    Unroll<C>([&](auto c) QINFER_LAMBDA {
      float* to = o[r] + at + c * 16;
      _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][c]), Set(scales[r]),
                                           _mm512_mul_ps(_mm512_loadu_ps(to), Set(decay[r]))));
    });
  });
}

}  // namespace
}  // namespace qinfer::kernels::avx512
