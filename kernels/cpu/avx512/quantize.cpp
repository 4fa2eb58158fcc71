// AVX-512 quantization of activations. Blocks of 32, the usual size, go through sixteen at a time:
// their maxima become one vector by a tree of shuffles, so that divisions and horizontal steps are
// paid once for all of them.
#include "kernels/cpu/avx512/avx512.h"
#include "kernels/cpu/sum_codes.h"

namespace qinfer::kernels::avx512 {

namespace {

// Rounds up to sixteen values to the nearest even codes.
QINFER_INLINE void StoreCodes(__m512 v, uint32_t count, int8_t* codes) {
  int8_t all[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(all), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  memcpy(codes, all, count);
}

// Inlined, so that a count that is known needs no tails.
QINFER_INLINE float Block(const float* x, uint32_t count, int8_t* codes) {
  __m512 amax = _mm512_setzero_ps();
  uint32_t bad = 0;
  const __m512 largest = Set(__FLT_MAX__);
  for (uint32_t i = 0; i < count; i += 16) {
    const __m512 a = Abs(LoadTail(x + i, count - i));
    bad |= _mm512_cmp_ps_mask(a, largest, _CMP_NLE_UQ);
    amax = _mm512_max_ps(a, amax);
  }
  const float top = MaxTree(amax);
  if (bad != 0 || top < 0x1p-110f) {
    memset(codes, 0, count);
    return bad != 0 ? __builtin_nanf("") : 0.0f;
  }
  const __m512 inverse = Set(127.0f / top);
  for (uint32_t i = 0; i < count; i += 16)
    StoreCodes(_mm512_mul_ps(LoadTail(x + i, count - i), inverse), Min(16, count - i), codes + i);
  return top / 127.0f;
}

}  // namespace

float QuantizeBlock(const float* x, uint32_t count, int8_t* codes) {
  return count == 32 ? Block(x, 32, codes) : Block(x, count, codes);
}

namespace {

// One block at a given scale; returns it, or NaN.
float StaticBlock(const float* x, uint32_t count, float scale, int8_t* codes) {
  uint32_t bad = 0;
  const __m512 largest = Set(__FLT_MAX__), inverse = Set(1.0f / scale), top = Set(127.0f);
  for (uint32_t i = 0; i < count; i += 16) {
    const __m512 v = LoadTail(x + i, count - i);
    bad |= _mm512_cmp_ps_mask(Abs(v), largest, _CMP_NLE_UQ);
    const __m512 clamped = _mm512_min_ps(_mm512_mul_ps(v, inverse), top);
    StoreCodes(_mm512_max_ps(clamped, Set(-127.0f)), Min(16, count - i), codes + i);
  }
  if (bad == 0) return scale;
  memset(codes, 0, count);
  return __builtin_nanf("");
}

// Steps of the trees: f of neighbours, in pairs of lanes and of pairs.
template <typename F>
QINFER_FN __m512i Lanes(__m512i a, __m512i b, F&& f) {
  return f(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
template <typename F>
QINFER_FN __m512i Pairs(__m512i a, __m512i b, F&& f) {
  return f(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
// Lane i of each quarter is f of that quarter of v[i].
template <typename F>
QINFER_FN __m512i Quarters(const __m512i* v, F&& f) {
  return Pairs(Lanes(v[0], v[1], f), Lanes(v[2], v[3], f), f);
}
template <typename F>
QINFER_FN __m512i Halves(__m512i a, __m512i b, F&& f) {
  const __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
  return f(_mm512_castps_si512(_mm512_shuffle_f32x4(x, y, 0x88)),
           _mm512_castps_si512(_mm512_shuffle_f32x4(x, y, 0xdd)));
}

// The largest magnitudes of up to sixteen blocks of 32, as the bits of floats: integers have the
// same order, and what is no number lies above.
QINFER_FN __m512i Tops(const float* x, uint32_t blocks) {
  const auto larger = [](__m512i a, __m512i b) QINFER_LAMBDA { return _mm512_max_epu32(a, b); };
  __m512i top[16];
  QINFER_UNROLL(16)
  for (uint32_t b = 0; b < 16; ++b) {
    top[b] = _mm512_setzero_si512();
    if (b >= blocks) continue;
    const float* from = x + size_t{b} * 32;
    top[b] = larger(_mm512_castps_si512(Abs(_mm512_loadu_ps(from))),
                    _mm512_castps_si512(Abs(_mm512_loadu_ps(from + 16))));
  }
  return Halves(Halves(Quarters(top, larger), Quarters(top + 4, larger), larger),
                Halves(Quarters(top + 8, larger), Quarters(top + 12, larger), larger), larger);
}

// Up to sixteen whole blocks of 32, an even number.
QINFER_FN void Blocks(const float* x, uint32_t blocks, int8_t* codes, float* scales) {
  const __m512i bits = Tops(x, blocks);
  const __m512 tops = _mm512_castsi512_ps(bits);
  const __m512i infinity = _mm512_castps_si512(Set(__builtin_inff()));
  if (_mm512_cmpge_epu32_mask(bits, infinity) != 0) {  // a block is spoilt: rare
    for (uint32_t b = 0; b < blocks; ++b) scales[b] = Block(x + b * 32, 32, codes + b * 32);
    return;
  }
  const __mmask16 some = _mm512_cmp_ps_mask(tops, Set(0x1p-110f), _CMP_GE_OQ);
  alignas(64) float inverse[16];
  _mm512_storeu_ps(inverse, _mm512_maskz_mov_ps(some, _mm512_div_ps(Set(127.0f), tops)));
  StoreTail(scales, _mm512_maskz_mov_ps(some, _mm512_div_ps(tops, Set(127.0f))), blocks);
  for (uint32_t b = 0; b < blocks; b += 2, x += 64, codes += 64) {
    const __m512 first = Set(inverse[b]), second = Set(inverse[b + 1]);
    const auto code = [&](size_t at, __m512 by) QINFER_LAMBDA {
      return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + at), by));
    };
    const __m512i low = _mm512_packs_epi32(code(0, first), code(16, first));
    const __m512i high = _mm512_packs_epi32(code(32, second), code(48, second));
    _mm512_storeu_si512(codes, Transpose4x4(_mm512_packs_epi16(low, high)));
  }
}

// The sums of sixteen codes each: whole rows, whose ends are padded.
QINFER_FN void Sums(const int8_t* codes, uint32_t padded, int32_t* sums) {
  const auto sum = [](__m512i a, __m512i b) QINFER_LAMBDA { return _mm512_add_epi32(a, b); };
  const __m512i ones = _mm512_set1_epi8(1);
  uint32_t k = 0;
  for (; k + 256 <= padded; k += 256) {
    __m512i four[4];
    QINFER_UNROLL(4)
    for (uint32_t i = 0; i < 4; ++i)
      four[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, Load(codes + k + i * 64));
    _mm512_storeu_si512(sums + k / 16, Transpose4x4(Quarters(four, sum)));
  }
  SumCodes(codes + k, padded - k, sums + k / 16);
}

}  // namespace

void Quantize(const float* x, uint32_t cols, uint32_t token, const Activations& out) {
  if (out.block != 32 || cols % 32 != 0)
    return QuantizeRow(x, cols, token, out, QuantizeBlock, SumCodes);
  int8_t* codes = out.codes + token * out.code_stride;
  float* scales = out.scales + token * out.scale_stride;
  uint32_t k = 0;
  for (; k + 512 <= cols; k += 512) Blocks(x + k, 16, codes + k, scales + k / 32);
  const uint32_t even = (cols - k) / 64 * 2;
  if (even >= 4) {  // fewer are not worth a tree
    Blocks(x + k, even, codes + k, scales + k / 32);
    k += even * 32;
  }
  for (; k < cols; k += 32) scales[k / 32] = Block(x + k, 32, codes + k);
  Sums(codes, cols, out.sums + token * out.sum_stride);
}

void QuantizeStatic(const float* x, uint32_t cols, uint32_t token, float scale,
                    const Activations& out) {
  const auto block = [scale](const float* values, uint32_t count, int8_t* codes) {
    return StaticBlock(values, count, scale, codes);
  };
  QuantizeRow(x, cols, token, out, block, SumCodes);
}

}  // namespace qinfer::kernels::avx512
