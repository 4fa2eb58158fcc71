// Names, sizes and views of weight formats.
#include "weights/format.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace qinfer::weights {
namespace {

using kernels::ScaleKind;
using kernels::WeightKind;

TEST(Format, NamesRoundTripAndAreDistinct) {
  std::set<std::string> names;
  int count = 0;
  for (const WeightKind kind :
       {WeightKind::kF32, WeightKind::kF16, WeightKind::kBF16, WeightKind::kInt8, WeightKind::kInt6,
        WeightKind::kInt4, WeightKind::kFp4})
    for (const ScaleKind scale :
         {ScaleKind::kNone, ScaleKind::kF16, ScaleKind::kF32, ScaleKind::kE8M0, ScaleKind::kSub8})
      for (const bool has_min : {false, true})
        for (const uint32_t group : {0u, 16u, 32u, 64u, 128u}) {
          const Format format = {kind, scale, has_min, group};
          uint64_t panel, bytes;
          if (!PackedSize(format, 16, 64, &panel, &bytes)) continue;
          ++count;
          names.insert(Name(format));
          const StatusOr<Format> parsed = ParseFormat(Name(format));
          ASSERT_TRUE(parsed.ok()) << Name(format) << " " << parsed.status();
          EXPECT_TRUE(*parsed == format) << Name(format);
        }
  EXPECT_EQ(names.size(), static_cast<size_t>(count));
  EXPECT_GT(count, 60);
}

TEST(Format, ShortNames) {
  const StatusOr<Format> int4 = ParseFormat("int4");
  ASSERT_TRUE(int4.ok());
  EXPECT_EQ(Name(*int4), "int4-g32-f16");
  EXPECT_EQ(Name(*ParseFormat("int6")), "int6-g32-f16");
  EXPECT_EQ(Name(*ParseFormat("int8")), "int8-g32-f16");
  EXPECT_EQ(Name(*ParseFormat("fp4")), "fp4-g32-e8m0");
  EXPECT_EQ(Name({WeightKind::kInt4, ScaleKind::kF32, false, 0}), "int4-row-f32");
  EXPECT_EQ(Name({WeightKind::kInt4, ScaleKind::kSub8, true, 32}), "int4-g32-sub8-min");
  EXPECT_EQ(Name({WeightKind::kInt6, ScaleKind::kSub8, false, 16}), "int6-g16-sub8");
}

TEST(Format, WrongNamesSayWhatIsKnown) {
  for (const char* name : {"", "int5", "int4-", "int4-g32", "int4-g33-f16", "int4-g16-f16",
                           "int4-g32-f16-max", "int4-g32-f16-min-min", "f16-g32-f16",
                           "int8-g32-e8m0-min", "int4-g64-sub8", "int8-g32-sub8", "fp4-g32-f16",
                           "fp4-g64-e8m0", "fp4-g32-e8m0-min", "int4-g32-none", "INT4"}) {
    const StatusOr<Format> parsed = ParseFormat(name);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(parsed.status().message().find("known: f32"), absl::string_view::npos) << name;
  }
}

TEST(Format, Sizes) {
  uint64_t panel, bytes;
  // 576 inputs: 18 groups of 32 bytes of scales, 18 granules of 256 bytes.
  ASSERT_TRUE(PackedSize(*ParseFormat("int4"), 576, 576, &panel, &bytes));
  EXPECT_EQ(panel, 18u * 32 + 18 * 256);
  EXPECT_EQ(bytes, 36 * panel);
  EXPECT_DOUBLE_EQ(BitsPerWeight(*ParseFormat("int4"), 576, 576), 4.5);
  EXPECT_DOUBLE_EQ(BitsPerWeight(*ParseFormat("int4-g32-f16-min"), 576, 576), 5.0);
  EXPECT_DOUBLE_EQ(BitsPerWeight(*ParseFormat("int4-g32-sub8-min"), 256, 256), 4.625);
  EXPECT_DOUBLE_EQ(BitsPerWeight(*ParseFormat("int8"), 256, 256), 8.5);
  // Padding counts: 17 rows are two panels, 33 inputs two granules; the scale plane fills its line.
  ASSERT_TRUE(PackedSize(*ParseFormat("int8-row-f32"), 17, 33, &panel, &bytes));
  EXPECT_EQ(panel, 64u + 2 * 512);
  EXPECT_EQ(bytes, 2 * panel);
  EXPECT_FALSE(PackedSize(*ParseFormat("int4"), 0, 32, &panel, &bytes));
  EXPECT_FALSE(PackedSize(*ParseFormat("int4"), 32, 0, &panel, &bytes));
  EXPECT_FALSE(PackedSize(*ParseFormat("int4"), 32, UINT64_MAX, &panel, &bytes));
  EXPECT_FALSE(PackedSize(*ParseFormat("int4"), UINT64_MAX, 32, &panel, &bytes));
  EXPECT_DOUBLE_EQ(BitsPerWeight(*ParseFormat("fp4"), 128, 2880), 4.25 + 32 * 8 / (16 * 2880.0));
  EXPECT_EQ(BitsPerWeight(Format{WeightKind::kFp4, ScaleKind::kF16, false, 32}, 16, 32), 0.0);
}

TEST(Format, ViewChecksSizeAndAlignment) {
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  const Format format = *ParseFormat("int4");
  uint64_t panel, bytes;
  ASSERT_TRUE(PackedSize(format, 16, 64, &panel, &bytes));
  std::vector<Line> data(bytes / 64 + 1);
  uint8_t* p = data[0].bytes;
  const StatusOr<kernels::Matrix> matrix = View(format, 16, 64, {p, bytes}, "w");
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(matrix->panel_bytes, panel);
  EXPECT_EQ(matrix->data, p);
  for (const StatusOr<kernels::Matrix>& bad :
       {View(format, 16, 64, {p, bytes - 1}, "w"), View(format, 16, 64, {p + 1, bytes}, "w"),
        View(format, 16, 65, {p, bytes}, "w"), View(format, 0, 64, {p, bytes}, "w")}) {
    EXPECT_EQ(bad.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(bad.status().message().find("\"w\""), absl::string_view::npos);
  }
}

}  // namespace
}  // namespace qinfer::weights
