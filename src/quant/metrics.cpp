// Error sums and the figures made from them.
#include "quant/metrics.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qinfer::quant {

void ErrorSums::Add(const ErrorSums& more) {
  error += more.error;
  signal += more.signal;
  weighted_error += more.weighted_error;
  weighted_signal += more.weighted_signal;
  dot += more.dot;
  other += more.other;
  max_abs = std::max(max_abs, more.max_abs);
  count += more.count;
}

double ErrorSums::Cosine() const {
  const double product = signal * other;
  if (product > 0) return std::clamp(dot / std::sqrt(product), -1.0, 1.0);
  return signal == other ? 1.0 : 0.0;
}

ErrorSums CompareRow(const float* x, const float* y, uint64_t n, const float* importance) {
  ErrorSums sums;
  for (uint64_t i = 0; i < n; ++i) {
    const double a = x[i], b = y[i], d = a - b,
                 weight = importance == nullptr ? 1.0 : importance[i];
    sums.error += d * d;
    sums.signal += a * a;
    sums.weighted_error += weight * d * d;
    sums.weighted_signal += weight * a * a;
    sums.dot += a * b;
    sums.other += b * b;
    sums.max_abs = std::max(sums.max_abs, std::fabs(d));
  }
  sums.count = n;
  return sums;
}

void AddRows(const float* x, const float* y, uint64_t rows, uint64_t cols, size_t stride,
             Executor* executor, ErrorSums* sums) {
  std::vector<ErrorSums> parts(rows);
  ParallelFor(executor, static_cast<uint32_t>(rows), [&](uint32_t r) {
    parts[r] = CompareRow(x + r * stride, y + r * stride, cols, nullptr);
  });
  for (const ErrorSums& part : parts) sums->Add(part);
}

void PutErrors(const ErrorSums& sums, bool weighted, observe::Report* report) {
  (*report)["relative_mse"] = sums.RelativeMse();
  if (weighted) (*report)["weighted_relative_mse"] = sums.WeightedRelativeMse();
  (*report)["max_abs"] = sums.max_abs;
  (*report)["cosine"] = sums.Cosine();
}

}  // namespace qinfer::quant
