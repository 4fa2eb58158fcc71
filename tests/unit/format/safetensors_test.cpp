// safetensors headers: every rule that a file may break, and what a valid one gives.
#include "format/safetensors.h"

#include <gtest/gtest.h>

#include "bytes.h"

namespace qinfer::format {
namespace {

using testing::Borrow;
using testing::SafetensorsBytes;

struct Parsed {
  Status status;
  std::vector<std::string> names;
  uint64_t peak = 0;
};

Parsed Parse(const std::string& bytes) {
  Parsed parsed;
  Memory memory;
  {
    SafetensorsTables tables(&memory);
    parsed.status = ParseSafetensors(*Borrow(bytes), 0, &memory, &tables).status();
    if (parsed.status.ok()) parsed.status = SortByName("test", &tables.tensors);
    for (const TensorInfo& tensor : tables.tensors) parsed.names.emplace_back(tensor.name);
  }
  EXPECT_EQ(memory.used_bytes(), 0u);
  parsed.peak = memory.peak_bytes();
  return parsed;
}

void ExpectError(const std::string& header, size_t data_bytes, const std::string& part,
                 absl::StatusCode code = absl::StatusCode::kDataLoss) {
  const Parsed parsed = Parse(SafetensorsBytes(header, std::string(data_bytes, 'x')));
  EXPECT_EQ(parsed.status.code(), code) << header.substr(0, 200) << " " << parsed.status;
  EXPECT_NE(parsed.status.message().find(part), absl::string_view::npos)
      << header.substr(0, 200) << " " << parsed.status;
  EXPECT_EQ(parsed.status.message().find("test"), 0u) << parsed.status;  // names the file
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string bytes =
      SafetensorsBytes(R"({"__metadata__":{"format":"pt","x":"\u00e9\n"},)"
                       R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                       R"("\u0061":{"data_offsets":[12,20],"shape":[],"dtype":"F64"},)"
                       R"("empty":{"dtype":"I8","shape":[4,0],"data_offsets":[20,20]},)"
                       R"("six":{"dtype":"U8","shape":[1,2,1,2,1,3],"data_offsets":[20,32]},)"
                       R"("other":{"dtype":"F8_E5M2","shape":[4],"data_offsets":[32,36]}}   )",
                       std::string(36, 'x'));
  Memory memory;
  SafetensorsTables tables(&memory);
  const auto layout = ParseSafetensors(*Borrow(bytes), 7, &memory, &tables);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->data_begin, bytes.size() - 36);
  ASSERT_TRUE(SortByName("test", &tables.tensors).ok());
  ASSERT_EQ(tables.tensors.size(), 5u);
  const TensorInfo* a = FindByName(tables.tensors, "a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->rank, 0u);
  EXPECT_EQ(a->bytes, 8u);
  EXPECT_EQ(a->elements(), 1u);
  EXPECT_EQ(a->source, 7u);
  const TensorInfo* b = FindByName(tables.tensors, "b");
  EXPECT_EQ(b->dtype, DType::kBF16);
  EXPECT_EQ(b->dtype_name, "BF16");
  EXPECT_EQ(b->shape[0], 2u);
  EXPECT_EQ(b->shape[1], 3u);
  EXPECT_EQ(b->offset, layout->data_begin);
  EXPECT_EQ(FindByName(tables.tensors, "empty")->elements(), 0u);
  const TensorInfo* six = FindByName(tables.tensors, "six");
  EXPECT_EQ(six->rank, 4u);
  EXPECT_EQ(six->shape[3], 6u);
  EXPECT_EQ(six->elements(), 12u);
  EXPECT_EQ(FindByName(tables.tensors, "other")->dtype, DType::kOther);
  EXPECT_EQ(FindByName(tables.tensors, "other")->dtype_name, "F8_E5M2");
  EXPECT_EQ(FindByName(tables.tensors, "c"), nullptr);
  ASSERT_EQ(tables.metadata.size(), 2u);
  EXPECT_EQ(tables.metadata[0].key, "format");
  EXPECT_EQ(tables.metadata[1].value, "\xc3\xa9\n");
}

TEST(Safetensors, WrongStart) {
  const auto code = [](const std::string& bytes) { return Parse(bytes).status.code(); };
  EXPECT_EQ(code(""), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code("12345678"), absl::StatusCode::kDataLoss);
  for (const uint64_t length :
       {uint64_t{1} << 63, uint64_t{100'000'001}, UINT64_MAX, uint64_t{3}}) {
    testing::Bytes b;
    b.Put(length).Raw("{}");
    EXPECT_EQ(code(b.data), absl::StatusCode::kDataLoss) << length;
  }
  EXPECT_EQ(code(SafetensorsBytes(" {}", "")), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(SafetensorsBytes("[]", "")), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Parse(SafetensorsBytes("{}", "")).status.ok());
}

TEST(Safetensors, WrongJson) {
  ExpectError(R"({"a":)", 0, "not valid JSON");
  ExpectError(R"({} {})", 0, "not valid JSON");
  ExpectError("{\"\xff\":{}}", 0, "not valid JSON");
  ExpectError("{\"a\":{\"dtype\":\"F32\",\"shape\":[\x01]}}", 0, "not valid JSON");
  ExpectError("{\"a\":" + std::string(100'000, '[') + "}", 0, "unexpected array");
  ExpectError("{\"" + std::string(5 << 20, 'a') + "\":{}}", 0, "4194304 bytes");
  ExpectError("{\"" + std::string(5000, 'a') + "\":{}}", 0, "5000 bytes");
  ExpectError(R"({"a":1})", 0, "unexpected number");
  ExpectError(R"({"a":null})", 0, "unexpected null");
  ExpectError(R"({"a":[1]})", 0, "unexpected array");
  ExpectError(R"({"a":"x"})", 0, "unexpected text");
  ExpectError(R"({"":{}})", 0, "empty name");
  ExpectError(R"({"a\u0000b":{}})", 0, "UTF-8");
  ExpectError(R"({"a":{}})", 0, "needs dtype");
  ExpectError(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "needs dtype");
  ExpectError(R"({"a":{"dtype":"F32","x":[1]}})", 4, "unknown field x");
  ExpectError(R"({"a":{"dtype":"F32","dtype":"F32"}})", 4, "twice");
  ExpectError(R"({"a":{"dtype":"F33"}})", 4, "F33", absl::StatusCode::kUnimplemented);
  ExpectError(R"({"a":{"dtype":1}})", 4, "unexpected number");
  ExpectError(R"({"a":{"shape":1}})", 4, "unexpected number");
  ExpectError(R"({"a":{"shape":[-1]}})", 4, "negative");
  ExpectError(R"({"a":{"shape":[1.5]}})", 4, "fraction");
  ExpectError(R"({"a":{"shape":[1e400]}})", 4, "");
  ExpectError(R"({"a":{"shape":[18446744073709551616]}})", 4, "huge");
  ExpectError(R"({"a":{"shape":[[1]]}})", 4, "nested deeper than 3");
  ExpectError(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1]}})", 4, "dimensions");
  ExpectError(R"({"a":{"data_offsets":[1]}})", 4, "two numbers");
  ExpectError(R"({"a":{"data_offsets":[1,2,3]}})", 4, "more than two");
  ExpectError(R"({"__metadata__":{"a":1}})", 0, "unexpected number");
  ExpectError(R"({"__metadata__":{"a":{}}})", 0, "unexpected object");
  ExpectError(R"({"__metadata__":{"a":"1","a":"2"}})", 0, "a is there twice");
  ExpectError(R"({"__metadata__":{},"__metadata__":{}})", 0, "twice");
}

std::string One(const char* dtype, const char* shape, const char* offsets) {
  return std::string(R"({"a":{"dtype":")") + dtype + R"(","shape":[)" + shape +
         R"(],"data_offsets":[)" + offsets + "]}}";
}

TEST(Safetensors, WrongSizesAndRanges) {
  EXPECT_TRUE(Parse(SafetensorsBytes(One("F32", "2,3", "0,24"), std::string(24, 'x'))).status.ok());
  ExpectError(One("F32", "2,3", "0,20"), 20, "need 24 bytes");
  ExpectError(One("F32", "2,3", "0,24"), 23, "outside the data");
  ExpectError(One("F32", "2,3", "24,0"), 24, "outside the data");
  ExpectError(One("F32", "2,3", "18446744073709551600,18446744073709551615"), 24, "outside");
  ExpectError(One("F32", "4294967296,4294967296", "0,24"), 24, "multiply");
  ExpectError(One("F32", "4294967296,4294967296,0", "0,0"), 0, "multiply");
  ExpectError(One("F64", "9223372036854775808", "0,0"), 0, "64 bits");
  ExpectError(One("F4", "3", "0,2"), 2, "need 2 bytes, its");
  ExpectError(One("F32", "2,3", "0,24"), 25, "belong to no tensor");
  ExpectError(One("F32", "2,3", "1,25"), 25, "before tensor a");
  ExpectError("{}", 1, "belong to no tensor");
}

TEST(Safetensors, OverlapsHolesAndDuplicates) {
  const auto two = [](const char* second, const char* first_at, const char* second_at) {
    return std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[)") + first_at +
           R"(]},")" + second + R"(":{"dtype":"U8","shape":[4],"data_offsets":[)" + second_at +
           "]}}";
  };
  EXPECT_TRUE(Parse(SafetensorsBytes(two("b", "4,8", "0,4"), "12345678")).status.ok());
  ExpectError(two("b", "0,4", "3,7"), 7, "overlap");
  ExpectError(two("b", "0,4", "0,4"), 4, "overlap");
  ExpectError(two("b", "0,4", "5,9"), 9, "before tensor b");
  const Parsed twice = Parse(SafetensorsBytes(two("a", "0,4", "4,8"), "12345678"));
  EXPECT_NE(twice.status.message().find("a is there twice"), absl::string_view::npos);
}

// A header that is nothing but entries must not cost much more memory than its own size.
TEST(Safetensors, MemoryIsBounded) {
  std::string header = "{";
  for (int i = 0; i < 300'000; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  const std::string bytes = SafetensorsBytes(header + "}", "");
  const Parsed parsed = Parse(bytes);
  EXPECT_EQ(parsed.status.code(), absl::StatusCode::kUnimplemented) << parsed.status;
  EXPECT_LT(parsed.peak, bytes.size() + (64u << 20));

  std::string metadata = R"({"__metadata__":{"":"")";
  for (int i = 0; i < 400'000; ++i) metadata += ",\"" + std::to_string(i) + "\":\"\"";
  const Parsed many = Parse(SafetensorsBytes(metadata + "}}", ""));
  EXPECT_EQ(many.status.code(), absl::StatusCode::kUnimplemented) << many.status;
  EXPECT_LT(many.peak, metadata.size() + (64u << 20));
}

TEST(Safetensors, CutAndFlipped) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]},)"
      R"("v":{"dtype":"F16","shape":[8],"data_offsets":[32,48]}})";
  const std::string file = SafetensorsBytes(header, std::string(48, 'x'));
  testing::TruncateAndFlip(file, 8 + header.size(),
                           [](const std::string& bytes) { return Parse(bytes).status.ok(); });
}

}  // namespace
}  // namespace qinfer::format
