// Matrix products: the reference against a plain computation in double, every instruction set
// against the reference bit for bit.
#include <cmath>
#include <limits>

#include "kernels/ref/panel.h"
#include "testing.h"

namespace qinfer::kernels {
namespace {

std::vector<float> RunInt8(const Table& table, const Matrix& m, const Activations& a,
                           uint32_t tokens, uint32_t panel_begin, uint32_t panel_end) {
  std::vector<float> out(size_t{tokens} * (m.rows + 3), -77.0f);
  Bytes scratch(MatmulScratchBytes(m, tokens * a.planes));
  table.matmul_int8(m, panel_begin, panel_end, a, tokens, out.data(), m.rows + 3, scratch.data());
  return out;
}

std::vector<float> RunFloat(const Table& table, const Matrix& m, const std::vector<float>& x,
                            uint32_t tokens) {
  std::vector<float> out(size_t{tokens} * (m.rows + 3), -77.0f);
  Bytes scratch(MatmulScratchBytes(m, tokens));
  table.matmul_float(m, 0, m.panels(), x.data(), m.cols, tokens, out.data(), m.rows + 3,
                     scratch.data());
  return out;
}

TEST(MatmulReference, IsCloseToDouble) {
  Rng rng(1);
  const Table& ref = *SelectTable(Isa::kRef);
  for (const Shape& shape : QuantizedShapes())
    for (const uint32_t block : {32u, 256u}) {
      const uint32_t rows = 19, cols = 300, tokens = 2;
      RandomMatrix w(shape, rows, cols, rng);
      RandomActivations a(tokens, cols, block, rng);
      const std::vector<float> out = RunInt8(ref, w.matrix, a.a, tokens, 0, 2);
      const std::vector<float> exact = RunFloat(ref, w.matrix, a.x, tokens);
      std::vector<float> row(cols);
      for (uint32_t r = 0; r < rows; ++r) {
        ref.decode_row(w.matrix, r, row.data());
        for (uint32_t t = 0; t < tokens; ++t) {
          double quantized = 0, real = 0, size = 0;
          for (uint32_t k = 0; k < cols; ++k) {
            EXPECT_EQ(row[k], ref::WeightAt(w.matrix, w.matrix.data + r / 16 * w.matrix.panel_bytes,
                                            r % 16, k));
            const double x = static_cast<double>(a.a.scales[t * a.a.scale_stride + k / block]) *
                             a.a.codes[t * a.a.code_stride + k];
            quantized += row[k] * x;
            real += static_cast<double>(row[k]) * a.x[t * cols + k];
            size += std::fabs(row[k] * x);
          }
          EXPECT_NEAR(out[t * (rows + 3) + r], quantized, 2e-6 * size) << ShapeName(shape);
          EXPECT_NEAR(exact[t * (rows + 3) + r], real, 2e-6 * size) << ShapeName(shape);
        }
      }
      for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(out[rows + i], -77.0f);
    }
}

class QuantizedMatmul : public ::testing::TestWithParam<Shape> {};

TEST_P(QuantizedMatmul, EveryTableGivesTheSameBits) {
  Rng rng(2);
  const Table& ref = *SelectTable(Isa::kRef);
  struct Size {
    uint32_t rows, cols;
  };
  for (const Size size : {Size{1, 1}, Size{16, 32}, Size{5, 33}, Size{40, 576}, Size{17, 260}})
    for (const uint32_t block : {32u, 64u, 128u, 256u})
      for (const bool extreme : {false, true}) {
        if (extreme && size.cols != 260) continue;
        constexpr uint32_t kTokens = 40;
        RandomMatrix w(GetParam(), size.rows, size.cols, rng, extreme);
        RandomActivations a(kTokens, size.cols, block, rng, extreme);
        const uint32_t panels = w.matrix.panels();
        const std::vector<float> expected = RunInt8(ref, w.matrix, a.a, kTokens, 0, panels);
        for (const Table* table : TablesUnderTest())
          for (const uint32_t tokens : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 17u, 29u, 40u}) {
            const std::vector<float> out = RunInt8(*table, w.matrix, a.a, tokens, 0, panels);
            ASSERT_TRUE(SameBits(expected.data(), out.data(), out.size()))
                << table->name << " " << ShapeName(GetParam()) << " " << size.rows << "x"
                << size.cols << " block " << block << " tokens " << tokens;
          }
      }
}

// As the engine fills it, the second plane is empty but for a few blocks; in some rows for none.
void ClearSecondPlanes(RandomActivations* a, uint32_t rows, Rng& rng) {
  for (uint32_t row = 1; row < rows; row += 2)
    for (uint32_t b = 0; b * a->a.block < a->cols; ++b)
      if (rng() % 4 != 0 || row == 5) a->ClearBlock(row, b);
}

void ExpectPlanesSummed(const Table& table, const Matrix& m, const Activations& a,
                        uint32_t tokens) {
  const size_t stride = m.rows + 3;
  const std::vector<float> single = RunInt8(table, m, a, 2 * tokens, 0, m.panels());
  Activations planes = a;
  planes.planes = 2;
  const std::vector<float> out = RunInt8(table, m, planes, tokens, 0, m.panels());
  for (uint32_t t = 0; t < tokens; ++t)
    for (uint32_t r = 0; r < m.rows; ++r) {
      const float* first = single.data() + 2 * t * stride + r;
      const float sum = first[0] + first[stride];
      ASSERT_TRUE(SameBits(&sum, &out[t * stride + r], 1))
          << table.name << " token " << t << " of " << tokens;
    }
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(out[m.rows + i], -77.0f);
}

TEST_P(QuantizedMatmul, PlanesAreSummed) {
  Rng rng(4);
  constexpr uint32_t kRows = 35, kCols = 260;
  std::vector<const Table*> tables = TablesUnderTest();
  tables.push_back(SelectTable(Isa::kRef));
  for (const uint32_t block : {32u, 128u}) {
    RandomMatrix w(GetParam(), kRows, kCols, rng);
    RandomActivations a(150, kCols, block, rng);
    ClearSecondPlanes(&a, 150, rng);
    for (const Table* table : tables)
      for (const uint32_t tokens : {1u, 2u, 3u, 9u, 29u, 75u})
        ExpectPlanesSummed(*table, w.matrix, a.a, tokens);
  }
}

// More inputs than leave room in a cache for the codes of all tokens: these come in blocks.
TEST(Matmul, PlanesOfManyWideTokensAreSummed) {
  Rng rng(7);
  constexpr uint32_t kRows = 17, kCols = 4400;
  for (const bool has_min : {false, true}) {
    RandomMatrix w({WeightKind::kInt4, ScaleKind::kF16, has_min, 32}, kRows, kCols, rng);
    RandomActivations a(2 * 125, kCols, 32, rng);
    ClearSecondPlanes(&a, 2 * 125, rng);
    for (const Table* table : TablesUnderTest())
      for (const uint32_t tokens : {61u, 125u}) ExpectPlanesSummed(*table, w.matrix, a.a, tokens);
  }
}

TEST_P(QuantizedMatmul, CutsOfPanelsChangeNothing) {
  Rng rng(3);
  RandomMatrix w(GetParam(), 100, 192, rng);
  RandomActivations a(6, 192, 128, rng);
  std::vector<const Table*> tables = TablesUnderTest();
  tables.push_back(SelectTable(Isa::kRef));
  for (const Table* table : tables)
    for (const uint32_t tokens : {1u, 6u}) {
      const std::vector<float> whole = RunInt8(*table, w.matrix, a.a, tokens, 0, 7);
      for (const uint32_t cut : {1u, 4u, 6u}) {
        const std::vector<float> low = RunInt8(*table, w.matrix, a.a, tokens, 0, cut);
        const std::vector<float> high = RunInt8(*table, w.matrix, a.a, tokens, cut, 7);
        for (uint32_t t = 0; t < tokens; ++t)
          for (uint32_t r = 0; r < 103; ++r) {
            const size_t i = t * 103 + r;
            EXPECT_EQ(whole[i], r < cut * 16 ? low[i] : high[i]);
            if (r < 100) {
              EXPECT_EQ(r < cut * 16 ? high[i] : low[i], -77.0f);
            }
          }
      }
    }
}

void ExpectPanelsAsRows(const Table& table, const Matrix& m) {
  std::vector<float> panel(size_t{m.padded_cols()} * kPanelRows + 1), row(m.cols);
  for (uint32_t p = 0; p < m.panels(); ++p) {
    panel.back() = -5.0f;
    table.decode_panel(m, p, panel.data());
    ASSERT_EQ(panel.back(), -5.0f);
    for (uint32_t r = p * kPanelRows; r < std::min(m.rows, (p + 1) * kPanelRows); ++r) {
      SelectTable(Isa::kRef)->decode_row(m, r, row.data());
      for (uint32_t k = 0; k < m.cols; ++k) {
        const float value = panel[size_t{k} * kPanelRows + r % kPanelRows];
        ASSERT_TRUE(SameBits(&row[k], &value, 1)) << table.name << " row " << r << " input " << k;
      }
    }
  }
}

TEST_P(QuantizedMatmul, FloatActivationsGiveTheSameBits) {
  Rng rng(4);
  const Table& ref = *SelectTable(Isa::kRef);
  for (const uint32_t cols : {1u, 33u, 300u, 576u})
    for (const uint32_t rows : {3u, 33u, 130u}) {
      RandomMatrix w(GetParam(), rows, cols, rng);
      const std::vector<float> x = Normals(rng, size_t{9} * cols);
      for (const Table* table : TablesUnderTest())
        for (const uint32_t tokens : {1u, 2u, 9u}) {
          const std::vector<float> expected = RunFloat(ref, w.matrix, x, tokens);
          const std::vector<float> out = RunFloat(*table, w.matrix, x, tokens);
          ASSERT_TRUE(SameBits(expected.data(), out.data(), out.size()))
              << table->name << " " << ShapeName(GetParam()) << " " << rows << "x" << cols;
        }
      std::vector<float> expected(cols), out(cols + 1, -5.0f);
      for (const Table* table : TablesUnderTest())
        for (uint32_t r = 0; r < rows; r += 5) {
          ref.decode_row(w.matrix, r, expected.data());
          table->decode_row(w.matrix, r, out.data());
          ASSERT_TRUE(SameBits(expected.data(), out.data(), cols)) << ShapeName(GetParam());
          ASSERT_EQ(out[cols], -5.0f);
        }
      for (const Table* table : TablesUnderTest()) ExpectPanelsAsRows(*table, w.matrix);
      ExpectPanelsAsRows(ref, w.matrix);
    }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedMatmul, ::testing::ValuesIn(QuantizedShapes()),
                         [](const auto& info) { return ShapeName(info.param); });

TEST(FloatMatmul, EveryTableGivesTheSameBits) {
  Rng rng(5);
  const Table& ref = *SelectTable(Isa::kRef);
  for (const WeightKind kind : {WeightKind::kF32, WeightKind::kF16, WeightKind::kBF16})
    for (const uint32_t cols : {1u, 31u, 64u, 257u, 576u})
      for (const uint32_t rows : {1u, 16u, 49u, 200u}) {
        RandomMatrix w({kind}, rows, cols, rng);
        const std::vector<float> x = Normals(rng, size_t{40} * cols);
        const std::vector<float> all = RunFloat(ref, w.matrix, x, 40);
        std::vector<float> expected(cols), row(cols + 1, -5.0f);
        for (const Table* table : TablesUnderTest()) {
          for (const uint32_t tokens : {1u, 2u, 3u, 4u, 6u, 13u, 40u}) {
            const std::vector<float> out = RunFloat(*table, w.matrix, x, tokens);
            ASSERT_TRUE(SameBits(all.data(), out.data(), out.size()))
                << table->name << " kind " << static_cast<int>(kind) << " " << rows << "x" << cols
                << " tokens " << tokens;
          }
          ref.decode_row(w.matrix, rows - 1, expected.data());
          table->decode_row(w.matrix, rows - 1, row.data());
          ASSERT_TRUE(SameBits(expected.data(), row.data(), cols));
          ASSERT_EQ(row[cols], -5.0f);
          ExpectPanelsAsRows(*table, w.matrix);
        }
        ExpectPanelsAsRows(ref, w.matrix);
      }
}

TEST(Matmul, NanAndInfinityReachTheOutput) {
  Rng rng(6);
  std::vector<const Table*> tables = TablesUnderTest();
  tables.push_back(SelectTable(Isa::kRef));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const Table* table : tables) {
      RandomMatrix w({WeightKind::kInt4, ScaleKind::kF32, false, 32}, 20, 128, rng);
      RandomActivations a(3, 128, 64, rng);
      a.x[128 + 5] = bad;  // token 1
      table->quantize(a.x.data() + 128, 128, 1, a.a);
      const std::vector<float> out = RunInt8(*table, w.matrix, a.a, 3, 0, 2);
      const std::vector<float> real = RunFloat(*table, w.matrix, a.x, 3);
      for (uint32_t r = 0; r < 20; ++r) {
        EXPECT_TRUE(std::isfinite(out[r])) << table->name;
        EXPECT_TRUE(std::isnan(out[23 + r])) << table->name;
        EXPECT_FALSE(std::isfinite(real[23 + r])) << table->name;
        EXPECT_TRUE(std::isfinite(out[46 + r])) << table->name;
      }
      // A weight scale that is not finite stays in its row.
      float* scale = reinterpret_cast<float*>(w.data.data()) + 7;
      *scale = bad;
      const std::vector<float> row = RunInt8(*table, w.matrix, a.a, 1, 0, 2);
      for (uint32_t r = 0; r < 20; ++r) EXPECT_EQ(std::isfinite(row[r]), r != 7) << table->name;
    }
}

}  // namespace
}  // namespace qinfer::kernels
