// Tokenizers from GGUF metadata: the vectors of real vocabularies where they are there, and broken
// metadata built here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "format/gguf.h"
#include "io/source.h"
#include "test_util.h"

namespace qinfer::tokenizer {
namespace {

using nlohmann::json;

StatusOr<std::shared_ptr<const Tokenizer>> Open(const std::string& bytes, const std::string& name,
                                                Memory* memory) {
  const absl::Span<const uint8_t> span(reinterpret_cast<const uint8_t*>(bytes.data()),
                                       bytes.size());
  QINFER_ASSIGN_OR_RETURN(const auto gguf,
                          format::Gguf::Open({io::BorrowMemory(span, name)}, memory));
  return Tokenizer::FromGguf(*gguf, memory);
}

// Lines (from 0) where llama.cpp, which made the vectors, differs from the model's own tokenizer;
// docs/tokenizers.md gives the reasons.
std::set<int> Wrong(const std::string& name) {
  if (name == "qwen2")
    return {22,  23,  73,  180, 181, 188, 189, 202, 203, 238, 239, 240, 241,
            272, 273, 302, 303, 312, 313, 340, 341, 378, 379, 388, 389};
  if (name == "phi-3" || name == "gemma3-270m") return {72};
  return {};
}

void CheckVectors(const std::string& gguf_path, const std::string& name) {
  Memory memory;
  std::string bytes;
  std::string lines;
  if (!ReadFile(gguf_path, &bytes)) GTEST_SKIP() << gguf_path << " is not there";
  if (!ReadFile(Shared("data/tokenizer/" + name + ".jsonl"), &lines))
    GTEST_SKIP() << name << ".jsonl is not there";
  auto tokenizer = Open(bytes, name, &memory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::set<int> wrong = Wrong(name);
  std::istringstream stream(lines);
  int count = 0;
  for (std::string line; std::getline(stream, line); ++count) {
    const json vector = json::parse(line);
    std::pmr::vector<int32_t> ids;
    ASSERT_TRUE((*tokenizer)
                    ->Encode(vector.at("text").get<std::string>(),
                             {false, vector.at("special").get<bool>()}, &ids)
                    .ok());
    const auto expected = vector.at("ids").get<std::vector<int32_t>>();
    const bool equal = std::vector<int32_t>(ids.begin(), ids.end()) == expected;
    EXPECT_EQ(equal, wrong.count(count) == 0) << name << " line " << count << " " << line << "\n"
                                              << Join(ids);
  }
  EXPECT_GT(count, 100);
}

class GgufVectors : public ::testing::TestWithParam<const char*> {};
TEST_P(GgufVectors, Equal) {
  const std::string name = GetParam();
  CheckVectors(Shared("data/tokenizer/ggml-vocab-" + name + ".gguf"), name);
}
INSTANTIATE_TEST_SUITE_P(All, GgufVectors,
                         ::testing::Values("gpt-2", "llama-bpe", "qwen2", "deepseek-coder",
                                           "llama-spm", "phi-3"));

// Vocabularies cut to what a few texts need, with the ids that llama.cpp records for these
// (tests/golden/make_vocabularies.py).
class CutVocabularies : public ::testing::TestWithParam<const char*> {};
TEST_P(CutVocabularies, Equal) {
  const std::string path = Golden(StrCat("vocab-", GetParam()));
  std::string bytes, lines;
  ASSERT_TRUE(ReadFile(path + ".gguf", &bytes));
  ASSERT_TRUE(ReadFile(path + ".jsonl", &lines));
  Memory memory;
  auto tokenizer = Open(bytes, GetParam(), &memory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::istringstream stream(lines);
  int count = 0;
  for (std::string line; std::getline(stream, line); ++count) {
    const json vector = json::parse(line);
    const auto text = vector.at("text").get<std::string>();
    std::pmr::vector<int32_t> ids;
    ASSERT_TRUE((*tokenizer)->Encode(text, {false, false}, &ids).ok());
    EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.end()),
              vector.at("ids").get<std::vector<int32_t>>())
        << line << "\n"
        << Join(ids);
  }
  EXPECT_EQ(count, 47);
}
INSTANTIATE_TEST_SUITE_P(All, CutVocabularies,
                         ::testing::Values("gpt-2", "llama-bpe", "qwen2", "deepseek-llm",
                                           "deepseek-coder", "command-r", "starcoder", "mpt",
                                           "refact", "llama-spm", "phi-3"));

// Metadata of our own making: a little-endian GGUF v3 without tensors.
class Builder {
 public:
  Builder& Text(const std::string& key, const std::string& value) {
    Key(key, 8);
    Put(value);
    return *this;
  }
  Builder& Texts(const std::string& key, const std::vector<std::string>& values) {
    Array(key, 8, values.size());
    for (const std::string& v : values) Put(v);
    return *this;
  }
  Builder& Ints(const std::string& key, const std::vector<int32_t>& values) {
    Array(key, 5, values.size());
    for (const int32_t v : values) Put(v);
    return *this;
  }
  Builder& Floats(const std::string& key, const std::vector<float>& values) {
    Array(key, 6, values.size());
    for (const float v : values) Put(v);
    return *this;
  }
  Builder& Number(const std::string& key, uint32_t value) {
    Key(key, 4);
    Put(value);
    return *this;
  }
  std::string Build() const {
    std::string out = "GGUF";
    const uint32_t version = 3;
    const uint64_t tensors = 0;
    out.append(reinterpret_cast<const char*>(&version), 4);
    out.append(reinterpret_cast<const char*>(&tensors), 8);
    out.append(reinterpret_cast<const char*>(&count_), 8);
    return out + body_;
  }

 private:
  template <typename T>
  void Put(T value) {
    body_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void Put(const std::string& text) {
    Put(uint64_t{text.size()});
    body_ += text;
  }
  void Key(const std::string& key, uint32_t type) {
    ++count_;
    Put("tokenizer.ggml." + key);
    Put(type);
  }
  void Array(const std::string& key, uint32_t type, uint64_t count) {
    Key(key, 9);
    Put(type);
    Put(count);
  }
  std::string body_;
  uint64_t count_ = 0;
};

std::string ErrorOf(const Builder& builder) {
  Memory memory;
  auto tokenizer = Open(builder.Build(), "test.gguf", &memory);
  return tokenizer.ok() ? "" : std::string(tokenizer.status().message());
}

#define EXPECT_ERROR(builder, part) \
  EXPECT_NE(ErrorOf(builder).find(part), std::string::npos) << ErrorOf(builder)

TEST(GgufTokenizer, BrokenMetadata) {
  const std::vector<std::string> abc = {"a", "b", "ab"};
  EXPECT_ERROR(Builder(), "tokenizer.ggml.model is missing");
  EXPECT_ERROR(Builder().Text("model", "t5"), "\"t5\" is not supported; known are gpt2");
  EXPECT_ERROR(Builder().Text("model", "gpt2"), "tokens is missing");
  EXPECT_ERROR(Builder().Text("model", "gpt2").Texts("tokens", abc), "merges are missing");
  EXPECT_ERROR(Builder().Text("model", "gpt2").Text("pre", "nobody").Texts("tokens", abc),
               "tokenizer.ggml.pre \"nobody\" is not supported");
  EXPECT_ERROR(Builder().Text("model", "llama").Texts("tokens", abc), "scores are missing");
  EXPECT_ERROR(Builder().Text("model", "llama").Texts("tokens", abc).Floats("scores", {1, 2}),
               "2 entries for 3 tokens");
  EXPECT_ERROR(Builder().Text("model", "llama").Texts("tokens", abc).Floats("scores", {1, 2, NAN}),
               "token 2 has no number");
  EXPECT_ERROR(Builder().Text("model", "gpt2").Texts("tokens", {"a", "b", "a"}),
               "tokens 0 and 2 have the same text");
  EXPECT_ERROR(Builder().Text("model", "gpt2").Texts("tokens", {"a", "\xff\xfe"}),
               "token 1 is not valid UTF-8");
  EXPECT_ERROR(Builder().Text("model", "gpt2").Texts("tokens", abc).Ints("token_type", {1}),
               "1 entries for 3 tokens");
  EXPECT_ERROR(Builder().Text("model", "gpt2").Texts("tokens", abc).Texts("merges", {"a c"}),
               "entry 0 names a token");
  EXPECT_ERROR(Builder().Text("model", "gpt2").Texts("tokens", abc).Texts("merges", {"ab"}),
               "not two texts");
  EXPECT_ERROR(Builder().Text("model", "gpt2").Texts("tokens", abc).Ints("merges", {1}), "merges");
  EXPECT_ERROR(Builder()
                   .Text("model", "gpt2")
                   .Texts("tokens", abc)
                   .Texts("merges", {"a b"})
                   .Number("bos_token_id", 9),
               "id 9 in a vocabulary of 3");
}

TEST(GgufTokenizer, SmallVocabularies) {
  Memory memory;
  auto bytes = Open(Builder()
                        .Text("model", "gpt2")
                        .Text("pre", "gpt-2")
                        .Texts("tokens", {"a", "b", "ab", "\xc4\xa0", "<e>"})
                        .Texts("merges", {"a b"})
                        .Ints("token_type", {1, 1, 1, 1, 3})
                        .Number("eos_token_id", 4)
                        .Build(),
                    "bytes", &memory);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  std::pmr::vector<int32_t> ids;
  ASSERT_TRUE((*bytes)->Encode("ab ba<e>", {true, true}, &ids).ok());
  EXPECT_EQ(Join(ids), "2 3 1 0 4");
  EXPECT_EQ((*bytes)->eos_id(), 4);
  EXPECT_EQ((*bytes)->bos_id(), -1);
  EXPECT_FALSE((*bytes)->adds_bos());

  auto piece = Open(
      Builder()
          .Text("model", "llama")
          .Texts("tokens", {"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "a", "b", "\xe2\x96\x81",
                            "\xe2\x96\x81"
                            "a",
                            "ab"})
          .Floats("scores", {0, 0, 0, 0, 0, -5, -6, -7, -2, -1})
          .Ints("token_type", {2, 3, 3, 6, 6, 1, 1, 1, 1, 1})
          .Build(),
      "pieces", &memory);
  ASSERT_TRUE(piece.ok()) << piece.status().message();
  ids.clear();
  // "ab" has the best score, so that the mark stays alone; e with an acute accent falls back.
  ASSERT_TRUE((*piece)->Encode("ab a\xc3\xa9", {true, true}, &ids).ok());
  EXPECT_EQ(Join(ids), "1 7 9 8 3 4");
  std::string text;
  ASSERT_TRUE((*piece)->Decode(ids, true, &text).ok());
  EXPECT_EQ(text, "ab a\xc3\xa9");
  text.clear();
  for (size_t i = 1; i < ids.size(); ++i) (*piece)->AppendToken(ids[i], i == 1, true, &text);
  EXPECT_EQ(text, "ab a\xc3\xa9");
  EXPECT_TRUE((*piece)->adds_bos());
}

// A name in tokenizer.ggml.pre cuts texts as the published pattern of its family does under the
// `tokenizers` package: ids of a vocabulary whose merges cross every border
// (tests/golden/make_pre_tokenizers.py).
TEST(GgufTokenizer, NamesStandForPatterns) {
  std::string text;
  ASSERT_TRUE(ReadFile(Golden("pre_tokenizers.json"), &text));
  const json golden = json::parse(text);
  ASSERT_TRUE(ReadFile(Golden("texts.json"), &text));
  const json texts = json::parse(text);
  const auto tokens = golden.at("tokens").get<std::vector<std::string>>();
  const auto merges = golden.at("merges").get<std::vector<std::string>>();
  Memory memory;
  size_t names = 0, differing = 0;
  for (const auto& [name, value] : golden.at("checksums").items()) {
    auto tokenizer = Open(Builder()
                              .Text("model", "gpt2")
                              .Text("pre", name)
                              .Texts("tokens", tokens)
                              .Texts("merges", merges)
                              .Build(),
                          name, &memory);
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().message();
    auto checksums = value.get<std::string>();
    const bool same = golden.at("checksums").contains(checksums);
    if (same) checksums = golden.at("checksums").at(checksums).get<std::string>();
    differing += same ? 0 : 1;
    ASSERT_EQ(checksums.size(), (texts.size() + 2) / 3 * 8) << name;
    ++names;
    for (size_t i = 0; i < texts.size(); i += 3) {
      std::pmr::vector<int32_t> ids;
      const auto line = texts[i].get<std::string>();
      ASSERT_TRUE((*tokenizer)->Encode(line, {false, false}, &ids).ok());
      char checksum[9];
      std::snprintf(checksum, sizeof checksum, "%08x", Crc32(Join(ids)));
      EXPECT_EQ(checksums.substr(i / 3 * 8, 8), checksum)
          << name << " text " << i << " " << json(line).dump() << "\n"
          << Join(ids);
    }
  }
  EXPECT_GE(names, 25u);
  EXPECT_GE(differing, 10u);
}

// The models of two Python packages, unpacked by whoever wants these tests.
std::string Cache(const std::string& file) {
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/qinfer/" + file;
}
TEST(GgufModels, SmolLm) { CheckVectors(Cache("SmolLM2-135M-Instruct.Q4_1.gguf"), "smollm2-135m"); }
TEST(GgufModels, Gemma3) { CheckVectors(Cache("gemma-3-270m-q4_k_m.gguf"), "gemma3-270m"); }

}  // namespace
}  // namespace qinfer::tokenizer
