// Ids and texts equal to those of the `tokenizers` package, over many configurations of small
// vocabularies and, where they are there, over large ones (tests/golden/tokenizer_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "test_util.h"

namespace qinfer::tokenizer {
namespace {

using nlohmann::json;

class GoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto [name, value] :
         {std::pair{"bases.json", &bases_}, std::pair{"variants.json", &variants_},
          std::pair{"texts.json", &texts_}, std::pair{"hashes.json", &hashes_}}) {
      std::string text;
      ASSERT_TRUE(ReadFile(Golden(name), &text)) << name;
      *value = json::parse(text);
    }
  }

  void Compare(const std::string& name, const Tokenizer& tokenizer) {
    const auto hashes = hashes_.at(name).get<std::string>();
    ASSERT_GE(hashes.size(), 8u * 100);
    int failures = 0;
    for (size_t i = 0; i * 8 < hashes.size(); ++i) {
      const auto text = texts_.at(i).get<std::string>();
      const std::string record = Record(tokenizer, text);
      char hash[9];
      std::snprintf(hash, sizeof hash, "%08x", Crc32(record));
      if (hashes.compare(i * 8, 8, hash) == 0) continue;
      if (++failures > 3) continue;
      ADD_FAILURE() << name << " " << i << " " << json(text).dump() << "\n" << record;
    }
    EXPECT_EQ(failures, 0) << name;
  }

  json bases_, variants_, texts_, hashes_;
  Memory memory_;
};

TEST_F(GoldenTest, Variants) {
  for (const auto& [name, variant] : variants_.items()) {
    json document = variant.at("patch");
    json model = bases_.at(variant.at("base").get<std::string>());
    model.update(document.at("model"));
    document["model"] = model;
    const std::string text = document.dump();
    auto tokenizer = Tokenizer::FromJson(text, "", name, &memory_);
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().message();
    Compare(name, **tokenizer);
    // Bytes follow from the input alone, and opening them again gives the same tokenizer.
    auto second = Tokenizer::FromJson(text, "", name, &memory_);
    ASSERT_TRUE(second.ok());
    const absl::Span<const uint8_t> blob = (*tokenizer)->compiled();
    EXPECT_TRUE(blob == (*second)->compiled()) << name;
    auto aligned = Buffer::Create(&memory_, blob.size(), "a copy");
    ASSERT_TRUE(aligned.ok());
    std::copy(blob.begin(), blob.end(), aligned->as<uint8_t>());
    auto mapped =
        Tokenizer::FromCompiled({aligned->as<uint8_t>(), aligned->size()}, name, &memory_);
    ASSERT_TRUE(mapped.ok()) << name << ": " << mapped.status().message();
    const auto sample = texts_.at(17).get<std::string>();
    EXPECT_EQ(Record(**mapped, sample), Record(**tokenizer, sample)) << name;
  }
}

// OLMo 2's and Mistral Nemo's, cut to what the texts use (tests/golden/make_published.py).
TEST_F(GoldenTest, PublishedVocabularies) {
  for (const std::string name : {"olmo-2", "tekken"}) {
    std::string text;
    ASSERT_TRUE(ReadFile(Golden("published-" + name + ".json"), &text)) << name;
    const json document = json::parse(text);
    auto tokenizer =
        Tokenizer::FromJson(document.at("tokenizer").dump(), "", "published-" + name, &memory_);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    ASSERT_GE(document.at("vectors").size(), 100u);
    for (const json& vector : document.at("vectors")) {
      const auto input =
          (vector.at(0).is_number() ? texts_.at(vector.at(0).get<size_t>()) : vector.at(0))
              .get<std::string>();
      std::pmr::vector<int32_t> ids;
      ASSERT_TRUE((*tokenizer)->Encode(input, {false, true}, &ids).ok());
      EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.end()),
                vector.at(1).get<std::vector<int32_t>>())
          << name << " " << vector.at(0);
    }
  }
}

TEST_F(GoldenTest, LargeVocabularies) {
  int found = 0;
  for (const auto& [name, hashes] : hashes_.items()) {
    if (variants_.contains(name)) continue;
    std::string text;
    if (!ReadFile(Shared(name), &text)) continue;
    ++found;
    auto tokenizer = Tokenizer::FromJson(text, "", name, &memory_);
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().message();
    Compare(name, **tokenizer);
  }
  if (found == 0) GTEST_SKIP() << "no large vocabulary in " << QINFER_SHARED_DIR;
}

TEST_F(GoldenTest, DeepSeekVectors) {
  std::string text;
  std::string lines;
  if (!ReadFile(Shared("data/tokenizer/deepseek-v3.tokenizer.json"), &text) ||
      !ReadFile(Shared("data/tokenizer/deepseek-v3.jsonl"), &lines))
    GTEST_SKIP() << "deepseek-v3 is not in " << QINFER_SHARED_DIR;
  auto tokenizer = Tokenizer::FromJson(text, "", "deepseek-v3", &memory_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::istringstream stream(lines);
  int count = 0;
  for (std::string line; std::getline(stream, line); ++count) {
    const json vector = json::parse(line);
    std::pmr::vector<int32_t> ids;
    ASSERT_TRUE((*tokenizer)
                    ->Encode(vector.at("text").get<std::string>(),
                             {false, vector.at("special").get<bool>()}, &ids)
                    .ok());
    EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.end()),
              vector.at("ids").get<std::vector<int32_t>>())
        << line;
  }
  EXPECT_GT(count, 100);
}

}  // namespace
}  // namespace qinfer::tokenizer
