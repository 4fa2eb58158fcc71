// What all AVX2 kernels share: loads, lane arithmetic and the elementary functions of
// kernels/ref/math.h, eight lanes at a time and to the same bits. Everything here has internal
// linkage and is inlined: see the hygiene rules in src/cmake/Kernels.cmake.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/inline.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"

namespace qinfer::kernels::avx2 {

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
QINFER_FN __m256 LoadHalf(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
QINFER_FN __m256 LoadBf16(const void* p) {
  const __m128i h = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
QINFER_FN __m256i Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
// Four bytes to all lanes.
QINFER_FN __m256i Broadcast4(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
// Lanes 0 .. n-1 set, 0 <= n.
QINFER_FN __m256i TailMask(size_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : static_cast<int32_t>(n)), lane);
}
// n floats (up to 8), the other lanes +0.
QINFER_FN __m256 LoadTail(const float* p, size_t n) {
  return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, TailMask(n));
}
QINFER_FN void StoreTail(float* p, __m256 v, size_t n) {
  if (n >= 8)
    _mm256_storeu_ps(p, v);
  else
    _mm256_maskstore_ps(p, TailMask(n), v);
}
QINFER_FN __m256 E8M0(const uint8_t* p) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i zero = _mm256_cmpeq_epi32(e, _mm256_setzero_si256());
  const __m256i nan = _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255));
  __m256i bits = _mm256_slli_epi32(e, 23);
  bits = _mm256_or_si256(bits, _mm256_and_si256(zero, _mm256_set1_epi32(0x00400000)));
  bits = _mm256_or_si256(bits, _mm256_and_si256(nan, _mm256_set1_epi32(0x00400000)));
  return _mm256_castsi256_ps(bits);
}

// ---- 16 virtual lanes: (low, high) = lanes 0..7, 8..15
// -------------------------------------------
QINFER_FN float Tree(__m256 low, __m256 high) {
  const __m256 a = _mm256_add_ps(low, high);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
// x > top ? x : top over all lanes; a NaN is never taken.
QINFER_FN float MaxTree(__m256 v) {
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

// Keeps a running sum in a register: compilers otherwise gather the terms of a chain of integer
// additions first, many more than there are registers.
QINFER_FN void Pin(__m256i& v) { __asm__ volatile("" : "+x"(v)); }

// ---- Elementary functions -----------------------------------------------------------------------
QINFER_FN __m256 Set(float f) { return _mm256_set1_ps(f); }
QINFER_FN __m256 Abs(__m256 x) { return _mm256_andnot_ps(Set(-0.0f), x); }

QINFER_FN __m256 PowerOfTwo(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

// e^x / 2^n, where n is x / ln 2 rounded.
QINFER_FN __m256 ExpOfRest(__m256 x, __m256 n) {
  __m256 r = _mm256_fmadd_ps(n, Set(-0x1.62e4p-1f), x);
  r = _mm256_fmadd_ps(n, Set(-0x1.7f7d1cp-20f), r);
  __m256 p = Set(0.00019790196f);
  p = _mm256_fmadd_ps(p, r, Set(0.0013944807f));
  p = _mm256_fmadd_ps(p, r, Set(0.008333498f));
  p = _mm256_fmadd_ps(p, r, Set(0.04166629f));
  p = _mm256_fmadd_ps(p, r, Set(0.16666666f));
  p = _mm256_fmadd_ps(p, r, Set(0.5f));
  return _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r), Set(1.0f));
}

QINFER_FN __m256 Exp(__m256 x) {
  const __m256 magic = Set(12582912.0f);
  const __m256 n = _mm256_sub_ps(_mm256_add_ps(_mm256_mul_ps(x, Set(1.44269502f)), magic), magic);
  __m256 p = ExpOfRest(x, n);
  const __m256i k = _mm256_cvttps_epi32(n), half = _mm256_srai_epi32(k, 1);
  p = _mm256_mul_ps(_mm256_mul_ps(p, PowerOfTwo(half)), PowerOfTwo(_mm256_sub_epi32(k, half)));
  p = _mm256_blendv_ps(p, Set(__builtin_inff()), _mm256_cmp_ps(x, Set(88.7228394f), _CMP_GT_OQ));
  p = _mm256_andnot_ps(_mm256_cmp_ps(x, Set(-103.9720841f), _CMP_LT_OQ), p);
  return _mm256_blendv_ps(p, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

QINFER_FN __m256 Tanh(__m256 x) {
  const __m256 a = Abs(x), z = _mm256_mul_ps(x, x), one = Set(1.0f);
  __m256 p = Set(-0.005660789f);
  p = _mm256_fmadd_ps(p, z, Set(0.020602008f));
  p = _mm256_fmadd_ps(p, z, Set(-0.05372923f));
  p = _mm256_fmadd_ps(p, z, Set(0.13331328f));
  p = _mm256_fmadd_ps(p, z, Set(-0.33333278f));
  const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(z, p), x, x);
  const __m256 e = _mm256_add_ps(Exp(_mm256_add_ps(a, a)), one);
  __m256 t = _mm256_sub_ps(one, _mm256_div_ps(Set(2.0f), e));
  t = _mm256_or_ps(t, _mm256_and_ps(x, Set(-0.0f)));  // t >= 0 here
  return _mm256_blendv_ps(t, small, _mm256_cmp_ps(a, Set(0.625f), _CMP_LT_OQ));
}

QINFER_FN __m256 Silu(__m256 x) {
  const __m256 negative = _mm256_xor_ps(x, Set(-0.0f));
  return _mm256_div_ps(x, _mm256_add_ps(Set(1.0f), Exp(negative)));
}

QINFER_FN __m256 GeluTanh(__m256 x) {
  const __m256 cube = _mm256_mul_ps(Set(0.0447149985f), _mm256_mul_ps(x, x));
  const __m256 inner = _mm256_mul_ps(Set(0.797884583f), _mm256_fmadd_ps(cube, x, x));
  return _mm256_mul_ps(_mm256_mul_ps(Set(0.5f), x), _mm256_add_ps(Set(1.0f), Tanh(inner)));
}

}  // namespace qinfer::kernels::avx2
