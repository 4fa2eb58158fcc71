// Packing from floats: every format decodes close to its source, searching beats not searching,
// importance is used, and input that is not finite is an error.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ref/ref.h"
#include "weights/format.h"

namespace qinfer::weights {
namespace {

struct alignas(64) Line {
  uint8_t bytes[64];
};

struct Packed {
  std::vector<Line> data;
  kernels::Matrix matrix;
};

Packed Pack(const Format& format, const PackOptions& options, const std::vector<float>& x,
            uint64_t rows, uint64_t cols) {
  uint64_t panel, bytes;
  EXPECT_TRUE(PackedSize(format, rows, cols, &panel, &bytes));
  Packed packed;
  packed.data.resize(bytes / 64);
  const absl::Span<uint8_t> out(packed.data[0].bytes, bytes);
  const Status status = PackRows(format, options, x.data(), 0, rows, cols, out);
  EXPECT_TRUE(status.ok()) << status;
  packed.matrix = *View(format, rows, cols, out, "t");
  return packed;
}

// Weighted squared error relative to the weighted energy.
double Error(const Packed& packed, const std::vector<float>& x, const float* importance = nullptr) {
  const uint32_t cols = packed.matrix.cols;
  std::vector<float> row(cols);
  double error = 0, energy = 0;
  for (uint32_t r = 0; r < packed.matrix.rows; ++r) {
    kernels::ref::DecodeRow(packed.matrix, r, row.data());
    for (uint32_t k = 0; k < cols; ++k) {
      const double w = importance == nullptr ? 1.0 : importance[k];
      const double v = x[r * cols + k], e = row[k] - v;
      error += w * e * e;
      energy += w * v * v;
    }
  }
  return error / energy;
}

std::vector<float> Heavy(uint64_t n, uint32_t seed) {  // Student's t: outliers as in real layers
  std::mt19937 rng(seed);
  std::student_t_distribution<float> t(6);
  std::vector<float> x(n);
  for (float& v : x) v = 0.02f * t(rng);
  return x;
}

TEST(Pack, EveryFormatAndShapeDecodesCloseToItsSource) {
  struct Case {
    const char* format;
    double limit;
  };
  for (const Case& c : std::initializer_list<Case>{{"f32", 0},
                                                   {"f16", 1e-7},
                                                   {"bf16", 6e-6},
                                                   {"int8", 5e-5},
                                                   {"int8-row-f32", 6e-4},
                                                   {"int8-g64-f16-min", 8e-5},
                                                   {"int8-g128-e8m0", 4e-4},
                                                   {"int6", 8e-4},
                                                   {"int6-g16-sub8", 5e-4},
                                                   {"int6-g32-sub8-min", 6e-4},
                                                   {"int6-g128-f32", 2e-3},
                                                   {"int4", 0.0102},
                                                   {"int4-g32-f32", 0.0102},
                                                   {"int4-g32-e8m0", 0.03},
                                                   {"int4-g32-sub8", 0.0103},
                                                   {"int4-g32-f16-min", 0.0085},
                                                   {"int4-g32-sub8-min", 0.0086},
                                                   {"fp4", 0.0155},
                                                   {"int4-g64-f16", 0.0145},
                                                   {"int4-g128-f16", 0.018},
                                                   {"int4-row-f32", 0.03}})
    for (const uint64_t rows : {1u, 16u, 21u})
      for (const uint64_t cols : {7u, 33u, 576u}) {
        const std::vector<float> x = Heavy(rows * cols, static_cast<uint32_t>(rows * 1000 + cols));
        const Packed packed = Pack(*ParseFormat(c.format), {}, x, rows, cols);
        // Small samples scatter.
        const double slack = rows * cols < 2000 ? 2.5 : 1.0;
        EXPECT_LE(Error(packed, x), c.limit * slack) << c.format << " " << rows << "x" << cols;
      }
}

TEST(Pack, SearchBeatsTheExtremes) {
  const std::vector<float> x = Heavy(64 * 1024, 5);
  PackOptions plain;
  plain.search_scales = false;
  for (const char* name :
       {"int4", "int4-g128-f16", "int4-g32-f16-min", "int4-row-f32", "int6", "fp4"}) {
    const double searched = Error(Pack(*ParseFormat(name), {}, x, 64, 1024), x);
    const double unsearched = Error(Pack(*ParseFormat(name), plain, x, 64, 1024), x);
    RecordProperty(name, std::to_string(searched));
    EXPECT_LT(searched, 0.95 * unsearched) << name;
  }
}

TEST(Pack, ImportanceMovesTheErrorToWhereItMattersLess) {
  constexpr uint64_t kRows = 32, kCols = 512;
  const std::vector<float> x = Heavy(kRows * kCols, 6);
  std::vector<float> importance(kCols, 1.0f);
  for (size_t k = 0; k < kCols; k += 8) importance[k] = 100.0f;
  PackOptions weighted;
  weighted.importance = importance.data();
  const Packed with = Pack(*ParseFormat("int4"), weighted, x, kRows, kCols);
  const Packed without = Pack(*ParseFormat("int4"), {}, x, kRows, kCols);
  EXPECT_LT(Error(with, x, importance.data()), 0.75 * Error(without, x, importance.data()));
  // Weights that say nothing are as none.
  std::vector<float> zero(kCols, 0.0f);
  weighted.importance = zero.data();
  EXPECT_EQ(Error(Pack(*ParseFormat("int4"), weighted, x, kRows, kCols), x), Error(without, x));
}

TEST(Pack, LargestMagnitudeMayTakeTheExtraCodeOnEitherSide) {
  std::vector<float> x(32);
  for (int sign = -1; sign <= 1; sign += 2) {
    for (int i = 0; i < 16; ++i) x[i] = x[i + 16] = static_cast<float>(sign * (i - 7));
    const Packed packed = Pack(*ParseFormat("int4"), {}, x, 1, 32);  // -7..8: exact at scale +-1
    EXPECT_EQ(Error(packed, x), 0.0) << sign;
  }
}

// What the format has is kept, at every power of two that it has; halves go to the even nibble.
TEST(Pack, FourBitFloatsKeepTheirOwnValues) {
  const float levels[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (const float power : {0x1p-120f, 0x1p-3f, 1.0f, 0x1p100f, 0x1p125f}) {
    std::vector<float> x(32);
    for (size_t i = 0; i < x.size(); ++i) x[i] = (i % 16 < 8 ? power : -power) * levels[i % 8];
    for (const bool search : {true, false}) {
      PackOptions options;
      options.search_scales = search;
      EXPECT_EQ(Error(Pack(*ParseFormat("fp4"), options, x, 1, 32), x), 0.0) << power;
    }
  }
  const float halves[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f};
  const float even[] = {0, 1, 1, 2, 2, 4, 4, 6};
  PackOptions plain;
  plain.search_scales = false;
  const std::vector<float> x(halves, halves + 8);
  const Packed packed = Pack(*ParseFormat("fp4"), plain, x, 1, 8);
  std::vector<float> row(8);
  kernels::ref::DecodeRow(packed.matrix, 0, row.data());
  for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(row[i], even[i]) << halves[i];
}

TEST(Pack, ZerosTinyAndHugeValues) {
  for (const char* name : {"int4", "int4-g32-f16-min", "int4-g32-sub8-min", "int6-g16-sub8", "int8",
                           "int4-g32-e8m0", "fp4"})
    for (const float magnitude : {0.0f, 1e-42f, 1e-9f, 1e6f, 1e30f}) {
      std::vector<float> x(64);
      for (size_t i = 0; i < x.size(); ++i) x[i] = magnitude * (i % 2 == 0 ? 1.0f : -0.5f);
      const Packed packed = Pack(*ParseFormat(name), {}, x, 1, 64);
      std::vector<float> row(64);
      kernels::ref::DecodeRow(packed.matrix, 0, row.data());
      for (size_t i = 0; i < row.size(); ++i) {
        EXPECT_TRUE(std::isfinite(row[i])) << name << " " << magnitude;
        if (magnitude == 0.0f) {
          EXPECT_EQ(row[i], 0.0f);
        }
      }
    }
}

TEST(Pack, NotFiniteIsAnErrorThatNamesThePlace) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const char* name : {"int4", "f16", "fp4"}) {
      std::vector<float> x(3 * 40, 0.5f);
      x[2 * 40 + 39] = bad;
      uint64_t panel, bytes;
      ASSERT_TRUE(PackedSize(*ParseFormat(name), 3, 40, &panel, &bytes));
      std::vector<Line> out(bytes / 64);
      const Status status =
          PackRows(*ParseFormat(name), {}, x.data(), 32, 3, 40, {out[0].bytes, bytes});
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_NE(status.message().find("row 34, column 39"), absl::string_view::npos) << status;
    }
  std::vector<float> x(40, 0.5f);
  std::vector<Line> out(64);
  EXPECT_EQ(PackRows(*ParseFormat("int4"), {}, x.data(), 0, 1, 40, {out[0].bytes, 64}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Pack, PaddingAddsNothing) {
  const std::vector<float> x = Heavy(5 * 50, 9);
  for (const char* name : {"int4", "int6", "int8", "int4-row-f32", "fp4"}) {
    const Packed packed = Pack(*ParseFormat(name), {}, x, 5, 50);
    kernels::Matrix whole = packed.matrix;
    whole.rows = 16;
    whole.cols = 64;
    std::vector<float> row(64);
    for (uint32_t r = 0; r < 16; ++r) {
      kernels::ref::DecodeRow(whole, r, row.data());
      for (uint32_t k = 0; k < 64; ++k)
        if (r >= 5 || k >= 50) {
          EXPECT_EQ(row[k], 0.0f) << name;
        }
    }
  }
}

}  // namespace
}  // namespace qinfer::weights
