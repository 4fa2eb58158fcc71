// Observers: ranges, determinism over threads and order, merging, and their bytes.
#include "quant/observer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quant/bytes.h"
#include "quant/histogram.h"
#include "quant/metrics.h"
#include "quant/moments.h"
#include "quant/random.h"

namespace qinfer::quant {
namespace {

// Roughly normal: a sum of uniform numbers.
std::vector<float> Normal(size_t n, uint64_t seed, float scale = 1.0f) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) {
    double sum = -6.0;
    for (uint64_t k = 0; k < 12; ++k) sum += RandomUnit(seed, k, i);
    x[i] = static_cast<float>(sum) * scale;
  }
  return x;
}

Batch AsBatch(const std::vector<float>& x, uint32_t cols) {
  return {x.data(), cols, static_cast<uint32_t>(x.size() / cols), cols};
}

std::string Bytes(const Observer& observer) {
  ByteWriter out;
  observer.Save(&out);
  return out.Take();
}

TEST(MinMaxObserver, KeepsTheExtremes) {
  SerialExecutor serial;
  auto observer = CreateMinMaxObserver();
  const std::vector<float> a = {1.0f, -2.0f, 0.5f, 3.0f}, b = {-7.0f, 0.0f};
  ASSERT_TRUE(observer->Observe(AsBatch(a, 2), &serial).ok());
  ASSERT_TRUE(observer->Observe(AsBatch(b, 2), &serial).ok());
  EXPECT_EQ(observer->range({}), (Range{-7.0, 3.0}));
  EXPECT_EQ(observer->values(), 6u);
  EXPECT_EQ(Range({-7.0, 3.0}).Magnitude(), 7.0);
}

TEST(EmaObserver, FollowsTheFormula) {
  SerialExecutor serial;
  auto observer = CreateEmaObserver(0.95);
  ASSERT_TRUE(observer->Observe(AsBatch({-1.0f, 1.0f}, 2), &serial).ok());
  EXPECT_EQ(observer->range({}), (Range{-1.0, 1.0}));
  ASSERT_TRUE(observer->Observe(AsBatch({-3.0f, 5.0f}, 2), &serial).ok());
  EXPECT_NEAR(observer->range({}).min, 0.95 * -1.0 + 0.05 * -3.0, 1e-12);
  EXPECT_NEAR(observer->range({}).max, 0.95 * 1.0 + 0.05 * 5.0, 1e-12);
}

TEST(EmaObserver, MergesByNumberOfBatches) {
  SerialExecutor serial;
  auto a = CreateEmaObserver(0.5), b = CreateEmaObserver(0.5);
  ASSERT_TRUE(a->Observe(AsBatch({-1.0f, 1.0f}, 2), &serial).ok());
  ASSERT_TRUE(b->Observe(AsBatch({-4.0f, 4.0f}, 2), &serial).ok());
  ASSERT_TRUE(b->Observe(AsBatch({-4.0f, 4.0f}, 2), &serial).ok());
  ASSERT_TRUE(a->Merge(*b).ok());
  EXPECT_DOUBLE_EQ(a->range({}).max, 3.0);
}

TEST(Observer, RefusesAnAlphaOutOfRange) {
  Memory memory;
  const auto observer = CreateObserver(ObserverKind::kEma, {1.0}, &memory);
  ASSERT_FALSE(observer.ok());
  EXPECT_NE(std::string(observer.status().message()).find("ema_alpha"), std::string::npos);
}

TEST(Observer, NamesAreParsedBack) {
  for (auto kind : {ObserverKind::kMinMax, ObserverKind::kHistogram, ObserverKind::kEma}) {
    EXPECT_EQ(*ParseObserver(ObserverName(kind)), kind);
  }
  for (auto method :
       {RangeMethod::kMinMax, RangeMethod::kPercentile, RangeMethod::kMse, RangeMethod::kKl}) {
    EXPECT_EQ(*ParseRangeMethod(RangeMethodName(method)), method);
  }
  EXPECT_FALSE(ParseObserver("median").ok());
  EXPECT_FALSE(ParseRangeMethod("").ok());
}

TEST(HistogramObserver, DoesNotDependOnOrderCutsOrThreads) {
  Memory memory;
  SerialExecutor serial;
  auto pool = CreateThreadPool(3);
  ASSERT_TRUE(pool.ok());
  const std::vector<float> small = Normal(4096, 1, 0.01f), large = Normal(4096, 2, 40.0f);
  auto a = CreateHistogramObserver(&memory).value(), b = CreateHistogramObserver(&memory).value();
  ASSERT_TRUE(a->Observe(AsBatch(small, 64), &serial).ok());
  ASSERT_TRUE(a->Observe(AsBatch(large, 64), &serial).ok());
  ASSERT_TRUE(b->Observe(AsBatch(large, 16), pool->get()).ok());
  ASSERT_TRUE(b->Observe(AsBatch(small, 128), pool->get()).ok());
  EXPECT_EQ(Bytes(*a), Bytes(*b));
  // Merging two halves gives the same as watching everything.
  auto c = CreateHistogramObserver(&memory).value(), d = CreateHistogramObserver(&memory).value();
  ASSERT_TRUE(c->Observe(AsBatch(large, 64), &serial).ok());
  ASSERT_TRUE(d->Observe(AsBatch(small, 64), &serial).ok());
  ASSERT_TRUE(d->Merge(*c).ok());
  EXPECT_EQ(Bytes(*a), Bytes(*d));
}

TEST(HistogramObserver, CountsEveryValueInItsBin) {
  Memory memory;
  SerialExecutor serial;
  auto observer = CreateHistogramObserver(&memory).value();
  // Powers of two up to the largest float, zero, and a denormal.
  std::vector<float> x = {0.0f, 1e-42f, -1e-42f, 3e38f, -3e38f, 1.0f, -1.0f, 4.0f};
  ASSERT_TRUE(observer->Observe(AsBatch(x, 8), &serial).ok());
  EXPECT_EQ(observer->values(), 8u);
  RangeOptions options;
  options.method = RangeMethod::kMinMax;
  EXPECT_EQ(observer->range(options), (Range{-3e38f, 3e38f}));
  const std::string bytes = Bytes(*observer);
  ByteReader in(bytes, "test");
  auto loaded = CreateHistogramObserver(&memory).value();
  ASSERT_TRUE(loaded->Load(&in).ok());
  EXPECT_EQ(Bytes(*loaded), bytes);
}

TEST(HistogramObserver, LeavesOutWhatIsNotFinite) {
  Memory memory;
  SerialExecutor serial;
  auto observer = CreateHistogramObserver(&memory).value();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {1.0f, inf, -inf, std::nanf(""), 2.0f, -3.0f};
  ASSERT_TRUE(observer->Observe(AsBatch(x, 3), &serial).ok());
  EXPECT_EQ(observer->values(), 3u);
  EXPECT_EQ(observer->non_finite(), 3u);
  RangeOptions options;
  options.method = RangeMethod::kMinMax;
  EXPECT_EQ(observer->range(options), (Range{-3.0, 2.0}));
}

TEST(HistogramObserver, PercentileCutsTails) {
  Memory memory;
  SerialExecutor serial;
  auto observer = CreateHistogramObserver(&memory).value();
  std::vector<float> x(10000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 10000.0f * 2.0f - 1.0f;
  x[0] = -1000.0f;  // one outlier in ten thousand
  ASSERT_TRUE(observer->Observe(AsBatch(x, 100), &serial).ok());
  RangeOptions options;
  options.method = RangeMethod::kPercentile;
  options.percentile = 99.9;
  const Range range = observer->range(options);
  EXPECT_GT(range.min, -3.0);  // a bin of this histogram is one wide
  EXPECT_LE(range.max, 1.0);
  options.percentile = 100.0;
  EXPECT_EQ(observer->range(options).min, -1000.0);
}

// The chosen threshold quantizes with less error than the whole range when there is an outlier, and
// agrees with a search over the samples themselves.
TEST(HistogramObserver, MseBeatsMinMaxWithOutliers) {
  Memory memory;
  SerialExecutor serial;
  std::vector<float> x = Normal(100000, 5);
  x[17] = 100.0f;
  auto observer = CreateHistogramObserver(&memory).value();
  ASSERT_TRUE(observer->Observe(AsBatch(x, 1000), &serial).ok());
  const auto error = [&](double threshold) {
    double sum = 0.0;
    const double step = threshold / 127.0;
    for (float v : x) {
      const double code = std::max(-127.0, std::min(127.0, std::nearbyint(v / step)));
      sum += (v - code * step) * (v - code * step);
    }
    return sum;
  };
  const double chosen = observer->range({}).Magnitude();
  double best = error(100.0);
  for (double t = 1.0; t <= 100.0; t += 0.5) best = std::min(best, error(t));
  EXPECT_LT(chosen, 100.0);
  EXPECT_LT(error(chosen), 1.05 * best);
}

TEST(HistogramObserver, KlFindsTheBodyOfADistribution) {
  Memory memory;
  SerialExecutor serial;
  std::vector<float> x = Normal(200000, 6);
  x[3] = 30.0f;
  auto observer = CreateHistogramObserver(&memory).value();
  ASSERT_TRUE(observer->Observe(AsBatch(x, 1000), &serial).ok());
  RangeOptions options;
  options.method = RangeMethod::kKl;
  const double threshold = observer->range(options).Magnitude();
  EXPECT_GT(threshold, 2.5);  // where practically all of a normal distribution lies
  EXPECT_LT(threshold, 12.0);
}

TEST(HistogramObserver, RefusesDamagedBytes) {
  Memory memory;
  SerialExecutor serial;
  auto observer = CreateHistogramObserver(&memory).value();
  ASSERT_TRUE(observer->Observe(AsBatch(Normal(64, 9), 8), &serial).ok());
  const std::string good = Bytes(*observer);
  for (size_t size : {size_t{0}, size_t{7}, size_t{30}, good.size() - 1}) {
    ByteReader in(std::string_view(good).substr(0, size), "cut");
    EXPECT_FALSE(CreateHistogramObserver(&memory).value()->Load(&in).ok()) << size;
  }
  std::string bad = good;
  bad[good.size() / 2] ^= 1;  // a count: the total no longer fits
  ByteReader in(bad, "bad");
  const Status status = CreateHistogramObserver(&memory).value()->Load(&in);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find("bad"), std::string::npos);
}

TEST(NaturalLog, AgreesWithTheLibrary) {
  for (double x : {1e-300, 1e-9, 0.3, 0.5, 0.70710678, 1.0, 1.5, 2.0, 7.0, 1e5, 1e300}) {
    EXPECT_NEAR(NaturalLog(x), std::log(x), 1e-14 * std::max(1.0, std::fabs(std::log(x)))) << x;
  }
}

// A batch in parts is the batch: extremes that grow on the way, and averages of whole batches.
TEST(Observers, PartsOfABatchAreTheBatch) {
  Memory memory;
  SerialExecutor serial;
  auto pool = CreateThreadPool(3);
  ASSERT_TRUE(pool.ok());
  constexpr uint32_t kCols = 40, kRows = 60;
  for (const ObserverKind kind :
       {ObserverKind::kMinMax, ObserverKind::kHistogram, ObserverKind::kEma}) {
    for (const uint32_t step : {1u, 7u, 59u}) {
      auto whole = CreateObserver(kind, {}, &memory).value();
      auto parts = CreateObserver(kind, {}, &memory).value();
      for (uint64_t batch = 0; batch < 3; ++batch) {
        std::vector<float> x = Normal(size_t{kCols} * kRows, batch);
        for (size_t i = 0; i < x.size(); ++i) x[i] *= 1.0f + static_cast<float>(i / kCols);
        ASSERT_TRUE(whole->Observe(AsBatch(x, kCols), &serial).ok());
        for (uint32_t row = 0; row < kRows; row += step) {
          const uint32_t rows = std::min(step, kRows - row);
          ASSERT_TRUE(parts
                          ->ObservePart({x.data() + size_t{row} * kCols, kCols, rows, kCols},
                                        row + rows == kRows, pool->get())
                          .ok());
        }
      }
      EXPECT_EQ(Bytes(*whole), Bytes(*parts)) << ObserverName(kind) << " " << step;
      EXPECT_EQ(whole->values(), parts->values());
    }
  }
}

TEST(Moments, AreTheSameForAnyThreadsAndCuts) {
  Memory memory;
  SerialExecutor serial;
  auto pool = CreateThreadPool(4);
  ASSERT_TRUE(pool.ok());
  constexpr uint32_t kCols = 200;
  const std::vector<float> x = Normal(size_t{kCols} * 50, 11);
  Moments all(kCols, &memory), cut(kCols, &memory);
  all.Observe(AsBatch(x, kCols), 0, &serial);
  cut.Observe({x.data(), kCols, 20, kCols}, 0, pool->get());
  cut.Observe({x.data() + size_t{20} * kCols, kCols, 30, kCols}, 0, pool->get());
  EXPECT_EQ(all.sums(), cut.sums());
  EXPECT_EQ(all.tokens(), 50u);
}

TEST(Moments, ImportanceIsBoundedAndRelative) {
  Memory memory;
  SerialExecutor serial;
  Moments moments(3, &memory);
  float importance[3];
  moments.Importance(importance);
  for (float v : importance) EXPECT_EQ(v, 1.0f);
  const std::vector<float> x = {9.0f, 9.0f, 9.0f, 0.0f, 2.0f, 4.0f};
  moments.Observe(AsBatch(x, 3), 1, &serial);  // the first token is left out
  moments.Importance(importance);
  EXPECT_FLOAT_EQ(importance[0], 1e-6f);
  EXPECT_FLOAT_EQ(importance[1], 4.0f / (20.0f / 3.0f));
  EXPECT_FLOAT_EQ(importance[2], 16.0f / (20.0f / 3.0f));
}

TEST(Metrics, MatchTheirDefinitions) {
  const std::vector<float> x = {1.0f, 2.0f, -2.0f}, y = {1.0f, 1.0f, -2.0f};
  const std::vector<float> weight = {1.0f, 4.0f, 1.0f};
  const ErrorSums sums = CompareRow(x.data(), y.data(), 3, weight.data());
  EXPECT_DOUBLE_EQ(sums.RelativeMse(), 1.0 / 9.0);
  EXPECT_DOUBLE_EQ(sums.WeightedRelativeMse(), 4.0 / 21.0);
  EXPECT_DOUBLE_EQ(sums.max_abs, 1.0);
  EXPECT_DOUBLE_EQ(sums.Cosine(), 7.0 / std::sqrt(9.0 * 6.0));
  const ErrorSums same = CompareRow(x.data(), x.data(), 3, nullptr);
  EXPECT_EQ(same.RelativeMse(), 0.0);
  EXPECT_DOUBLE_EQ(same.Cosine(), 1.0);
}

}  // namespace
}  // namespace qinfer::quant
