// Accuracy of the project's own elementary functions, against libm in higher precision.
#include "kernels/ref/math.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace qinfer::kernels::math {
namespace {

double Ulps(float got, double want) {
  const float near = static_cast<float>(want);
  const float next = std::nextafter(std::fabs(near), HUGE_VALF);
  return std::fabs(got - want) / (static_cast<double>(next) - std::fabs(near));
}
double Ulps64(double got, long double want) {
  const double near = static_cast<double>(want);
  const double step = std::nextafter(std::fabs(near), HUGE_VAL) - std::fabs(near);
  return static_cast<double>(std::fabs(got - want) / step);
}

TEST(Math, ExpWithinOneUlp) {
  double worst = 0;
  for (int i = -104 * 4096; i <= 88.7 * 4096; ++i) {
    const float x = static_cast<float>(i) / 4096.0f;
    worst = std::max(worst, Ulps(Exp(x), std::exp(double{x})));
  }
  EXPECT_LT(worst, 1.01);
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-INFINITY), 0.0f);
  EXPECT_EQ(Exp(-200.0f), 0.0f);
  EXPECT_EQ(Exp(89.0f), INFINITY);
  EXPECT_TRUE(std::isnan(Exp(NAN)));
}

TEST(Math, TanhWithinTwoUlps) {
  double worst = 0;
  for (int i = -12 * 65536; i <= 12 * 65536; ++i) {
    const float x = static_cast<float>(i) / 65536.0f;
    worst = std::max(worst, Ulps(Tanh(x), std::tanh(double{x})));
  }
  EXPECT_LT(worst, 2.0);
  EXPECT_EQ(Tanh(INFINITY), 1.0f);
  EXPECT_EQ(Tanh(-INFINITY), -1.0f);
  EXPECT_EQ(Tanh(1e-30f), 1e-30f);
  EXPECT_TRUE(std::isnan(Tanh(NAN)));
}

TEST(Math, LogarithmsAndExponentialsInDouble) {
  std::mt19937_64 rng(7);
  double log_worst = 0, exp_worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double u = static_cast<double>(rng() >> 11) * 0x1p-53;
    const double x = std::exp2((u - 0.5) * 1000);
    log_worst = std::max(log_worst, Ulps64(LogD(x), std::log(static_cast<long double>(x))));
    const double near_one = 1.0 + (u - 0.5);
    log_worst =
        std::max(log_worst, Ulps64(LogD(near_one), std::log(static_cast<long double>(near_one))));
    const double y = (u - 0.5) * 1400;
    exp_worst = std::max(exp_worst, Ulps64(ExpD(y), std::exp(static_cast<long double>(y))));
  }
  EXPECT_LT(log_worst, 1.5);
  EXPECT_LT(exp_worst, 1.5);
  EXPECT_EQ(LogD(1.0), 0.0);
  EXPECT_EQ(LogD(0.0), -INFINITY);
  EXPECT_EQ(LogD(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(LogD(-1.0)));
  EXPECT_NEAR(LogD(1e-310), std::log(1e-310), 1e-12);
  EXPECT_EQ(ExpD(-800), 0.0);
  EXPECT_EQ(ExpD(710), INFINITY);
  EXPECT_NEAR(ExpD(-740), std::exp(-740.0), 1e-322);
  EXPECT_LT(Ulps(Log(10.0f), std::log(10.0)), 0.51);
}

TEST(Math, PowForRope) {
  for (const double base : {10000.0, 500000.0, 1000000.0, 1e7})
    for (int i = 0; i < 256; ++i) {
      const double e = -i / 256.0;
      EXPECT_NEAR(PowD(base, e) / std::pow(base, e), 1.0, 4e-15);
    }
  EXPECT_EQ(PowD(10000.0, 0.0), 1.0);
}

TEST(Math, SineAndCosineUpTo1e7Radians) {
  std::mt19937_64 rng(8);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double u = static_cast<double>(rng() >> 11) * 0x1p-53;
    const double x = (i % 2 == 0 ? 20.0 : 2e7) * (u - 0.5);
    double s, c;
    SinCosD(x, &s, &c);
    worst =
        std::max(worst, std::fabs(static_cast<double>(s - std::sin(static_cast<long double>(x)))));
    worst =
        std::max(worst, std::fabs(static_cast<double>(c - std::cos(static_cast<long double>(x)))));
  }
  EXPECT_LT(worst, 2.3e-16);
  double s, c;
  SinCosD(0.0, &s, &c);
  EXPECT_EQ(s, 0.0);
  EXPECT_EQ(c, 1.0);
  for (const double x : {1e9, static_cast<double>(NAN)}) {
    SinCosD(x, &s, &c);
    EXPECT_TRUE(std::isnan(s) && std::isnan(c));
  }
}

}  // namespace
}  // namespace qinfer::kernels::math
