// The product with float activations around an instruction set's own parts: panels outside, pieces
// of a panel decoded once for all tokens inside. Internal linkage.
#pragma once

#include <string.h>

#include "kernels/cpu/inline.h"
#include "kernels/layout.h"

namespace qinfer::kernels::frame {

// Simd has
//   OneToken<kind>(m, panel_begin, panel_end, x, out): one token by a float kind
//   Decode32(m, panel, k, out): inputs [k, k + 32) of a panel, [input][16 rows]
//   Pieces(weights, count, x, x_stride, tokens, totals): all tokens by `count` decoded inputs;
//     totals[token][16] go on
//   Store(totals, rows, out): the first `rows` (1 to 16, or more) of 16 outputs
template <typename Simd>
QINFER_FN void MatmulFloat(const Matrix& m, uint32_t panel_begin, uint32_t panel_end,
                           const float* x, size_t x_stride, uint32_t tokens, float* out,
                           size_t out_stride, void* scratch) {
  if (tokens == 1 && layout::IsFloat(m.kind)) {
    if (m.kind == WeightKind::kF32)
      Simd::template OneToken<WeightKind::kF32>(m, panel_begin, panel_end, x, out);
    else if (m.kind == WeightKind::kF16)
      Simd::template OneToken<WeightKind::kF16>(m, panel_begin, panel_end, x, out);
    else
      Simd::template OneToken<WeightKind::kBF16>(m, panel_begin, panel_end, x, out);
    return;
  }
  float* piece = static_cast<float*>(scratch);
  float* totals = piece + size_t{layout::kFloatPiece} * kPanelRows;
  for (uint32_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = m.data + p * m.panel_bytes;
    memset(totals, 0, size_t{tokens} * kPanelRows * sizeof(float));
    for (uint32_t k = 0; k < m.cols; k += layout::kFloatPiece) {
      const uint32_t count = Min(layout::kFloatPiece, m.cols - k);
      const float* weights = piece;
      if (m.kind == WeightKind::kF32)
        weights = reinterpret_cast<const float*>(panel) + size_t{k} * kPanelRows;
      else
        for (uint32_t i = 0; i < count; i += kInputGranule)
          Simd::Decode32(m, panel, k + i, piece + size_t{i} * kPanelRows);
      Simd::Pieces(weights, count, x + k, x_stride, tokens, totals);
    }
    const uint32_t row = p * kPanelRows;
    for (uint32_t t = 0; t < tokens; ++t)
      Simd::Store(totals + t * kPanelRows, m.rows - row, out + t * out_stride + row);
  }
}

template <typename Simd>
QINFER_FN void DecodeRow(const Matrix& m, uint32_t row, float* out) {
  const uint8_t* panel = m.data + row / kPanelRows * m.panel_bytes;
  const uint32_t lane = row % kPanelRows;
  float values[kInputGranule * kPanelRows];
  for (uint32_t k = 0; k < m.cols; k += kInputGranule) {
    Simd::Decode32(m, panel, k, values);
    const uint32_t count = Min(kInputGranule, m.cols - k);
    for (uint32_t i = 0; i < count; ++i) out[k + i] = values[i * kPanelRows + lane];
  }
}

template <typename Simd>
QINFER_FN void DecodePanel(const Matrix& m, uint32_t panel, float* out) {
  for (uint32_t k = 0; k < m.cols; k += kInputGranule)
    Simd::Decode32(m, m.data + panel * m.panel_bytes, k, out + size_t{k} * kPanelRows);
}

}  // namespace qinfer::kernels::frame
