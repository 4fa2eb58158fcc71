// Frequencies of every supported rope scaling.
#include "exec/rope_table.h"

#include <algorithm>
#include <cmath>

#include "kernels/ref/math.h"

namespace qinfer::exec {
namespace {

constexpr double kPi = 3.14159265358979323846;

double Llama3(const model::RopeSpec& rope, double frequency) {
  const double wavelength = 2.0 * kPi / frequency;
  const double context = rope.original_context;
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// The dimension whose wavelength turns `rotations` times in the original context.
double YarnDimension(const model::RopeSpec& rope, double rotations) {
  return rope.dims * kernels::math::LogD(rope.original_context / (rotations * 2.0 * kPi)) /
         (2.0 * kernels::math::LogD(rope.theta));
}

double Yarn(const model::RopeSpec& rope, uint32_t i, double frequency) {
  double low = YarnDimension(rope, rope.beta_fast), high = YarnDimension(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.dims) - 1.0);
  if (low == high) high += 0.001;
  const double ramp = std::min(1.0, std::max(0.0, (i - low) / (high - low)));
  return frequency / rope.factor * ramp + frequency * (1.0 - ramp);
}

// "NTK-aware": the slowest pair turns as a linear scaling by growth would have it, the fastest as
// without any scaling.
double DynamicTheta(double theta, double factor, double growth, uint32_t dims) {
  const double exponent = static_cast<double>(dims) / (dims - 2.0);
  return theta * kernels::math::PowD(factor * growth - (factor - 1.0), exponent);
}

}  // namespace

RopeTable::RopeTable(const model::RopeSpec& rope, const float* frequency_factors)
    : frequencies_(rope.dims / 2),
      dynamic_(rope.scaling == model::RopeScaling::kDynamic && rope.dims > 2),
      theta_(rope.theta),
      factor_(rope.factor),
      original_context_(rope.original_context),
      attention_factor_(rope.attention_factor),
      interleaved_(rope.interleaved) {
  for (uint32_t i = 0; i < frequencies_.size(); ++i) {
    double frequency = 1.0 / kernels::math::PowD(rope.theta, 2.0 * i / rope.dims);
    if (frequency_factors != nullptr) frequency /= frequency_factors[i];
    switch (rope.scaling) {
      case model::RopeScaling::kLinear:
        frequency /= rope.factor;
        break;
      case model::RopeScaling::kLlama3:
        frequency = Llama3(rope, frequency);
        break;
      case model::RopeScaling::kYarn:
        frequency = Yarn(rope, i, frequency);
        break;
      case model::RopeScaling::kLongRope:
        long_frequencies_.push_back(frequency / rope.long_factors[i]);
        frequency /= rope.short_factors[i];
        switch_length_ = rope.original_context;
        break;
      default:  // dynamic: plain up to the original context; see Fill
        break;
    }
    frequencies_[i] = frequency;
  }
}

void RopeTable::Fill(uint32_t position, uint32_t length, float* cos, float* sin) const {
  const std::vector<double>& frequencies =
      length > switch_length_ ? long_frequencies_ : frequencies_;
  const uint32_t dims = 2 * half();
  const bool stretched = dynamic_ && length > original_context_;
  const double growth = static_cast<double>(length) / original_context_;
  const double theta = stretched ? DynamicTheta(theta_, factor_, growth, dims) : theta_;
  for (uint32_t i = 0; i < frequencies.size(); ++i) {
    const double frequency =
        stretched ? 1.0 / kernels::math::PowD(theta, 2.0 * i / dims) : frequencies[i];
    double s, c;
    kernels::math::SinCosD(position * frequency, &s, &c);
    cos[i] = static_cast<float>(c * attention_factor_);
    sin[i] = static_cast<float>(s * attention_factor_);
  }
}

}  // namespace qinfer::exec
