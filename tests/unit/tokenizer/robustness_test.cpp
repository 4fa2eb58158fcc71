// Broken files, hostile compiled bytes and hostile texts: errors that name the place, never a crash
// or a hang.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "test_util.h"
#include "tokenizer/blob.h"

namespace qinfer::tokenizer {
namespace {

using nlohmann::json;

json Variant(const std::string& name) {
  std::string bases;
  std::string variants;
  EXPECT_TRUE(ReadFile(Golden("bases.json"), &bases));
  EXPECT_TRUE(ReadFile(Golden("variants.json"), &variants));
  const json variant = json::parse(variants).at(name);
  json document = variant.at("patch");
  json model = json::parse(bases).at(variant.at("base").get<std::string>());
  model.update(document.at("model"));
  document["model"] = model;
  return document;
}

std::string ErrorOf(const std::string& text, const std::string& config = "") {
  Memory memory;
  auto tokenizer = Tokenizer::FromJson(text, config, "t.json", &memory);
  return tokenizer.ok() ? "" : std::string(tokenizer.status().message());
}

#define EXPECT_ERROR(text, part) \
  EXPECT_NE(ErrorOf(text).find(part), std::string::npos) << ErrorOf(text)

TEST(TokenizerJson, Errors) {
  EXPECT_ERROR("", "not valid JSON");
  EXPECT_ERROR("[]", "it has no object \"model\"");
  EXPECT_ERROR("{\"model\": 3}", "it has no object \"model\"");
  EXPECT_ERROR("{\"a\": ", "before byte 6: not valid JSON: the document ends too early");
  EXPECT_ERROR(std::string(100, '['), "nested deeper than 64");
  EXPECT_ERROR("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0.5]]}}",
               "\"Unigram\" is not supported; known is BPE");
  EXPECT_ERROR("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "WordPiece");
  EXPECT_ERROR("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "merges are missing");
  EXPECT_ERROR("{\"model\":{\"vocab\":{\"a\":0}}}", "merges are missing");
  EXPECT_ERROR("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "vocabulary is empty");
  EXPECT_ERROR("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}",
               "an id that is no");
  EXPECT_ERROR("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9999999},\"merges\":[]}}",
               "has the id 9999999");
  EXPECT_ERROR("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}",
               "two tokens have the id 1");
  EXPECT_ERROR("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}",
               "have the same text \"a\"");
  EXPECT_ERROR("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}",
               "merge 0 (\"a\", \"b\") names a token");
  EXPECT_ERROR("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", "merge 0");
  EXPECT_ERROR("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}",
               "not a pair");
  EXPECT_ERROR("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":{}},\"merges\":[]}}",
               "in the vocabulary");
  json document = Variant("llama2");
  document["normalizer"] = {{"type", "Nmt"}};
  EXPECT_ERROR(document.dump(), "normalizer \"Nmt\" is not supported; known are NFC");
  document = Variant("gpt2");
  document["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
  EXPECT_ERROR(document.dump(), "pre-tokenizer \"UnicodeScripts\"");
  document["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "["}}}, {"behavior", "Isolated"}};
  EXPECT_ERROR(document.dump(), "brackets without an end");
  EXPECT_NE(ErrorOf(Variant("gpt2").dump(), "{").find("tokenizer_config.json"), std::string::npos);
}

TEST(TokenizerJson, Configuration) {
  Memory memory;
  const std::string text = Variant("llama3").dump();
  auto tokenizer = Tokenizer::FromJson(
      text, R"({"bos_token": {"content": "<|end|>"}, "eos_token": "<|r|>", "add_bos_token": true})",
      "t", &memory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->bos_id(), (*tokenizer)->TokenId("<|end|>"));
  EXPECT_GE((*tokenizer)->bos_id(), 0);
  EXPECT_EQ((*tokenizer)->eos_id(), (*tokenizer)->TokenId("<|r|>"));
  EXPECT_TRUE((*tokenizer)->adds_bos());
  EXPECT_TRUE((*tokenizer)->IsSpecial((*tokenizer)->bos_id()));
  EXPECT_EQ((*tokenizer)->TokenText((*tokenizer)->bos_id()), "<|end|>");
  EXPECT_EQ((*tokenizer)->TokenId("no such token"), -1);
  EXPECT_EQ((*tokenizer)->TokenText(1 << 30), "");
  std::pmr::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode("", {true, true}, &ids).ok());
  EXPECT_EQ(ids.front(), (*tokenizer)->bos_id());
  EXPECT_FALSE((*tokenizer)->Encode("a\xff", {true, true}, &ids).ok());
}

class Compiled : public ::testing::Test {
 protected:
  void Make(const std::string& name) {
    auto tokenizer = Tokenizer::FromJson(Variant(name).dump(), "", name, &memory_);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const absl::Span<const uint8_t> bytes = (*tokenizer)->compiled();
    auto buffer = Buffer::Create(&memory_, bytes.size(), "blob");
    ASSERT_TRUE(buffer.ok());
    blob_ = std::move(*buffer);
    std::memcpy(blob_.data(), bytes.data(), bytes.size());
  }
  // Opens the bytes and, where that succeeds, uses everything.
  bool Use(size_t size) {
    auto tokenizer = Tokenizer::FromCompiled({blob_.as<uint8_t>(), size}, "blob", &memory_);
    if (!tokenizer.ok()) {
      EXPECT_FALSE(tokenizer.status().message().empty());
      return false;
    }
    Record(**tokenizer, "Hello <|end|> wor\xc3\xa9ld  123 <s>\n\xe4\xbd\xa0 THE word");
    std::string text;
    for (int32_t id = -1; id < 800; id += 7) (*tokenizer)->AppendToken(id, id == -1, false, &text);
    return true;
  }
  Memory memory_;
  Buffer blob_;
};

TEST_F(Compiled, CutShort) {
  Make("phi3");
  EXPECT_TRUE(Use(blob_.size()));
  for (size_t size = 0; size < blob_.size(); size += size < sizeof(BlobHeader) ? 1 : 997)
    EXPECT_FALSE(Use(size)) << size;
}

TEST_F(Compiled, FlippedBits) {
  for (const char* name : {"phi3", "llama3", "nfkc_lower", "metaspace_first", "regex_mix"}) {
    Make(name);
    std::mt19937 random(3);
    auto* bytes = blob_.as<uint8_t>();
    for (int i = 0; i < 700; ++i) {
      // Headers and programs more often than tables.
      const size_t at = i % 2 == 0 ? random() % sizeof(BlobHeader) : random() % blob_.size();
      const uint8_t before = bytes[at];
      bytes[at] = static_cast<uint8_t>(i % 3 == 0 ? random() : before ^ (1u << random() % 8));
      Use(blob_.size());
      bytes[at] = before;
    }
  }
}

TEST_F(Compiled, TextsGrowWithinBounds) {
  json document = Variant("gpt2");
  json steps = json::array();
  for (int i = 0; i < 40; ++i)
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  auto tokenizer = Tokenizer::FromJson(document.dump(), "", "t", &memory_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::pmr::vector<int32_t> ids;
  const Status status = (*tokenizer)->Encode("a", {true, true}, &ids);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find("64 times longer"), std::string::npos);
}

TEST_F(Compiled, LongWords) {
  for (const char* name : {"gpt2", "llama2", "llama3", "metaspace_first"}) {
    auto tokenizer = Tokenizer::FromJson(Variant(name).dump(), "", name, &memory_);
    ASSERT_TRUE(tokenizer.ok());
    for (const char* unit : {"a", "the", " ", "\n", "\xe4\xbd\xa0", "<", "<|", "1"}) {
      std::string text;
      while (text.size() < 1000000) text += unit;
      std::pmr::vector<int32_t> ids;
      const auto start = std::chrono::steady_clock::now();
      ASSERT_TRUE((*tokenizer)->Encode(text, {false, true}, &ids).ok()) << name << " " << unit;
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      EXPECT_FALSE(ids.empty());
      EXPECT_LT(taken.count(), 20.0) << name << " " << unit;  // quadratic would be hours
    }
  }
}

}  // namespace
}  // namespace qinfer::tokenizer
