// Sums of squares per channel.
#include "quant/moments.h"

#include <algorithm>
#include <cmath>

namespace qinfer::quant {

void Moments::Observe(const Batch& batch, uint32_t skip, Executor* executor) {
  constexpr uint32_t kChannelsPerPart = 64;
  if (batch.rows <= skip) return;
  const uint32_t parts = (batch.cols + kChannelsPerPart - 1) / kChannelsPerPart;
  ParallelFor(executor, parts, [&](uint32_t part) {
    const uint32_t begin = part * kChannelsPerPart;
    const uint32_t end = std::min(batch.cols, begin + kChannelsPerPart);
    for (uint32_t r = skip; r < batch.rows; ++r) {
      const float* row = batch.x + r * batch.stride;
      for (uint32_t c = begin; c < end; ++c) {
        const double v = row[c];
        sums_[c] += v * v;
      }
    }
  });
  tokens_ += batch.rows - skip;
}

void Moments::Merge(const Moments& other) {
  for (size_t c = 0; c < sums_.size(); ++c) sums_[c] += other.sums_[c];
  tokens_ += other.tokens_;
}

void Moments::Importance(float* out) const {
  double mean = 0.0;
  for (double sum : sums_) mean += sum;
  mean /= static_cast<double>(std::max<size_t>(sums_.size(), 1));
  for (size_t c = 0; c < sums_.size(); ++c) {
    const double relative = mean > 0.0 && std::isfinite(mean) ? sums_[c] / mean : 1.0;
    out[c] = static_cast<float>(std::clamp(relative, 1e-6, 1e6));
  }
}

}  // namespace qinfer::quant
