// Making a tokenizer a piece at a time: the same as in one go, in pieces that do not grow with the
// vocabulary, and with nothing left wherever it is given up.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "format/gguf.h"
#include "io/source.h"
#include "test_util.h"
#include "tokenizer/pieces.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_work.h"

namespace qinfer::tokenizer {
namespace {

// A large SentencePiece vocabulary: "a" to "zzzz" with falling scores, and some added tokens.
std::string LargeGguf(size_t tokens) {
  std::string body;
  const auto put = [&](auto value) {
    body.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto text = [&](const std::string& value) {
    put(uint64_t{value.size()});
    body += value;
  };
  const auto array = [&](const char* key, uint32_t type) {
    text(key);
    put(uint32_t{9});
    put(type);
    put(uint64_t{tokens});
  };
  text("tokenizer.ggml.model");
  put(uint32_t{8});
  text("llama");
  array("tokenizer.ggml.tokens", 8);
  for (size_t i = 0; i < tokens; ++i) {
    std::string token;
    for (size_t n = i + 1; n > 0; n /= 27) token += static_cast<char>('`' + n % 27);
    text(i % 100 == 0 ? StrCat("<added_", i, ">") : token + (i % 7 == 0 ? "\xc3\xa9" : ""));
  }
  array("tokenizer.ggml.scores", 6);
  for (size_t i = 0; i < tokens; ++i) put(-static_cast<float>(i * 7919 % tokens));
  array("tokenizer.ggml.token_type", 5);
  for (size_t i = 0; i < tokens; ++i) put(int32_t{i % 100 == 0 ? 4 : 1});
  std::string file = "GGUF";
  for (const uint32_t number : {3u, 0u, 0u, 4u, 0u}) {
    file.append(reinterpret_cast<const char*>(&number), 4);
  }
  return file + body;
}

// The same as a tokenizer.json, with its merges spelled out.
std::string LargeJson(size_t tokens) {
  std::string vocab, merges, added;
  for (size_t i = 0; i < tokens; ++i) {
    vocab += StrCat(i == 0 ? "" : ",", "\n\"t", i, "\":", i);
    if (i % 50 == 0) {
      added += StrCat(i == 0 ? "" : ",", "{\"content\":\"<x", i,
                      ">\",\"normalized\":", i % 100 == 0 ? "true" : "false", "}");
    }
  }
  for (size_t i = 10; i < tokens; ++i) {
    merges += StrCat(i == 10 ? "" : ",", "\n[\"t", i / 10, "\",\"", i % 10, "\"]");
  }
  for (int digit = 0; digit < 10; ++digit) {
    vocab += StrCat(",\"", digit, "\":", tokens + static_cast<size_t>(digit));
  }
  return StrCat("{\"added_tokens\":[", added,
                "],\"normalizer\":{\"type\":\"Lowercase\"},\"model\":{\"type\":\"BPE\",\"vocab\":{",
                vocab, "},\"merges\":[", merges, "]}}");
}

double ProcessorMs() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

struct Taken {
  size_t steps = 0;
  double longest_ms = 0, sum_ms = 0;
  std::shared_ptr<const Tokenizer> tokenizer;
};

Taken Run(std::unique_ptr<TokenizerWork> work) {
  Taken taken;
  for (bool done = false; !done; ++taken.steps) {
    const double begin = ProcessorMs();
    const auto stepped = work->Step();
    const double ms = ProcessorMs() - begin;
    taken.longest_ms = std::max(taken.longest_ms, ms);
    taken.sum_ms += ms;
    EXPECT_TRUE(stepped.ok()) << stepped.status();
    if (!stepped.ok()) return taken;
    done = *stepped;
  }
  taken.tokenizer = work->Take();
  return taken;
}

// `make` begins the work; its steps grow with the vocabulary, and none is long.
template <typename Make>
void ExpectPieces(size_t tokens, const Make& make) {
  Memory memory;
  {
    Taken taken = Run(make(&memory));
    ASSERT_NE(taken.tokenizer, nullptr);
    EXPECT_GT(taken.steps, tokens / 400);
    // Memory that the system has to find first may hold up a piece once.
    for (int i = 0; i < 4 && taken.longest_ms > taken.sum_ms / 10; ++i) taken = Run(make(&memory));
    EXPECT_LE(taken.longest_ms, taken.sum_ms / 10) << taken.steps;
    // The compiled form opens piece by piece, too.
    const Taken again =
        Run(TokenizerWork::OfCompiled(taken.tokenizer->compiled(), "again", &memory));
    ASSERT_NE(again.tokenizer, nullptr);
    EXPECT_GT(again.steps, 12u);
    EXPECT_EQ(Record(*again.tokenizer, "t123 abc<added_300><x50>\xc3\xa9"),
              Record(*taken.tokenizer, "t123 abc<added_300><x50>\xc3\xa9"));
    for (size_t k = 0; k < taken.steps; k += 1 + taken.steps / 40) {
      Memory given_up;
      {
        auto work = make(&given_up);
        for (size_t i = 0; i < k; ++i) ASSERT_TRUE(work->Step().ok());
      }
      EXPECT_EQ(given_up.used_bytes(), 0u) << k;
    }
  }
  EXPECT_EQ(memory.used_bytes(), 0u);
}

TEST(TokenizerWork, GgufInPieces) {
  const std::string bytes = LargeGguf(60000);
  Memory headers;
  const auto gguf = format::Gguf::Open(
      {io::BorrowMemory({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "large")},
      &headers);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  ExpectPieces(60000, [&](Memory* memory) { return TokenizerWork::OfGguf(**gguf, memory); });
}

TEST(TokenizerWork, JsonInPieces) {
  const std::string text = LargeJson(60000);
  std::string config = "{\"bos_token\":\"t1\",\"added_tokens_decoder\":{";
  for (int i = 0; i < 5000; ++i) {
    config +=
        StrCat(i == 0 ? "" : ",", "\"", i, "\":{\"content\":\"<x", i, ">\",\"lstrip\":false}");
  }
  config += "}}";
  ExpectPieces(60000, [&](Memory* memory) {
    return TokenizerWork::OfJson({text, "large"}, {config, "config"}, memory);
  });
}

TEST(TokenizerConfig, SettingsThatCount) {
  const auto read = [](const std::string& text) {
    auto config = std::make_unique<TokenizerConfig>(text, "c");
    for (;;) {
      const auto done = config->Step();
      EXPECT_TRUE(done.ok()) << text << done.status();
      if (!done.ok() || *done) return config;
    }
  };
  EXPECT_EQ(read("{}")->bos_token(), "");
  const auto all =
      read(R"({"bos_token": {"content": "<b>", "x": {"content": "no"}}, "eos_token": "<e>",)"
           R"("add_bos_token": true, "add_eos_token": false, "other": {"bos_token": "no"},)"
           R"("chat_template": [{"name": "tool_use", "template": "T"}, {"template": "D",)"
           R"("name": "first"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(all->bos_token(), "<b>");
  EXPECT_EQ(all->eos_token(), "<e>");
  EXPECT_EQ(all->adds_bos(), true);
  EXPECT_EQ(all->adds_eos(), false);
  EXPECT_EQ(*all->ChatTemplate(), "D");
  EXPECT_EQ(all->tool_template(), "T");
  // Of two the second counts, whatever it is.
  const auto twice = read(R"({"bos_token": "a", "eos_token": "b", "add_bos_token": true,)"
                          R"("chat_template": [{"name": "tool_use", "template": "x"}],)"
                          R"("bos_token": 3, "eos_token": {"content": "c"}, "chat_template": null,)"
                          R"("add_bos_token": "yes"})");
  EXPECT_EQ(twice->bos_token(), "");
  EXPECT_EQ(twice->eos_token(), "c");
  EXPECT_EQ(*twice->ChatTemplate(), "");
  EXPECT_EQ(twice->tool_template(), "");
  EXPECT_FALSE(twice->adds_bos().has_value());
  EXPECT_FALSE(twice->adds_eos().has_value());
  EXPECT_EQ(*read(R"({"chat_template": "a\nb"})")->ChatTemplate(), "a\nb");
  for (const char* bad : {R"({"chat_template": 3})", R"({"chat_template": {"default": "x"}})",
                          R"({"chat_template": true})"}) {
    EXPECT_FALSE(read(bad)->ChatTemplate().ok()) << bad;
  }
  for (const char* none : {"[]", "3", "\"x\"", "null", "{", "{}{}"}) {
    TokenizerConfig config(none, "c");
    StatusOr<bool> done = false;
    while (done.ok() && !*done) done = config.Step();
    EXPECT_FALSE(done.ok()) << none;
  }
}

TEST(PieceSort, Sorts) {
  std::mt19937 random(5);
  for (const size_t count : {0u, 1u, 2u, 1023u, 1024u, 1025u, 3000u, 8192u, 50001u}) {
    Memory memory;
    std::pmr::vector<uint32_t> values(&memory);
    for (size_t i = 0; i < count; ++i) values.push_back(static_cast<uint32_t>(random() % 1000));
    std::vector<uint32_t> expected(values.begin(), values.end());
    std::sort(expected.begin(), expected.end());
    PieceSort sort(&values, &memory, std::less<uint32_t>());
    size_t steps = 1;
    while (!sort.Step()) ++steps;
    EXPECT_TRUE(std::equal(values.begin(), values.end(), expected.begin(), expected.end()));
    EXPECT_GE(steps, count / 1024);
  }
}

}  // namespace
}  // namespace qinfer::tokenizer
