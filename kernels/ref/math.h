// The project's own elementary functions: fixed sequences of IEEE operations, so that results are
// the same on every machine, compiler and instruction set (the float ones are repeated lane by lane
// in kernels/cpu). Nothing that reaches logits or sampling may call libm's. Default rounding mode.
// Never include this from kernels/cpu/<isa>.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace qinfer::kernels::math {

// Coefficients that the SIMD versions share.
constexpr float kExpOverflow = 88.7228394f;     // above: infinity
constexpr float kExpUnderflow = -103.9720841f;  // below: +0
constexpr float kLog2E = 1.44269502f;
constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits: n * kLn2High is exact
constexpr float kLn2Low = 0x1.7f7d1cp-20f;
constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
constexpr float kExpC[6] = {0.5f,         0.16666666f,   0.04166629f,
                            0.008333498f, 0.0013944807f, 0.00019790196f};
constexpr float kTanhSmall = 0.625f;
constexpr float kTanhC[5] = {-0.33333278f, 0.13331328f, -0.05372923f, 0.020602008f, -0.005660789f};

inline double BitsToDouble(uint64_t bits) {
  double d;
  std::memcpy(&d, &bits, 8);
  return d;
}
inline uint64_t DoubleToBits(double d) {
  uint64_t bits;
  std::memcpy(&bits, &d, 8);
  return bits;
}
inline float PowerOfTwo(int32_t n) {  // -126 <= n <= 127
  const uint32_t bits = static_cast<uint32_t>(n + 127) << 23;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

// e^x, within 1 ulp; exact 0, infinity and NaN at the ends. Subnormal results are right.
inline float Exp(float x) {
  if (x != x) return x;
  if (x > kExpOverflow) return std::numeric_limits<float>::infinity();
  if (x < kExpUnderflow) return 0.0f;
  const float n = (x * kLog2E + kRoundMagic) - kRoundMagic;
  float r = __builtin_fmaf(n, -kLn2High, x);
  r = __builtin_fmaf(n, -kLn2Low, r);
  float p = kExpC[5];
  for (int i = 4; i >= 0; --i) p = __builtin_fmaf(p, r, kExpC[i]);
  p = __builtin_fmaf(r * r, p, r) + 1.0f;
  const int32_t k = static_cast<int32_t>(n), half = k >> 1;
  return p * PowerOfTwo(half) * PowerOfTwo(k - half);
}

// tanh x, within 2 ulp.
inline float Tanh(float x) {
  const float a = x < 0.0f ? -x : x;
  if (a < kTanhSmall) {
    const float z = x * x;
    float p = kTanhC[4];
    for (int i = 3; i >= 0; --i) p = __builtin_fmaf(p, z, kTanhC[i]);
    return __builtin_fmaf(z * p, x, x);
  }
  const float t = 1.0f - 2.0f / (Exp(a + a) + 1.0f);
  return x < 0.0f ? -t : t;
}

inline float Silu(float x) { return x / (1.0f + Exp(-x)); }

inline float GeluTanh(float x) {
  const float inner = 0.797884583f * __builtin_fmaf(0.0447149985f * (x * x), x, x);
  return 0.5f * x * (1.0f + Tanh(inner));
}

// Natural logarithm in double, within 1 ulp: x = m * 2^e, log m = 2 atanh((m - 1) / (m + 1)).
inline double LogD(double x) {
  if (x != x || x < 0.0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0.0) return -std::numeric_limits<double>::infinity();
  if (x == std::numeric_limits<double>::infinity()) return x;
  int32_t e = 0;
  if (x < 2.2250738585072014e-308) {
    x *= 18014398509481984.0;  // 2^54
    e = -54;
  }
  uint64_t bits = DoubleToBits(x);
  e += static_cast<int32_t>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  double m = BitsToDouble(bits);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++e;
  }
  const double f = m - 1.0, s = f / (m + 1.0), z = s * s;
  double p = 1.0 / 25;
  for (int k = 23; k >= 3; k -= 2) p = p * z + 1.0 / k;
  // log m = 2s + 2s z p = f - s * (f - 2 z p): the large part f is exact.
  const double small = s * (f - 2.0 * z * p), n = e;
  return n * 0x1.62e42feep-1 + (f - (small - n * 0x1.a39ef35793c76p-33));
}

inline float Log(float x) { return static_cast<float>(LogD(x)); }

inline double ExpD(double x) {
  if (x != x) return x;
  if (x > 709.782712893384) return std::numeric_limits<double>::infinity();
  if (x < -745.1332191019412) return 0.0;
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  const double n = (x * 1.4426950408889634 + magic) - magic;
  const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  double p = 1.0;
  for (int k = 14; k >= 2; --k) p = 1.0 + r / k * p;  // Horner's form of the series
  p = r * p + 1.0;
  const int32_t k = static_cast<int32_t>(n), half = k / 2;
  return p * BitsToDouble(static_cast<uint64_t>(half + 1023) << 52) *
         BitsToDouble(static_cast<uint64_t>(k - half + 1023) << 52);
}

// base^exponent for a positive base; relative error about 2e-16 * (1 + |exponent * log base|).
inline double PowD(double base, double exponent) {
  if (exponent == 0.0) return 1.0;
  return ExpD(exponent * LogD(base));
}

// sin and cos for |x| <= 1e8 (beyond, and for NaN: NaN), within about 1 ulp of 1.
inline void SinCosD(double x, double* sin, double* cos) {
  if (!(x <= 1e8 && x >= -1e8)) {
    *sin = *cos = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  const double magic = 6755399441055744.0;
  const double n = (x * 0.63661977236758134 + magic) - magic;
  // pi / 2 in pieces of 26 and 27 bits: n * piece is exact for n below 2^26.
  const double r = ((x - n * 0x1.921fb5p+0) - n * 0x1.110b46p-26) - n * 0x1.1a62633145c07p-54;
  const double z = r * r;
  double s = 1.0, c = 1.0;
  for (int k = 18; k >= 2; k -= 2) {
    s = 1.0 - z / (k * (k + 1)) * s;
    c = 1.0 - z / (k * (k - 1)) * c;
  }
  s *= r;
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      *sin = s, *cos = c;
      break;
    case 1:
      *sin = c, *cos = -s;
      break;
    case 2:
      *sin = -s, *cos = -c;
      break;
    default:
      *sin = -c, *cos = s;
  }
}

}  // namespace qinfer::kernels::math
