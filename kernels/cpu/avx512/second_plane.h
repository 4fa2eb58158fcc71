// The second plane of activations on AVX-512 where many tokens share a panel: it has something in
// few blocks only, of which any tile of tokens would meet some. So tokens are marked block by
// block, a block's codes stay in registers for those that have something in it, and sums are in
// memory. The same additions in the same order as those of a tile. Internal linkage only.
#pragma once

#include "kernels/cpu/avx512/tile_blocks.h"

namespace qinfer::kernels::avx512 {
namespace {

constexpr uint32_t kMarks = 60;  // tokens of a word, which tiles of six and four divide

// marks [blocks][words]: a bit for each token that has something in a block's second plane.
QINFER_FN void MarkSecondPlane(const Activations& x, uint32_t blocks, uint32_t tokens,
                               uint32_t words, uint64_t* marks) {
  memset(marks, 0, sizeof(uint64_t) * blocks * words);
  for (uint32_t t = 0; t < tokens; ++t) {
    const float* scales = x.scales + (2 * static_cast<size_t>(t) + 1) * x.scale_stride;
    uint64_t* word = marks + t / kMarks;
    const uint64_t bit = uint64_t{1} << t % kMarks;
    for (uint32_t b = 0; b < blocks; b += 16) {
      uint32_t some =
          _mm512_cmp_ps_mask(LoadTail(scales + b, blocks - b), _mm512_setzero_ps(), _CMP_NEQ_UQ);
      for (; some != 0; some &= some - 1)
        word[static_cast<size_t>(b + static_cast<uint32_t>(__builtin_ctz(some))) * words] |= bit;
    }
  }
}

// The second plane's totals of tokens [first, last), whose marks are one word's, by P panels.
template <class L, int P, bool kHasMin>
QINFER_FN void MarkedTotals(const Call& call, const Panel (&panel)[P], uint32_t first,
                            uint32_t last, float (*totals)[P][kPanelRows]) {
  constexpr uint32_t kStride = kHasMin ? 32 : 16;
  const Activations& x = *call.x;
  memset(totals, 0, sizeof(totals[0]) * (last - first));
  const uint32_t units_per_group = call.group / 32;
  for (uint32_t b = 0; b < call.units; ++b) {
    uint64_t some = call.marks[static_cast<size_t>(b) * call.words + first / kMarks];
    if (some == 0) continue;
    __m512i w[P][8];
    __m512 d[P], m[P];
    Unroll<P>([&](auto i) QINFER_LAMBDA {
      Unroll<4>([&](auto j) QINFER_LAMBDA {
        const Lines lines = L::Get(panel[i].codes + b * L::kGranule, static_cast<uint32_t>(j));
        w[i][j] = lines.low;
        w[i][j + 4] = lines.high;
      });
      const float* scales = panel[i].scales + b / units_per_group * kStride;
      d[i] = _mm512_loadu_ps(scales);
      m[i] = kHasMin ? _mm512_loadu_ps(scales + 16) : d[i];
    });
    for (; some != 0; some &= some - 1) {
      const uint32_t t = static_cast<uint32_t>(__builtin_ctzll(some));
      const size_t from = 2 * static_cast<size_t>(first + t) + 1;
      const int8_t* a = x.codes + from * x.code_stride + b * 32;
      const __m512i correction = _mm512_set1_epi32(call.correction[from * call.units + b]);
      const __m512 by = Set(x.scales[from * x.scale_stride + b]);
      __m512i acc[P];
      Unroll<P>([&](auto i)
                    QINFER_LAMBDA { acc[i] = kHasMin ? _mm512_setzero_si512() : correction; });
      Unroll<8>([&](auto j) QINFER_LAMBDA {
        const __m512i four = Broadcast4(a + j * 4);
        Unroll<P>([&](auto i)
                      QINFER_LAMBDA { acc[i] = _mm512_dpbusd_epi32(acc[i], w[i][j], four); });
      });
      Unroll<P>([&](auto i) QINFER_LAMBDA {
        __m512 part = _mm512_mul_ps(d[i], _mm512_cvtepi32_ps(acc[i]));
        if constexpr (kHasMin) part = _mm512_fmadd_ps(m[i], _mm512_castsi512_ps(correction), part);
        float* total = totals[t][i];
        _mm512_storeu_ps(total, _mm512_fmadd_ps(by, part, _mm512_loadu_ps(total)));
      });
    }
  }
}

}  // namespace
}  // namespace qinfer::kernels::avx512
