// NEON's part of attention (kernels/cpu/attention_fold.h): scores of keys, softmax of a block, sums
// of values. A page's 16 keys, and 16 values of a head, are four vectors. Internal linkage.
#pragma once

#include "kernels/cpu/attention_fold.h"
#include "kernels/cpu/neon/dot.h"

namespace qinfer::kernels::neon {
namespace {

using fold::Page;
using fold::Range;
using fold::State;

// Four floats from `index` on.
template <KvType K>
QINFER_FN float32x4_t LoadFloats(const uint8_t* plane, size_t index) {
  if constexpr (K == KvType::kF32) {
    return vld1q_f32(reinterpret_cast<const float*>(plane) + index);
  } else {
    return LoadHalf(plane + index * 2);
  }
}

// ---- Scores -------------------------------------------------------------------------------------
// One input of R rows by P pages.
template <KvType K, int R, int P, int kLane>
QINFER_FN void ScoreInput(const uint8_t* const (&plane)[P], uint32_t d, const float32x4_t (&q)[R],
                          float32x4_t (&s)[R][P][4]) {
  QINFER_UNROLL(4)
  for (int p = 0; p < P; ++p) {
    QINFER_UNROLL(4)
    for (uint32_t i = 0; i < 4; ++i) {
      const float32x4_t k = LoadFloats<K>(plane[p], size_t{d} * kPageTokens + i * 4);
      QINFER_UNROLL(4)
      for (int r = 0; r < R; ++r) s[r][p][i] = vfmaq_laneq_f32(s[r][p][i], k, q[r], kLane);
    }
  }
}

// R rows by P pages from `key`.
template <KvType K, int R, int P>
QINFER_FN void ScoreFloat(const State& st, fold::Tile& tile, uint32_t key, uint32_t base) {
  const AttentionArgs& args = *st.args;
  const uint8_t* plane[P];
  const float* q[R];
  float32x4_t s[R][P][4], by[R];
  QINFER_UNROLL(4)
  for (int p = 0; p < P; ++p)
    plane[p] = Page(args, key + static_cast<uint32_t>(p) * kPageTokens) + args.k_offset;
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    q[r] = fold::QueryRow(args, tile.row + static_cast<uint32_t>(r));
    QINFER_UNROLL(4)
    for (int p = 0; p < P; ++p) {
      QINFER_UNROLL(4)
      for (int i = 0; i < 4; ++i) s[r][p][i] = Set(0.0f);
    }
  }
  uint32_t d = 0;
  for (; d + 4 <= args.head_dim; d += 4) {
    QINFER_UNROLL(4)
    for (int r = 0; r < R; ++r) by[r] = vld1q_f32(q[r] + d);
    ScoreInput<K, R, P, 0>(plane, d, by, s);
    ScoreInput<K, R, P, 1>(plane, d + 1, by, s);
    ScoreInput<K, R, P, 2>(plane, d + 2, by, s);
    ScoreInput<K, R, P, 3>(plane, d + 3, by, s);
  }
  for (; d < args.head_dim; ++d) {
    QINFER_UNROLL(4)
    for (int r = 0; r < R; ++r) by[r] = Set(q[r][d]);
    ScoreInput<K, R, P, 0>(plane, d, by, s);
  }
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    QINFER_UNROLL(4)
    for (int p = 0; p < P; ++p) {
      float* to = tile.s[r] + (key - base) + static_cast<uint32_t>(p) * kPageTokens;
      QINFER_UNROLL(4)
      for (int i = 0; i < 4; ++i) vst1q_f32(to + i * 4, s[r][p][i]);
    }
  }
}

template <int R>
QINFER_FN void ScoreInt8(const State& st, fold::Tile& tile, uint32_t key, uint32_t base) {
  const AttentionArgs& args = *st.args;
  const uint8_t* plane = Page(args, key) + args.k_offset;
  const float* scales = reinterpret_cast<const float*>(plane + layout::KCodeBytes(args.head_dim));
  const int8_t* q[R];
  const float* q_scales[R];
  float32x4_t s[R][4];
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    const size_t row = tile.row + static_cast<uint32_t>(r);
    q[r] = st.q_codes + row * st.q_stride;
    q_scales[r] = st.q_scales + row * st.groups;
    QINFER_UNROLL(4)
    for (int i = 0; i < 4; ++i) s[r][i] = Set(0.0f);
  }
  for (uint32_t g = 0; g < st.groups; ++g) {
    const uint32_t end = Min(args.head_dim, (g + 1) * layout::kKvGroup);
    int32x4_t acc[R][4];
    QINFER_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      QINFER_UNROLL(4)
      for (int i = 0; i < 4; ++i) acc[r][i] = vdupq_n_s32(0);
    }
    for (uint32_t d = g * layout::kKvGroup; d < end; d += 4) {
      int8x16_t by[R];
      QINFER_UNROLL(4)
      for (int r = 0; r < R; ++r) by[r] = Broadcast4(q[r] + d);
      QINFER_UNROLL(4)
      for (uint32_t i = 0; i < 4; ++i) {
        const int8x16_t k = Signed(vld1q_u8(plane + size_t{d} * 16 + i * 16));
        QINFER_UNROLL(4)
        for (int r = 0; r < R; ++r) acc[r][i] = Dot(acc[r][i], k, by[r]);
      }
    }
    QINFER_UNROLL(4)
    for (uint32_t i = 0; i < 4; ++i) {
      const float32x4_t sk = vld1q_f32(scales + g * kPageTokens + i * 4);
      QINFER_UNROLL(4)
      for (int r = 0; r < R; ++r)
        s[r][i] = vfmaq_f32(s[r][i], vcvtq_f32_s32(acc[r][i]), vmulq_n_f32(sk, q_scales[r][g]));
    }
  }
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    QINFER_UNROLL(4)
    for (int i = 0; i < 4; ++i) vst1q_f32(tile.s[r] + (key - base) + i * 4, s[r][i]);
  }
}

// ---- Values -------------------------------------------------------------------------------------
// Sixteen values at `at` of a slot's row of V; `n` of them exist.
template <KvType V>
QINFER_FN void LoadValues(const uint8_t* row, uint32_t at, uint32_t n, float32x4_t (&v)[4]) {
  if (n >= 16) {
    QINFER_UNROLL(4)
    for (uint32_t i = 0; i < 4; ++i) v[i] = LoadFloats<V>(row, at + i * 4);
    return;
  }
  constexpr size_t kBytes = V == KvType::kF32 ? 4 : 2;
  uint8_t tail[16 * kBytes] = {};
  memcpy(tail, row + at * kBytes, n * kBytes);
  QINFER_UNROLL(4)
  for (uint32_t i = 0; i < 4; ++i) v[i] = LoadFloats<V>(tail, i * 4);
}

// Which of the four keys from `key` on are visible.
QINFER_FN uint32x4_t VisibleMask(Range visible, uint32_t key) {
  const uint32_t first[4] = {0, 1, 2, 3};
  const uint32x4_t at = vaddq_u32(vld1q_u32(first), vdupq_n_u32(key));
  return vandq_u32(vcgeq_u32(at, vdupq_n_u32(visible.begin)),
                   vcltq_u32(at, vdupq_n_u32(visible.end)));
}

// INT8: one row's weights; returns their scale.
QINFER_FN float QuantizeRowWeights(const State& st, const fold::Tile& tile, int r, uint32_t base,
                                   Range pages, uint32_t g, int16_t* weights) {
  const Range visible = {tile.visible[r].begin - base, tile.visible[r].end - base};
  float w[kAttentionBlock];
  memset(w, 0, sizeof(w));
  uint32x4_t top = vdupq_n_u32(0);
  for (uint32_t key = pages.begin; key < pages.end; key += kPageTokens) {
    const float* scales = fold::ValueScales(st, key, g);
    QINFER_UNROLL(4)
    for (uint32_t i = 0; i < kPageTokens; i += 4) {
      const uint32_t at = key - base + i;
      const float32x4_t v = vmulq_f32(vld1q_f32(tile.s[r] + at), vld1q_f32(scales + i));
      vst1q_f32(w + at, And(v, VisibleMask(visible, at)));
      // As integers weights have the same order, and what is no weight lies above.
      top = vmaxq_u32(top, vreinterpretq_u32_f32(vld1q_f32(w + at)));
    }
  }
  const fold::WeightScale scale = fold::ScaleOfWeights(vmaxvq_u32(top));
  const float32x4_t inverse = Set(scale.inverse);
  for (uint32_t i = 0; i < kAttentionBlock; i += 4)
    vst1_s16(weights + i, vmovn_s32(vcvtnq_s32_f32(vmulq_f32(vld1q_f32(w + i), inverse))));
  return scale.factor;
}

struct AttentionSimd {
  QINFER_FN float Quantize(const float* x, uint32_t count, int8_t* codes) {
    return QuantizeBlock(x, count, codes);
  }

  template <int R>
  QINFER_FN void Scores(const State& st, fold::Tile& tile, uint32_t base) {
    constexpr int P = R == 1 ? 4 : R == 2 ? 2 : 1;
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
    if constexpr (P > 1) {
      for (; key < tile.all.end; key += kPageTokens) {
        if (type == KvType::kF16)
          ScoreFloat<KvType::kF16, R, 1>(st, tile, key, base);
        else
          ScoreFloat<KvType::kF32, R, 1>(st, tile, key, base);
      }
    }
  }

  QINFER_FN void SoftmaxRow(const State& st, fold::Tile& tile, int r, uint32_t base) {
    const AttentionArgs& args = *st.args;
    float* s = tile.s[r];
    const uint32_t row = tile.row + static_cast<uint32_t>(r);
    const Range visible = {tile.visible[r].begin - base, tile.visible[r].end - base};
    const auto mask = [&](uint32_t i) { return VisibleMask(visible, i); };
    float32x4_t top = Set(st.m[row]);
    for (uint32_t i = 0; i < kAttentionBlock; i += 4) {
      float32x4_t v = vmulq_n_f32(vld1q_f32(s + i), args.scale);
      if (args.softcap != 0.0f)
        v = vmulq_n_f32(Tanh(vdivq_f32(v, Set(args.softcap))), args.softcap);
      vst1q_f32(s + i, v);
      top = vbslq_f32(vandq_u32(mask(i), vcgtq_f32(v, top)), v, top);
    }
    const float m = vmaxvq_f32(top);
    float32x4_t sum[4];
    QINFER_UNROLL(4)
    for (int i = 0; i < 4; ++i) sum[i] = Set(0.0f);
    for (uint32_t i = 0; i < kAttentionBlock; i += 16) {
      QINFER_UNROLL(4)
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t at = i + j * 4;
        const float32x4_t p = And(Exp(vsubq_f32(vld1q_f32(s + at), Set(m))), mask(at));
        vst1q_f32(s + at, p);
        sum[j] = vaddq_f32(sum[j], p);
      }
    }
    const float decay = vgetq_lane_f32(Exp(Set(st.m[row] - m)), 0);
    st.l[row] = __builtin_fmaf(st.l[row], decay, Tree(sum));
    st.m[row] = m;
    tile.decay[r] = decay;
  }
  template <int R>
  QINFER_FN void Softmax(const State& st, fold::Tile& tile, uint32_t base) {
    for (int r = 0; r < R; ++r) SoftmaxRow(st, tile, r, base);
  }

  QINFER_FN float ExpOne(float x) { return vgetq_lane_f32(Exp(Set(x)), 0); }
  QINFER_FN void Scale(float* x, float by, size_t n) {
    for (size_t i = 0; i < n; i += 4) vst1q_f32(x + i, vmulq_n_f32(vld1q_f32(x + i), by));
  }
  QINFER_FN void ScaleTo(const float* x, float by, uint32_t n, float* out) {
    for (uint32_t i = 0; i < n; i += 4)
      StoreTail(out + i, vmulq_n_f32(vld1q_f32(x + i), by), n - i);
  }
  static constexpr uint32_t kValueLanes = 16;
  static constexpr int ValueVectors(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

  template <KvType V, int R, int C>
  QINFER_FN void AddValues(const State& st, float* const* o, const float (*p)[kAttentionBlock],
                           Range keys, uint32_t base, uint32_t at, const float* decay) {
    const AttentionArgs& args = *st.args;
    float32x4_t sum[R][C][4];
    QINFER_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      QINFER_UNROLL(4)
      for (int c = 0; c < C; ++c) {
        QINFER_UNROLL(4)
        for (int i = 0; i < 4; ++i)
          sum[r][c][i] = vmulq_n_f32(vld1q_f32(o[r] + at + c * 16 + i * 4), decay[r]);
      }
    }
    const size_t stride = fold::ValueStride<V>(args);
    for (uint32_t key = keys.begin; key < keys.end;) {
      const uint8_t* row = fold::ValuePlane(st, key) + key % kPageTokens * stride;
      const uint32_t stop = Min(keys.end, key / kPageTokens * kPageTokens + kPageTokens);
      for (; key < stop; ++key, row += stride) {
        QINFER_UNROLL(4)
        for (uint32_t c = 0; c < C; ++c) {
          float32x4_t v[4];
          LoadValues<V>(row, at + c * 16, args.v_head_dim - at - c * 16, v);
          QINFER_UNROLL(4)
          for (int r = 0; r < R; ++r) {
            QINFER_UNROLL(4)
            for (int i = 0; i < 4; ++i)
              sum[r][c][i] = vfmaq_n_f32(sum[r][c][i], v[i], p[r][key - base]);
          }
        }
      }
    }
    QINFER_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      QINFER_UNROLL(4)
      for (int c = 0; c < C; ++c) {
        QINFER_UNROLL(4)
        for (int i = 0; i < 4; ++i) vst1q_f32(o[r] + at + c * 16 + i * 4, sum[r][c][i]);
      }
    }
  }

  // INT8: codes are multiplied where they lie.
  using Weight = int16_t;
  static constexpr int Int8Vectors(int rows) { return ValueVectors(rows); }
  QINFER_FN void PrepareInt8(const State& /*st*/, uint32_t /*key*/, uint32_t /*base*/) {}
  template <int R>
  QINFER_FN void QuantizeWeights(const State& st, const fold::Tile& tile, uint32_t base,
                                 Range pages, uint32_t g, Weight (*weights)[kAttentionBlock],
                                 float* scales) {
    for (int r = 0; r < R; ++r)
      scales[r] = QuantizeRowWeights(st, tile, r, base, pages, g, weights[r]);
  }
  template <int R, int C>
  QINFER_FN void AddInt8(const State& st, float* const* o, const Weight (*weights)[kAttentionBlock],
                         const float* scales, const float* decay, Range pages, uint32_t base,
                         uint32_t at) {
    const size_t stride = layout::VCodeStride(st.args->v_head_dim);
    int32x4_t sum[R][C][4];
    QINFER_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      QINFER_UNROLL(4)
      for (int c = 0; c < C; ++c) {
        QINFER_UNROLL(4)
        for (int i = 0; i < 4; ++i) sum[r][c][i] = vdupq_n_s32(0);
      }
    }
    for (uint32_t page = pages.begin; page < pages.end; page += kPageTokens) {
      const uint8_t* row = fold::ValuePlane(st, page) + at;
      for (uint32_t key = page - base; key < page - base + kPageTokens; ++key, row += stride) {
        QINFER_UNROLL(4)
        for (uint32_t c = 0; c < C; ++c) {
          const int8x16_t codes = Signed(vld1q_u8(row + c * 16));
          const int16x8_t low = vmovl_s8(vget_low_s8(codes)), high = vmovl_high_s8(codes);
          QINFER_UNROLL(4)
          for (int r = 0; r < R; ++r) {
            const int16_t w = weights[r][key];
            sum[r][c][0] = vmlal_n_s16(sum[r][c][0], vget_low_s16(low), w);
            sum[r][c][1] = vmlal_high_n_s16(sum[r][c][1], low, w);
            sum[r][c][2] = vmlal_n_s16(sum[r][c][2], vget_low_s16(high), w);
            sum[r][c][3] = vmlal_high_n_s16(sum[r][c][3], high, w);
          }
        }
      }
    }
    QINFER_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      QINFER_UNROLL(4)
      for (int c = 0; c < C; ++c) {
        QINFER_UNROLL(4)
        for (int i = 0; i < 4; ++i) {
          float* to = o[r] + at + c * 16 + i * 4;
          const float32x4_t decayed = vmulq_n_f32(vld1q_f32(to), decay[r]);
          vst1q_f32(to, vfmaq_n_f32(decayed, vcvtq_f32_s32(sum[r][c][i]), scales[r]));
        }
      }
    }
  }

  QINFER_FN void ToHalf(const float* x, uint32_t n, uint16_t* out) {
    for (uint32_t i = 0; i < n; i += 4)
      vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(LoadTail(x + i, n - i))));
  }
};

}  // namespace
}  // namespace qinfer::kernels::neon
