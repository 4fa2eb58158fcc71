// Imports of GGUF blocks against values that the `gguf` package decodes (tests/golden/blocks), and
// what broken input gives.
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ref/ref.h"
#include "weights/format.h"

namespace qinfer::weights {
namespace {

constexpr uint64_t kRows = 3, kCols = 256;

struct alignas(64) Line {
  uint8_t bytes[64];
};

struct Golden {
  std::vector<uint8_t> source;
  std::vector<float> values;
};

Golden ReadGolden(DType dtype) {
  const std::string path = std::string(QINFER_SOURCE_DIR "/tests/golden/blocks/") +
                           std::string(Info(dtype).name) + ".bin";
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> all((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
  uint64_t bytes = 0;
  EXPECT_TRUE(TensorBytes(dtype, kRows * kCols, &bytes));
  EXPECT_EQ(all.size(), bytes + kRows * kCols * 4) << path;
  Golden golden;
  golden.source.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(bytes));
  golden.values.resize(kRows * kCols);
  std::memcpy(golden.values.data(), all.data() + bytes, golden.values.size() * 4);
  return golden;
}

class BlockImport : public ::testing::TestWithParam<DType> {};

TEST_P(BlockImport, DecodesAsTheGolden) {
  const Golden golden = ReadGolden(GetParam());
  std::vector<float> out(golden.values.size());
  ASSERT_TRUE(DecodeToFloat(GetParam(), golden.source, out.size(), out.data()).ok());
  EXPECT_EQ(std::memcmp(out.data(), golden.values.data(), out.size() * 4), 0);
}

TEST_P(BlockImport, PanelsHoldTheSameValuesAtEveryRow) {
  const Golden golden = ReadGolden(GetParam());
  // 19 rows: every golden row in several lanes of two panels.
  constexpr uint64_t kCount = 19;
  const size_t row_bytes = golden.source.size() / kRows;
  std::vector<uint8_t> source;
  for (uint64_t r = 0; r < kCount; ++r) {
    const uint8_t* row = golden.source.data() + (r * 2 % kRows) * row_bytes;
    source.insert(source.end(), row, row + row_bytes);
  }
  const StatusOr<Format> format = ExactFormat(GetParam());
  ASSERT_TRUE(format.ok());
  uint64_t panel_bytes, bytes;
  ASSERT_TRUE(PackedSize(*format, kCount, kCols, &panel_bytes, &bytes));
  ASSERT_EQ(bytes, 2 * panel_bytes);
  std::vector<Line> packed(bytes / 64);
  const absl::Span<uint8_t> out(packed[0].bytes, bytes);
  const Status imported = ImportRows(GetParam(), source, 0, kCount, kCols, out);
  ASSERT_TRUE(imported.ok()) << imported;
  const StatusOr<kernels::Matrix> matrix = View(*format, kCount, kCols, out, "t");
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  std::vector<float> row(kCols);
  for (uint32_t r = 0; r < kCount; ++r) {
    kernels::ref::DecodeRow(*matrix, r, row.data());
    EXPECT_EQ(std::memcmp(row.data(), golden.values.data() + (r * 2 % kRows) * kCols, kCols * 4), 0)
        << "row " << r;
  }
}

TEST_P(BlockImport, TruncatedInputIsAnError) {
  const Golden golden = ReadGolden(GetParam());
  const StatusOr<Format> format = ExactFormat(GetParam());
  uint64_t panel_bytes, bytes;
  ASSERT_TRUE(PackedSize(*format, kRows, kCols, &panel_bytes, &bytes));
  std::vector<Line> packed(bytes / 64);
  const absl::Span<const uint8_t> cut(golden.source.data(), golden.source.size() - 1);
  EXPECT_EQ(ImportRows(GetParam(), cut, 0, kRows, kCols, {packed[0].bytes, bytes}).code(),
            absl::StatusCode::kDataLoss);
  std::vector<float> out(kRows * kCols);
  EXPECT_EQ(DecodeToFloat(GetParam(), cut, out.size(), out.data()).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_FALSE(DecodeToFloat(GetParam(), golden.source, out.size() - 1, out.data()).ok());
  EXPECT_FALSE(
      ImportRows(GetParam(), golden.source, 0, kRows, kCols, {packed[0].bytes, bytes - 64}).ok());
  EXPECT_FALSE(
      ImportRows(GetParam(), golden.source, 0, kRows, kCols - 1, {packed[0].bytes, bytes}).ok());
}

TEST_P(BlockImport, ScalesThatAreNotFiniteAreErrors) {
  const size_t at = GetParam() == DType::kQ6_K ? 208 : 0;
  // MXFP4: NaN, and a power of two whose half we do not have.
  const std::vector<uint16_t> scales = GetParam() == DType::kMxfp4
                                           ? std::vector<uint16_t>{0x11ff, 0x1100}
                                           : std::vector<uint16_t>{0x7e00, 0x7c00, 0xfc01};
  for (const uint16_t bits : scales) {
    Golden golden = ReadGolden(GetParam());
    const DTypeInfo& info = Info(GetParam());
    const size_t row_bytes = golden.source.size() / kRows;
    const size_t last_block = kCols / info.block - 1;
    std::memcpy(golden.source.data() + row_bytes + last_block * info.bytes + at, &bits, 2);
    const StatusOr<Format> format = ExactFormat(GetParam());
    uint64_t panel_bytes, bytes;
    ASSERT_TRUE(PackedSize(*format, kRows, kCols, &panel_bytes, &bytes));
    std::vector<Line> packed(bytes / 64);
    const Status status =
        ImportRows(GetParam(), golden.source, 100, kRows, kCols, {packed[0].bytes, bytes});
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("row 101"), absl::string_view::npos) << status;
    std::vector<float> out(kRows * kCols);
    EXPECT_FALSE(DecodeToFloat(GetParam(), golden.source, out.size(), out.data()).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockImport,
                         ::testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                           DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
                                           DType::kMxfp4),
                         [](const auto& info) { return std::string(Info(info.param).name); });

// Zeros under the smallest exponent need no half of it.
TEST(MxImport, ZerosUnderTheSmallestExponent) {
  uint8_t block[17] = {};
  block[1] = 0x80;  // a negative zero among them
  float out[32];
  std::fill_n(out, 32, 1.0f);
  ASSERT_TRUE(DecodeToFloat(DType::kMxfp4, block, 32, out).ok());
  for (const float x : out) EXPECT_EQ(x, 0.0f);
  uint64_t panel_bytes, bytes;
  ASSERT_TRUE(PackedSize(*ExactFormat(DType::kMxfp4), 1, 32, &panel_bytes, &bytes));
  std::vector<Line> packed(bytes / 64);
  ASSERT_TRUE(ImportRows(DType::kMxfp4, block, 0, 1, 32, {packed[0].bytes, bytes}).ok());
}

TEST(FloatImport, KeepsEveryBit) {
  constexpr uint64_t kCount = 17, kWide = 37;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const uint32_t size = Info(dtype).bytes;
    std::vector<uint8_t> source(kCount * kWide * size);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 37 % 120);
    const StatusOr<Format> format = ExactFormat(dtype);
    ASSERT_TRUE(format.ok());
    uint64_t panel_bytes, bytes;
    ASSERT_TRUE(PackedSize(*format, kCount, kWide, &panel_bytes, &bytes));
    EXPECT_EQ(panel_bytes, 64u * 16 * size);
    std::vector<Line> packed(bytes / 64);
    ASSERT_TRUE(ImportRows(dtype, source, 0, kCount, kWide, {packed[0].bytes, bytes}).ok());
    const StatusOr<kernels::Matrix> matrix =
        View(*format, kCount, kWide, {packed[0].bytes, bytes}, "t");
    ASSERT_TRUE(matrix.ok());
    std::vector<float> all(kCount * kWide), row(kWide);
    ASSERT_TRUE(DecodeToFloat(dtype, source, all.size(), all.data()).ok());
    for (uint32_t r = 0; r < kCount; ++r) {
      kernels::ref::DecodeRow(*matrix, r, row.data());
      EXPECT_EQ(std::memcmp(row.data(), all.data() + r * kWide, kWide * 4), 0);
    }
  }
}

TEST(DecodeToFloat, OtherTypes) {
  const uint8_t f8[] = {0x38, 0xb8, 0x01, 0x7e, 0x7f};
  float out[5];
  ASSERT_TRUE(DecodeToFloat(DType::kF8E4M3, f8, 5, out).ok());
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -1.0f);
  EXPECT_EQ(out[2], 0x1p-9f);
  EXPECT_EQ(out[3], 448.0f);
  EXPECT_NE(out[4], out[4]);
  const double d = 1.5;
  uint8_t bytes[8];
  std::memcpy(bytes, &d, 8);
  ASSERT_TRUE(DecodeToFloat(DType::kF64, bytes, 1, out).ok());
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(DecodeToFloat(DType::kI32, {f8, 4}, 1, out).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ExactFormat(DType::kOther).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace qinfer::weights
