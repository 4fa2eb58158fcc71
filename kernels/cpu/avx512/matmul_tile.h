// The integer matrix product on AVX-512 VNNI, written once for all quantized kinds: tiles for any
// units and scales, and the way through panels and tokens. matmul_int{4,6,8}.cpp instantiate it.
// Internal linkage only.
#pragma once

#include "kernels/cpu/avx512/second_plane.h"
#include "kernels/cpu/avx512/tile_blocks.h"

namespace qinfer::kernels::avx512 {
namespace {

constexpr int kBlocks32 = -32;  // as a unit: units and blocks of 32, with float scales

struct Simd {  // for panel16::PreparePanel
  // Asking ahead one by one: many at once would wait for each other.
  QINFER_FN void WidenHalf(const uint8_t* from, float* to) {
    PrefetchLine(from);
    _mm512_storeu_ps(to, LoadHalf(from));
  }
  QINFER_FN void WidenE8M0(const uint8_t* from, float* to) { _mm512_storeu_ps(to, E8M0(from)); }
  QINFER_FN void WidenBytes(bool is_unsigned, const uint8_t* from, float* to) {
    _mm512_storeu_si512(to, is_unsigned ? WidenU8(from) : WidenS8(from));
  }
};

template <int T, int P>
struct Parts {
  __m512 part[T][P];         // float modes
  __m512i p[T][P], m[T][P];  // kSub8
};

// Applies the scales of one unit.
template <Mode M, int T, int P>
QINFER_FN void Finish(const Panel (&panel)[P], uint32_t group, const int32_t* const* correction,
                      uint32_t unit, const __m512i (&acc)[T][P], Parts<T, P>& parts) {
  constexpr uint32_t kStride = M == kMin || M == kSubMin ? 32 : 16;
  QINFER_UNROLL(2)
  for (int i = 0; i < P; ++i) {
    const float* at = panel[i].scales + group * kStride;
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) {
      if constexpr (M == kSym || M == kMin) {
        parts.part[t][i] =
            _mm512_fmadd_ps(_mm512_loadu_ps(at), _mm512_cvtepi32_ps(acc[t][i]), parts.part[t][i]);
        if constexpr (M == kMin)
          parts.part[t][i] = _mm512_fmadd_ps(
              _mm512_loadu_ps(at + 16), _mm512_castsi512_ps(_mm512_set1_epi32(correction[t][unit])),
              parts.part[t][i]);
      } else {
        parts.p[t][i] = _mm512_add_epi32(parts.p[t][i], _mm512_mullo_epi32(Load(at), acc[t][i]));
        if constexpr (M == kSubMin)
          parts.m[t][i] = _mm512_add_epi32(
              parts.m[t][i],
              _mm512_mullo_epi32(Load(at + 16), _mm512_set1_epi32(correction[t][unit])));
      }
    }
  }
}

// P panels, T tokens, all inputs. kUnit: 16, 32, or 0 for any multiple of 32 (call.unit).
template <class L, int T, int P, Mode M, int kUnit>
QINFER_FN void TileUnits(const Call& call, const Panel (&panel)[P], uint32_t token, uint32_t row,
                         float* out, size_t out_stride, bool prefetch) {
  constexpr bool kSymmetric = M == kSym || M == kSubSym;
  const Activations& x = *call.x;
  const int8_t* const a = x.codes + token * x.code_stride;
  const int32_t* correction[T];
  const uint8_t* p[P];
  __m512 total[T][P];
  QINFER_UNROLL(2)
  for (int i = 0; i < P; ++i) p[i] = panel[i].codes;
  QINFER_UNROLL(4)
  for (int t = 0; t < T; ++t) {
    correction[t] = call.correction + (token + t) * static_cast<size_t>(call.units);
    QINFER_UNROLL(2)
    for (int i = 0; i < P; ++i) total[t][i] = _mm512_setzero_ps();
  }
  uint32_t unit = 0;
  for (uint32_t k = 0, block = 0; k < call.padded; ++block) {
    const uint32_t block_begin = k;
    const uint32_t end = Min(call.padded, k + x.block);
    Parts<T, P> parts;
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
    for (int i = 0; i < P; ++i) {
      parts.part[t][i] = _mm512_setzero_ps();
      parts.p[t][i] = parts.m[t][i] = _mm512_setzero_si512();
    }
    while (k < end) {
      __m512i acc[T][P], high[T][P];
      QINFER_UNROLL(4)
      for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
      for (int i = 0; i < P; ++i) {
        acc[t][i] = kSymmetric ? _mm512_set1_epi32(correction[t][unit]) : _mm512_setzero_si512();
        high[t][i] = kSymmetric && kUnit == 16 ? _mm512_set1_epi32(correction[t][unit + 1])
                                               : _mm512_setzero_si512();
      }
      const uint32_t unit_end = kUnit == 0 ? Min(end, k + call.unit) : k + 32;
      const uint32_t first = k;
      do {
        if (prefetch) {
          QINFER_UNROLL(8)
          for (size_t line = 0; line < L::kGranule; line += 64) QINFER_UNROLL(2)
          for (int i = 0; i < P; ++i) PrefetchLine(p[i] + line);
        }
        Granule<L, T, P>(p, a + k, x.code_stride, acc, high);
        QINFER_UNROLL(2)
        for (int i = 0; i < P; ++i) p[i] += L::kGranule;
        k += 32;
      } while (kUnit == 0 && k < unit_end);
      if constexpr (kUnit != 16) {
        QINFER_UNROLL(4)
        for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
        for (int i = 0; i < P; ++i)
          acc[t][i] = _mm512_add_epi32(
              acc[t][i],
              L::kHighShift == 0 ? high[t][i] : _mm512_srai_epi32(high[t][i], L::kHighShift));
      }
      // With units of 32, groups may still be wider (a block of 32).
      const uint32_t group =
          kUnit == 16 || (kUnit == 32 && call.group == 32) ? unit : first / call.group;
      Finish<M>(panel, group, correction, unit, acc, parts);
      ++unit;
      if constexpr (kUnit == 16) {
        Finish<M>(panel, unit, correction, unit, high, parts);
        ++unit;
      }
    }
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) {
      const __m512 by = Set(x.scales[(token + t) * x.scale_stride + block]);
      QINFER_UNROLL(2)
      for (int i = 0; i < P; ++i) {
        __m512 part = parts.part[t][i];
        if constexpr (M == kSubSym || M == kSubMin) {
          const float* d =
              panel[i].supers + block_begin / layout::kSuperGroup * (M == kSubMin ? 32 : 16);
          part = _mm512_fmadd_ps(_mm512_loadu_ps(d), _mm512_cvtepi32_ps(parts.p[t][i]), part);
          if constexpr (M == kSubMin)
            part =
                _mm512_fnmadd_ps(_mm512_loadu_ps(d + 16), _mm512_cvtepi32_ps(parts.m[t][i]), part);
        }
        total[t][i] = _mm512_fmadd_ps(by, part, total[t][i]);
      }
    }
  }
  QINFER_UNROLL(4)
  for (int t = 0; t < T; ++t) QINFER_UNROLL(2)
  for (int i = 0; i < P; ++i) {
    const uint32_t at = row + static_cast<uint32_t>(i) * kPanelRows;
    if constexpr (T > 1) {
      if (x.planes == 2) {  // a token's rows are neighbours, and there is an even number of them
        if (t % 2 == 0)
          StoreTail(out + (token + t) / 2 * out_stride + at,
                    _mm512_add_ps(total[t][i], total[t | 1][i]), call.m->rows - at);
        continue;
      }
    }
    StoreTail(out + (token + t) * out_stride + at, total[t][i], call.m->rows - at);
  }
}

// Tokens from `token` on; where units are not kBlocks32, rows of activations: two a token that has
// two planes.
template <class L, int T, int P, Mode M, int kUnit>
QINFER_FN void Tile(const Call& call, const Panel (&panel)[P], uint32_t token, uint32_t row,
                    float* out, size_t out_stride, const float* marked, bool prefetch) {
  if constexpr (kUnit == kBlocks32)
    TileBlocks32<L, T, P, M == kMin>(call, panel, token, row, out, out_stride, marked, prefetch);
  else
    TileUnits<L, T, P, M, kUnit>(call, panel, token, row, out, out_stride, prefetch);
}

template <class L>
constexpr bool kWidens = L::Many::kGranule != L::kGranule;

// Undoes what Get leaves shifted, so that a widened panel is in kInt8's layout.
template <class L>
QINFER_FN void Widen(const uint8_t* from, uint8_t* to, uint32_t granules) {
  for (uint32_t g = 0; g < granules; ++g, from += L::kGranule, to += 512) {
    QINFER_UNROLL(8)
    for (size_t line = 0; line < L::kGranule; line += 64) PrefetchLine(from + line);
    QINFER_UNROLL(4)
    for (uint32_t j = 0; j < 4; ++j) {
      const Lines w = L::Get(from, j);
      _mm512_storeu_si512(to + j * 64, w.low);
      _mm512_storeu_si512(to + 256 + j * 64, _mm512_srli_epi16(w.high, L::kHighShift));
    }
  }
}

// A panel with its scales widened into the scratch's place `at`.
QINFER_FN Panel Prepare(const Call& call, uint32_t p, const Scratch& s, int at) {
  const Matrix& m = *call.m;
  const uint8_t* data = m.data + p * m.panel_bytes;
  const size_t others = m.scale == ScaleKind::kF16 ? 0 : layout::CodePlane(m);  // Simd asks for F16
  for (size_t line = 0; line < others; line += 64) PrefetchLine(data + line);
  return panel16::PreparePanel<Simd>(call, data, s.scales[at], s.supers[at]);
}

template <int N>
struct Count {
  static constexpr int value = N;
};
// f(Count<n>()) for an n that is known at run time, 1 to kMost; nothing for 0.
template <int kMost, typename F>
QINFER_FN void Rest(uint32_t n, F&& f) {
  if constexpr (kMost > 0) {
    if (n == kMost) return f(Count<kMost>());
    Rest<kMost - 1>(n, f);
  }
}

// Tokens [first, last) by P panels; sixes and fours of them from `wide`, if there is any. marked
// [token - first][P][16]: see TileBlocks32. `fresh`: nobody has read the panels yet.
template <class L, int P, Mode M, int kUnit>
QINFER_FN void Tiles(const Call& call, const Panel (&panel)[P], const Panel* wide, uint32_t first,
                     uint32_t last, uint32_t row, float* out, size_t stride, const float* marked,
                     bool fresh) {
  uint32_t t = first;
  const auto rest = [&]() QINFER_LAMBDA {
    return marked == nullptr ? nullptr : marked + size_t{t - first} * P * kPanelRows;
  };
  if (wide != nullptr) {
    using Many = typename L::Many;
    const Panel(&many)[P] = *reinterpret_cast<const Panel(*)[P]>(wide);
    const bool ahead = fresh && !kWidens<L>;
    if constexpr (kUnit == kBlocks32)
      for (; t + 6 <= last; t += 6)
        Tile<Many, 6, P, M, kUnit>(call, many, t, row, out, stride, rest(), ahead && t == first);
    for (; t + 4 <= last; t += 4)
      Tile<Many, 4, P, M, kUnit>(call, many, t, row, out, stride, rest(), ahead && t == first);
  }
  // The first to read a panel asks ahead for the next one.
  if constexpr (kUnit == kBlocks32 && P == 1) {
    for (; t + 8 <= last; t += 8)
      Tile<L, 8, P, M, kUnit>(call, panel, t, row, out, stride, rest(), t == first);
    Rest<7>(last - t, [&](auto count) QINFER_LAMBDA {
      Tile<L, count.value, P, M, kUnit>(call, panel, t, row, out, stride, rest(), t == first);
    });
    return;
  }
  for (; t + 4 <= last; t += 4)
    Tile<L, 4, P, M, kUnit>(call, panel, t, row, out, stride, rest(), t == first);
  if (t + 2 <= last) {
    Tile<L, 2, P, M, kUnit>(call, panel, t, row, out, stride, rest(), true);
    t += 2;
  }
  if (t < last) Tile<L, 1, P, M, kUnit>(call, panel, t, row, out, stride, rest(), true);
}

// All tokens of a block by P panels.
template <class L, int P, Mode M, int kUnit>
void Tokens(const Call& call, const Panel (&panel)[P], const Panel* wide, uint32_t first,
            uint32_t last, uint32_t row, float* out, size_t stride) {
  if constexpr (kUnit == kBlocks32) {
    if (call.marks != nullptr) {
      alignas(64) float marked[kMarks][P][kPanelRows];
      const Panel(&many)[P] = *reinterpret_cast<const Panel(*)[P]>(wide);
      for (uint32_t t = first, end; t < last; t = end) {
        end = Min(last, t + kMarks);
        MarkedTotals<typename L::Many, P, M == kMin>(call, many, t, end, marked);
        Tiles<L, P, M, kUnit>(call, panel, wide, t, end, row, out, stride, marked[0][0],
                              t == first);
      }
      return;
    }
  }
  Tiles<L, P, M, kUnit>(call, panel, wide, first, last, row, out, stride, nullptr, true);
}

// From here on tokens are many: kinds whose L::Many asks for it are widened once for all of them.
constexpr uint32_t kWidenTokens = 24;
// Codes of a block of tokens stay in the second-level cache while panels pass by.
constexpr uint32_t kTokenBlockBytes = 256 * 1024;

// Few rows of activations. Memory is what these wait for: one panel after the other is one stream,
// with its scales, which are read first, asked for as far ahead as its codes.
template <class L, Mode M, int kUnit>
QINFER_FN void Stream(const Call& call, uint32_t panel_begin, uint32_t panel_end, uint32_t tokens,
                      float* out, size_t stride, const Scratch& s) {
  for (uint32_t p = panel_begin; p < panel_end; ++p) {
    const Panel panel[1] = {Prepare(call, p, s, 0)};
    Tokens<L, 1, M, kUnit>(call, panel, nullptr, 0, tokens, p * kPanelRows, out, stride);
  }
}

template <class L, Mode M, int P, int kUnit>
QINFER_FN void Panels(const Call& call, uint32_t p, uint32_t first, uint32_t last, float* out,
                      size_t stride, const Scratch& s) {
  Panel panel[P], wide[P];
  for (int i = 0; i < P; ++i) {
    panel[i] = wide[i] = Prepare(call, p + static_cast<uint32_t>(i), s, i);
    if constexpr (kWidens<L>) {
      Widen<L>(panel[i].codes, s.widened[i], call.padded / kInputGranule);
      wide[i].codes = s.widened[i];
    }
  }
  Tokens<L, P, M, kUnit>(call, panel, wide, first, last, p * kPanelRows, out, stride);
}

template <class L, Mode M, int kUnit>
QINFER_FN void Run(Call& call, uint32_t panel_begin, uint32_t panel_end, uint32_t tokens,
                   float* out, size_t stride, const Scratch& s) {
  if (tokens < kWidenTokens)
    return Stream<L, M, kUnit>(call, panel_begin, panel_end, tokens, out, stride, s);
  if (kUnit == kBlocks32 && call.x->planes == 2) {
    // The scratch has room for units of 16; these are 32.
    uint64_t* marks =
        reinterpret_cast<uint64_t*>(call.correction + 2 * size_t{tokens} * call.units);
    call.words = (tokens + kMarks - 1) / kMarks;
    MarkSecondPlane(*call.x, call.units, tokens, call.words, marks);
    call.marks = marks;
  }
  const uint32_t tile = call.marks == nullptr ? 12 : kMarks;
  uint32_t token_block = kTokenBlockBytes / call.padded / tile * tile;
  if (token_block < 36) token_block = call.marks == nullptr ? 36 : kMarks;
  for (uint32_t first = 0; first < tokens; first += token_block) {
    const uint32_t last = Min(tokens, first + token_block);
    uint32_t p = panel_begin;
    for (; p + 2 <= panel_end; p += 2) Panels<L, M, 2, kUnit>(call, p, first, last, out, stride, s);
    if (p < panel_end) Panels<L, M, 1, kUnit>(call, p, first, last, out, stride, s);
  }
}

template <WeightKind K, class L>
QINFER_FN void Matmul(const Matrix& m, uint32_t panel_begin, uint32_t panel_end,
                      const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                      void* scratch) {
  Scratch s;
  Call call = panel16::Prepare<K>(m, x, tokens, layout::ZeroPoint(K), scratch, s);
  panel16::Choose<K>(
      call, [&](auto mode, auto unit) __attribute__((always_inline)) {
        constexpr Mode kMode = static_cast<Mode>(mode.value);
        if constexpr (unit.value == 32 && (kMode == kSym || kMode == kMin)) {
          if (x.block == 32)
            return Run<L, kMode, kBlocks32>(call, panel_begin, panel_end, tokens, out, out_stride,
                                            s);
        }
        Run<L, kMode, unit.value>(call, panel_begin, panel_end, tokens * x.planes, out, out_stride,
                                  s);
      });
}

}  // namespace
}  // namespace qinfer::kernels::avx512
