// AVX-512 on two AVX2 registers, for the intrinsics that kernels/cpu/avx512 uses: lets the kernels
// run where no AVX-512 is, for comparison with the reference. Each function says what the
// instruction does, in the plainest way. Include before any kernel header, with AVX2, FMA and F16C
// enabled.
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

namespace qinfer::emulated {

struct F512 {
  __m256 low, high;
};
struct I512 {
  __m256i low, high;
};

#define QINFER_EMULATED static inline __attribute__((unused))
// The long ones are called, so that the kernels compile in a reasonable time.
#define QINFER_EMULATED_CALL static __attribute__((unused, noinline))

QINFER_EMULATED F512 F_add(F512 a, F512 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
QINFER_EMULATED F512 F_sub(F512 a, F512 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
QINFER_EMULATED F512 F_mul(F512 a, F512 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
QINFER_EMULATED F512 F_div(F512 a, F512 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
QINFER_EMULATED F512 F_min(F512 a, F512 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
QINFER_EMULATED F512 F_max(F512 a, F512 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
QINFER_EMULATED F512 F_fmadd(F512 a, F512 b, F512 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
QINFER_EMULATED F512 F_fnmadd(F512 a, F512 b, F512 c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
QINFER_EMULATED I512 I_add_epi32(I512 a, I512 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
QINFER_EMULATED I512 I_sub_epi32(I512 a, I512 b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
QINFER_EMULATED_CALL I512 I_mullo_epi32(I512 a, I512 b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
QINFER_EMULATED I512 I_and_si512(I512 a, I512 b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
QINFER_EMULATED I512 I_or_si512(I512 a, I512 b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
QINFER_EMULATED I512 I_xor_si512(I512 a, I512 b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
QINFER_EMULATED I512 I_srli_epi16(I512 a, int n) {
  return {_mm256_srli_epi16(a.low, n), _mm256_srli_epi16(a.high, n)};
}
QINFER_EMULATED I512 I_slli_epi16(I512 a, int n) {
  return {_mm256_slli_epi16(a.low, n), _mm256_slli_epi16(a.high, n)};
}
QINFER_EMULATED I512 I_slli_epi32(I512 a, int n) {
  return {_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)};
}
QINFER_EMULATED I512 I_srli_epi32(I512 a, int n) {
  return {_mm256_srli_epi32(a.low, n), _mm256_srli_epi32(a.high, n)};
}
QINFER_EMULATED I512 I_srai_epi32(I512 a, int n) {
  return {_mm256_srai_epi32(a.low, n), _mm256_srai_epi32(a.high, n)};
}
QINFER_EMULATED F512 Setzero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
QINFER_EMULATED I512 SetzeroI() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
QINFER_EMULATED F512 Set1(float f) { return {_mm256_set1_ps(f), _mm256_set1_ps(f)}; }
QINFER_EMULATED I512 Set1Epi32(int v) { return {_mm256_set1_epi32(v), _mm256_set1_epi32(v)}; }
QINFER_EMULATED I512 Set1Epi8(int v) {
  return {_mm256_set1_epi8(static_cast<char>(v)), _mm256_set1_epi8(static_cast<char>(v))};
}
QINFER_EMULATED F512 Loadu(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
QINFER_EMULATED I512 LoaduI(const void* p) {
  I512 v;
  memcpy(&v, p, 64);
  return v;
}
QINFER_EMULATED void Storeu(float* p, F512 v) { memcpy(p, &v, 64); }
QINFER_EMULATED void StoreuI(void* p, I512 v) { memcpy(p, &v, 64); }
QINFER_EMULATED_CALL F512 MaskzLoadu(uint16_t mask, const float* p) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = (mask >> i & 1) != 0 ? p[i] : 0.0f;
  return Loadu(lanes);
}
QINFER_EMULATED_CALL void MaskStoreu(float* p, uint16_t mask, F512 v) {
  float lanes[16];
  Storeu(lanes, v);
  for (int i = 0; i < 16; ++i)
    if ((mask >> i & 1) != 0) p[i] = lanes[i];
}
QINFER_EMULATED_CALL F512 MaskMov(F512 from, uint16_t mask, F512 to) {
  float a[16], b[16];
  Storeu(a, from);
  Storeu(b, to);
  for (int i = 0; i < 16; ++i)
    if ((mask >> i & 1) != 0) memcpy(a + i, b + i, 4);
  return Loadu(a);
}
QINFER_EMULATED F512 MaskzMov(uint16_t mask, F512 v) { return MaskMov(Setzero(), mask, v); }
QINFER_EMULATED F512 CvtEpi32Ps(I512 a) {
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
QINFER_EMULATED I512 CvtPsEpi32(F512 a) {
  return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
QINFER_EMULATED I512 CvtEpi8Epi32(__m128i a) {
  return {_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8))};
}
QINFER_EMULATED I512 CvtEpu8Epi32(__m128i a) {
  return {_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8))};
}
QINFER_EMULATED I512 CvtEpu16Epi32(__m256i a) {
  return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
          _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1))};
}
QINFER_EMULATED_CALL __m128i CvtEpi32Epi8(I512 a) {  // the low byte of each lane
  int32_t lanes[16];
  int8_t bytes[16];
  StoreuI(lanes, a);
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<int8_t>(lanes[i]);
  __m128i v;
  memcpy(&v, bytes, 16);
  return v;
}
QINFER_EMULATED F512 CvtPhPs(__m256i a) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(a)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))};
}
template <int kRounding>
QINFER_EMULATED __m256i CvtPsPh(F512 a) {
  return _mm256_set_m128i(_mm256_cvtps_ph(a.high, kRounding & 7),
                          _mm256_cvtps_ph(a.low, kRounding & 7));
}
QINFER_EMULATED I512 CastPsSi(F512 a) {
  return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
}
QINFER_EMULATED F512 CastSiPs(I512 a) {
  return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
QINFER_EMULATED __m256 Low256(F512 a) { return a.low; }
QINFER_EMULATED __m256 High256(F512 a) { return a.high; }
template <int kPredicate>
QINFER_EMULATED uint16_t CmpPsMask(F512 a, F512 b) {
  return static_cast<uint16_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, kPredicate)) |
                               _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, kPredicate)) << 8);
}
// Rounds to the nearest integer; other modes are not used.
QINFER_EMULATED F512 Roundscale(F512 a) {
  return {_mm256_round_ps(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a * 2^floor(b), rounded once.
QINFER_EMULATED_CALL F512 Scalef(F512 a, F512 b) {
  float from[16], by[16];
  Storeu(from, a);
  Storeu(by, b);
  for (int i = 0; i < 16; ++i)
    from[i] =
        by[i] != by[i] ? by[i] : static_cast<float>(from[i] * exp2(fmin(floor(by[i]), 1000.0)));
  return Loadu(from);
}
QINFER_EMULATED F512 MaskMax(F512 from, uint16_t mask, F512 a, F512 b) {
  return MaskMov(from, mask, F_max(a, b));
}
// Quarters of 128 bits: two of a, two of b.
QINFER_EMULATED_CALL F512 ShuffleQuarters(F512 a, F512 b, int by) {
  float from[2][16], to[16];
  Storeu(from[0], a);
  Storeu(from[1], b);
  for (int i = 0; i < 4; ++i) memcpy(to + i * 4, from[i / 2] + (by >> i * 2 & 3) * 4, 16);
  return Loadu(to);
}
template <int kBy>
QINFER_EMULATED F512 Permute(F512 a) {
  return {_mm256_permute_ps(a.low, kBy), _mm256_permute_ps(a.high, kBy)};
}
QINFER_EMULATED_CALL F512 PermutexVar(I512 by, F512 a) {
  int32_t at[16];
  float from[16], to[16];
  StoreuI(at, by);
  Storeu(from, a);
  for (int i = 0; i < 16; ++i) to[i] = from[at[i] & 15];
  return Loadu(to);
}
QINFER_EMULATED_CALL F512 Permutex2Var(F512 a, I512 by, F512 b) {
  int32_t at[16];
  float from[32], to[16];
  StoreuI(at, by);
  Storeu(from, a);
  Storeu(from + 16, b);
  for (int i = 0; i < 16; ++i) to[i] = from[at[i] & 31];
  return Loadu(to);
}
QINFER_EMULATED I512 SetrEpi32(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j,
                               int k, int l, int m, int n, int o, int p) {
  return {_mm256_setr_epi32(a, b, c, d, e, f, g, h), _mm256_setr_epi32(i, j, k, l, m, n, o, p)};
}
QINFER_EMULATED_CALL I512 PermutexVarI(I512 by, I512 a) {
  return CastPsSi(PermutexVar(by, CastSiPs(a)));
}
QINFER_EMULATED I512 ShuffleEpi8(I512 a, I512 by) {
  return {_mm256_shuffle_epi8(a.low, by.low), _mm256_shuffle_epi8(a.high, by.high)};
}
QINFER_EMULATED I512 Set4Epi32(int d, int c, int b, int a) {
  const __m256i v = _mm256_setr_epi32(a, b, c, d, a, b, c, d);
  return {v, v};
}
QINFER_EMULATED I512 BroadcastI32x4(__m128i a) {
  const __m256i v = _mm256_broadcastsi128_si256(a);
  return {v, v};
}
QINFER_EMULATED I512 Cast128I(__m128i a) {
  return {_mm256_castsi128_si256(a), _mm256_setzero_si256()};
}
template <int kAt>
QINFER_EMULATED I512 Insert128(I512 a, __m128i b) {
  if (kAt < 2)
    a.low = _mm256_inserti128_si256(a.low, b, kAt & 1);
  else
    a.high = _mm256_inserti128_si256(a.high, b, kAt & 1);
  return a;
}
QINFER_EMULATED I512 MaxEpu32(I512 a, I512 b) {
  return {_mm256_max_epu32(a.low, b.low), _mm256_max_epu32(a.high, b.high)};
}
QINFER_EMULATED I512 UnpackloEpi32(I512 a, I512 b) {
  return {_mm256_unpacklo_epi32(a.low, b.low), _mm256_unpacklo_epi32(a.high, b.high)};
}
QINFER_EMULATED I512 UnpackhiEpi32(I512 a, I512 b) {
  return {_mm256_unpackhi_epi32(a.low, b.low), _mm256_unpackhi_epi32(a.high, b.high)};
}
QINFER_EMULATED I512 UnpackloEpi64(I512 a, I512 b) {
  return {_mm256_unpacklo_epi64(a.low, b.low), _mm256_unpacklo_epi64(a.high, b.high)};
}
QINFER_EMULATED I512 UnpackhiEpi64(I512 a, I512 b) {
  return {_mm256_unpackhi_epi64(a.low, b.low), _mm256_unpackhi_epi64(a.high, b.high)};
}
QINFER_EMULATED I512 PacksEpi32(I512 a, I512 b) {
  return {_mm256_packs_epi32(a.low, b.low), _mm256_packs_epi32(a.high, b.high)};
}
QINFER_EMULATED I512 PacksEpi16(I512 a, I512 b) {
  return {_mm256_packs_epi16(a.low, b.low), _mm256_packs_epi16(a.high, b.high)};
}
QINFER_EMULATED_CALL uint16_t CmpgeEpu32(I512 a, I512 b) {
  uint32_t x[16], y[16];
  uint16_t mask = 0;
  StoreuI(x, a);
  StoreuI(y, b);
  for (int i = 0; i < 16; ++i) mask = static_cast<uint16_t>(mask | (x[i] >= y[i]) << i);
  return mask;
}
QINFER_EMULATED F512 Cast128(__m128 a) { return {_mm256_castps128_ps256(a), _mm256_setzero_ps()}; }
QINFER_EMULATED __m128 Low128(F512 a) { return _mm256_castps256_ps128(a.low); }
QINFER_EMULATED_CALL __m128 MaskzLoadu4(uint8_t mask, const float* p) {
  float lanes[4];
  for (int i = 0; i < 4; ++i) lanes[i] = (mask >> i & 1) != 0 ? p[i] : 0.0f;
  return _mm_loadu_ps(lanes);
}
QINFER_EMULATED_CALL void MaskStoreu4(float* p, uint8_t mask, __m128 v) {
  float lanes[4];
  _mm_storeu_ps(lanes, v);
  for (int i = 0; i < 4; ++i)
    if ((mask >> i & 1) != 0) p[i] = lanes[i];
}
QINFER_EMULATED_CALL __m256i MaskzLoadu16(uint16_t mask, const void* p) {
  uint16_t lanes[16] = {};
  for (int i = 0; i < 16; ++i)
    if ((mask >> i & 1) != 0) memcpy(lanes + i, static_cast<const uint8_t*>(p) + i * 2, 2);
  __m256i v;
  memcpy(&v, lanes, 32);
  return v;
}
// Per lane, adds the four products of an unsigned and a signed byte; wraps, does not saturate.
QINFER_EMULATED_CALL I512 Dpbusd(I512 sum, I512 u, I512 s) {
  int32_t lanes[16];
  uint8_t us[64];
  int8_t ss[64];
  StoreuI(lanes, sum);
  StoreuI(us, u);
  StoreuI(ss, s);
  for (int i = 0; i < 64; ++i) lanes[i / 4] += us[i] * ss[i];
  return LoaduI(lanes);
}

}  // namespace qinfer::emulated

#define QINFER_UNROLL(n)
#define QINFER_PIN(sum)
#define __m512 ::qinfer::emulated::F512
#define __m512i ::qinfer::emulated::I512
#undef _mm512_add_ps
#define _mm512_add_ps ::qinfer::emulated::F_add
#define _mm512_sub_ps ::qinfer::emulated::F_sub
#define _mm512_mul_ps ::qinfer::emulated::F_mul
#define _mm512_div_ps ::qinfer::emulated::F_div
#define _mm512_max_ps ::qinfer::emulated::F_max
#define _mm512_min_ps ::qinfer::emulated::F_min
#define _mm512_fmadd_ps ::qinfer::emulated::F_fmadd
#define _mm512_fnmadd_ps ::qinfer::emulated::F_fnmadd
#define _mm512_add_epi32 ::qinfer::emulated::I_add_epi32
#define _mm512_sub_epi32 ::qinfer::emulated::I_sub_epi32
#define _mm512_mullo_epi32 ::qinfer::emulated::I_mullo_epi32
#define _mm512_and_si512 ::qinfer::emulated::I_and_si512
#define _mm512_or_si512 ::qinfer::emulated::I_or_si512
#define _mm512_xor_si512 ::qinfer::emulated::I_xor_si512
#define _mm512_srli_epi16 ::qinfer::emulated::I_srli_epi16
#define _mm512_slli_epi16 ::qinfer::emulated::I_slli_epi16
#define _mm512_slli_epi32 ::qinfer::emulated::I_slli_epi32
#define _mm512_srli_epi32 ::qinfer::emulated::I_srli_epi32
#define _mm512_srai_epi32 ::qinfer::emulated::I_srai_epi32
#undef _mm512_setzero_ps
#define _mm512_setzero_ps ::qinfer::emulated::Setzero
#undef _mm512_setzero_si512
#define _mm512_setzero_si512 ::qinfer::emulated::SetzeroI
#undef _mm512_set1_ps
#define _mm512_set1_ps ::qinfer::emulated::Set1
#undef _mm512_set1_epi32
#define _mm512_set1_epi32 ::qinfer::emulated::Set1Epi32
#undef _mm512_set1_epi8
#define _mm512_set1_epi8 ::qinfer::emulated::Set1Epi8
#undef _mm512_loadu_ps
#define _mm512_loadu_ps ::qinfer::emulated::Loadu
#undef _mm512_loadu_si512
#define _mm512_loadu_si512 ::qinfer::emulated::LoaduI
#undef _mm512_storeu_ps
#define _mm512_storeu_ps ::qinfer::emulated::Storeu
#undef _mm512_storeu_si512
#define _mm512_storeu_si512 ::qinfer::emulated::StoreuI
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps ::qinfer::emulated::MaskzLoadu
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps ::qinfer::emulated::MaskStoreu
#undef _mm512_mask_mov_ps
#define _mm512_mask_mov_ps ::qinfer::emulated::MaskMov
#undef _mm512_maskz_mov_ps
#define _mm512_maskz_mov_ps ::qinfer::emulated::MaskzMov
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps ::qinfer::emulated::CvtEpi32Ps
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32 ::qinfer::emulated::CvtPsEpi32
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32 ::qinfer::emulated::CvtEpi8Epi32
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32 ::qinfer::emulated::CvtEpu8Epi32
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 ::qinfer::emulated::CvtEpu16Epi32
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8 ::qinfer::emulated::CvtEpi32Epi8
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps ::qinfer::emulated::CvtPhPs
#undef _mm512_castps_si512
#define _mm512_castps_si512 ::qinfer::emulated::CastPsSi
#undef _mm512_castsi512_ps
#define _mm512_castsi512_ps ::qinfer::emulated::CastSiPs
#undef _mm512_castps512_ps256
#define _mm512_castps512_ps256 ::qinfer::emulated::Low256
#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32 ::qinfer::emulated::Dpbusd
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(a, rounding) ::qinfer::emulated::CvtPsPh<(rounding)>(a)
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask(a, b, predicate) ::qinfer::emulated::CmpPsMask<(predicate)>(a, b)
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(a, half) ::qinfer::emulated::High256(a)  // half is always 1
#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps(a, mode) ::qinfer::emulated::Roundscale(a)
#undef _mm512_scalef_ps
#define _mm512_scalef_ps ::qinfer::emulated::Scalef
#undef _mm512_mask_max_ps
#define _mm512_mask_max_ps ::qinfer::emulated::MaskMax
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4 ::qinfer::emulated::ShuffleQuarters
#undef _mm512_permute_ps
#define _mm512_permute_ps(a, by) ::qinfer::emulated::Permute<(by)>(a)
#undef _mm512_permutexvar_ps
#define _mm512_permutexvar_ps ::qinfer::emulated::PermutexVar
#undef _mm512_permutex2var_ps
#define _mm512_permutex2var_ps ::qinfer::emulated::Permutex2Var
#undef _mm512_permutexvar_epi32
#define _mm512_permutexvar_epi32 ::qinfer::emulated::PermutexVarI
#undef _mm512_shuffle_epi8
#define _mm512_shuffle_epi8 ::qinfer::emulated::ShuffleEpi8
#undef _mm512_set4_epi32
#define _mm512_set4_epi32 ::qinfer::emulated::Set4Epi32
#undef _mm512_broadcast_i32x4
#define _mm512_broadcast_i32x4 ::qinfer::emulated::BroadcastI32x4
#undef _mm512_castsi128_si512
#define _mm512_castsi128_si512 ::qinfer::emulated::Cast128I
#undef _mm512_inserti32x4
#define _mm512_inserti32x4(a, b, at) ::qinfer::emulated::Insert128<(at)>(a, b)
#undef _mm512_max_epu32
#define _mm512_max_epu32 ::qinfer::emulated::MaxEpu32
#undef _mm512_unpacklo_epi32
#define _mm512_unpacklo_epi32 ::qinfer::emulated::UnpackloEpi32
#undef _mm512_unpackhi_epi32
#define _mm512_unpackhi_epi32 ::qinfer::emulated::UnpackhiEpi32
#undef _mm512_unpacklo_epi64
#define _mm512_unpacklo_epi64 ::qinfer::emulated::UnpackloEpi64
#undef _mm512_unpackhi_epi64
#define _mm512_unpackhi_epi64 ::qinfer::emulated::UnpackhiEpi64
#undef _mm512_packs_epi32
#define _mm512_packs_epi32 ::qinfer::emulated::PacksEpi32
#undef _mm512_packs_epi16
#define _mm512_packs_epi16 ::qinfer::emulated::PacksEpi16
#undef _mm512_cmpge_epu32_mask
#define _mm512_cmpge_epu32_mask ::qinfer::emulated::CmpgeEpu32
#undef _mm512_setr_epi32
#define _mm512_setr_epi32 ::qinfer::emulated::SetrEpi32
#undef _mm512_castps128_ps512
#define _mm512_castps128_ps512 ::qinfer::emulated::Cast128
#undef _mm512_castps512_ps128
#define _mm512_castps512_ps128 ::qinfer::emulated::Low128
#undef _mm_maskz_loadu_ps
#define _mm_maskz_loadu_ps ::qinfer::emulated::MaskzLoadu4
#undef _mm_mask_storeu_ps
#define _mm_mask_storeu_ps ::qinfer::emulated::MaskStoreu4
#undef _mm256_maskz_loadu_epi16
#define _mm256_maskz_loadu_epi16 ::qinfer::emulated::MaskzLoadu16
