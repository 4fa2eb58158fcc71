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
constexpr size_t kPrefetchBytes = 4096;

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
QINFER_FN void NextBlock(Rows& x) {
  x.codes += 32;
  ++x.scales;
  ++x.correction;
}

// Adds the products of one block to the totals of T rows by P panels. `scales`: of this block's
// group.
template <class L, int T, int P, bool kHasMin>
QINFER_FN void AddBlock(const uint8_t* const (&p)[P], const float* const (&scales)[P],
                        const Rows& x, __m512 (&total)[T][P]) {
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
    const __m512 d = _mm512_loadu_ps(scales[i]);
    __m512 m = d;
    if constexpr (kHasMin) m = _mm512_loadu_ps(scales[i] + 16);
    QINFER_UNROLL(8)
    for (int t = 0; t < T; ++t) {
      __m512 part = _mm512_mul_ps(d, _mm512_cvtepi32_ps(acc[t][i]));
      if constexpr (kHasMin)
        part = _mm512_fmadd_ps(m, _mm512_castsi512_ps(_mm512_set1_epi32(x.correction[t * x.units])),
                               part);
      total[t][i] = _mm512_fmadd_ps(Set(x.scales[t * x.scale_stride]), part, total[t][i]);
    }
  }
}

template <int T, int P>
QINFER_FN void Clear(__m512 (&total)[T][P]) {
  QINFER_UNROLL(8)
  for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
  for (int i = 0; i < P; ++i) total[t][i] = _mm512_setzero_ps();
}

// f(codes, scales) for each block of P panels; `prefetch` asks for codes ahead.
template <class L, int P, bool kHasMin, class F>
QINFER_FN void EachBlock(const Call& call, const Panel (&panel)[P], bool prefetch, F&& f) {
  constexpr uint32_t kStride = kHasMin ? 32 : 16;
  const uint8_t* p[P];
  const float* scales[P];
  QINFER_UNROLL(2)
  for (int i = 0; i < P; ++i) {
    p[i] = panel[i].codes;
    scales[i] = panel[i].scales;
  }
  const uint32_t units_per_group = call.group / 32;
  uint32_t in_group = 0;
  for (uint32_t k = 0; k < call.padded; k += 32) {
    if (prefetch) {
      QINFER_UNROLL(8)
      for (size_t line = 0; line < L::kGranule; line += 64) QINFER_UNROLL(2)
      for (int i = 0; i < P; ++i) PrefetchLine(p[i] + line);
    }
    f(p, scales);
    const bool next = ++in_group == units_per_group;
    if (next) in_group = 0;
    QINFER_UNROLL(2)
    for (int i = 0; i < P; ++i) {
      p[i] += L::kGranule;
      if (next) scales[i] += kStride;
    }
  }
}

// The totals of T rows by P panels.
template <class L, int T, int P, bool kHasMin>
QINFER_FN void Totals(const Call& call, const Panel (&panel)[P], Rows x, bool prefetch,
                      __m512 (&total)[T][P]) {
  Clear<T, P>(total);
  EachBlock<L, P, kHasMin>(call, panel, prefetch, [&](const auto& p, const auto& s) QINFER_LAMBDA {
    AddBlock<L, T, P, kHasMin>(p, s, x, total);
    NextBlock(x);
  });
}

// The same for rows of a second plane: a block of which none has anything adds nothing and is
// passed over.
template <class L, int T, int P, bool kHasMin>
QINFER_FN void SparseTotals(const Call& call, const Panel (&panel)[P], Rows x,
                            __m512 (&total)[T][P]) {
  Clear<T, P>(total);
  EachBlock<L, P, kHasMin>(call, panel, false, [&](const auto& p, const auto& s) QINFER_LAMBDA {
    if (AnyScale<T>(x.scales, x.scale_stride)) AddBlock<L, T, P, kHasMin>(p, s, x, total);
    NextBlock(x);
  });
}

// Both at once, so that codes keep coming from memory while the second plane is added.
template <class L, int T, int P, bool kHasMin>
QINFER_FN void TotalsOfBoth(const Call& call, const Panel (&panel)[P], Rows x, Rows y,
                            bool prefetch, __m512 (&total)[T][P], __m512 (&rest)[T][P]) {
  Clear<T, P>(total);
  Clear<T, P>(rest);
  EachBlock<L, P, kHasMin>(call, panel, prefetch, [&](const auto& p, const auto& s) QINFER_LAMBDA {
    AddBlock<L, T, P, kHasMin>(p, s, x, total);
    if (AnyScale<T>(y.scales, y.scale_stride)) AddBlock<L, T, P, kHasMin>(p, s, y, rest);
    NextBlock(x);
    NextBlock(y);
  });
}

// marked [T][P][16]: what their second planes add, if that has been computed.
template <class L, int T, int P, bool kHasMin>
QINFER_FN void TileBlocks32(const Call& call, const Panel (&panel)[P], uint32_t token, uint32_t row,
                            float* out, size_t out_stride, const float* marked, bool prefetch) {
  const size_t planes = call.x->planes, first = token * planes;
  __m512 total[T][P];
  const Rows x = Rows::From(call, first, planes);
  if (planes == 1) {
    Totals<L, T, P, kHasMin>(call, panel, x, prefetch, total);
  } else if (marked != nullptr) {
    Totals<L, T, P, kHasMin>(call, panel, x, prefetch, total);
    QINFER_UNROLL(8)
    for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
    for (int i = 0; i < P; ++i)
      total[t][i] =
          _mm512_add_ps(total[t][i], _mm512_loadu_ps(marked + (t * P + i) * int{kPanelRows}));
  } else {  // the second plane is empty but for a few blocks
    const Rows y = Rows::From(call, first + 1, planes);
    __m512 rest[T][P];
    if constexpr (T * P <= 4) {  // what the registers hold
      TotalsOfBoth<L, T, P, kHasMin>(call, panel, x, y, prefetch, total, rest);
    } else {
      Totals<L, T, P, kHasMin>(call, panel, x, prefetch, total);
      SparseTotals<L, T, P, kHasMin>(call, panel, y, rest);
    }
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
