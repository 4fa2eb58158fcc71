// The integer matrix product on AVX2 and AVX-VNNI around its tiles: preparing panels and tokens,
// cutting into tiles. matmul_int{4,6,8}.cpp instantiate it. Internal linkage.
#pragma once

#include "kernels/cpu/avx2/matmul_tile.h"
#include "kernels/cpu/panel16.h"
#include "kernels/cpu/unit_sums.h"

namespace qinfer::kernels::avx2 {
namespace {

QINFER_FN __m256i Widen8(bool is_unsigned, const uint8_t* p) {
  const __m128i b = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return is_unsigned ? _mm256_cvtepu8_epi32(b) : _mm256_cvtepi8_epi32(b);
}

struct Simd {  // for panel16::MultiplyScales
  QINFER_FN void WidenHalf(const uint8_t* from, float* to) {
    _mm256_storeu_ps(to, LoadHalf(from));
    _mm256_storeu_ps(to + 8, LoadHalf(from + 16));
  }
  QINFER_FN void WidenBytes(bool is_unsigned, const uint8_t* from, float* to) {
    __m256i* out = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(out, Widen8(is_unsigned, from));
    _mm256_storeu_si256(out + 1, Widen8(is_unsigned, from + 8));
  }
};

// Widens one panel's scales into scratch.
QINFER_FN Panel PreparePanel(const Call& call, const uint8_t* panel, float* scales, float* supers) {
  const Matrix& m = *call.m;
  Panel out = {panel + layout::CodePlane(m), scales, nullptr, nullptr, supers};
  const uint8_t* in = panel + layout::ScalePlane(m);
  const uint32_t groups = layout::Groups(m);
  const uint32_t eights = groups * (m.has_min ? 4 : 2);  // vectors of eight values
  switch (m.scale) {
    case ScaleKind::kF32:
      out.scales = reinterpret_cast<const float*>(in);
      break;
    case ScaleKind::kF16:
      for (uint32_t i = 0; i < eights; ++i) {
        if (i % 4 == 0) PrefetchLine(in + i * 16);  // one by one: many at once wait for each other
        _mm256_store_ps(scales + i * 8, LoadHalf(in + i * 16));
      }
      break;
    case ScaleKind::kE8M0:
      for (uint32_t i = 0; i < eights; ++i) _mm256_store_ps(scales + i * 8, E8M0(in + i * 8));
      break;
    default: {
      if (call.subs == Subs::kScales) {
        panel16::MultiplyScales<Simd>(m, panel, in, scales);
        break;
      }
      int32_t* subs = reinterpret_cast<int32_t*>(scales);
      int32_t* pairs = subs + size_t{groups} * 16;
      out.subs = subs;
      out.pairs = pairs;
      const size_t stride = m.has_min ? 32 : 16;
      const uint32_t per_block = call.x->block / call.group;
      for (uint32_t g = 0; g < groups; ++g) {
        const bool second = g + 1 < groups && (g + 1) % per_block != 0;  // starts a pair with g + 1
        const bool starts = g % per_block % 2 == 0;
        for (uint32_t r = 0; r < 16; r += 8) {
          const uint8_t* at = in + g * stride + r;
          const __m256i sub = Widen8(m.has_min, at);
          const __m256i both = _mm256_or_si256(_mm256_and_si256(sub, _mm256_set1_epi32(0xffff)),
                                               _mm256_slli_epi32(sub, 16));
          if (call.subs == Subs::kFloats) {
            _mm256_store_ps(scales + g * 16 + r, _mm256_cvtepi32_ps(sub));
            continue;
          }
          _mm256_store_si256(reinterpret_cast<__m256i*>(subs + r), kWideningFactors ? both : sub);
          if (!starts) continue;
          const uint32_t skip = m.has_min ? 16 : 0;
          const __m256i first = Widen8(m.has_min, at + skip);
          const __m256i next =
              second ? Widen8(m.has_min, at + stride + skip) : _mm256_setzero_si256();
          _mm256_store_si256(reinterpret_cast<__m256i*>(pairs + r),
                             _mm256_or_si256(_mm256_and_si256(first, _mm256_set1_epi32(0xffff)),
                                             _mm256_slli_epi32(next, 16)));
        }
        subs += 16;
        if (starts) pairs += 16;
      }
      const uint32_t n =
          static_cast<uint32_t>(layout::CeilDiv(m.padded_cols(), 256)) * (m.has_min ? 4 : 2);
      for (uint32_t i = 0; i < n; ++i) _mm256_store_ps(supers + i * 8, LoadHalf(panel + i * 16));
    }
  }
  return out;
}

// Widens a panel's codes to bytes in kInt8's layout.
template <class L>
QINFER_FN void WidenCodes(const uint8_t* from, uint8_t* to, uint32_t granules) {
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
  // Scales before the codes that PreparePanel does not ask for by itself.
  const size_t scale_bytes = m.scale == ScaleKind::kF16 ? 0 : layout::CodePlane(m);
  uint32_t token_block = kTokenBlockBytes / call.padded / 4 * 4;
  if (token_block < 32) token_block = 32;
  for (uint32_t first = 0; first < tokens; first += token_block) {
    const uint32_t last = Min(tokens, first + token_block);
    for (uint32_t p = panel_begin; p < panel_end; ++p) {
      const uint8_t* data = m.data + p * m.panel_bytes;
      // The planes of scales, as tiles do it for the codes: without a gap.
      for (size_t line = 0; line < scale_bytes; line += 64) PrefetchLine(data + line);
      const Panel panel = PreparePanel(call, data, scales, supers);
      const uint32_t row = p * kPanelRows;
      uint32_t t = first;
      if (K != WeightKind::kInt8 && last - first >= kWidenTokens) {
        WidenCodes<L>(panel.codes, widened, call.padded / kInputGranule);
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

// Sums of units in 16 bits, those of two neighbours of a block in one value.
QINFER_FN void PackPairs(const int32_t* __restrict sums, uint32_t padded, uint32_t unit,
                         uint32_t per_block, int32_t* __restrict out) {
  if (per_block == 1) {  // nobody has a neighbour
    SumUnits(sums, padded, unit, [&](uint32_t u, int32_t sum) { out[u] = sum & 0xffff; });
    return;
  }
  if (per_block % 2 == 0 && unit == 16) {
    for (uint32_t i = 0; i < padded / 32; ++i)
      out[i] = static_cast<int32_t>((static_cast<uint32_t>(sums[2 * i]) & 0xffffu) |
                                    static_cast<uint32_t>(sums[2 * i + 1]) << 16);
    return;
  }
  SumUnits(sums, padded, unit, [&](uint32_t u, int32_t sum) {
    if (u % per_block % 2 == 0)
      *out++ = sum & 0xffff;
    else
      out[-1] |= static_cast<int32_t>(static_cast<uint32_t>(sum) << 16);
  });
}

// What a tile needs of the sums of activations, per row and unit.
QINFER_FN void PrepareSums(const Call& call, uint32_t rows) {
  const Matrix& m = *call.m;
  const int32_t zero = m.kind == WeightKind::kInt8 && kSignedInt8 ? 0 : layout::ZeroPoint(m.kind);
  const uint32_t per_block = call.x->block / call.unit;
  for (uint32_t t = 0; t < rows; ++t) {
    const int32_t* __restrict sums = call.x->sums + t * call.x->sum_stride;
    int32_t* __restrict out = call.correction + t * static_cast<size_t>(call.corrections);
    if (m.scale == ScaleKind::kSub8 && call.subs == Subs::kIntegers) {
      PackPairs(sums, call.padded, call.unit, per_block, out);
    } else if (m.has_min) {
      SumUnits(sums, call.padded, call.unit, [&](uint32_t u, int32_t sum) {
        const float f = static_cast<float>(sum);
        memcpy(out + u, &f, 4);
      });
    } else {
      SumUnits(sums, call.padded, call.unit,
               [&](uint32_t u, int32_t sum) { out[u] = -zero * sum; });
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
  call.corrections = static_cast<uint32_t>(layout::CeilDiv(call.padded, call.unit));
  call.subs = Subs::kIntegers;
#if defined(QINFER_DPBUSD)
  if (panel16::FloatScales<K>(call)) call.subs = Subs::kScales;
  if (FloatSubs<K>(call)) call.subs = Subs::kFloats;
#endif
  uint8_t* widened = static_cast<uint8_t*>(scratch);
  float* scales = reinterpret_cast<float*>(widened + size_t{call.padded} * kPanelRows);
  float* supers = scales + size_t{layout::Groups(m)} * 32;
  call.correction =
      reinterpret_cast<int32_t*>(supers + (call.padded / layout::kSuperGroup + 1) * 32);
  const uint32_t x_rows = tokens * x.planes;
  PrepareSums(call, x_rows);
#define QINFER_RUN(mode, unit)                                                                 \
  return Run<K, L, mode, unit>(call, panel_begin, panel_end, x_rows, out, out_stride, widened, \
                               scales, supers)
  if constexpr (K == WeightKind::kFp4) {
    if (x.block == 32) QINFER_RUN(kSym, kBlocks32);
    QINFER_RUN(kSym, 32);
  }
  if constexpr (K != WeightKind::kInt8) {
    if (m.scale == ScaleKind::kSub8 && call.subs != Subs::kScales) {
      if constexpr (K == WeightKind::kInt6) {
#if defined(QINFER_DPBUSD)
        if (call.subs == Subs::kFloats) QINFER_RUN(kSubFloat, -16);
#endif
        if (call.unit == 16 && x.block == 32) {
          if (m.has_min) QINFER_RUN(kSubMin, -16);
          QINFER_RUN(kSubSym, -16);
        }
        if (call.unit == 16) {
          if (m.has_min) QINFER_RUN(kSubMin, 16);
          QINFER_RUN(kSubSym, 16);
        }
      }
      if (x.block == 32) {
        if (m.has_min) QINFER_RUN(kSubMin, kBlocks32);
        QINFER_RUN(kSubSym, kBlocks32);
      }
      if (m.has_min) QINFER_RUN(kSubMin, 32);
      QINFER_RUN(kSubSym, 32);
    }
  }
  if constexpr (K == WeightKind::kInt6) {
    if (call.unit == 16) {
      if (m.has_min) QINFER_RUN(kMin, 16);
      QINFER_RUN(kSym, 16);
    }
  }
  if (call.unit == 32 && x.block == 32) {
    if (m.has_min) QINFER_RUN(kMin, kBlocks32);
    QINFER_RUN(kSym, kBlocks32);
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
