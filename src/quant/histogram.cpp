// Bins, doubling, and range selection by percentile, squared error and KL divergence.
#include "quant/histogram.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace qinfer::quant {
namespace {

constexpr uint32_t kHalf = Histogram::kBins / 2;

// Bins of |x|: negative and positive side folded; index 0 is next to zero. Returns one past the
// last bin in use.
uint32_t Fold(const Histogram& histogram, std::array<double, kHalf>* folded) {
  uint32_t top = 0;
  for (uint32_t j = 0; j < kHalf; ++j) {
    const uint64_t count = histogram.bins[kHalf + j] + histogram.bins[kHalf - 1 - j];
    (*folded)[j] = static_cast<double>(count);
    if (count != 0) top = j + 1;
  }
  return top;
}

}  // namespace

double NaturalLog(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // [0.5, 1)
  if (m < 0.70710678118654752) {
    m *= 2.0;
    --exponent;
  }
  // ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172: 12 terms are below half an ulp.
  const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
  double sum = 0.0;
  for (int k = 12; k >= 0; --k) sum = sum * s2 + 1.0 / (2 * k + 1);
  return 2.0 * s * sum + exponent * 0.69314718055994531;
}

double Histogram::BinWidth() const { return std::ldexp(2.0 / kBins, exponent); }

double Histogram::BinBegin(uint32_t bin) const {
  return (static_cast<double>(bin) - kHalf) * BinWidth();
}

void Histogram::Grow(double magnitude) {
  int needed = exponent;
  // Strictly inside on the positive side, since the last bin ends at R.
  while (needed < kMaxExponent && magnitude >= std::ldexp(1.0, needed)) ++needed;
  GrowTo(needed);
}

void Histogram::GrowTo(int new_exponent) {
  if (new_exponent <= exponent) return;
  if (total == 0) {
    exponent = new_exponent;
    return;
  }
  // Each doubling maps bin j to kBins/4 + j/2; after many of them everything is in the middle two.
  const int doublings = std::min(new_exponent - exponent, 11);
  for (int d = 0; d < doublings; ++d) {
    std::array<uint64_t, kBins> merged{};
    for (uint32_t j = 0; j < kBins; ++j) merged[kBins / 4 + j / 2] += bins[j];
    std::copy(merged.begin(), merged.end(), bins.begin());
  }
  exponent = new_exponent;
}

uint32_t Histogram::BinOf(float value) const {
  // Scaling by a power of two is exact, so floor gives nested bins at every R.
  const double position = std::floor(std::ldexp(static_cast<double>(value), -exponent) * kHalf);
  const double bin = position + kHalf;
  return static_cast<uint32_t>(std::clamp(bin, 0.0, static_cast<double>(kBins - 1)));
}

void Histogram::Add(const Histogram& other) {
  if (other.total == 0) return;
  GrowTo(other.exponent);
  // Brings the other one to our range bin by bin.
  const int shift = std::min(exponent - other.exponent, 11);
  for (uint32_t j = 0; j < kBins; ++j) {
    uint32_t bin = j;
    for (int d = 0; d < shift; ++d) bin = kBins / 4 + bin / 2;
    bins[bin] += other.bins[j];
  }
  total += other.total;
}

Range PercentileRange(const Histogram& histogram, double percentile) {
  Range range;
  if (histogram.empty()) return range;
  const double outside = static_cast<double>(histogram.total) * (100.0 - percentile) / 200.0;
  double below = 0.0;
  uint32_t low = 0;
  while (low + 1 < Histogram::kBins &&
         below + static_cast<double>(histogram.bins[low]) <= outside) {
    below += static_cast<double>(histogram.bins[low++]);
  }
  double above = 0.0;
  uint32_t high = Histogram::kBins - 1;
  while (high > low && above + static_cast<double>(histogram.bins[high]) <= outside) {
    above += static_cast<double>(histogram.bins[high--]);
  }
  range.min = std::min(0.0, histogram.BinBegin(low));
  range.max = std::max(0.0, histogram.BinBegin(high) + histogram.BinWidth());
  return range;
}

double MseThreshold(const Histogram& histogram, uint32_t levels) {
  std::array<double, kHalf> folded;
  const uint32_t top = Fold(histogram, &folded);
  const double width = histogram.BinWidth();
  double best_error = 0.0;
  uint32_t best = top;
  for (uint32_t candidate = 1; candidate <= top; ++candidate) {
    const double threshold = candidate * width, step = threshold / levels;
    double inside = 0.0, error = 0.0;
    for (uint32_t j = 0; j < candidate; ++j) inside += folded[j];
    for (uint32_t j = candidate; j < top; ++j) {
      const double over = (j + 0.5) * width - threshold;
      error += folded[j] * over * over;
    }
    error += inside * step * step / 12.0;
    if (candidate == 1 || error < best_error) {
      best_error = error;
      best = candidate;
    }
  }
  return best * width;
}

double KlThreshold(const Histogram& histogram, uint32_t levels) {
  std::array<double, kHalf> folded;
  const uint32_t top = Fold(histogram, &folded);
  const double width = histogram.BinWidth();
  if (top <= levels) return top * width;  // every bin has a code of its own
  double total = 0.0;
  for (uint32_t j = 0; j < top; ++j) total += folded[j];
  double best_divergence = 0.0;
  uint32_t best = top;
  for (uint32_t candidate = levels; candidate <= top; ++candidate) {
    double clipped = 0.0;
    for (uint32_t j = candidate; j < top; ++j) clipped += folded[j];
    double divergence = 0.0;
    // Bins of one code share its mass evenly among those in use; what lies outside joins the last
    // bin of the reference, not of the quantized form.
    for (uint32_t code = 0; code < levels; ++code) {
      const uint32_t begin =
          static_cast<uint32_t>(static_cast<uint64_t>(candidate) * code / levels);
      const uint32_t end =
          static_cast<uint32_t>(static_cast<uint64_t>(candidate) * (code + 1) / levels);
      double mass = 0.0;
      uint32_t used = 0;
      for (uint32_t j = begin; j < end; ++j) {
        mass += folded[j];
        const bool last = j + 1 == candidate;
        if (folded[j] != 0.0 || (last && clipped != 0.0)) ++used;
      }
      if (used == 0) continue;
      // Half a value per code keeps a code that only clipped values use away from zero.
      const double q = std::max(mass, 0.5) / used / (total - clipped + 0.5);
      for (uint32_t j = begin; j < end; ++j) {
        double p = folded[j];
        if (j + 1 == candidate) p += clipped;
        if (p != 0.0) divergence += p / total * NaturalLog(p / total / q);
      }
    }
    if (candidate == levels || divergence < best_divergence) {
      best_divergence = divergence;
      best = candidate;
    }
  }
  return best * width;
}

}  // namespace qinfer::quant
