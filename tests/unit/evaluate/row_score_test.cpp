// Scores of single rows against sums written out in long double.
#include "evaluate/row_score.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace qinfer::evaluate {
namespace {

std::vector<float> Row(uint32_t seed, size_t n, double spread) {
  std::vector<float> row(n);
  uint32_t state = seed;
  for (float& x : row) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(((state >> 8) % 65536 / 32768.0 - 1.0) * spread);
  }
  return row;
}

long double LogSum(const std::vector<float>& row) {
  long double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<long double>(x));
  return std::log(sum);
}

TEST(RowScore, MatchesTheDefinition) {
  const auto* table = kernels::SelectTable(kernels::Isa::kAuto);
  for (const size_t n : {1u, 2u, 7u, 8u, 2047u, 2048u, 2049u, 5000u}) {
    const auto logits = Row(1, n, 9.0), reference = Row(2, n, 9.0);
    const long double own = LogSum(logits), other = LogSum(reference);
    long double kl = 0;
    for (size_t i = 0; i < n; ++i) {
      kl += std::exp(reference[i] - other) * ((reference[i] - other) - (logits[i] - own));
    }
    const int32_t target = static_cast<int32_t>(n / 2);
    const RowScore score = ScoreRow(logits, reference, target, *table);
    EXPECT_NEAR(score.nll, static_cast<double>(own - logits[target]), 1e-6) << n;
    EXPECT_NEAR(score.reference_nll, static_cast<double>(other - reference[target]), 1e-6) << n;
    EXPECT_NEAR(score.kl, static_cast<double>(kl), 1e-6) << n;
    const auto top = [](const std::vector<float>& row) {
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    EXPECT_EQ(score.same_top, top(logits) == top(reference)) << n;
    const RowScore alone = ScoreRow(logits, {}, target, *table);
    EXPECT_EQ(alone.nll, score.nll);
    EXPECT_EQ(alone.kl, 0.0);
  }
}

TEST(RowScore, EqualRowsDivergeByExactlyNothing) {
  const auto* table = kernels::SelectTable(kernels::Isa::kAuto);
  const auto row = Row(3, 3001, 12.0);
  const RowScore score = ScoreRow(row, row, 5, *table);
  EXPECT_EQ(score.kl, 0.0);
  EXPECT_TRUE(score.same_top);
  auto shifted = row;
  for (float& x : shifted) x += 4.0f;
  EXPECT_NEAR(ScoreRow(row, shifted, 5, *table).kl, 0.0, 1e-6);
}

}  // namespace
}  // namespace qinfer::evaluate
