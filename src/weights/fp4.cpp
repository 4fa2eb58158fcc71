#include "weights/fp4.h"

#include <initializer_list>

#include "core/half.h"

namespace qinfer::weights {
namespace {

constexpr float kLeast = 0x1p-126f, kLargest = 0x1p127f;

float Magnitude(float x) { return x < 0.0f ? -x : x; }

// The one nearest to x, which is in half steps.
uint8_t Nibble(float x) {
  const float m = Magnitude(x);
  const int code =
      (m > 0.5f) + (m >= 1.5f) + (m > 2.5f) + (m >= 3.5f) + (m > 5.0f) + (m >= 7.0f) + (m > 10.0f);
  return static_cast<uint8_t>(x < 0.0f && code != 0 ? code | 8 : code);
}

// In units of the scale, which is a power of two: nothing overflows, and the same everywhere.
float Error(const float* x, const float* w, uint32_t n, float scale) {
  const float inverse = 1.0f / scale;
  float error = 0.0f;
  for (uint32_t i = 0; i < n; ++i) {
    const float v = x[i] * inverse, e = v - static_cast<float>(Fp4Value(Nibble(v)));
    error += (w == nullptr ? 1.0f : w[i]) * (e * e);
  }
  return error;
}

}  // namespace

float FitFp4(const float* x, const float* w, uint32_t n, bool search) {
  float most = 0.0f, weights = 0.0f;
  for (uint32_t i = 0; i < n; ++i) {
    most = Magnitude(x[i]) > most ? Magnitude(x[i]) : most;
    if (w != nullptr) weights += w[i];
  }
  if (most == 0.0f) return kLeast;
  if (!(weights > 0.0f && weights < 1e30f)) w = nullptr;  // they say nothing
  const uint32_t exponent = FloatToBits(most) >> 23;
  // most / scale in [8, 16), then in [4, 8) where it would be above 12.
  float fits = exponent <= 4 ? kLeast : BitsToFloat((exponent - 3) << 23);
  if (most > 12.0f * fits) fits *= 2.0f;
  if (!search) return fits;
  float best = fits, least = Error(x, w, n, fits);
  for (const float factor : {0.5f, 2.0f}) {
    const float scale = fits * factor;
    if (scale < kLeast || scale > kLargest) continue;
    // The units are squared scales: exact powers of four.
    const float error = Error(x, w, n, scale) * (scale / fits) * (scale / fits);
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

void EncodeFp4(float scale, const float* x, uint32_t n, uint8_t* codes) {
  const float inverse = 1.0f / scale;
  for (uint32_t i = 0; i < n; ++i) codes[i] = Nibble(x[i] * inverse);
}

}  // namespace qinfer::weights
