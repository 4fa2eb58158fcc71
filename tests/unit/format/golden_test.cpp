// Files made by the reference libraries (tests/golden/make_format.py) read as they say.
#include <gtest/gtest.h>

#include <cstring>

#include "bytes.h"
#include "core/half.h"
#include "format/checkpoint.h"
#include "format/gguf.h"

namespace qinfer::format {
namespace {

class Golden : public ::testing::Test {
 protected:
  std::shared_ptr<Checkpoint> Open(const std::string& name) {
    OpenOptions options;
    options.memory = &memory_;
    auto opened = OpenCheckpoint(StrCat(QINFER_SOURCE_DIR "/tests/golden/format/", name), options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *opened : nullptr;
  }
  std::vector<uint8_t> Bytes(const Checkpoint& checkpoint, const std::string& tensor) {
    const TensorInfo* info = checkpoint.Find(tensor);
    if (info == nullptr) return {};
    std::vector<uint8_t> out(info->bytes);
    EXPECT_TRUE(checkpoint.Read(*info, 0, absl::MakeSpan(out)).ok());
    return out;
  }
  template <typename T>
  std::vector<T> Values(const Checkpoint& checkpoint, const std::string& tensor) {
    const std::vector<uint8_t> bytes = Bytes(checkpoint, tensor);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  Memory memory_;
};

TEST_F(Golden, Gguf) {
  const auto checkpoint = Open("small.gguf");
  ASSERT_NE(checkpoint, nullptr);
  const Gguf& gguf = *checkpoint->gguf();
  EXPECT_EQ(gguf.version(), 3u);
  EXPECT_EQ(*gguf.Find("general.architecture")->AsString(), "llama");
  EXPECT_EQ(*gguf.Find("test.u32")->AsUint(), 7u);
  EXPECT_EQ(*gguf.Find("test.i8")->AsInt(), -3);
  EXPECT_EQ(*gguf.Find("test.f32")->AsFloat(), 0.25);
  EXPECT_EQ(*gguf.Find("test.f64")->AsFloat(), -1e300);
  EXPECT_TRUE(*gguf.Find("test.bool")->AsBool());
  EXPECT_EQ(*gguf.Find("test.u64")->AsUint(), UINT64_MAX);
  const std::vector<std::string_view> strings = testing::StringsOf(*gguf.Find("test.strings"));
  ASSERT_EQ(strings.size(), 3u);
  EXPECT_EQ(strings[1], "zw\xc3\xb6lf");
  EXPECT_EQ(*gguf.Find("test.floats")->FloatAt(1), -2.0);

  ASSERT_EQ(checkpoint->tensors().size(), 5u);
  const TensorInfo* f32 = checkpoint->Find("f32.weight");
  EXPECT_EQ(f32->rank, 2u);
  EXPECT_EQ(f32->shape[0], 3u);  // numpy's order
  EXPECT_EQ(f32->shape[1], 4u);
  const std::vector<float> values = Values<float>(*checkpoint, "f32.weight");
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
  EXPECT_EQ(HalfToFloat(Values<uint16_t>(*checkpoint, "f16.weight").at(5)), 5.0f);
  const struct {
    const char* name;
    DType dtype;
    uint64_t bytes;
  } blocks[] = {{"Q8_0", DType::kQ8_0, 32 * 34},
                {"Q4_0", DType::kQ4_0, 32 * 18},
                {"Q5_1", DType::kQ5_1, 32 * 24}};
  for (const auto& block : blocks) {
    const TensorInfo* tensor = checkpoint->Find(StrCat(block.name, ".weight"));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->dtype, block.dtype);
    EXPECT_EQ(tensor->dtype_name, block.name);
    EXPECT_EQ(tensor->bytes, block.bytes);
    EXPECT_EQ(tensor->shape[0], 4u);
    EXPECT_EQ(tensor->shape[1], 256u);
  }
}

TEST_F(Golden, SplitGguf) {
  for (const char* name : {"split-00001-of-00002.gguf", "split-00002-of-00002.gguf"}) {
    const auto checkpoint = Open(name);
    ASSERT_NE(checkpoint, nullptr);
    ASSERT_EQ(checkpoint->tensors().size(), 3u);
    for (int i = 0; i < 3; ++i) {
      const auto values = Values<float>(*checkpoint, StrCat("t", i));
      EXPECT_EQ(values, std::vector<float>(8, static_cast<float>(i)));
    }
  }
}

TEST_F(Golden, Safetensors) {
  const auto checkpoint = Open("small.safetensors");
  ASSERT_NE(checkpoint, nullptr);
  ASSERT_EQ(checkpoint->tensors().size(), 6u);
  EXPECT_EQ(Values<float>(*checkpoint, "f32"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(checkpoint->Find("f32")->shape[1], 3u);
  EXPECT_EQ(HalfToFloat(Values<uint16_t>(*checkpoint, "f16").at(4)), 4.0f);
  EXPECT_EQ(Values<int64_t>(*checkpoint, "i64"), std::vector<int64_t>{-1});
  EXPECT_EQ(Bytes(*checkpoint, "bool"), (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(checkpoint->Find("bool")->dtype, DType::kBool);
  EXPECT_EQ(checkpoint->Find("empty")->bytes, 0u);
  EXPECT_EQ(Bytes(*checkpoint,
                  "\xc3\xbcn\xc3\xaf"
                  "code"),
            std::vector<uint8_t>{1});
  ASSERT_EQ(checkpoint->metadata().size(), 2u);
  for (const MetadataEntry& entry : checkpoint->metadata()) {
    EXPECT_EQ(entry.value, entry.key == "quote" ? "a\"b\n" : "np");
  }
}

}  // namespace
}  // namespace qinfer::format
