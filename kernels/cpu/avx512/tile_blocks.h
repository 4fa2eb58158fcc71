// Tiles of the integer matrix product on AVX-512 VNNI where activations and units are blocks of 32
// inputs and scales are floats, the usual case: a unit's sum goes straight into the total. Up to
// two panels of 16 rows (a vector each) by up to six tokens, or one by up to eight. Internal
// linkage only.
#pragma once

#include "kernels/cpu/avx512/lines.h"
#include "kernels/cpu/panel16.h"

namespace qinfer::kernels::avx512 {
namespace {

using panel16::Call;
using panel16::kMin;
using panel16::kSubMin;
using panel16::kSubSym;
using panel16::kSym;
using panel16::Mode;
using panel16::Panel;
using panel16::Scratch;

// How far ahead of what is read memory is asked for.
constexpr size_t kPrefetchBytes = 2048;

QINFER_FN void PrefetchLine(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchBytes), _MM_HINT_T0);
}

// Adds the products of 32 inputs: low halves to acc, high halves to high, which may be acc where
// L leaves nothing shifted. a: the first token's codes, the others' at multiples of `stride`.
template <class L, int T, int P>
QINFER_FN void Granule(const uint8_t* const (&p)[P], const int8_t* a, size_t stride,
                       __m512i (&acc)[T][P], __m512i (&high)[T][P]) {
  QINFER_UNROLL(4)
  for (uint32_t j = 0; j < 4; ++j) {
    Lines w[P];
    QINFER_UNROLL(2)
    for (int i = 0; i < P; ++i) w[i] = L::Get(p[i], j);
    QINFER_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      const __m512i b = Broadcast4(a + t * stride + j * 4);
      QINFER_UNROLL(2)
      for (int i = 0; i < P; ++i) acc[t][i] = _mm512_dpbusd_epi32(acc[t][i], w[i].low, b);
    }
    QINFER_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      const __m512i b = Broadcast4(a + t * stride + 16 + j * 4);
      QINFER_UNROLL(2)
      for (int i = 0; i < P; ++i) high[t][i] = _mm512_dpbusd_epi32(high[t][i], w[i].high, b);
    }
  }
}

// Whether any of the T tokens has something in this block.
template <int T>
QINFER_FN bool AnyScale(const float* by, size_t stride) {
  uint32_t bits = 0;
  QINFER_UNROLL(8)
  for (int t = 0; t < T; ++t) {
    uint32_t one;
    memcpy(&one, by + t * stride, 4);
    bits |= one;
  }
  return bits != 0;
}

// Rows of activations, `step` apart.
struct Rows {
  const int8_t* codes;
  const float* scales;
  const int32_t* correction;
  size_t code_stride, scale_stride, units;

  QINFER_FN Rows From(const Call& call, size_t first, size_t step) {
    const Activations& x = *call.x;
    return {x.codes + first * x.code_stride,
            x.scales + first * x.scale_stride,
            call.correction + first * call.units,
            step * x.code_stride,
            step * x.scale_stride,
            step * call.units};
  }
};

// The totals of T rows by P panels. kSparse: a block of which no row has anything adds nothing and
// is passed over.
template <class L, int T, int P, bool kHasMin, bool kSparse>
QINFER_FN void Totals(const Call& call, const Panel (&panel)[P], Rows x, bool prefetch,
                      __m512 (&total)[T][P]) {
  constexpr uint32_t kStride = kHasMin ? 32 : 16;
  const uint8_t* p[P];
  QINFER_UNROLL(2)
  for (int i = 0; i < P; ++i) {
    p[i] = panel[i].codes;
    QINFER_UNROLL(8)
    for (int t = 0; t < T; ++t) total[t][i] = _mm512_setzero_ps();
  }
  const uint32_t units_per_group = call.group / 32;
  uint32_t in_group = 0;
  size_t scale = 0;
  const int8_t* const end = x.codes + call.padded;
  for (; x.codes != end; x.codes += 32, ++x.scales, ++x.correction) {
    const size_t at = scale;
    if (++in_group == units_per_group) {
      in_group = 0;
      scale += kStride;
    }
    if constexpr (kSparse) {
      if (!AnyScale<T>(x.scales, x.scale_stride)) {
        QINFER_UNROLL(2)
        for (int i = 0; i < P; ++i) p[i] += L::kGranule;
        continue;
      }
    }
    if (prefetch) {
      QINFER_UNROLL(8)
      for (size_t line = 0; line < L::kGranule; line += 64) QINFER_UNROLL(2)
      for (int i = 0; i < P; ++i) PrefetchLine(p[i] + line);
    }
    __m512i acc[T][P];
    QINFER_UNROLL(8)
    for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
    for (int i = 0; i < P; ++i)
      acc[t][i] = kHasMin ? _mm512_setzero_si512() : _mm512_set1_epi32(x.correction[t * x.units]);
    if constexpr (L::kHighShift == 0) {
      Granule<L, T, P>(p, x.codes, x.code_stride, acc, acc);
    } else {
      __m512i high[T][P];
      QINFER_UNROLL(8)
      for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
      for (int i = 0; i < P; ++i) high[t][i] = _mm512_setzero_si512();
      Granule<L, T, P>(p, x.codes, x.code_stride, acc, high);
      QINFER_UNROLL(8)
      for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
      for (int i = 0; i < P; ++i)
        acc[t][i] = _mm512_add_epi32(acc[t][i], _mm512_srai_epi32(high[t][i], L::kHighShift));
    }
    QINFER_UNROLL(2)
    for (int i = 0; i < P; ++i) {
      p[i] += L::kGranule;
      const __m512 d = _mm512_loadu_ps(panel[i].scales + at);
      __m512 m = d;
      if constexpr (kHasMin) m = _mm512_loadu_ps(panel[i].scales + at + 16);
      QINFER_UNROLL(8)
      for (int t = 0; t < T; ++t) {
        __m512 part = _mm512_mul_ps(d, _mm512_cvtepi32_ps(acc[t][i]));
        if constexpr (kHasMin)
          part = _mm512_fmadd_ps(
              m, _mm512_castsi512_ps(_mm512_set1_epi32(x.correction[t * x.units])), part);
        total[t][i] = _mm512_fmadd_ps(Set(x.scales[t * x.scale_stride]), part, total[t][i]);
      }
    }
  }
}

template <class L, int T, int P, bool kHasMin>
QINFER_FN void TileBlocks32(const Call& call, const Panel (&panel)[P], uint32_t token, uint32_t row,
                            float* out, size_t out_stride, bool prefetch) {
  const size_t planes = call.x->planes, first = token * planes;
  __m512 total[T][P];
  Totals<L, T, P, kHasMin, false>(call, panel, Rows::From(call, first, planes), prefetch, total);
  if (planes == 2 && call.marks == nullptr) {  // the second one is empty but for a few blocks
    __m512 rest[T][P];
    Totals<L, T, P, kHasMin, true>(call, panel, Rows::From(call, first + 1, 2), false, rest);
    QINFER_UNROLL(8)
    for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
    for (int i = 0; i < P; ++i) total[t][i] = _mm512_add_ps(total[t][i], rest[t][i]);
  }
  QINFER_UNROLL(8)
  for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
  for (int i = 0; i < P; ++i) {
    const uint32_t at = row + static_cast<uint32_t>(i) * kPanelRows;
    StoreTail(out + (token + t) * out_stride + at, total[t][i], call.m->rows - at);
  }
}

}  // namespace
}  // namespace qinfer::kernels::avx512
