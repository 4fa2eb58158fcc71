// GGUF: values of every type, tensor tables, splits, real vocabularies, and files that lie.
#include "format/gguf.h"
#include "format/gguf_metadata.h"

#include <gtest/gtest.h>

#include <chrono>

#include "bytes.h"

namespace qinfer::format {
namespace {

using testing::Borrow;
using testing::Bytes;

StatusOr<std::shared_ptr<Gguf>> OpenBytes(const std::string& bytes, Memory* memory) {
  return Gguf::Open({Borrow(bytes)}, memory);
}

void ExpectError(const std::string& bytes, absl::StatusCode code, const std::string& part) {
  Memory memory;
  const auto gguf = OpenBytes(bytes, &memory);
  ASSERT_FALSE(gguf.ok()) << part;
  EXPECT_EQ(gguf.status().code(), code) << gguf.status();
  EXPECT_NE(gguf.status().message().find(part), absl::string_view::npos) << gguf.status();
  EXPECT_LT(memory.peak_bytes(), bytes.size() + (1u << 20)) << part;
  EXPECT_EQ(memory.used_bytes(), 0u);
}
void ExpectFormatError(const std::string& bytes, const std::string& part) {
  ExpectError(bytes, absl::StatusCode::kDataLoss, part);
}

TEST(Gguf, ReadsValuesAndTensors) {
  for (const uint32_t version : {2u, 3u}) {
    const std::string bytes = testing::SmallGguf(version);
    Memory memory;
    const auto opened = OpenBytes(bytes, &memory);
    ASSERT_TRUE(opened.ok()) << opened.status();
    const Gguf& gguf = **opened;
    EXPECT_EQ(gguf.version(), version);
    ASSERT_EQ(gguf.keys().size(), 9u);
    EXPECT_EQ(gguf.keys()[1], "general.alignment");
    EXPECT_EQ(*gguf.Find("general.architecture")->AsString(), "llama");
    EXPECT_EQ(*gguf.Find("a.i8")->AsInt(), -5);
    EXPECT_FALSE(gguf.Find("a.i8")->AsUint().ok());
    EXPECT_EQ(*gguf.Find("a.f32")->AsFloat(), 1.5);
    EXPECT_FALSE(gguf.Find("a.f32")->AsInt().ok());
    EXPECT_TRUE(*gguf.Find("a.bool")->AsBool());
    EXPECT_FALSE(gguf.Find("a.bool")->AsUint().ok());
    EXPECT_EQ(*gguf.Find("a.u64")->AsUint(), UINT64_MAX);
    EXPECT_FALSE(gguf.Find("a.u64")->AsInt().ok());
    EXPECT_EQ(gguf.Find("absent"), nullptr);
    EXPECT_EQ(testing::StringsOf(*gguf.Find("a.strings")),
              (std::vector<std::string_view>{"x", "", "zwei"}));
    EXPECT_FALSE(GgufStrings::Of(*gguf.Find("a.ints")).ok());
    EXPECT_EQ(*gguf.Find("a.ints")->IntAt(1), 7);
    EXPECT_EQ(*gguf.Find("a.ints")->FloatAt(0), -1.0);
    EXPECT_FALSE(gguf.Find("a.ints")->IntAt(2).ok());
    EXPECT_FALSE(gguf.Find("a.strings")->IntAt(0).ok());
    EXPECT_EQ(gguf.Find("a.nested")->element_type, GgufType::kArray);

    ASSERT_EQ(gguf.tensors().size(), 3u);  // sorted by name
    const TensorInfo& a = gguf.tensors()[0];
    const TensorInfo& m = gguf.tensors()[1];
    const TensorInfo& z = gguf.tensors()[2];
    EXPECT_EQ(a.name, "a.weight");
    EXPECT_EQ(a.bytes, 12u);
    EXPECT_EQ(m.rank, 3u);
    EXPECT_EQ(m.shape[0], 4u);
    EXPECT_EQ(m.shape[2], 2u);
    EXPECT_EQ(m.dtype, DType::kF16);
    EXPECT_EQ(z.dtype, DType::kQ4_0);
    EXPECT_EQ(z.shape[0], 2u);
    EXPECT_EQ(z.shape[1], 64u);
    EXPECT_EQ(z.bytes, 72u);
    EXPECT_EQ(m.offset + m.bytes, bytes.size());
    EXPECT_EQ(z.offset % 64, 0u);
  }
}

TEST(Gguf, WrongHeaders) {
  ExpectFormatError("", "GGUF");
  ExpectFormatError("GGML1234", "does not begin");
  Bytes big;
  big.Raw("GGUF").Put<uint32_t>(0x03000000u).Put<uint64_t>(0).Put<uint64_t>(0);
  ExpectError(big.data, absl::StatusCode::kUnimplemented, "big-endian");
  ExpectError(Bytes().GgufHeader(0, 0, 1).data, absl::StatusCode::kUnimplemented, "version 1");
  ExpectFormatError(Bytes().GgufHeader(0, 0x55555555555555aULL).data, "metadata keys");
  ExpectFormatError(Bytes().GgufHeader(UINT64_MAX / 33, 0).data, "tensors");
}

TEST(Gguf, WrongMetadata) {
  const auto one = [](const std::function<void(Bytes*)>& fill) {
    Bytes b;
    b.GgufHeader(0, 1);
    fill(&b);
    b.data.resize(b.data.size() + 16, '\0');
    return b.data;
  };
  ExpectFormatError(one([](Bytes* b) { b->Put<uint64_t>(UINT64_MAX).Raw("abc"); }), "metadata key");
  ExpectFormatError(one([](Bytes* b) { b->Put<uint64_t>(1ULL << 63).Raw("abc"); }), "metadata key");
  ExpectFormatError(one([](Bytes* b) { b->Key("", 0).Put<uint8_t>(1); }), "0 bytes");
  ExpectFormatError(one([](Bytes* b) { b->Key("\xff", 0).Put<uint8_t>(1); }), "UTF-8");
  ExpectFormatError(one([](Bytes* b) { b->Key("k", 13).Put<uint8_t>(1); }), "type id 13");
  ExpectFormatError(one([](Bytes* b) { b->Key("k", UINT32_MAX); }), "type id");
  ExpectFormatError(one([](Bytes* b) { b->Key("k", 7).Put<uint8_t>(2); }), "bool");
  ExpectFormatError(one([](Bytes* b) { b->Key("k", 8).Put<uint64_t>(UINT64_MAX - 3); }), "cut");
  // Count times width wraps to a small number.
  ExpectFormatError(
      one([](Bytes* b) { b->Key("k", 9).Put<uint32_t>(10).Put<uint64_t>((1ULL << 61) + 1); }),
      "cut");
  ExpectFormatError(
      one([](Bytes* b) { b->Key("k", 9).Put<uint32_t>(8).Put<uint64_t>(1ULL << 60); }), "cut");
  ExpectError(one([](Bytes* b) {
                b->Key("k", 9);
                for (int i = 0; i < 10'000; ++i) b->Put<uint32_t>(9).Put<uint64_t>(1);
                b->Put<uint32_t>(0).Put<uint64_t>(0);
              }),
              absl::StatusCode::kUnimplemented, "nests arrays");
  Bytes twice;
  twice.GgufHeader(0, 2).Key("k", 0).Put<uint8_t>(1).Key("k", 0).Put<uint8_t>(1);
  ExpectFormatError(twice.data, "k is there twice");
}

TEST(Gguf, TooManyStringsCostNoMemory) {
  constexpr uint64_t kCount = 2'097'153;
  Bytes b;
  b.GgufHeader(0, 1).Key("k", 9).Put<uint32_t>(8).Put(kCount);
  b.data.resize(b.data.size() + kCount * 8, '\0');  // as many empty texts
  Memory memory;
  const auto gguf = OpenBytes(b.data, &memory);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ(GgufStrings::Of(*(*gguf)->Find("k")).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_LT(memory.peak_bytes(), b.data.size() + (1u << 20));
}

TEST(Gguf, WrongAlignment) {
  for (const uint32_t alignment : {0u, 3u, 1u << 31, 131072u}) {
    Bytes b;
    b.GgufHeader(0, 1).Key("general.alignment", 4).Put(alignment);
    ExpectFormatError(b.data, "general.alignment");
  }
  Bytes wrong_type;
  wrong_type.GgufHeader(0, 1).Key("general.alignment", 5).Put<int32_t>(32);
  ExpectFormatError(wrong_type.data, "u32");
}

TEST(Gguf, WrongTensors) {
  const auto one = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset,
                      std::string_view name = "t") {
    Bytes b;
    b.GgufHeader(1, 0).Tensor(name, dims, type, offset).Pad(32);
    b.data.resize(b.data.size() + 64, '\0');
    return b.data;
  };
  Memory memory;
  EXPECT_TRUE(OpenBytes(one({16}, 0, 0), &memory).ok());
  ExpectFormatError(one({}, 0, 0), "dimensions");
  ExpectFormatError(one({1, 1, 1, 1, 1}, 0, 0), "5 dimensions");
  ExpectFormatError(one({0}, 0, 0), "dimension 0 is 0");
  ExpectFormatError(one({static_cast<uint64_t>(INT64_MAX), 2}, 0, 0), "multiply");
  ExpectFormatError(one({1ULL << 32, 1ULL << 32}, 0, 0), "multiply");
  ExpectFormatError(one({(1ULL << 62)}, 28, 0), "64 bits");
  ExpectFormatError(one({5124095576030431008ULL, 2}, 2, 0), "multiply");
  ExpectFormatError(one({33}, 2, 0), "whole blocks");
  ExpectFormatError(one({17}, 0, 0), "past the end");
  ExpectFormatError(one({16}, 0, 32), "past the end");
  ExpectFormatError(one({16}, 0, UINT64_MAX - 31), "past the end");
  ExpectFormatError(one({1}, 0, 1), "multiple of 32");
  for (const uint32_t type : {4u, 5u, 31u, 36u, 255u, UINT32_MAX}) {
    ExpectError(one({16}, type, 0), absl::StatusCode::kUnimplemented, "type id");
  }
  ExpectFormatError(one({1}, 0, 0, ""), "empty name");
  ExpectFormatError(one({1}, 0, 0, "\xc0\xaf"), "UTF-8");
  ExpectFormatError(one({1}, 0, 0, std::string_view("a\0b", 3)), "UTF-8");
  ExpectFormatError(one({1}, 0, 0, std::string(257, 'x')), "257 bytes");
  EXPECT_TRUE(OpenBytes(one({1}, 0, 0, std::string(256, 'x')), &memory).ok());

  const auto two = [](std::string_view a, std::string_view b, uint64_t second) {
    Bytes bytes;
    bytes.GgufHeader(2, 0).Tensor(a, {16}, 0, 0).Tensor(b, {8}, 0, second).Pad(32);
    bytes.data.resize(bytes.data.size() + 128, '\0');
    return bytes.data;
  };
  EXPECT_TRUE(OpenBytes(two("a", "b", 64), &memory).ok());
  ExpectFormatError(two("a", "b", 32), "overlap");
  ExpectFormatError(two("a", "a", 64), "twice");
}

TEST(Gguf, UnreadableTypesAreListed) {
  Bytes b;
  b.GgufHeader(1, 0).Tensor("t", {256}, 23, 0).Pad(32);
  b.data.resize(b.data.size() + 136, '\0');
  Memory memory;
  const auto gguf = OpenBytes(b.data, &memory);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ((*gguf)->tensors()[0].dtype, DType::kOther);
  EXPECT_EQ((*gguf)->tensors()[0].dtype_name, "IQ4_XS");
  EXPECT_EQ((*gguf)->tensors()[0].bytes, 136u);
}

std::string Part(uint16_t number, uint16_t count, int32_t total, std::string_view tensor) {
  Bytes b;
  b.GgufHeader(1, 3);
  b.Key("split.no", 2).Put(number);
  b.Key("split.count", 2).Put(count);
  b.Key("split.tensors.count", 5).Put(total);
  b.Tensor(tensor, {8}, 0, 0).Pad(32);
  b.data.resize(b.data.size() + 32, '\0');
  return b.data;
}

TEST(Gguf, SplitFiles) {
  Memory memory;
  const auto open = [&](const std::vector<std::string>& parts) {
    std::vector<std::shared_ptr<io::Source>> sources;
    for (const std::string& part : parts) sources.push_back(Borrow(part));
    return Gguf::Open(std::move(sources), &memory).status();
  };
  const std::string first = Part(0, 2, 2, "b"), second = Part(1, 2, 2, "a");
  EXPECT_TRUE(open({first, second}).ok());
  auto both = Gguf::Open({Borrow(first), Borrow(second)}, &memory);
  ASSERT_TRUE(both.ok());
  EXPECT_EQ((*both)->tensors()[0].name, "a");
  EXPECT_EQ((*both)->tensors()[0].source, 1u);
  EXPECT_NE(open({first}).message().find("one of 2 parts"), absl::string_view::npos);
  EXPECT_NE(open({second, first}).message().find("part 1"), absl::string_view::npos);
  EXPECT_NE(open({first, Part(1, 2, 2, "b")}).message().find("twice"), absl::string_view::npos);
  EXPECT_NE(open({Part(0, 2, 9, "b"), second}).message().find("9"), absl::string_view::npos);
}

TEST(Gguf, MetadataTravels) {
  Memory memory;
  const std::string bytes = testing::SmallGguf();
  const auto gguf = OpenBytes(bytes, &memory);
  ASSERT_TRUE(gguf.ok());
  std::pmr::vector<uint8_t> copy(&memory);
  const std::string_view prefixes[] = {"a.", "nothing."};
  const GgufMetadata metadata = SelectGgufMetadata(**gguf, prefixes);
  copy.assign(metadata.head.begin(), metadata.head.end());
  for (const auto piece : metadata.records) copy.insert(copy.end(), piece.begin(), piece.end());
  const auto again = Gguf::Open({io::BorrowMemory(copy, "copy")}, &memory);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->keys().size(), 7u);
  EXPECT_TRUE((*again)->tensors().empty());
  const auto record = (*again)->Record("a.strings");
  const auto original = (*gguf)->Record("a.strings");
  EXPECT_EQ(record, original);
  EXPECT_FALSE(record.empty());
}

TEST(Gguf, CutAndFlipped) {
  const std::string file = testing::SmallGguf();
  Memory memory;
  testing::TruncateAndFlip(file, file.size() - 240, [&](const std::string& bytes) {
    const auto gguf = OpenBytes(bytes, &memory);
    if (!gguf.ok()) {
      EXPECT_FALSE(gguf.status().message().empty());
      return false;
    }
    for (const std::string_view key : (*gguf)->keys()) {
      (void)testing::StringsOf(*(*gguf)->Find(key));
      (void)(*gguf)->Find(key)->AsFloat().ok();
    }
    return true;
  });
}

TEST(Gguf, BudgetIsAStatus) {
  Bytes b;
  b.GgufHeader(0, 4000);
  for (int i = 0; i < 4000; ++i) b.Key("key" + std::to_string(i), 0).Put<uint8_t>(1);
  // Refused at the window, at the header's buffer, in the table of keys.
  for (const uint64_t limit : {1000u, 262'143u, 300'000u}) {
    Memory memory({}, limit);
    const auto gguf = OpenBytes(b.data, &memory);
    ASSERT_FALSE(gguf.ok()) << limit;
    EXPECT_EQ(gguf.status().code(), absl::StatusCode::kOutOfRange) << gguf.status();
    EXPECT_EQ(memory.used_bytes(), 0u);
  }
  Memory memory({}, 1'000'000);
  EXPECT_TRUE(OpenBytes(b.data, &memory).ok());
}

TEST(Gguf, RealVocabulary) {
  const std::string path = QINFER_SHARED_DIR "/data/tokenizer/ggml-vocab-llama-bpe.gguf";
  Memory memory;
  const auto source = io::OpenFile(path, io::Access::kMap, &memory);
  if (!source.ok()) GTEST_SKIP() << source.status().message();
  const auto begin = std::chrono::steady_clock::now();
  const auto gguf = Gguf::Open({*source}, &memory);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const std::vector<std::string_view> tokens =
      testing::StringsOf(*(*gguf)->Find("tokenizer.ggml.tokens"));
  const std::vector<std::string_view> merges =
      testing::StringsOf(*(*gguf)->Find("tokenizer.ggml.merges"));
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("milliseconds", std::to_string(ms));
  EXPECT_EQ(tokens.size(), 128256u);
  EXPECT_EQ(merges.size(), 280147u);
  EXPECT_EQ(*(*gguf)->Find("general.architecture")->AsString(), "llama");
  EXPECT_TRUE((*gguf)->tensors().empty());
  EXPECT_LT(ms, 500.0);  // a few milliseconds; generous for sanitizers and busy machines
  std::cout << "parsed in " << ms << " ms\n";
}

}  // namespace
}  // namespace qinfer::format
