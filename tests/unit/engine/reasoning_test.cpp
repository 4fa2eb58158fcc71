// ReasoningSplitter: every way of cutting a text into pieces gives the same two texts, in the same
// order, without the tags. And generations of the shipped model, split at words that it writes.
#include "engine/reasoning.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "engine/text_stream.h"
#include "tests/unit/engine/channel_pieces.h"
#include "tests/unit/engine/test_model.h"

namespace qinfer::engine {
namespace {

std::string Split(const std::vector<std::string>& parts, const ReasoningTags& tags, Channel start) {
  ReasoningSplitter splitter(tags, start);
  Pieces pieces;
  for (const std::string& part : parts) splitter.Push(part, &pieces);
  splitter.Flush(&pieces);
  return Shown(pieces);
}

// The whole way of a generation: bytes through TextStream, then the splitter; pieces of each push
// must be complete UTF-8.
std::string SplitBytes(const std::vector<std::string>& parts, const ReasoningTags& tags,
                       Channel start) {
  TextStream stream({});
  ReasoningSplitter splitter(tags, start);
  Pieces all;
  const auto check = [&all](const Pieces& pieces) {
    for (const auto& piece : pieces) {
      std::string valid;
      AppendValidUtf8(piece.text, &valid);
      EXPECT_EQ(valid, piece.text);
      all.push_back(piece);
    }
  };
  for (const std::string& part : parts) {
    std::string text;
    Pieces pieces;
    stream.Push(part, &text);
    splitter.Push(text, &pieces);
    check(pieces);
  }
  std::string text;
  Pieces pieces;
  stream.Flush(&text);
  splitter.Push(text, &pieces);
  splitter.Flush(&pieces);
  check(pieces);
  return Shown(all);
}

// All ways of cutting in up to three parts, and byte by byte; short texts at every set of places.
void ExpectForAllCuts(const std::string& text, const std::string& expected,
                      const ReasoningTags& tags = {}, Channel start = Channel::kText) {
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      const std::vector<std::string> parts = {text.substr(0, a), text.substr(a, b - a),
                                              text.substr(b)};
      EXPECT_EQ(Split(parts, tags, start), expected) << text << " cut at " << a << ", " << b;
      EXPECT_EQ(SplitBytes(parts, tags, start), expected) << text << " cut at " << a << ", " << b;
    }
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(Split(bytes, tags, start), expected) << text;
  EXPECT_EQ(SplitBytes(bytes, tags, start), expected) << text;
  if (text.empty() || text.size() > 14) return;
  for (uint32_t cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    std::vector<std::string> parts(1);
    for (size_t i = 0; i < text.size(); ++i) {
      parts.back() += text[i];
      if ((cuts >> i & 1) != 0) parts.emplace_back();
    }
    ASSERT_EQ(Split(parts, tags, start), expected) << text << " cut at bits " << cuts;
  }
}

TEST(ReasoningSplitter, TagsAreTakenOutAtEveryCut) {
  ExpectForAllCuts("<think>\nHm.\n</think>\n\nYes.", "{\nHm.\n}\n\nYes.");
  ExpectForAllCuts("no tags", "no tags");
  ExpectForAllCuts("", "");
  ExpectForAllCuts("So: <think>a</think>b<think>c</think>d", "So: {a}b{c}d");
  ExpectForAllCuts("<think></think>Yes.", "Yes.");
  ExpectForAllCuts("\xe2\x82\xac<think>\xf0\x9f\x98\x80</think>\xc3\xa9",
                   "\xe2\x82\xac{\xf0\x9f\x98\x80}\xc3\xa9");
}

TEST(ReasoningSplitter, WhatIsNoTagIsText) {
  ExpectForAllCuts("a < b, </ <thin", "a < b, </ <thin");
  ExpectForAllCuts("<<think>x<</think>>", "<{x<}>");
  ExpectForAllCuts("<th<think>x</th</think>y", "<th{x</th}y");
  ExpectForAllCuts("<think>never ended </thin", "{never ended </thin}");
}

TEST(ReasoningSplitter, GenerationMayStartInside) {
  ExpectForAllCuts("Hm.</think>Yes.", "{Hm.}Yes.", {}, Channel::kReasoning);
  ExpectForAllCuts("Hm.", "{Hm.}", {}, Channel::kReasoning);
  ExpectForAllCuts("</think>Yes.", "Yes.", {}, Channel::kReasoning);
}

TEST(ReasoningSplitter, TagsOutOfTurnDoNotShow) {
  ExpectForAllCuts("<think>Hm.</think>Yes.", "{Hm.}Yes.", {}, Channel::kReasoning);
  ExpectForAllCuts("<think>a<think>b</think>c</think>d", "{ab}cd");
}

TEST(ReasoningSplitter, TagsMayBeAnything) {
  ExpectForAllCuts("ab[T]c[/T]d", "ab{c}d", {"[T]", "[/T]"});
  ExpectForAllCuts("aabab1aab2x", "a{1a}x", {"abab", "ab2"});
  ExpectForAllCuts("x\xe2\x82\xacy\xe2\x82\xadz", "x{y}z", {"\xe2\x82\xac", "\xe2\x82\xad"});
  ExpectForAllCuts("x\xe2\x82\xae", "x\xe2\x82\xae", {"\xe2\x82\xac", "\xe2\x82\xad"});
  ExpectForAllCuts("0xx01y10z", "0xx{y}z", {"01", "10"});
  ExpectForAllCuts("ABABAABx", "ABA{x}", {"BAAB", "AAA"});
  ExpectForAllCuts("ABBABAx", "x", {"AB", "BA"});
  ExpectForAllCuts("BABAy", "{y}", {"BA", "AB"});
}

TEST(ReasoningSplitter, TextIsShownAsSoonAsItCanBe) {
  ReasoningSplitter splitter({}, Channel::kText);
  Pieces pieces;
  splitter.Push("abc<", &pieces);
  EXPECT_EQ(Shown(pieces), "abc");
  splitter.Push("think", &pieces);
  EXPECT_EQ(Shown(pieces), "abc");
  EXPECT_EQ(splitter.channel(), Channel::kText);
  splitter.Push(">", &pieces);
  EXPECT_EQ(splitter.channel(), Channel::kReasoning);
  splitter.Push("d", &pieces);
  EXPECT_EQ(Shown(pieces), "abc{d}");
}

TEST(ReasoningTags, BadOnesAreRefused) {
  EXPECT_TRUE(ValidateTags({}).ok());
  EXPECT_TRUE(ValidateTags({"<|START_THINKING|>", "<|END_THINKING|>"}).ok());
  EXPECT_FALSE(ValidateTags({"", "x"}).ok());
  EXPECT_FALSE(ValidateTags({"x", ""}).ok());
  EXPECT_FALSE(ValidateTags({"x", "x"}).ok());
  EXPECT_FALSE(ValidateTags({"<think>", "think"}).ok());
  EXPECT_FALSE(ValidateTags({"think>", "</think>"}).ok());
  EXPECT_FALSE(ValidateTags({"\xe2\x82", "x"}).ok());
}

TEST(ReasoningTags, PromptsThatOpenTheReasoning) {
  EXPECT_TRUE(OpensReasoning("<|Assistant|><think>\n", {}));
  EXPECT_TRUE(OpensReasoning("<think>", {}));
  EXPECT_FALSE(OpensReasoning("<think>\n\n</think>\n\n", {}));
  EXPECT_FALSE(OpensReasoning("What does <think> mean?", {}));
  EXPECT_FALSE(OpensReasoning("", {}));
  EXPECT_FALSE(OpensReasoning("think>", {}));
  EXPECT_TRUE(OpensReasoning("a [T]\n", {"[T]\n", "[/T]\n"}));
  EXPECT_FALSE(OpensReasoning("a", {" ", "b"}));
}

class ReasoningGeneration : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    test_ = qinfer::testing::LoadTestModel(qinfer::testing::TinyLlamaPath()).release();
  }
  static void TearDownTestSuite() {
    delete test_;
    test_ = nullptr;
  }
  void SetUp() override { ASSERT_NE(test_->model, nullptr) << test_->status.ToString(); }

  struct Outcome {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    std::string whole, text, reasoning;
    FinishReason finish = FinishReason::kNone;
    size_t events = 0;
    Channel last = Channel::kText;
  };

  static Outcome Generate(const std::string& prompt, GenerateOptions options) {
    Outcome outcome;
    auto engine = Engine::Create(test_->model, test_->context, {});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    auto session = (*engine)->NewSession();
    EXPECT_TRUE(session.ok());
    std::pmr::vector<int32_t> ids;
    EXPECT_TRUE(test_->model->tokenizer()->Encode(prompt, {}, &ids).ok());
    EXPECT_TRUE((*session)->Append(ids).ok());
    options.sampling.greedy = true;
    options.logprobs = 1;
    if (options.max_tokens == 0) options.max_tokens = 40;
    auto generation = (*session)->Generate(options);
    EXPECT_TRUE(generation.ok()) << generation.status().ToString();
    const auto done = (*generation)->Step(Deadline());
    EXPECT_TRUE(done.ok() && *done);
    Event event;
    while ((*generation)->NextEvent(&event)) {
      EXPECT_EQ(outcome.finish, FinishReason::kNone) << "an event after the last";
      EXPECT_EQ(event.token < 0, event.logprobs.empty());
      if (event.token >= 0) {
        outcome.tokens.push_back(event.token);
        outcome.logprobs.push_back(event.logprobs[0].logprob);
      }
      (event.channel == Channel::kText ? outcome.text : outcome.reasoning) += event.text;
      outcome.whole += event.text;
      outcome.finish = event.finish;
      outcome.last = event.channel;
      ++outcome.events;
    }
    EXPECT_EQ((*generation)->generated_tokens(), outcome.tokens.size());
    return outcome;
  }

  static qinfer::testing::TestModel* test_;
};
qinfer::testing::TestModel* ReasoningGeneration::test_ = nullptr;

GenerateOptions SplitAt(const std::string& begin, const std::string& end,
                        std::optional<Channel> start = std::nullopt) {
  GenerateOptions options;
  options.reasoning = ReasoningOptions{{begin, end}, start};
  return options;
}

constexpr char kPrompt[] = "And it came to pass";

TEST_F(ReasoningGeneration, ChangesNoTokenNoLogprobNoEnd) {
  const Outcome plain = Generate(kPrompt, {});
  ASSERT_GT(plain.whole.size(), 60u) << plain.whole;
  EXPECT_EQ(plain.events, plain.tokens.size());
  // Tags that begin and end within tokens, everywhere in what the model writes.
  size_t split = 0;
  for (size_t at = 0; at + 30 < plain.whole.size(); at += 3) {
    const ReasoningTags tags = {plain.whole.substr(at, 5), plain.whole.substr(at + 20, 7)};
    if (!ValidateTags(tags).ok()) continue;
    const Outcome outcome = Generate(kPrompt, SplitAt(tags.begin, tags.end));
    EXPECT_EQ(outcome.tokens, plain.tokens);
    EXPECT_EQ(outcome.logprobs, plain.logprobs);
    EXPECT_EQ(outcome.finish, plain.finish);
    // What the splitter makes of the whole.
    ReasoningSplitter splitter(tags, Channel::kText);
    Pieces pieces;
    splitter.Push(plain.whole, &pieces);
    splitter.Flush(&pieces);
    std::string text, reasoning;
    for (const auto& p : pieces) (p.channel == Channel::kText ? text : reasoning) += p.text;
    EXPECT_EQ(outcome.text, text);
    EXPECT_EQ(outcome.reasoning, reasoning);
    split += !reasoning.empty();
  }
  EXPECT_GT(split, 5u);
}

TEST_F(ReasoningGeneration, ATokenWithTextOfBothChannelsHasTwoEvents) {
  const Outcome plain = Generate(kPrompt, {});
  // Each place in the text as an end tag of one byte more or less, until one lies within a token.
  size_t most = 0;
  for (size_t at = 1; at < 40; ++at) {
    const std::string end = plain.whole.substr(at, 1);
    if (static_cast<unsigned char>(end[0]) >= 0x80) continue;
    const Outcome outcome = Generate(kPrompt, SplitAt("<none>", end, Channel::kReasoning));
    EXPECT_EQ(outcome.tokens, plain.tokens);
    EXPECT_EQ(outcome.reasoning, plain.whole.substr(0, plain.whole.find(end)));
    most = std::max(most, outcome.events);
  }
  EXPECT_EQ(most, plain.tokens.size() + 1);
}

TEST_F(ReasoningGeneration, PromptsMayOpenTheReasoning) {
  const std::string opened = std::string(kPrompt) + "<think>\n";
  const Outcome plain = Generate(opened, {});
  EXPECT_EQ(plain.last, Channel::kText);
  const Outcome found = Generate(opened, SplitAt("<think>", "</think>"));
  EXPECT_EQ(found.tokens, plain.tokens);
  EXPECT_EQ(found.reasoning, plain.whole);
  EXPECT_EQ(found.text, "");
  const Outcome told = Generate(opened, SplitAt("<think>", "</think>", Channel::kText));
  EXPECT_EQ(told.text, plain.whole);
  const Outcome closed = Generate(opened + "\n</think>\n\n", SplitAt("<think>", "</think>"));
  EXPECT_EQ(closed.reasoning, "");
  EXPECT_NE(closed.text, "");
  const Outcome inside = Generate(kPrompt, SplitAt("<think>", "</think>", Channel::kReasoning));
  EXPECT_EQ(inside.text, "");
  EXPECT_EQ(inside.last, Channel::kReasoning);
}

TEST_F(ReasoningGeneration, TagsMayBeSpecialTokens) {
  const auto* tokenizer = test_->model->tokenizer();
  // Two special tokens, the one made certain by a bias, and never shown without splitting.
  int32_t specials[2] = {-1, -1};
  int found = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(tokenizer->vocab_size()) && found < 2; ++id) {
    if (tokenizer->IsSpecial(id) && !tokenizer->TokenText(id).empty()) specials[found++] = id;
  }
  ASSERT_EQ(found, 2);
  const std::string first(tokenizer->TokenText(specials[0]));
  const std::string second(tokenizer->TokenText(specials[1]));
  GenerateOptions forced;
  forced.ignore_eos = true;
  forced.sampling.logit_bias = {{specials[0], 1000.0f}};
  forced.max_tokens = 4;
  EXPECT_EQ(Generate(kPrompt, forced).whole, "");
  GenerateOptions split = forced;
  split.reasoning = ReasoningOptions{{first, second}, {}};
  Outcome outcome = Generate(kPrompt, split);
  EXPECT_EQ(outcome.whole, "");
  EXPECT_EQ(outcome.last, Channel::kReasoning);
  EXPECT_EQ(outcome.tokens, std::vector<int32_t>(4, specials[0]));
  split.reasoning = ReasoningOptions{{second, first}, Channel::kReasoning};
  outcome = Generate(kPrompt, split);
  EXPECT_EQ(outcome.whole, "");
  EXPECT_EQ(outcome.last, Channel::kText);
  // A special token that is no tag is passed over as ever.
  split.reasoning = ReasoningOptions{{"<think>", "</think>"}, {}};
  EXPECT_EQ(Generate(kPrompt, split).whole, "");
  // As text of a tag it can be a stop string.
  split.reasoning = ReasoningOptions{{first, second}, {}};
  split.stop_strings = {first};
  outcome = Generate(kPrompt, split);
  EXPECT_EQ(outcome.finish, FinishReason::kStopString);
  EXPECT_EQ(outcome.tokens.size(), 1u);
}

TEST_F(ReasoningGeneration, StopStringsEndBothChannels) {
  const Outcome plain = Generate(kPrompt, {});
  const std::string begin = plain.whole.substr(4, 6), stop = plain.whole.substr(24, 9);
  GenerateOptions options = SplitAt(begin, "</think>");
  options.stop_strings = {stop};
  GenerateOptions unsplit;
  unsplit.stop_strings = {stop};
  const Outcome expected = Generate(kPrompt, unsplit);
  ASSERT_EQ(expected.finish, FinishReason::kStopString);
  const Outcome outcome = Generate(kPrompt, options);
  EXPECT_EQ(outcome.finish, FinishReason::kStopString);
  EXPECT_EQ(outcome.tokens, expected.tokens);
  const size_t at = expected.whole.find(begin);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(outcome.text, expected.whole.substr(0, at));
  EXPECT_NE(outcome.reasoning, "");
  // A tag that is a stop string ends the reasoning and the generation.
  options = SplitAt(begin, stop);
  options.stop_strings = {stop};
  const Outcome ended = Generate(kPrompt, options);
  EXPECT_EQ(ended.finish, FinishReason::kStopString);
  EXPECT_EQ(ended.last, Channel::kReasoning);
}

}  // namespace
}  // namespace qinfer::engine
