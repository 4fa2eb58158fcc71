// Log-softmax sums over a row in blocks, so that no scratch row is needed.
#include "evaluate/row_score.h"

#include <algorithm>

#include "kernels/ref/math.h"

namespace qinfer::evaluate {
namespace {

constexpr size_t kBlock = 2048, kLanes = 8;

double SumLanes(const double (&lanes)[kLanes]) {
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

struct Sums {
  double log_sum = 0.0;     // log sum exp(x)
  double difference = 0.0;  // sum softmax(x) * (x - other)
  uint32_t best = 0;
};

// `other` may be null.
Sums SumRow(absl::Span<const float> x, const float* other, const kernels::Table& table) {
  Sums sums;
  sums.best = table.argmax(x.data(), x.size());
  const float max = x[sums.best];
  alignas(64) float weights[kBlock];
  double weight[kLanes] = {}, weighted[kLanes] = {};
  for (size_t begin = 0; begin < x.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, x.size() - begin);
    table.exp_shift(x.data() + begin, max, n, weights);
    std::fill(weights + n, weights + std::min(kBlock, (n + kLanes - 1) / kLanes * kLanes), 0.0f);
    for (size_t i = 0; i < n; i += kLanes) {
      for (size_t k = 0; k < kLanes; ++k) weight[k] += static_cast<double>(weights[i + k]);
    }
    if (other == nullptr) continue;
    const float* a = x.data() + begin;
    const float* b = other + begin;
    const auto term = [&](size_t i) {
      return static_cast<double>(weights[i]) *
             (static_cast<double>(a[i]) - static_cast<double>(b[i]));
    };
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (size_t k = 0; k < kLanes; ++k) weighted[k] += term(i + k);
    }
    for (size_t k = 0; i < n; ++i, ++k) weighted[k] += term(i);
  }
  const double total = SumLanes(weight);
  sums.log_sum = static_cast<double>(max) + kernels::math::LogD(total);
  sums.difference = SumLanes(weighted) / total;
  return sums;
}

}  // namespace

RowScore ScoreRow(absl::Span<const float> logits, absl::Span<const float> reference, int32_t target,
                  const kernels::Table& table) {
  RowScore score;
  const Sums own = SumRow(logits, nullptr, table);
  score.nll = own.log_sum - static_cast<double>(logits[static_cast<size_t>(target)]);
  if (reference.empty()) return score;
  const Sums other = SumRow(reference, logits.data(), table);
  score.reference_nll = other.log_sum - static_cast<double>(reference[static_cast<size_t>(target)]);
  // sum p_r (log p_r - log p) = sum p_r (x_r - x) - log_sum_r + log_sum
  score.kl = other.difference - (other.log_sum - own.log_sum);
  score.same_top = own.best == other.best;
  return score;
}

}  // namespace qinfer::evaluate
