// The AVX2 matrix product with float activations, for all kinds: calibration and reference runs.
// Each output is one chain of fused multiply-adds over the inputs, so that many outputs must be in
// flight: panels side by side for one token, tokens side by side for many.
#include "kernels/cpu/avx2/lines.h"
#include "kernels/cpu/matmul_float_frame.h"

namespace qinfer::kernels::avx2 {
namespace {

struct Affine {
  __m256 scale, min;
};

// Eight rows' scale and minimum of a group, as Table::matmul_float decodes them.
QINFER_FN Affine GroupAffine(const Matrix& m, const uint8_t* panel, uint32_t group, uint32_t half) {
  const uint8_t* at = panel + layout::ScalePlane(m) + group * layout::GroupScaleBytes(m);
  Affine out = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  switch (m.scale) {
    case ScaleKind::kF16:
      out.scale = LoadHalf(at + half * 16);
      if (m.has_min) out.min = LoadHalf(at + 32 + half * 16);
      break;
    case ScaleKind::kF32:
      out.scale = _mm256_loadu_ps(reinterpret_cast<const float*>(at) + half * 8);
      if (m.has_min) out.min = _mm256_loadu_ps(reinterpret_cast<const float*>(at) + 16 + half * 8);
      break;
    case ScaleKind::kE8M0:
      out.scale = E8M0(at + half * 8);
      break;
    default: {
      const uint8_t* super =
          panel + group * layout::GroupSize(m) / layout::kSuperGroup * layout::SuperStride(m) +
          half * 16;
      const __m128i sub = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + half * 8));
      const __m256i wide = m.has_min ? _mm256_cvtepu8_epi32(sub) : _mm256_cvtepi8_epi32(sub);
      out.scale = _mm256_mul_ps(LoadHalf(super), _mm256_cvtepi32_ps(wide));
      if (m.has_min) {
        const __m256i mn = _mm256_cvtepu8_epi32(
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + 16 + half * 8)));
        out.min =
            _mm256_xor_ps(_mm256_mul_ps(LoadHalf(super + 32), _mm256_cvtepi32_ps(mn)), Set(-0.0f));
      }
    }
  }
  return out;
}

// Decodes a granule of a quantized panel to out[32][16].
template <class L>
QINFER_FN void DecodeGranule(const Matrix& m, const uint8_t* panel, uint32_t granule, float* out) {
  const uint8_t* p = panel + layout::CodePlane(m) + granule * L::kGranule;
  const uint32_t group_size = layout::GroupSize(m), k0 = granule * kInputGranule;
  const __m256i byte = _mm256_set1_epi32(255);
  const __m256i zero = _mm256_set1_epi32(layout::ZeroPoint(m.kind));
  Affine low[2], high[2];
  for (uint32_t r = 0; r < 2; ++r) {
    low[r] = GroupAffine(m, panel, k0 / group_size, r);
    high[r] = GroupAffine(m, panel, (k0 + 16) / group_size, r);
  }
  const auto emit = [&](__m256i codes, const Affine& affine, float* to)
      __attribute__((always_inline)) {
    for (uint32_t i = 0; i < 4; ++i) {
      const __m256i u = _mm256_and_si256(codes, byte);
      codes = _mm256_srli_epi32(codes, 8);
      const __m256 w =
          m.has_min ? _mm256_fmadd_ps(affine.scale, _mm256_cvtepi32_ps(u), affine.min)
                    : _mm256_mul_ps(affine.scale, _mm256_cvtepi32_ps(_mm256_sub_epi32(u, zero)));
      _mm256_storeu_ps(to + i * 16, w);
    }
  };
  for (uint32_t j = 0; j < 4; ++j) {
    const Lines w = L::Get(p, j);
    emit(w.low0, low[0], out + j * 64);
    emit(w.low1, low[1], out + j * 64 + 8);
    emit(w.high0, high[0], out + 256 + j * 64);
    emit(w.high1, high[1], out + 256 + j * 64 + 8);
  }
}

QINFER_FN __m256 LoadWeights(WeightKind kind, const uint8_t* panel, size_t index) {
  if (kind == WeightKind::kF32)
    return _mm256_loadu_ps(reinterpret_cast<const float*>(panel) + index);
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
      for (size_t i = 0; i < kInputGranule * kPanelRows; i += 8)
        _mm256_storeu_ps(out + i, LoadWeights(m.kind, panel, size_t{begin} * kPanelRows + i));
  }
}

// One token by P panels of a float kind.
template <WeightKind K, int P>
QINFER_FN void Vector(const Matrix& m, uint32_t panel, const float* x, float* out) {
  const uint8_t* data[P];
  __m256 total[P][2];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    data[p] = m.data + (panel + p) * m.panel_bytes;
    total[p][0] = total[p][1] = _mm256_setzero_ps();
  }
  constexpr size_t kBytes = K == WeightKind::kF32 ? 4 : 2;
  for (uint32_t k = 0; k < m.cols; ++k) {
    const __m256 by = Set(x[k]);
    const size_t at = size_t{k} * kPanelRows;
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      _mm_prefetch(reinterpret_cast<const char*>(data[p] + at * kBytes + 1024), _MM_HINT_T0);
      total[p][0] = _mm256_fmadd_ps(LoadWeights(K, data[p], at), by, total[p][0]);
      total[p][1] = _mm256_fmadd_ps(LoadWeights(K, data[p], at + 8), by, total[p][1]);
    }
  }
  for (int p = 0; p < P; ++p) {
    const uint32_t row = (panel + p) * kPanelRows, rows = m.rows - row;
    StoreTail(out + row, total[p][0], rows);
    if (rows > 8) StoreTail(out + row + 8, total[p][1], rows - 8);
  }
}

template <WeightKind K>
void OneToken(const Matrix& m, uint32_t begin, uint32_t end, const float* x, float* out) {
  for (; begin + 4 <= end; begin += 4) Vector<K, 4>(m, begin, x, out);
  for (; begin < end; ++begin) Vector<K, 1>(m, begin, x, out);
}

// T tokens by a piece of a panel decoded to weights[count][16]; totals[T][16] go on.
template <int T>
QINFER_FN void Piece(const float* weights, uint32_t count, const float* x, size_t x_stride,
                     float* totals) {
  __m256 total[T][2];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    total[t][0] = _mm256_loadu_ps(totals + t * 16);
    total[t][1] = _mm256_loadu_ps(totals + t * 16 + 8);
  }
  for (uint32_t k = 0; k < count; ++k) {
    const __m256 w0 = _mm256_loadu_ps(weights + k * 16), w1 = _mm256_loadu_ps(weights + k * 16 + 8);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const __m256 by = Set(x[t * x_stride + k]);
      total[t][0] = _mm256_fmadd_ps(w0, by, total[t][0]);
      total[t][1] = _mm256_fmadd_ps(w1, by, total[t][1]);
    }
  }
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    _mm256_storeu_ps(totals + t * 16, total[t][0]);
    _mm256_storeu_ps(totals + t * 16 + 8, total[t][1]);
  }
}

struct FloatSimd {
  template <WeightKind K>
  QINFER_FN void OneToken(const Matrix& m, uint32_t begin, uint32_t end, const float* x,
                          float* out) {
    avx2::OneToken<K>(m, begin, end, x, out);
  }
  QINFER_FN void Decode32(const Matrix& m, const uint8_t* panel, uint32_t k, float* out) {
    avx2::Decode32(m, panel, k, out);
  }
  QINFER_FN void Pieces(const float* weights, uint32_t count, const float* x, size_t x_stride,
                        uint32_t tokens, float* totals) {
    for (uint32_t t = 0; t < tokens;) {
      const uint32_t left = tokens - t;
      const float* in = x + t * x_stride;
      float* sums = totals + t * kPanelRows;
      // Sixes, but four and four rather than six and two: few chains wait for each other.
      const uint32_t n = left == 6 || left > 8 ? 6 : left >= 4 ? 4 : left;
      if (n == 6)
        Piece<6>(weights, count, in, x_stride, sums);
      else if (n == 4)
        Piece<4>(weights, count, in, x_stride, sums);
      else if (n == 3)
        Piece<3>(weights, count, in, x_stride, sums);
      else if (n == 2)
        Piece<2>(weights, count, in, x_stride, sums);
      else
        Piece<1>(weights, count, in, x_stride, sums);
      t += n;
    }
  }
  QINFER_FN void Store(const float* totals, uint32_t rows, float* out) {
    StoreTail(out, _mm256_loadu_ps(totals), rows);
    if (rows > 8) StoreTail(out + 8, _mm256_loadu_ps(totals + 8), rows - 8);
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

}  // namespace qinfer::kernels::avx2
