// The integer matrix product on AVX2, written once for all quantized kinds: a tile is one panel (16
// rows, two vectors of eight) by up to four tokens. Sums of u8 x s8 products stay in 16 bits as
// long as they are exact, then in 32; scales follow per group in floats. matmul_int{4,6,8}.cpp
// instantiate it. Internal linkage only.
#pragma once

#include "kernels/cpu/avx2/lines.h"

namespace qinfer::kernels::avx2 {
namespace {

enum Mode { kSym, kMin, kSubSym, kSubMin };

// A panel as the tile reads it: codes in place or widened to bytes, scales as 32-bit values
// [group][16 scales, then with a minimum 16 minima].
struct Panel {
  const uint8_t* codes;
  const float* scales;
  const int32_t* subs;  // kSub8
  const float* supers;  // kSub8: [super][16 d, then with a minimum 16 dmin]
};

// What does not depend on the panel.
struct Call {
  const Matrix* m;
  const Activations* x;
  uint32_t padded, group, unit;
  int32_t* correction;  // [tokens][units]: -zero * A (symmetric), A (kSubMin) or float(A) (kMin)
  uint32_t units;
};

// Widens one panel's scales into scratch.
QINFER_FN Panel PreparePanel(const Matrix& m, const uint8_t* panel, float* scales, float* supers) {
  Panel out = {panel + layout::CodePlane(m), scales, nullptr, nullptr};
  const uint8_t* in = panel + layout::ScalePlane(m);
  const uint32_t eights = layout::Groups(m) * (m.has_min ? 4 : 2);  // vectors of eight values
  switch (m.scale) {
    case ScaleKind::kF32:
      out.scales = reinterpret_cast<const float*>(in);
      break;
    case ScaleKind::kF16:
      for (uint32_t i = 0; i < eights; ++i) _mm256_store_ps(scales + i * 8, LoadHalf(in + i * 16));
      break;
    case ScaleKind::kE8M0:
      for (uint32_t i = 0; i < eights; ++i) _mm256_store_ps(scales + i * 8, E8M0(in + i * 8));
      break;
    default: {
      for (uint32_t i = 0; i < eights; ++i) {
        const __m128i b = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + i * 8));
        const __m256i v = m.has_min ? _mm256_cvtepu8_epi32(b) : _mm256_cvtepi8_epi32(b);
        _mm256_store_si256(reinterpret_cast<__m256i*>(scales + i * 8), v);
      }
      out.subs = reinterpret_cast<const int32_t*>(scales);
      out.supers = supers;
      const uint32_t n =
          static_cast<uint32_t>(layout::CeilDiv(m.padded_cols(), 256)) * (m.has_min ? 4 : 2);
      for (uint32_t i = 0; i < n; ++i) _mm256_store_ps(supers + i * 8, LoadHalf(panel + i * 16));
    }
  }
  return out;
}

// Keeps a running sum in a register: compilers otherwise gather the terms of a chain of integer
// additions first, many more than there are registers.
QINFER_FN void Pin(__m256i& v) { __asm__ volatile("" : "+x"(v)); }

QINFER_FN __m256i Dot16(__m256i u, __m256i a) { return _mm256_maddubs_epi16(u, a); }
QINFER_FN __m256i Widen(__m256i sums16) { return _mm256_madd_epi16(sums16, _mm256_set1_epi16(1)); }

// ---- One granule: adds the sums of 32 inputs (kSplit: of each 16) to 32-bit accumulators
// ----------- K4: codes up to 15: eight products of two fit 16 bits. K6: up to 63: two do. K8: one,
// of the magnitude and the activation with the weight's sign (both at most 128 * 127 * 2).
template <WeightKind K, class L, int T, bool kSplit>
QINFER_FN void Granule(const uint8_t* p, const int8_t* const* a, uint32_t k, __m256i (&acc)[T][2],
                       __m256i (&acc_high)[T][2]) {
  if constexpr (K == WeightKind::kInt4) {
    __m256i s[T][2];
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) {
      const Lines w = L::Get(p, j);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const __m256i low = Broadcast4(a[t] + k + j * 4);
        const __m256i s0 = Dot16(w.low0, low), s1 = Dot16(w.low1, low);
        s[t][0] = j == 0 ? s0 : _mm256_add_epi16(s[t][0], s0);
        s[t][1] = j == 0 ? s1 : _mm256_add_epi16(s[t][1], s1);
        Pin(s[t][0]);
        Pin(s[t][1]);
      }
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const __m256i high = Broadcast4(a[t] + k + 16 + j * 4);
        s[t][0] = _mm256_add_epi16(s[t][0], Dot16(w.high0, high));
        s[t][1] = _mm256_add_epi16(s[t][1], Dot16(w.high1, high));
        Pin(s[t][0]);
        Pin(s[t][1]);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      acc[t][0] = _mm256_add_epi32(acc[t][0], Widen(s[t][0]));
      acc[t][1] = _mm256_add_epi32(acc[t][1], Widen(s[t][1]));
    }
  } else if constexpr (K == WeightKind::kInt6) {
#pragma GCC unroll 2
    for (uint32_t j = 0; j < 4; j += 2) {
      const Lines w = L::Get(p, j), v = L::Get(p, j + 1);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const int8_t* at = a[t] + k + j * 4;
        const __m256i low = Broadcast4(at), low2 = Broadcast4(at + 4);
        acc[t][0] = _mm256_add_epi32(
            acc[t][0], Widen(_mm256_add_epi16(Dot16(w.low0, low), Dot16(v.low0, low2))));
        acc[t][1] = _mm256_add_epi32(
            acc[t][1], Widen(_mm256_add_epi16(Dot16(w.low1, low), Dot16(v.low1, low2))));
        const __m256i high = Broadcast4(at + 16), high2 = Broadcast4(at + 20);
        __m256i(&second)[T][2] = kSplit ? acc_high : acc;
        second[t][0] = _mm256_add_epi32(
            second[t][0], Widen(_mm256_add_epi16(Dot16(w.high0, high), Dot16(v.high0, high2))));
        second[t][1] = _mm256_add_epi32(
            second[t][1], Widen(_mm256_add_epi16(Dot16(w.high1, high), Dot16(v.high1, high2))));
        Pin(acc[t][0]);
        Pin(acc[t][1]);
        if constexpr (kSplit) {
          Pin(second[t][0]);
          Pin(second[t][1]);
        }
      }
    }
  } else {
    const __m256i flip = _mm256_set1_epi8(-128);
#pragma GCC unroll 8
    for (uint32_t j = 0; j < 8; ++j) {
      const __m256i w0 = _mm256_xor_si256(Load(p + j * 64), flip);
      const __m256i w1 = _mm256_xor_si256(Load(p + j * 64 + 32), flip);
      const __m256i m0 = _mm256_abs_epi8(w0), m1 = _mm256_abs_epi8(w1);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const __m256i b = Broadcast4(a[t] + k + j * 4);
        acc[t][0] = _mm256_add_epi32(acc[t][0], Widen(Dot16(m0, _mm256_sign_epi8(b, w0))));
        acc[t][1] = _mm256_add_epi32(acc[t][1], Widen(Dot16(m1, _mm256_sign_epi8(b, w1))));
        Pin(acc[t][0]);
        Pin(acc[t][1]);
      }
    }
  }
}

// ---- Scales of one unit
// ---------------------------------------------------------------------------
template <Mode M, int T>
struct Parts {
  __m256 part[T][2];         // float modes
  __m256i p[T][2], m[T][2];  // kSub8
};

template <Mode M, int T>
QINFER_FN void Finish(const Panel& panel, uint32_t group, const int32_t* const* correction,
                      uint32_t unit, const __m256i (&acc)[T][2], Parts<M, T>& parts) {
  constexpr uint32_t kStride = M == kMin || M == kSubMin ? 32 : 16;
#pragma GCC unroll 2
  for (int r = 0; r < 2; ++r) {
    if constexpr (M == kSym || M == kMin) {
      const float* at = panel.scales + group * kStride + r * 8;
      const __m256 scale = _mm256_loadu_ps(at);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        parts.part[t][r] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(acc[t][r]), parts.part[t][r]);
        if constexpr (M == kMin)
          parts.part[t][r] = _mm256_fmadd_ps(
              _mm256_loadu_ps(at + 16), _mm256_castsi256_ps(_mm256_set1_epi32(correction[t][unit])),
              parts.part[t][r]);
      }
    } else {
      const int32_t* at = panel.subs + group * kStride + r * 8;
      const __m256i sub = Load(at);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        parts.p[t][r] = _mm256_add_epi32(parts.p[t][r], _mm256_mullo_epi32(sub, acc[t][r]));
        if constexpr (M == kSubMin)
          parts.m[t][r] = _mm256_add_epi32(
              parts.m[t][r],
              _mm256_mullo_epi32(Load(at + 16), _mm256_set1_epi32(correction[t][unit])));
      }
    }
  }
}

// What a unit's sum starts from, so that it ends as the contract's I. The INT8 kernel multiplies
// code - 128, the others the code.
template <WeightKind K, Mode M>
QINFER_FN __m256i Start(int32_t correction) {
  if constexpr (K != WeightKind::kInt8)
    return M == kSym || M == kSubSym ? _mm256_set1_epi32(correction) : _mm256_setzero_si256();
  if constexpr (M == kMin) {
    const __m256 sum = _mm256_castsi256_ps(_mm256_set1_epi32(correction));
    return _mm256_slli_epi32(_mm256_cvttps_epi32(sum), 7);
  }
  if constexpr (M == kSubMin) return _mm256_slli_epi32(_mm256_set1_epi32(correction), 7);
  return _mm256_setzero_si256();
}

// ---- A tile: one panel, T tokens, all inputs
// ------------------------------------------------------- kUnit: 16, 32, or 0 for any multiple of
// 32 (call.unit).
template <WeightKind K, class L, int T, Mode M, int kUnit>
QINFER_FN void Tile(const Call& call, const Panel& panel, uint32_t token, uint32_t row, float* out,
                    size_t out_stride, bool prefetch) {
  const Activations& x = *call.x;
  const int8_t* a[T];
  const float* scale_a[T];
  const int32_t* correction[T];
  __m256 total[T][2];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    a[t] = x.codes + (token + t) * x.code_stride;
    scale_a[t] = x.scales + (token + t) * x.scale_stride;
    correction[t] = call.correction + (token + t) * static_cast<size_t>(call.units);
    total[t][0] = total[t][1] = _mm256_setzero_ps();
  }
  const uint8_t* p = panel.codes;
  uint32_t unit = 0;
  for (uint32_t k = 0, block = 0; k < call.padded; ++block) {
    const uint32_t block_begin = k;
    const uint32_t end = Min(call.padded, k + x.block);
    Parts<M, T> parts;
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 2
      for (int r = 0; r < 2; ++r) {
        parts.part[t][r] = _mm256_setzero_ps();
        parts.p[t][r] = parts.m[t][r] = _mm256_setzero_si256();
      }
    while (k < end) {
      __m256i acc[T][2], high[T][2];
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        acc[t][0] = acc[t][1] = Start<K, M>(correction[t][unit]);
        if constexpr (kUnit == 16) high[t][0] = high[t][1] = Start<K, M>(correction[t][unit + 1]);
      }
      const uint32_t unit_end = kUnit == 0 ? Min(end, k + call.unit) : k + 32;
      const uint32_t group = kUnit == 0 ? k / call.group : unit;
      do {
        if (prefetch) {
#pragma GCC unroll 8
          for (size_t line = 0; line < L::kGranule; line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(p + 2048 + line), _MM_HINT_T0);
        }
        Granule<K, L, T, kUnit == 16>(p, a, k, acc, high);
        p += L::kGranule;
        k += 32;
      } while (kUnit == 0 && k < unit_end);
      // With units of 32, groups may still be wider (a block of 32).
      const uint32_t g = kUnit == 32 && call.group != 32 ? (k - 32) / call.group : group;
      Finish<M, T>(panel, g, correction, unit, acc, parts);
      ++unit;
      if constexpr (kUnit == 16) {
        Finish<M, T>(panel, unit, correction, unit, high, parts);
        ++unit;
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const __m256 by = _mm256_set1_ps(scale_a[t][block]);
#pragma GCC unroll 2
      for (int r = 0; r < 2; ++r) {
        __m256 part = parts.part[t][r];
        if constexpr (M == kSubSym || M == kSubMin) {
          const float* d =
              panel.supers + block_begin / layout::kSuperGroup * (M == kSubMin ? 32 : 16) + r * 8;
          part = _mm256_fmadd_ps(_mm256_loadu_ps(d), _mm256_cvtepi32_ps(parts.p[t][r]), part);
          if constexpr (M == kSubMin)
            part =
                _mm256_fnmadd_ps(_mm256_loadu_ps(d + 16), _mm256_cvtepi32_ps(parts.m[t][r]), part);
        }
        total[t][r] = _mm256_fmadd_ps(by, part, total[t][r]);
      }
    }
  }
  const uint32_t rows = call.m->rows - row;
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    float* to = out + (token + t) * out_stride + row;
    if (rows >= 16) {
      _mm256_storeu_ps(to, total[t][0]);
      _mm256_storeu_ps(to + 8, total[t][1]);
    } else {
      StoreTail(to, total[t][0], rows);
      if (rows > 8) StoreTail(to + 8, total[t][1], rows - 8);
    }
  }
}

template <WeightKind K, class L>
QINFER_FN void Widen(const uint8_t* from, uint8_t* to, uint32_t granules) {
  for (uint32_t g = 0; g < granules; ++g, from += L::kGranule, to += 512)
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) {
      const Lines w = L::Get(from, j);
      __m256i* low = reinterpret_cast<__m256i*>(to + j * 64);
      __m256i* high = reinterpret_cast<__m256i*>(to + 256 + j * 64);
      _mm256_store_si256(low, w.low0);
      _mm256_store_si256(low + 1, w.low1);
      _mm256_store_si256(high, w.high0);
      _mm256_store_si256(high + 1, w.high1);
    }
}

template <WeightKind K, class L, Mode M, int kUnit>
void Tokens1(const Call& call, const Panel& panel, uint32_t token, uint32_t row, float* out,
             size_t stride, bool prefetch) {
  Tile<K, L, 1, M, kUnit>(call, panel, token, row, out, stride, prefetch);
}
template <WeightKind K, class L, Mode M, int kUnit>
void Tokens2(const Call& call, const Panel& panel, uint32_t token, uint32_t row, float* out,
             size_t stride) {
  Tile<K, L, 2, M, kUnit>(call, panel, token, row, out, stride, true);
}
template <WeightKind K, class L, Mode M, int kUnit>
void Tokens4(const Call& call, const Panel& panel, uint32_t token, uint32_t row, float* out,
             size_t stride) {
  Tile<K, L, 4, M, kUnit>(call, panel, token, row, out, stride, false);
}

// From here on panels are widened once for all their tokens.
constexpr uint32_t kWidenTokens = 8;
// Codes of a block of tokens stay in the second-level cache while panels pass by.
constexpr uint32_t kTokenBlockBytes = 192 * 1024;

template <WeightKind K, class L, Mode M, int kUnit>
QINFER_FN void Run(const Call& call, uint32_t panel_begin, uint32_t panel_end, uint32_t tokens,
                   float* out, size_t out_stride, uint8_t* widened, float* scales, float* supers) {
  const Matrix& m = *call.m;
  uint32_t token_block = kTokenBlockBytes / call.padded / 4 * 4;
  if (token_block < 32) token_block = 32;
  for (uint32_t first = 0; first < tokens; first += token_block) {
    const uint32_t last = Min(tokens, first + token_block);
    for (uint32_t p = panel_begin; p < panel_end; ++p) {
      const uint8_t* data = m.data + p * m.panel_bytes;
      const Panel panel = PreparePanel(m, data, scales, supers);
      const uint32_t row = p * kPanelRows;
      uint32_t t = first;
      if (K != WeightKind::kInt8 && last - first >= kWidenTokens) {
        Widen<K, L>(panel.codes, widened, call.padded / kInputGranule);
        Panel wide = panel;
        wide.codes = widened;
        for (; t + 4 <= last; t += 4)
          Tokens4<K, Bytes8, M, kUnit>(call, wide, t, row, out, out_stride);
      } else {
        for (; t + 4 <= last; t += 4) Tokens4<K, L, M, kUnit>(call, panel, t, row, out, out_stride);
      }
      if (t + 2 <= last) {
        Tokens2<K, L, M, kUnit>(call, panel, t, row, out, out_stride);
        t += 2;
      }
      if (t < last) Tokens1<K, L, M, kUnit>(call, panel, t, row, out, out_stride, true);
    }
  }
}

// The sums of activations that symmetric codes and minima need, per token and unit.
QINFER_FN void PrepareTokens(const Call& call, uint32_t tokens) {
  const Matrix& m = *call.m;
  const int32_t zero = layout::ZeroPoint(m.kind);
  const bool as_float = m.has_min && m.scale != ScaleKind::kSub8;
  for (uint32_t t = 0; t < tokens; ++t) {
    const int32_t* sums = call.x->sums + t * call.x->sum_stride;
    int32_t* out = call.correction + t * static_cast<size_t>(call.units);
    uint32_t u = 0;
    for (uint32_t k = 0; k < call.padded; ++u) {
      const uint32_t end = Min(call.padded, k + call.unit);
      int32_t sum = 0;
      for (; k < end; k += 16) sum += sums[k / 16];
      if (as_float) {
        const float f = static_cast<float>(sum);
        memcpy(out + u, &f, 4);
      } else {
        out[u] = m.has_min ? sum : -zero * sum;
      }
    }
  }
}

template <WeightKind K, class L>
QINFER_FN void Matmul(const Matrix& m, uint32_t panel_begin, uint32_t panel_end,
                      const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                      void* scratch) {
  Call call;
  call.m = &m;
  call.x = &x;
  call.padded = m.padded_cols();
  call.group = layout::GroupSize(m);
  call.unit = Min(Min(call.group, x.block), call.padded);
  call.units = static_cast<uint32_t>(layout::CeilDiv(call.padded, call.unit));
  uint8_t* widened = static_cast<uint8_t*>(scratch);
  float* scales = reinterpret_cast<float*>(widened + size_t{call.padded} * kPanelRows);
  float* supers = scales + size_t{layout::Groups(m)} * 32;
  call.correction =
      reinterpret_cast<int32_t*>(supers + (call.padded / layout::kSuperGroup + 1) * 32);
  PrepareTokens(call, tokens);
#define QINFER_RUN(mode, unit)                                                                 \
  return Run<K, L, mode, unit>(call, panel_begin, panel_end, tokens, out, out_stride, widened, \
                               scales, supers)
  if (m.scale == ScaleKind::kSub8) {
    if constexpr (K == WeightKind::kInt6) {
      if (call.unit == 16) {
        if (m.has_min) QINFER_RUN(kSubMin, 16);
        QINFER_RUN(kSubSym, 16);
      }
    }
    if (m.has_min) QINFER_RUN(kSubMin, 32);
    QINFER_RUN(kSubSym, 32);
  }
  if constexpr (K == WeightKind::kInt6) {
    if (call.unit == 16) {
      if (m.has_min) QINFER_RUN(kMin, 16);
      QINFER_RUN(kSym, 16);
    }
  }
  if (call.unit == 32) {
    if (m.has_min) QINFER_RUN(kMin, 32);
    QINFER_RUN(kSym, 32);
  }
  if (m.has_min) QINFER_RUN(kMin, 0);
  QINFER_RUN(kSym, 0);
#undef QINFER_RUN
}

}  // namespace
}  // namespace qinfer::kernels::avx2
