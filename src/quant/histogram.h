// A histogram with a fixed number of bins over [-R, R), R a power of two that only ever doubles,
// and the three ways to choose a range from it. Since bins of the doubled histogram are unions of
// old ones, its contents depend on the values alone, not on their order or on how they were cut.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "absl/types/span.h"
#include "quant/observer.h"

namespace qinfer::quant {

struct Histogram {
  static constexpr uint32_t kBins = 2048;
  static constexpr int kMinExponent = -100, kMaxExponent = 128;

  explicit Histogram(Memory* memory) : bins(kBins, 0, memory) {}

  bool empty() const { return total == 0; }
  double BinWidth() const;
  double BinBegin(uint32_t bin) const;
  // Makes [-R, R) hold `magnitude`.
  void Grow(double magnitude);
  void GrowTo(int new_exponent);
  uint32_t BinOf(float value) const;
  void Add(const Histogram& other);

  std::pmr::vector<uint64_t> bins;
  uint64_t total = 0;
  int exponent = kMinExponent;  // R = 2^exponent
};

// The range that leaves (100 - percentile) % of the values outside, half on either side.
Range PercentileRange(const Histogram& histogram, double percentile);
// Thresholds on |x| for a symmetric quantizer with `levels` positive codes: least expected squared
// error (rounding noise inside, clipping outside), and least KL divergence between the clipped
// distribution and its quantized form.
double MseThreshold(const Histogram& histogram, uint32_t levels);
double KlThreshold(const Histogram& histogram, uint32_t levels);

// ln x for finite x > 0 by our own arithmetic: the same on every machine.
double NaturalLog(double x);

}  // namespace qinfer::quant
