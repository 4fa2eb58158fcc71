// What all AVX-512 kernels share: loads, lane arithmetic and the elementary functions of
// kernels/ref/math.h, sixteen lanes at a time and to the same bits. Everything here has internal
// linkage and is inlined: see the hygiene rules in src/cmake/Kernels.cmake.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/inline.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"

#if !defined(QINFER_PIN)  // tests define it away
// Keeps a running sum in one register.
#define QINFER_PIN(sum) __asm__("" : "+v"(sum))
#endif

namespace qinfer::kernels::avx512 {

void MatmulInt4(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                void* scratch);
void MatmulInt6(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                void* scratch);
void MatmulFp4(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end, const Activations& x,
               uint32_t tokens, float* out, size_t out_stride, void* scratch);
void MatmulInt8(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                void* scratch);
void MatmulFloat(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end, const float* x,
                 size_t x_stride, uint32_t tokens, float* out, size_t out_stride, void* scratch);
void DecodeRow(const Matrix& matrix, uint32_t row, float* out);
void DecodePanel(const Matrix& matrix, uint32_t panel, float* out);

void Quantize(const float* x, uint32_t cols, uint32_t token, const Activations& out);
void QuantizeStatic(const float* x, uint32_t cols, uint32_t token, float scale,
                    const Activations& out);
void RmsNorm(const float* x, const float* weight, uint32_t n, float eps, float* out);
void Add(float* x, const float* y, size_t n);
void Scale(float* x, float by, size_t n);
void Gated(Activation activation, const float* gate, const float* up, size_t n, float* out);
void Softcap(float* x, float cap, size_t n);
void Rope(float* head, const float* cos, const float* sin, uint32_t rope_dims, bool interleaved);
uint32_t Argmax(const float* x, size_t n);
float ExpSum(const float* x, size_t n, float* max);
void ExpShift(const float* x, float shift, size_t n, float* out);
bool PanelMaxima(const float* x, size_t n, float* maxima);

void WriteK(uint8_t* plane, KvType type, uint32_t slot, const float* k, uint32_t head_dim);
void WriteV(uint8_t* plane, KvType type, uint32_t slot, const float* v, uint32_t head_dim);
void Attention(const AttentionArgs& args);

// Quantizes up to 256 values; returns the scale.
float QuantizeBlock(const float* x, uint32_t count, int8_t* codes);

// ---- Loads ------------------------------------------------------------------------------------
QINFER_FN __m512 LoadHalf(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
QINFER_FN __m512 LoadBf16(const void* p) {
  const __m256i h = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
QINFER_FN __m512i Load(const void* p) { return _mm512_loadu_si512(p); }
// Four bytes to all lanes.
QINFER_FN __m512i Broadcast4(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
QINFER_FN __mmask16 TailMask(size_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u);
}
// n floats (up to 16), the other lanes +0.
QINFER_FN __m512 LoadTail(const float* p, size_t n) {
  return _mm512_maskz_loadu_ps(TailMask(n), p);
}
QINFER_FN void StoreTail(float* p, __m512 v, size_t n) { _mm512_mask_storeu_ps(p, TailMask(n), v); }
// Sixteen bytes to lanes.
QINFER_FN __m512i WidenU8(const void* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
QINFER_FN __m512i WidenS8(const void* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
QINFER_FN __m512 E8M0(const uint8_t* p) {
  // 2^(e - 127): exponent bits; 0 is the subnormal 2^-127, 255 is NaN.
  uint32_t bits[16];
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t e = p[i];
    bits[i] = e << 23 | (e == 0 || e == 255 ? 0x00400000u : 0u);
  }
  return _mm512_castsi512_ps(Load(bits));
}

// Lane 4i + k goes to 4k + i.
QINFER_FN __m512i Transpose4x4(__m512i v) {
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}

// ---- The 16 virtual lanes are one vector --------------------------------------------------------
QINFER_FN float Tree(__m512 v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
// The largest lane; lanes are not NaN.
QINFER_FN float MaxTree(__m512 v) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

// ---- Elementary functions -----------------------------------------------------------------------
QINFER_FN __m512 Set(float f) { return _mm512_set1_ps(f); }
QINFER_FN __m512 Flip(__m512 x) {
  return _mm512_castsi512_ps(
      _mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));
}
QINFER_FN __m512 Abs(__m512 x) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MAX)));
}
QINFER_FN __m512 SignOf(__m512 x) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));
}
QINFER_FN __m512 Or(__m512 x, __m512 y) {
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(x), _mm512_castps_si512(y)));
}

// e^x / 2^n, where n is x / ln 2 rounded.
QINFER_FN __m512 ExpOfRest(__m512 x, __m512 n) {
  __m512 r = _mm512_fmadd_ps(n, Set(-0x1.62e4p-1f), x);
  r = _mm512_fmadd_ps(n, Set(-0x1.7f7d1cp-20f), r);
  __m512 p = Set(0.00019790196f);
  p = _mm512_fmadd_ps(p, r, Set(0.0013944807f));
  p = _mm512_fmadd_ps(p, r, Set(0.008333498f));
  p = _mm512_fmadd_ps(p, r, Set(0.04166629f));
  p = _mm512_fmadd_ps(p, r, Set(0.16666666f));
  p = _mm512_fmadd_ps(p, r, Set(0.5f));
  return _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r), Set(1.0f));
}

// Exp for what is at most 0, or NaN, or far beyond infinity: the same bits. From -104 on the result
// is +0; scalef rounds once, as the last of the reference's two products with powers of two does.
QINFER_FN __m512 ExpBelowZero(__m512 x) {
  x = _mm512_max_ps(Set(-104.0f), x);  // NaN stays
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, Set(1.44269502f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm512_scalef_ps(ExpOfRest(x, n), n);
}
QINFER_FN __m512 Exp(__m512 x) {
  const __mmask16 over = _mm512_cmp_ps_mask(x, Set(88.7228394f), _CMP_GT_OQ);
  return ExpBelowZero(_mm512_mask_mov_ps(x, over, Set(200.0f)));
}

QINFER_FN __m512 Tanh(__m512 x) {
  const __m512 a = Abs(x), z = _mm512_mul_ps(x, x), one = Set(1.0f);
  __m512 p = Set(-0.005660789f);
  p = _mm512_fmadd_ps(p, z, Set(0.020602008f));
  p = _mm512_fmadd_ps(p, z, Set(-0.05372923f));
  p = _mm512_fmadd_ps(p, z, Set(0.13331328f));
  p = _mm512_fmadd_ps(p, z, Set(-0.33333278f));
  const __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(z, p), x, x);
  const __m512 e = _mm512_add_ps(Exp(_mm512_add_ps(a, a)), one);
  const __m512 t = Or(_mm512_sub_ps(one, _mm512_div_ps(Set(2.0f), e)), SignOf(x));
  return _mm512_mask_mov_ps(t, _mm512_cmp_ps_mask(a, Set(0.625f), _CMP_LT_OQ), small);
}

QINFER_FN __m512 Silu(__m512 x) { return _mm512_div_ps(x, _mm512_add_ps(Set(1.0f), Exp(Flip(x)))); }

QINFER_FN __m512 GeluTanh(__m512 x) {
  const __m512 cube = _mm512_mul_ps(Set(0.0447149985f), _mm512_mul_ps(x, x));
  const __m512 inner = _mm512_mul_ps(Set(0.797884583f), _mm512_fmadd_ps(cube, x, x));
  return _mm512_mul_ps(_mm512_mul_ps(Set(0.5f), x), _mm512_add_ps(Set(1.0f), Tanh(inner)));
}

}  // namespace qinfer::kernels::avx512
