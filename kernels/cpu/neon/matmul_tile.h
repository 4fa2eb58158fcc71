// The integer matrix product on NEON, written once for all quantized kinds and for both ways to sum
// products (dot.h): a tile is up to four quarters of a panel's 16 rows (a vector each) by up to
// four tokens, scales per group in floats. matmul_int{4,6,8}.cpp instantiate it. Internal linkage
// only.
#pragma once

#include "kernels/cpu/neon/dot.h"
#include "kernels/cpu/panel16.h"

namespace qinfer::kernels::neon {
namespace {

using panel16::Call;
using panel16::kMin;
using panel16::kSubMin;
using panel16::kSubSym;
using panel16::kSym;
using panel16::Mode;
using panel16::Panel;
using panel16::Scratch;

struct Simd {  // for panel16::PreparePanel
  QINFER_FN void WidenHalf(const uint8_t* from, float* to) {
    QINFER_UNROLL(4)
    for (int i = 0; i < 4; ++i) vst1q_f32(to + i * 4, LoadHalf(from + i * 8));
  }
  QINFER_FN void WidenE8M0(const uint8_t* from, float* to) {
    QINFER_UNROLL(4)
    for (int i = 0; i < 4; ++i) vst1q_f32(to + i * 4, E8M0(from + i * 4));
  }
  QINFER_FN void WidenBytes(bool is_unsigned, const uint8_t* from, float* to) {
    QINFER_UNROLL(4)
    for (int i = 0; i < 4; ++i)
      vst1q_f32(to + i * 4, vreinterpretq_f32_s32(Widen8(is_unsigned, from + i * 4)));
  }
};

QINFER_FN int32x4_t LoadInts(const float* p) { return vreinterpretq_s32_f32(vld1q_f32(p)); }
QINFER_FN float AsFloat(int32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

// What a unit's sum starts from, so that it ends as the contract's I.
template <WeightKind K, Mode M>
QINFER_FN int32x4_t Start(int32_t correction) {
  if constexpr (M == kSym || M == kSubSym) return vdupq_n_s32(correction);
  if constexpr (K != WeightKind::kInt8) return vdupq_n_s32(0);
  return vdupq_n_s32(static_cast<int32_t>(AsFloat(correction)) * 128);
}

template <int T, int R>
struct Parts {
  float32x4_t part[T][R];      // float modes
  int32x4_t p[T][R], m[T][R];  // kSub8
};

// Applies the scales of one unit; `scales` are those of its group and the tile's first row.
template <Mode M, int T, int R>
QINFER_FN void Finish(const float* scales, const int32_t* const* correction, uint32_t unit,
                      const int32x4_t (&acc)[T][R], Parts<T, R>& parts) {
  QINFER_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    const float* at = scales + r * 4;
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) {
      if constexpr (M == kSym || M == kMin) {
        float32x4_t& part = parts.part[t][r];
        part = vfmaq_f32(part, vld1q_f32(at), vcvtq_f32_s32(acc[t][r]));
        if constexpr (M == kMin)
          part = vfmaq_n_f32(part, vld1q_f32(at + 16), AsFloat(correction[t][unit]));
      } else {
        parts.p[t][r] = vmlaq_s32(parts.p[t][r], LoadInts(at), acc[t][r]);
        if constexpr (M == kSubMin)
          parts.m[t][r] = vmlaq_n_s32(parts.m[t][r], LoadInts(at + 16), correction[t][unit]);
      }
    }
  }
}

// Rows 4 r0 .. 4 (r0 + R) - 1 of a panel, T tokens, all inputs. kUnit: 16, 32, or 0 for any
// multiple of 32 (call.unit).
template <WeightKind K, class L, int T, int R, Mode M, int kUnit>
QINFER_FN void Tile(const Call& call, const Panel& panel, uint32_t r0, uint32_t token, uint32_t row,
                    float* out, size_t out_stride) {
  constexpr uint32_t kStride = M == kMin || M == kSubMin ? 32 : 16;
  // Two sums per row: where halves of a granule have scales of their own, and where there are too
  // few sums to keep the multipliers busy.
  constexpr bool kSplit = kUnit == 16 || T == 1;
  const Activations& x = *call.x;
  const int8_t* a[T];
  const int32_t* correction[T];
  float32x4_t total[T][R];
  QINFER_UNROLL(4)
  for (int t = 0; t < T; ++t) {
    a[t] = x.codes + (token + t) * x.code_stride;
    correction[t] = call.correction + (token + t) * static_cast<size_t>(call.units);
    QINFER_UNROLL(4)
    for (int r = 0; r < R; ++r) total[t][r] = Set(0.0f);
  }
  const uint8_t* p = panel.codes;
  const float* scales = panel.scales + r0 * 4;
  uint32_t unit = 0;
  for (uint32_t k = 0, block = 0; k < call.padded; ++block) {
    const float* super = panel.supers + k / layout::kSuperGroup * kStride + r0 * 4;
    const uint32_t end = Min(call.padded, k + x.block);
    Parts<T, R> parts;
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) {
      QINFER_UNROLL(4)
      for (int r = 0; r < R; ++r) {
        parts.part[t][r] = Set(0.0f);
        parts.p[t][r] = parts.m[t][r] = vdupq_n_s32(0);
      }
    }
    while (k < end) {
      int32x4_t acc[T][R], high[T][R];
      QINFER_UNROLL(4)
      for (int t = 0; t < T; ++t) {
        QINFER_UNROLL(4)
        for (int r = 0; r < R; ++r) {
          acc[t][r] = Start<K, M>(correction[t][unit]);
          high[t][r] = kUnit == 16 ? Start<K, M>(correction[t][unit + 1]) : vdupq_n_s32(0);
        }
      }
      const uint32_t unit_end = kUnit == 0 ? Min(end, k + call.unit) : k + 32;
      const uint32_t first = k;
      do {
        Granule<K, L, T, R, kSplit>(p, a, k, r0, acc, high);
        p += L::kGranule;
        k += 32;
      } while (kUnit == 0 && k < unit_end);
      if constexpr (kSplit && kUnit != 16) {
        QINFER_UNROLL(4)
        for (int t = 0; t < T; ++t) {
          QINFER_UNROLL(4)
          for (int r = 0; r < R; ++r) acc[t][r] = vaddq_s32(acc[t][r], high[t][r]);
        }
      }
      // With units of 32, groups may still be wider (a block of 32).
      const uint32_t group =
          kUnit == 16 || (kUnit == 32 && call.group == 32) ? unit : first / call.group;
      Finish<M>(scales + size_t{group} * kStride, correction, unit, acc, parts);
      ++unit;
      if constexpr (kUnit == 16) {
        Finish<M>(scales + size_t{unit} * kStride, correction, unit, high, parts);
        ++unit;
      }
    }
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) {
      const float by = x.scales[(token + t) * x.scale_stride + block];
      QINFER_UNROLL(4)
      for (int r = 0; r < R; ++r) {
        float32x4_t part = parts.part[t][r];
        if constexpr (M == kSubSym || M == kSubMin) {
          part = vfmaq_f32(part, vld1q_f32(super + r * 4), vcvtq_f32_s32(parts.p[t][r]));
          if constexpr (M == kSubMin)
            part = vfmsq_f32(part, vld1q_f32(super + 16 + r * 4), vcvtq_f32_s32(parts.m[t][r]));
        }
        total[t][r] = vfmaq_n_f32(total[t][r], part, by);
      }
    }
  }
  QINFER_UNROLL(4)
  for (int t = 0; t < T; ++t) {
    QINFER_UNROLL(4)
    for (uint32_t r = 0; r < R; ++r) {
      const uint32_t at = row + (r0 + r) * 4;
      if (at >= call.m->rows) break;
      if constexpr (T > 1) {
        if (x.planes == 2) {  // a token's rows are neighbours, and there is an even number of them
          if (t % 2 == 0)
            StoreTail(out + (token + t) / 2 * out_stride + at,
                      vaddq_f32(total[t][r], total[t | 1][r]), call.m->rows - at);
          continue;
        }
      }
      StoreTail(out + (token + t) * out_stride + at, total[t][r], call.m->rows - at);
    }
  }
}

template <class L>
QINFER_FN void Widen(const uint8_t* from, uint8_t* to, uint32_t granules) {
  for (uint32_t g = 0; g < granules; ++g, from += L::kGranule, to += 512) {
    QINFER_UNROLL(4)
    for (uint32_t j = 0; j < 4; ++j) {
      QINFER_UNROLL(4)
      for (uint32_t r = 0; r < 4; ++r) {
        const Lines w = L::Get(from, j, r);
        vst1q_u8(to + j * 64 + r * 16, vreinterpretq_u8_s8(w.low));
        vst1q_u8(to + 256 + j * 64 + r * 16, vreinterpretq_u8_s8(w.high));
      }
    }
  }
}

// Fours of tokens by a panel, half of its rows at a time; returns the first token that is left.
template <WeightKind K, class L, Mode M, int kUnit>
uint32_t Fours(const Call& call, const Panel& panel, uint32_t t, uint32_t last, uint32_t row,
               float* out, size_t stride) {
  for (; t + 4 <= last; t += 4)
    for (uint32_t r0 = 0; r0 < 4; r0 += 2)
      Tile<K, L, 4, 2, M, kUnit>(call, panel, r0, t, row, out, stride);
  return t;
}

template <WeightKind K, class L, Mode M, int kUnit>
void Rest(const Call& call, const Panel& panel, uint32_t t, uint32_t last, uint32_t row, float* out,
          size_t stride) {
  if (t + 2 <= last) {
    Tile<K, L, 2, 4, M, kUnit>(call, panel, 0, t, row, out, stride);
    t += 2;
  }
  if (t < last) Tile<K, L, 1, 4, M, kUnit>(call, panel, 0, t, row, out, stride);
}

// From here on panels are widened once for all their tokens.
constexpr uint32_t kWidenTokens = 8;
// Codes of a block of tokens stay in the second-level cache while panels pass by.
constexpr uint32_t kTokenBlockBytes = 192 * 1024;

template <WeightKind K, class L, Mode M, int kUnit>
QINFER_FN void Run(const Call& call, uint32_t panel_begin, uint32_t panel_end, uint32_t tokens,
                   float* out, size_t out_stride, const Scratch& s) {
  const Matrix& m = *call.m;
  uint32_t token_block = kTokenBlockBytes / call.padded / 4 * 4;
  if (token_block < 32) token_block = 32;
  for (uint32_t first = 0; first < tokens; first += token_block) {
    const uint32_t last = Min(tokens, first + token_block);
    for (uint32_t p = panel_begin; p < panel_end; ++p) {
      const Panel panel =
          panel16::PreparePanel<Simd>(call, m.data + p * m.panel_bytes, s.scales[0], s.supers[0]);
      const uint32_t row = p * kPanelRows;
      uint32_t t = first;
      if constexpr (K != WeightKind::kInt8) {
        if (last - first >= kWidenTokens) {
          Widen<L>(panel.codes, s.widened[0], call.padded / kInputGranule);
          const Panel wide = {s.widened[0], panel.scales, panel.supers};
          t = Fours<K, Bytes8, M, kUnit>(call, wide, t, last, row, out, out_stride);
        }
      }
      t = Fours<K, L, M, kUnit>(call, panel, t, last, row, out, out_stride);
      Rest<K, L, M, kUnit>(call, panel, t, last, row, out, out_stride);
    }
  }
}

template <WeightKind K, class L>
QINFER_FN void Matmul(const Matrix& m, uint32_t panel_begin, uint32_t panel_end,
                      const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                      void* scratch) {
  Scratch s;
  const int32_t zero = K == WeightKind::kInt8 ? 0 : layout::ZeroPoint(K);  // see lines.h
  const Call call = panel16::Prepare<K>(m, x, tokens, zero, scratch, s);
  panel16::Choose<K>(
      call, [&](auto mode, auto unit) __attribute__((always_inline)) {
        Run<K, L, static_cast<Mode>(mode.value), unit.value>(call, panel_begin, panel_end,
                                                             tokens * x.planes, out, out_stride, s);
      });
}

}  // namespace
}  // namespace qinfer::kernels::neon
