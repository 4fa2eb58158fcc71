// How far a decoded tensor, or a hidden state, is from what it stands for: relative squared error,
// largest difference, cosine, and the same weighted by importance. Partial sums are kept per row
// and added in row order, so the figures do not depend on threads.
#pragma once

#include <cstdint>
#include <string>

#include "core/executor.h"
#include "observe/report.h"

namespace qinfer::quant {

struct ErrorSums {
  double error = 0, signal = 0;                    // sum (x-y)^2, sum x^2
  double weighted_error = 0, weighted_signal = 0;  // times importance
  double dot = 0, other = 0;                       // sum x*y, sum y^2
  double max_abs = 0;
  uint64_t count = 0;

  void Add(const ErrorSums& more);
  double RelativeMse() const { return signal > 0 ? error / signal : (error > 0 ? 1.0 : 0.0); }
  double WeightedRelativeMse() const {
    return weighted_signal > 0 ? weighted_error / weighted_signal : RelativeMse();
  }
  double Cosine() const;
};

// Of one row; `importance` may be null (1).
ErrorSums CompareRow(const float* x, const float* y, uint64_t n, const float* importance);
// Rows in parallel, added to `sums` in order. Strides in floats.
void AddRows(const float* x, const float* y, uint64_t rows, uint64_t cols, size_t stride,
             Executor* executor, ErrorSums* sums);

// relative_mse, weighted_relative_mse, max_abs, cosine
void PutErrors(const ErrorSums& sums, bool weighted, observe::Report* report);

}  // namespace qinfer::quant
