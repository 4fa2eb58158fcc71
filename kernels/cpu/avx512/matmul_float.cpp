// The AVX-512 matrix product with float activations, for all kinds: calibration and reference runs.
// Each output is one chain of fused multiply-adds over the inputs, so that many outputs must be in
// flight: panels side by side for one token, tokens side by side for many.
#include "kernels/cpu/avx512/lines.h"
#include "kernels/cpu/matmul_float_frame.h"

namespace qinfer::kernels::avx512 {
namespace {

struct Affine {
  __m512 scale, min;
};

// The scale and minimum of a group's 16 rows, as Table::matmul_float decodes them.
QINFER_FN Affine GroupAffine(const Matrix& m, const uint8_t* panel, uint32_t group) {
  const uint8_t* at = panel + layout::ScalePlane(m) + group * layout::GroupScaleBytes(m);
  Affine out = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  switch (m.scale) {
    case ScaleKind::kF16:
      out.scale = LoadHalf(at);
      if (m.has_min) out.min = LoadHalf(at + 32);
      break;
    case ScaleKind::kF32:
      out.scale = _mm512_loadu_ps(reinterpret_cast<const float*>(at));
      if (m.has_min) out.min = _mm512_loadu_ps(reinterpret_cast<const float*>(at) + 16);
      break;
    case ScaleKind::kE8M0:
      out.scale = E8M0(at);
      break;
    default: {
      const uint8_t* super =
          panel + group * layout::GroupSize(m) / layout::kSuperGroup * layout::SuperStride(m);
      const __m512i sub = m.has_min ? WidenU8(at) : WidenS8(at);
      out.scale = _mm512_mul_ps(LoadHalf(super), _mm512_cvtepi32_ps(sub));
      if (m.has_min)
        out.min = Flip(_mm512_mul_ps(LoadHalf(super + 32), _mm512_cvtepi32_ps(WidenU8(at + 16))));
    }
  }
  return out;
}

// Decodes a granule of a quantized panel to out[32][16].
template <class L>
QINFER_FN void DecodeGranule(const Matrix& m, const uint8_t* panel, uint32_t granule, float* out) {
  const uint8_t* p = panel + layout::CodePlane(m) + granule * L::kGranule;
  const uint32_t group_size = layout::GroupSize(m), k0 = granule * kInputGranule;
  const __m512i byte = _mm512_set1_epi32(255);
  const __m512i zero = _mm512_set1_epi32(layout::ZeroPoint(m.kind));
  for (uint32_t half = 0; half < 2; ++half) {
    const Affine affine = GroupAffine(m, panel, (k0 + half * 16) / group_size);
    for (uint32_t j = 0; j < 4; ++j) {
      const Lines w = L::Get(p, j);
      __m512i codes = half == 0 ? w.low : _mm512_srli_epi16(w.high, L::kHighShift);
      for (uint32_t i = 0; i < 4; ++i) {
        const __m512i u = _mm512_and_si512(codes, byte);
        codes = _mm512_srli_epi32(codes, 8);
        const __m512 v =
            m.has_min ? _mm512_fmadd_ps(affine.scale, _mm512_cvtepi32_ps(u), affine.min)
                      : _mm512_mul_ps(affine.scale, _mm512_cvtepi32_ps(_mm512_sub_epi32(u, zero)));
        _mm512_storeu_ps(out + half * 256 + j * 64 + i * 16, v);
      }
    }
  }
}

QINFER_FN __m512 LoadWeights(WeightKind kind, const uint8_t* panel, size_t index) {
  if (kind == WeightKind::kF32)
    return _mm512_loadu_ps(reinterpret_cast<const float*>(panel) + index);
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
    case WeightKind::kInt8:
      return DecodeGranule<Bytes8>(m, panel, begin / kInputGranule, out);
    default:
      for (size_t i = 0; i < kInputGranule * kPanelRows; i += 16)
        _mm512_storeu_ps(out + i, LoadWeights(m.kind, panel, size_t{begin} * kPanelRows + i));
  }
}

// One token by P panels of a float kind.
template <WeightKind K, int P>
QINFER_FN void Vector(const Matrix& m, uint32_t panel, const float* x, float* out) {
  const uint8_t* data[P];
  __m512 total[P];
  QINFER_UNROLL(8)
  for (int p = 0; p < P; ++p) {
    data[p] = m.data + (panel + static_cast<uint32_t>(p)) * m.panel_bytes;
    total[p] = _mm512_setzero_ps();
  }
  constexpr size_t kBytes = K == WeightKind::kF32 ? 4 : 2;
  for (uint32_t k = 0; k < m.cols; ++k) {
    const __m512 by = Set(x[k]);
    const size_t at = size_t{k} * kPanelRows;
    QINFER_UNROLL(8)
    for (int p = 0; p < P; ++p) {
      _mm_prefetch(reinterpret_cast<const char*>(data[p] + at * kBytes + 1024), _MM_HINT_T0);
      total[p] = _mm512_fmadd_ps(LoadWeights(K, data[p], at), by, total[p]);
    }
  }
  for (int p = 0; p < P; ++p) {
    const uint32_t row = (panel + static_cast<uint32_t>(p)) * kPanelRows;
    StoreTail(out + row, total[p], m.rows - row);
  }
}

template <WeightKind K>
void OneToken(const Matrix& m, uint32_t begin, uint32_t end, const float* x, float* out) {
  for (; begin + 8 <= end; begin += 8) Vector<K, 8>(m, begin, x, out);
  for (; begin + 2 <= end; begin += 2) Vector<K, 2>(m, begin, x, out);
  if (begin < end) Vector<K, 1>(m, begin, x, out);
}

// T tokens by a piece of a panel decoded to weights[count][16]; totals[T][16] go on.
template <int T>
QINFER_FN void Piece(const float* weights, uint32_t count, const float* x, size_t x_stride,
                     float* totals) {
  __m512 total[T];
  QINFER_UNROLL(8)
  for (int t = 0; t < T; ++t) total[t] = _mm512_loadu_ps(totals + t * 16);
  for (uint32_t k = 0; k < count; ++k) {
    const __m512 w = _mm512_loadu_ps(weights + k * 16);
    QINFER_UNROLL(8)
    for (int t = 0; t < T; ++t) total[t] = _mm512_fmadd_ps(w, Set(x[t * x_stride + k]), total[t]);
  }
  QINFER_UNROLL(8)
  for (int t = 0; t < T; ++t) _mm512_storeu_ps(totals + t * 16, total[t]);
}

struct FloatSimd {
  template <WeightKind K>
  QINFER_FN void OneToken(const Matrix& m, uint32_t begin, uint32_t end, const float* x,
                          float* out) {
    avx512::OneToken<K>(m, begin, end, x, out);
  }
  QINFER_FN void Decode32(const Matrix& m, const uint8_t* panel, uint32_t k, float* out) {
    avx512::Decode32(m, panel, k, out);
  }
  QINFER_FN void Pieces(const float* weights, uint32_t count, const float* x, size_t x_stride,
                        uint32_t tokens, float* totals) {
    uint32_t t = 0;
    for (; t + 8 <= tokens; t += 8)
      Piece<8>(weights, count, x + t * x_stride, x_stride, totals + t * kPanelRows);
    for (; t + 2 <= tokens; t += 2)
      Piece<2>(weights, count, x + t * x_stride, x_stride, totals + t * kPanelRows);
    if (t < tokens) Piece<1>(weights, count, x + t * x_stride, x_stride, totals + t * kPanelRows);
  }
  QINFER_FN void Store(const float* totals, uint32_t rows, float* out) {
    StoreTail(out, _mm512_loadu_ps(totals), rows);
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

}  // namespace qinfer::kernels::avx512
