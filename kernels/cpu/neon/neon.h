// What all NEON kernels share: loads, lane arithmetic and the elementary functions of
// kernels/ref/math.h, four lanes at a time and to the same bits. Everything here has internal
// linkage and is inlined: see the hygiene rules in src/cmake/Kernels.cmake.
#pragma once

#include <arm_neon.h>
#include <string.h>

#include "kernels/cpu/inline.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"

namespace qinfer::kernels::neon {

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

// ---- Loads --------------------------------------------------------------------------------------
QINFER_FN float32x4_t Set(float f) { return vdupq_n_f32(f); }
// Four halves or bfloats as floats.
QINFER_FN float32x4_t LoadHalf(const void* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(static_cast<const uint16_t*>(p))));
}
QINFER_FN float32x4_t LoadBf16(const void* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(static_cast<const uint16_t*>(p)), 16));
}
// n floats (up to 4), the other lanes +0.
QINFER_FN float32x4_t LoadTail(const float* p, size_t n) {
  if (n >= 4) return vld1q_f32(p);
  float32x4_t v = Set(0.0f);
  memcpy(&v, p, n * sizeof(float));
  return v;
}
QINFER_FN void StoreTail(float* p, float32x4_t v, size_t n) {
  if (n >= 4)
    vst1q_f32(p, v);
  else
    memcpy(p, &v, n * sizeof(float));
}
// Four bytes to lanes.
QINFER_FN uint32x4_t WidenU8(const uint8_t* p) {
  uint32_t bytes;
  memcpy(&bytes, p, 4);
  return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes))));
}
QINFER_FN int32x4_t WidenS8(const uint8_t* p) {
  uint32_t bytes;
  memcpy(&bytes, p, 4);
  return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(bytes))));
}
QINFER_FN int32x4_t Widen8(bool is_unsigned, const uint8_t* p) {
  return is_unsigned ? vreinterpretq_s32_u32(WidenU8(p)) : WidenS8(p);
}
// 2^(e - 127): exponent bits; 0 is the subnormal 2^-127, 255 is NaN.
QINFER_FN float32x4_t E8M0(const uint8_t* p) {
  const uint32x4_t e = WidenU8(p);
  const uint32x4_t odd = vorrq_u32(vceqzq_u32(e), vceqq_u32(e, vdupq_n_u32(255)));
  return vreinterpretq_f32_u32(
      vorrq_u32(vshlq_n_u32(e, 23), vandq_u32(odd, vdupq_n_u32(0x00400000))));
}

// ---- Lanes --------------------------------------------------------------------------------------
QINFER_FN float32x4_t And(float32x4_t x, uint32x4_t mask) {
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), mask));
}
// x > top ? x : top; a NaN in x is never taken.
QINFER_FN float32x4_t Larger(float32x4_t x, float32x4_t top) {
  return vbslq_f32(vcgtq_f32(x, top), x, top);
}
// The fixed tree over 16 virtual lanes in four vectors.
QINFER_FN float Tree(const float32x4_t (&v)[4]) {
  const float32x4_t a = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
  const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
  return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}

// ---- Elementary functions -----------------------------------------------------------------------
QINFER_FN float32x4_t PowerOfTwo(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

QINFER_FN float32x4_t Exp(float32x4_t x) {
  const float32x4_t magic = Set(12582912.0f);
  const float32x4_t n = vsubq_f32(vaddq_f32(vmulq_f32(x, Set(1.44269502f)), magic), magic);
  float32x4_t r = vfmaq_f32(x, n, Set(-0x1.62e4p-1f));
  r = vfmaq_f32(r, n, Set(-0x1.7f7d1cp-20f));
  float32x4_t p = Set(0.00019790196f);
  p = vfmaq_f32(Set(0.0013944807f), p, r);
  p = vfmaq_f32(Set(0.008333498f), p, r);
  p = vfmaq_f32(Set(0.04166629f), p, r);
  p = vfmaq_f32(Set(0.16666666f), p, r);
  p = vfmaq_f32(Set(0.5f), p, r);
  p = vaddq_f32(vfmaq_f32(r, vmulq_f32(r, r), p), Set(1.0f));
  const int32x4_t k = vcvtq_s32_f32(n), half = vshrq_n_s32(k, 1);
  p = vmulq_f32(vmulq_f32(p, PowerOfTwo(half)), PowerOfTwo(vsubq_s32(k, half)));
  p = vbslq_f32(vcgtq_f32(x, Set(88.7228394f)), Set(__builtin_inff()), p);
  p = vbslq_f32(vcltq_f32(x, Set(-103.9720841f)), Set(0.0f), p);
  return vbslq_f32(vceqq_f32(x, x), p, x);
}

QINFER_FN float32x4_t Tanh(float32x4_t x) {
  const float32x4_t a = vabsq_f32(x), z = vmulq_f32(x, x), one = Set(1.0f);
  float32x4_t p = Set(-0.005660789f);
  p = vfmaq_f32(Set(0.020602008f), p, z);
  p = vfmaq_f32(Set(-0.05372923f), p, z);
  p = vfmaq_f32(Set(0.13331328f), p, z);
  p = vfmaq_f32(Set(-0.33333278f), p, z);
  const float32x4_t small = vfmaq_f32(x, vmulq_f32(z, p), x);
  const float32x4_t e = vaddq_f32(Exp(vaddq_f32(a, a)), one);
  const float32x4_t t = vsubq_f32(one, vdivq_f32(Set(2.0f), e));
  const float32x4_t with_sign = vbslq_f32(vdupq_n_u32(0x80000000u), x, t);
  return vbslq_f32(vcltq_f32(a, Set(0.625f)), small, with_sign);
}

QINFER_FN float32x4_t Silu(float32x4_t x) {
  return vdivq_f32(x, vaddq_f32(Set(1.0f), Exp(vnegq_f32(x))));
}

QINFER_FN float32x4_t GeluTanh(float32x4_t x) {
  const float32x4_t cube = vmulq_f32(Set(0.0447149985f), vmulq_f32(x, x));
  const float32x4_t inner = vmulq_f32(Set(0.797884583f), vfmaq_f32(x, cube, x));
  return vmulq_f32(vmulq_f32(Set(0.5f), x), vaddq_f32(Set(1.0f), Tanh(inner)));
}

}  // namespace qinfer::kernels::neon
