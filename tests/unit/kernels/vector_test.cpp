// Operations on vectors: against plain computations, and every table against the reference.
#include <algorithm>
#include <cmath>
#include <limits>

#include "testing.h"

namespace qinfer::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
const Table& Ref() { return *SelectTable(Isa::kRef); }

std::vector<float> Special(Rng& rng, size_t n) {
  std::vector<float> x = Normals(rng, n, 20.0f);
  const float odd[] = {0.0f,    -0.0f,  kNan,  kInf, -kInf, 1e-40f, -1e-40f, 88.8f,
                       -104.5f, -88.0f, 3e38f, 0.5f, -0.5f, 0.625f, -0.625f, 5e-6f};
  for (size_t i = 0; i < n; i += 3) x[i] = odd[rng() % 16];
  return x;
}

TEST(Vector, EveryTableGivesTheSameBits) {
  for (const Table* table : TablesUnderTest()) {
    Rng rng(11);
    for (const size_t n : {1u, 2u, 7u, 8u, 15u, 16u, 17u, 31u, 33u, 64u, 100u, 576u, 1001u}) {
      for (const bool special : {false, true}) {
        const std::vector<float> x = special ? Special(rng, n) : Normals(rng, n, 3.0f);
        const std::vector<float> y = Normals(rng, n);
        std::vector<float> a = x, b = x;
        a.push_back(-9), b.push_back(-9);
        const auto same = [&](const char* what) {
          EXPECT_TRUE(SameBits(a.data(), b.data(), n + 1))
              << table->name << " " << what << " " << n;
          a = b = x;
          a.push_back(-9), b.push_back(-9);
        };
        Ref().add(a.data(), y.data(), n), table->add(b.data(), y.data(), n);
        same("add");
        Ref().scale(a.data(), 1.7f, n), table->scale(b.data(), 1.7f, n);
        same("scale");
        for (const Activation act : {Activation::kSilu, Activation::kGeluTanh}) {
          Ref().gated(act, x.data(), y.data(), n, a.data());
          table->gated(act, x.data(), y.data(), n, b.data());
          same("gated");
        }
        Ref().softcap(a.data(), 30.0f, n), table->softcap(b.data(), 30.0f, n);
        same("softcap");
        Ref().exp_shift(x.data(), 2.5f, n, a.data());
        table->exp_shift(x.data(), 2.5f, n, b.data());
        same("exp_shift");
        for (const float* weight : {y.data(), static_cast<const float*>(nullptr)}) {
          Ref().rms_norm(x.data(), weight, static_cast<uint32_t>(n), 1e-5f, a.data());
          table->rms_norm(b.data(), weight, static_cast<uint32_t>(n), 1e-5f, b.data());
          same("rms_norm");
        }
        EXPECT_EQ(Ref().argmax(x.data(), n), table->argmax(x.data(), n)) << table->name;
        std::vector<float> maxima_a((n + 15) / 16 + 1, -9.0f), maxima_b = maxima_a;
        const bool finite = Ref().panel_maxima(x.data(), n, maxima_a.data());
        EXPECT_EQ(finite, table->panel_maxima(x.data(), n, maxima_b.data())) << table->name;
        EXPECT_EQ(finite,
                  std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); }));
        EXPECT_EQ(maxima_a, maxima_b) << table->name << " " << n;
        float max_a, max_b;
        const float sum_a = Ref().exp_sum(x.data(), n, &max_a);
        const float sum_b = table->exp_sum(x.data(), n, &max_b);
        EXPECT_TRUE(SameBits(&sum_a, &sum_b, 1)) << table->name << " " << n;
        EXPECT_EQ(max_a, max_b);
        if (n % 2 == 0)
          for (const bool interleaved : {false, true}) {
            const std::vector<float> cos = Normals(rng, n), sin = Normals(rng, n);
            const uint32_t dims = static_cast<uint32_t>(n);
            Ref().rope(a.data(), cos.data(), sin.data(), dims, interleaved);
            table->rope(b.data(), cos.data(), sin.data(), dims, interleaved);
            same("rope");
          }
      }
    }
  }
}

TEST(Vector, QuantizeGivesTheSameBits) {
  for (const Table* table : TablesUnderTest()) {
    Rng rng(12);
    for (const uint32_t cols : {1u, 15u, 32u, 33u, 64u, 100u, 224u, 260u, 576u, 640u})
      for (const uint32_t block : {32u, 64u, 128u, 256u})
        for (const bool special : {false, true}) {
          RandomActivations a(1, cols, block, rng), b(1, cols, block, rng);
          std::vector<float> x = Normals(rng, cols);
          if (special) x = Special(rng, cols);
          if (special && block == 64)
            for (float& v : x) v = std::isfinite(v) ? v * 1e-33f : 0.0f;
          Ref().quantize(x.data(), cols, 0, a.a);
          table->quantize(x.data(), cols, 0, b.a);
          const uint32_t padded = (cols + 31) / 32 * 32;
          EXPECT_EQ(std::memcmp(a.a.codes, b.a.codes, padded), 0) << cols << " " << block;
          EXPECT_EQ(std::memcmp(a.a.sums, b.a.sums, padded / 16 * 4), 0);
          EXPECT_TRUE(SameBits(a.a.scales, b.a.scales, (padded + block - 1) / block));
          for (const float scale : {kLeastScale, 0.003f, 0.02f, 1.0f, kLargestScale}) {
            Ref().quantize_static(x.data(), cols, 0, scale, a.a);
            table->quantize_static(x.data(), cols, 0, scale, b.a);
            EXPECT_EQ(std::memcmp(a.a.codes, b.a.codes, padded), 0) << cols << " " << block;
            EXPECT_EQ(std::memcmp(a.a.sums, b.a.sums, padded / 16 * 4), 0);
            EXPECT_TRUE(SameBits(a.a.scales, b.a.scales, (padded + block - 1) / block));
          }
        }
  }
}

TEST(Vector, QuantizeAtAGivenScaleClampsAndRounds) {
  Rng rng(15);
  RandomActivations a(1, 70, 32, rng);
  std::vector<float> x(70, 0.0f);
  x[0] = 1.25f, x[1] = -1.25f, x[2] = 0.75f, x[3] = 63.5f, x[4] = 64.0f, x[5] = -1e30f,
  x[6] = 3e38f;
  x[33] = kInf;
  x[69] = -0.3f;
  Ref().quantize_static(x.data(), 70, 0, 0.5f, a.a);
  // Halves go to even; what is outside of the range keeps its sign.
  const int8_t expected[] = {2, -2, 2, 127, 127, -127, 127, 0};
  EXPECT_EQ(std::memcmp(a.a.codes, expected, sizeof expected), 0);
  EXPECT_EQ(a.a.codes[69], -1);
  EXPECT_EQ(a.a.scales[0], 0.5f);
  EXPECT_TRUE(std::isnan(a.a.scales[1]));
  EXPECT_EQ(a.a.scales[2], 0.5f);
  EXPECT_EQ(a.a.codes[33], 0);
  EXPECT_EQ(a.a.sums[0], 2 - 2 + 2 + 127 + 127 - 127 + 127);
  for (size_t i = 70; i < 96; ++i) EXPECT_EQ(a.a.codes[i], 0);
}

TEST(Vector, QuantizeIsRightAndNanStaysInItsBlock) {
  Rng rng(13);
  RandomActivations a(1, 100, 32, rng);
  std::vector<float> x = Normals(rng, 100);
  x[40] = kNan;
  for (size_t i = 64; i < 96; ++i) x[i] = 0.0f;
  Ref().quantize(x.data(), 100, 0, a.a);
  for (size_t i = 0; i < 100; ++i) {
    if (i / 32 == 1) continue;
    EXPECT_NEAR(a.a.scales[i / 32] * a.a.codes[i], x[i], 0.5001f * a.a.scales[i / 32]);
  }
  EXPECT_TRUE(std::isnan(a.a.scales[1]));
  EXPECT_EQ(a.a.scales[2], 0.0f);
  for (size_t i = 0; i < 128; i += 16) {
    int32_t sum = 0;
    for (size_t j = 0; j < 16; ++j) sum += a.a.codes[i + j];
    EXPECT_EQ(a.a.sums[i / 16], sum);
  }
  for (size_t i = 100; i < 128; ++i) EXPECT_EQ(a.a.codes[i], 0);
}

TEST(Vector, ReferenceIsCloseToDouble) {
  Rng rng(14);
  const size_t n = 333;
  const std::vector<float> x = Normals(rng, n), w = Normals(rng, n);
  std::vector<float> out(n);
  Ref().rms_norm(x.data(), w.data(), n, 1e-5f, out.data());
  double sum = 0, exp_sum = 0, top = -1e9;
  for (const float v : x) sum += double{v} * v;
  for (const float v : x) top = std::max(top, double{v});
  for (const float v : x) exp_sum += std::exp(v - top);
  for (size_t i = 0; i < n; ++i)
    EXPECT_NEAR(out[i], x[i] / std::sqrt(sum / n + 1e-5) * w[i], 1e-6 * std::fabs(out[i]));
  float max;
  EXPECT_NEAR(Ref().exp_sum(x.data(), n, &max), exp_sum, 1e-6 * exp_sum);
  EXPECT_EQ(max, static_cast<float>(top));
  Ref().gated(Activation::kSilu, x.data(), w.data(), n, out.data());
  for (size_t i = 0; i < n; ++i) {
    const double expected = x[i] / (1 + std::exp(-double{x[i]})) * w[i];
    EXPECT_NEAR(out[i], expected, 3e-7 * std::fabs(expected));
  }
  Ref().gated(Activation::kGeluTanh, x.data(), w.data(), n, out.data());
  for (size_t i = 0; i < n; ++i) {
    const double v = x[i];
    const double expected =
        0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))) * w[i];
    EXPECT_NEAR(out[i], expected, 1e-6 * std::fabs(w[i]));
  }
}

TEST(Vector, PanelMaximaAreTheLargestOfSixteenAndTellWhatIsNotFinite) {
  std::vector<const Table*> tables = TablesUnderTest();
  tables.push_back(&Ref());
  for (const Table* table : tables) {
    for (const size_t n : {1u, 15u, 16u, 17u, 40u, 64u}) {
      for (size_t at = 0; at < n; ++at) {
        std::vector<float> x(n, -2.0f);
        x[at] = -1.0f;  // zeros past the end would be larger
        std::vector<float> maxima((n + 15) / 16, 9.0f);
        EXPECT_TRUE(table->panel_maxima(x.data(), n, maxima.data())) << table->name;
        for (size_t p = 0; p < maxima.size(); ++p) {
          EXPECT_EQ(maxima[p], at / 16 == p ? -1.0f : -2.0f) << table->name << " " << n;
        }
        for (const float bad : {kNan, kInf, -kInf}) {
          x[at] = bad;
          EXPECT_FALSE(table->panel_maxima(x.data(), n, maxima.data())) << table->name;
          const bool alone = at / 16 * 16 + 1 == n;  // nothing else in its panel
          EXPECT_EQ(maxima[at / 16], bad == kInf ? kInf
                                     : alone     ? -kInf
                                                 : -2.0f)
              << table->name << " " << n << " " << at << " " << bad;
        }
      }
    }
  }
}

TEST(Vector, ArgmaxTakesTheLowestIndexAndIgnoresNan) {
  std::vector<const Table*> tables = TablesUnderTest();
  tables.push_back(&Ref());
  for (const Table* table : tables) {
    std::vector<float> x(100, -1.0f);
    x[3] = kNan;
    x[60] = x[37] = x[77] = 2.0f;
    EXPECT_EQ(table->argmax(x.data(), x.size()), 37u);
    EXPECT_EQ(table->argmax(x.data(), 4), 0u);
    std::vector<float> nans(40, kNan);
    EXPECT_EQ(table->argmax(nans.data(), nans.size()), 0u);
    nans[20] = -kInf;
    EXPECT_EQ(table->argmax(nans.data(), nans.size()), 20u);
    nans[39] = -kInf;
    EXPECT_EQ(table->argmax(nans.data(), nans.size()), 20u);
    nans[38] = -3e38f;
    EXPECT_EQ(table->argmax(nans.data(), nans.size()), 38u);
  }
}

}  // namespace
}  // namespace qinfer::kernels
