// The NEON matrix product with float activations, for all kinds: calibration and reference runs.
// Each output is one chain of fused multiply-adds over the inputs, so that many outputs must be in
// flight: panels side by side for one token, tokens side by side for many.
#include "kernels/cpu/matmul_float_frame.h"
#include "kernels/cpu/neon/lines.h"

namespace qinfer::kernels::neon {
namespace {

struct Affine {
  float32x4_t scale, min;
};

// The scale and minimum of rows 4r.. in a group, as Table::matmul_float decodes them.
QINFER_FN Affine GroupAffine(const Matrix& m, const uint8_t* panel, uint32_t group, uint32_t r) {
  const uint8_t* at = panel + layout::ScalePlane(m) + group * layout::GroupScaleBytes(m);
  Affine out = {Set(0.0f), Set(0.0f)};
  switch (m.scale) {
    case ScaleKind::kF16:
      out.scale = LoadHalf(at + r * 8);
      if (m.has_min) out.min = LoadHalf(at + 32 + r * 8);
      break;
    case ScaleKind::kF32:
      out.scale = vld1q_f32(reinterpret_cast<const float*>(at) + r * 4);
      if (m.has_min) out.min = vld1q_f32(reinterpret_cast<const float*>(at) + 16 + r * 4);
      break;
    case ScaleKind::kE8M0:
      out.scale = E8M0(at + r * 4);
      break;
    default: {
      const uint8_t* super = panel +
                             static_cast<size_t>(group) * layout::GroupSize(m) /
                                 layout::kSuperGroup * layout::SuperStride(m) +
                             r * 8;
      const float32x4_t sub = vcvtq_f32_s32(Widen8(m.has_min, at + r * 4));
      out.scale = vmulq_f32(LoadHalf(super), sub);
      if (m.has_min)
        out.min =
            vnegq_f32(vmulq_f32(LoadHalf(super + 32), vcvtq_f32_u32(WidenU8(at + 16 + r * 4))));
    }
  }
  return out;
}

// Decodes a granule of a quantized panel to out[32][16].
template <class L>
QINFER_FN void DecodeGranule(const Matrix& m, const uint8_t* panel, uint32_t granule, float* out) {
  const uint8_t* p = panel + layout::CodePlane(m) + granule * L::kGranule;
  const uint32_t group_size = layout::GroupSize(m), k0 = granule * kInputGranule;
  const int32x4_t zero = vdupq_n_s32(layout::ZeroPoint(m.kind));
  const uint32x4_t byte = vdupq_n_u32(255);
  for (uint32_t r = 0; r < 4; ++r) {
    for (uint32_t half = 0; half < 2; ++half) {
      const Affine affine = GroupAffine(m, panel, (k0 + half * 16) / group_size, r);
      for (uint32_t j = 0; j < 4; ++j) {
        const Lines w = L::Get(p, j, r);
        uint32x4_t codes = vreinterpretq_u32_s8(half == 0 ? w.low : w.high);
        for (uint32_t i = 0; i < 4; ++i) {
          const int32x4_t u = vreinterpretq_s32_u32(vandq_u32(codes, byte));
          codes = vshrq_n_u32(codes, 8);
          const float32x4_t v = m.has_min
                                    ? vfmaq_f32(affine.min, affine.scale, vcvtq_f32_s32(u))
                                    : vmulq_f32(affine.scale, vcvtq_f32_s32(vsubq_s32(u, zero)));
          vst1q_f32(out + half * 256 + j * 64 + i * 16 + r * 4, v);
        }
      }
    }
  }
}

QINFER_FN float32x4_t LoadWeights(WeightKind kind, const uint8_t* panel, size_t index) {
  if (kind == WeightKind::kF32) return vld1q_f32(reinterpret_cast<const float*>(panel) + index);
  return kind == WeightKind::kF16 ? LoadHalf(panel + index * 2) : LoadBf16(panel + index * 2);
}

// Decodes inputs [begin, begin + 32) of a panel of any kind to out[32][16].
void Decode32(const Matrix& m, const uint8_t* panel, uint32_t begin, float* out) {
  switch (m.kind) {
    case WeightKind::kInt4:
      return DecodeGranule<Nibbles>(m, panel, begin / kInputGranule, out);
    case WeightKind::kFp4:
      return DecodeGranule<Fp4>(m, panel, begin / kInputGranule, out);
    case WeightKind::kInt6:
      return DecodeGranule<SixBits>(m, panel, begin / kInputGranule, out);
    case WeightKind::kInt8:  // as they are: codes are read as unsigned
      return DecodeGranule<Bytes8>(m, panel, begin / kInputGranule, out);
    default:
      for (size_t i = 0; i < kInputGranule * kPanelRows; i += 4)
        vst1q_f32(out + i, LoadWeights(m.kind, panel, size_t{begin} * kPanelRows + i));
  }
}

// One token by P panels of a float kind.
template <WeightKind K, int P>
QINFER_FN void Vector(const Matrix& m, uint32_t panel, const float* x, float* out) {
  const uint8_t* data[P];
  float32x4_t total[P][4];
  QINFER_UNROLL(4)
  for (int p = 0; p < P; ++p) {
    data[p] = m.data + (panel + static_cast<uint32_t>(p)) * m.panel_bytes;
    QINFER_UNROLL(4)
    for (int r = 0; r < 4; ++r) total[p][r] = Set(0.0f);
  }
  for (uint32_t k = 0; k < m.cols; ++k) {
    const float32x4_t by = Set(x[k]);
    QINFER_UNROLL(4)
    for (int p = 0; p < P; ++p) {
      QINFER_UNROLL(4)
      for (uint32_t r = 0; r < 4; ++r)
        total[p][r] =
            vfmaq_f32(total[p][r], LoadWeights(K, data[p], size_t{k} * kPanelRows + r * 4), by);
    }
  }
  for (int p = 0; p < P; ++p)
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t row = (panel + static_cast<uint32_t>(p)) * kPanelRows + r * 4;
      if (row < m.rows) StoreTail(out + row, total[p][r], m.rows - row);
    }
}

template <WeightKind K>
void OneToken(const Matrix& m, uint32_t begin, uint32_t end, const float* x, float* out) {
  for (; begin + 4 <= end; begin += 4) Vector<K, 4>(m, begin, x, out);
  for (; begin + 2 <= end; begin += 2) Vector<K, 2>(m, begin, x, out);
  if (begin < end) Vector<K, 1>(m, begin, x, out);
}

template <int kLane, int T>
QINFER_FN void PieceStep(const float* weights, const float32x4_t (&x)[T],
                         float32x4_t (&total)[T][4]) {
  QINFER_UNROLL(4)
  for (int r = 0; r < 4; ++r) {
    const float32x4_t w = vld1q_f32(weights + kLane * 16 + r * 4);
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) total[t][r] = vfmaq_laneq_f32(total[t][r], w, x[t], kLane);
  }
}

// T tokens by a piece of a panel decoded to weights[count][16]; totals[T][16] go on.
template <int T>
QINFER_FN void Piece(const float* weights, uint32_t count, const float* x, size_t x_stride,
                     float* totals) {
  float32x4_t total[T][4], by[T];
  QINFER_UNROLL(4)
  for (int t = 0; t < T; ++t) {
    QINFER_UNROLL(4)
    for (int r = 0; r < 4; ++r) total[t][r] = vld1q_f32(totals + t * 16 + r * 4);
  }
  uint32_t k = 0;
  for (; k + 4 <= count; k += 4, weights += 64) {
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) by[t] = vld1q_f32(x + t * x_stride + k);
    PieceStep<0, T>(weights, by, total);
    PieceStep<1, T>(weights, by, total);
    PieceStep<2, T>(weights, by, total);
    PieceStep<3, T>(weights, by, total);
  }
  for (; k < count; ++k, weights += 16) {
    QINFER_UNROLL(4)
    for (int t = 0; t < T; ++t) by[t] = Set(x[t * x_stride + k]);
    PieceStep<0, T>(weights, by, total);
  }
  QINFER_UNROLL(4)
  for (int t = 0; t < T; ++t) {
    QINFER_UNROLL(4)
    for (int r = 0; r < 4; ++r) vst1q_f32(totals + t * 16 + r * 4, total[t][r]);
  }
}

struct FloatSimd {
  template <WeightKind K>
  QINFER_FN void OneToken(const Matrix& m, uint32_t begin, uint32_t end, const float* x,
                          float* out) {
    neon::OneToken<K>(m, begin, end, x, out);
  }
  QINFER_FN void Decode32(const Matrix& m, const uint8_t* panel, uint32_t k, float* out) {
    neon::Decode32(m, panel, k, out);
  }
  QINFER_FN void Pieces(const float* weights, uint32_t count, const float* x, size_t x_stride,
                        uint32_t tokens, float* totals) {
    uint32_t t = 0;
    for (; t + 4 <= tokens; t += 4)
      Piece<4>(weights, count, x + t * x_stride, x_stride, totals + t * kPanelRows);
    for (; t + 2 <= tokens; t += 2)
      Piece<2>(weights, count, x + t * x_stride, x_stride, totals + t * kPanelRows);
    if (t < tokens) Piece<1>(weights, count, x + t * x_stride, x_stride, totals + t * kPanelRows);
  }
  QINFER_FN void Store(const float* totals, uint32_t rows, float* out) {
    for (uint32_t r = 0; r < kPanelRows && r < rows; r += 4)
      StoreTail(out + r, vld1q_f32(totals + r), rows - r);
  }
};

}  // namespace

void MatmulFloat(const Matrix& m, uint32_t panel_begin, uint32_t panel_end, const float* x,
                 size_t x_stride, uint32_t tokens, float* out, size_t out_stride, void* scratch) {
  frame::MatmulFloat<FloatSimd>(m, panel_begin, panel_end, x, x_stride, tokens, out, out_stride,
                                scratch);
}

void DecodeRow(const Matrix& m, uint32_t row, float* out) {
  frame::DecodeRow<FloatSimd>(m, row, out);
}

void DecodePanel(const Matrix& m, uint32_t panel, float* out) {
  frame::DecodePanel<FloatSimd>(m, panel, out);
}

}  // namespace qinfer::kernels::neon
