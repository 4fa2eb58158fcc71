// Reference matrix products: the loops of the contract, one output at a time. Codes of a panel are
// unpacked to scratch first, only so that whole models can be run with this table in tests.
#include <algorithm>

#include "kernels/ref/panel.h"
#include "kernels/ref/ref.h"

namespace qinfer::kernels::ref {
namespace {

// One block's part for one row.
float Part(const Matrix& m, const uint8_t* panel, uint32_t lane, const uint8_t* codes,
           const int8_t* a, uint32_t begin, uint32_t end) {
  const uint32_t group_size = layout::GroupSize(m);
  const int32_t zero = m.has_min ? 0 : layout::ZeroPoint(m.kind);
  float part = 0.0f, d = 0.0f, dmin = 0.0f;
  int32_t p_sum = 0, m_sum = 0;
  for (uint32_t k = begin; k < end;) {
    const uint32_t group = k / group_size;
    const uint32_t stop =
        static_cast<uint32_t>(std::min<uint64_t>(end, (group + 1ull) * group_size));
    int32_t dot = 0, sum = 0;
    for (; k < stop; ++k) {
      dot += codes[k] * a[k];
      sum += a[k];
    }
    dot -= zero * sum;
    const GroupScale s = ScaleAt(m, panel, lane, group);
    if (m.scale == ScaleKind::kSub8) {
      p_sum += s.sub * dot;
      m_sum += s.submin * sum;
      d = s.d;
      dmin = s.dmin;
    } else {
      part = __builtin_fmaf(s.scale, static_cast<float>(dot), part);
      if (m.has_min) part = __builtin_fmaf(s.min, static_cast<float>(sum), part);
    }
  }
  if (m.scale == ScaleKind::kSub8) {
    part = __builtin_fmaf(d, static_cast<float>(p_sum), part);
    if (m.has_min) part = __builtin_fmaf(-dmin, static_cast<float>(m_sum), part);
  }
  return part;
}

}  // namespace

void MatmulInt8(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                void* scratch) {
  const uint32_t padded = matrix.padded_cols();
  uint8_t* codes = static_cast<uint8_t*>(scratch);
  for (uint32_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = matrix.data + p * matrix.panel_bytes;
    for (uint32_t lane = 0; lane < kPanelRows; ++lane) {
      const uint32_t row = p * kPanelRows + lane;
      if (row >= matrix.rows) break;
      for (uint32_t k = 0; k < padded; ++k)
        codes[k] = static_cast<uint8_t>(CodeAt(matrix, panel, lane, k));
      for (uint32_t t = 0; t < tokens; ++t) {
        float& sum = out[t * out_stride + row];
        for (uint32_t plane = 0; plane < x.planes; ++plane) {
          const size_t at = size_t{t} * x.planes + plane;
          float total = 0.0f;
          for (uint32_t k = 0; k < padded; k += x.block) {
            const float part = Part(matrix, panel, lane, codes, x.codes + at * x.code_stride, k,
                                    std::min(padded, k + x.block));
            total = __builtin_fmaf(x.scales[at * x.scale_stride + k / x.block], part, total);
          }
          sum = plane == 0 ? total : sum + total;
        }
      }
    }
  }
}

void MatmulFloat(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end, const float* x,
                 size_t x_stride, uint32_t tokens, float* out, size_t out_stride, void*) {
  for (uint32_t p = panel_begin; p < panel_end; ++p) {
    const uint8_t* panel = matrix.data + p * matrix.panel_bytes;
    for (uint32_t lane = 0; lane < kPanelRows; ++lane) {
      const uint32_t row = p * kPanelRows + lane;
      if (row >= matrix.rows) break;
      for (uint32_t t = 0; t < tokens; ++t) out[t * out_stride + row] = 0.0f;
      for (uint32_t k = 0; k < matrix.cols; ++k) {
        const float w = WeightAt(matrix, panel, lane, k);
        for (uint32_t t = 0; t < tokens; ++t) {
          float& total = out[t * out_stride + row];
          total = __builtin_fmaf(w, x[t * x_stride + k], total);
        }
      }
    }
  }
}

void DecodeRow(const Matrix& matrix, uint32_t row, float* out) {
  const uint8_t* panel = matrix.data + row / kPanelRows * matrix.panel_bytes;
  for (uint32_t k = 0; k < matrix.cols; ++k) out[k] = WeightAt(matrix, panel, row % kPanelRows, k);
}

void DecodePanel(const Matrix& matrix, uint32_t panel, float* out) {
  const uint8_t* data = matrix.data + panel * matrix.panel_bytes;
  for (uint32_t k = 0; k < matrix.cols; ++k)
    for (uint32_t lane = 0; lane < kPanelRows; ++lane)
      out[size_t{k} * kPanelRows + lane] = WeightAt(matrix, data, lane, k);
}

}  // namespace qinfer::kernels::ref
