// Guessing in itself: what the index finds, what a guess is expected to be worth, and what steps
// are remembered to cost. That guesses change no token is tested in lookup_engine_test.cpp.
#include "engine/prompt_lookup.h"

#include <gtest/gtest.h>

#include <vector>

namespace qinfer::engine {
namespace {

using Tokens = std::vector<int32_t>;

Tokens Guess(const Tokens& tokens, uint32_t most) {
  Memory memory;
  auto lookup = PromptLookup::Create(tokens.size() + most, &memory);
  EXPECT_TRUE(lookup.ok()) << lookup.status().ToString();
  (*lookup)->Propose(tokens, most);
  const auto proposal = (*lookup)->proposal();
  return {proposal.begin(), proposal.end()};
}

TEST(NgramIndex, FindsWhatFollowedTheLongestRun) {
  // 7 8 came twice before; with 6 before it, once: the longer run wins over the later one.
  EXPECT_EQ(Guess({6, 7, 8, 1, 2, 3, 5, 7, 8, 9, 9, 4, 6, 7, 8}, 3), (Tokens{1, 2, 3}));
  // Of equally long runs the latest.
  EXPECT_EQ(Guess({7, 8, 1, 0, 7, 8, 2, 0, 5, 7, 8}, 2), (Tokens{2, 0}));
  EXPECT_EQ(Guess({1, 2, 3, 4, 5, 6}, 4), Tokens());
  // One token alone is no run.
  EXPECT_EQ(Guess({1, 2, 3, 9, 2}, 4), Tokens());
  EXPECT_EQ(Guess({}, 4), Tokens());
  EXPECT_EQ(Guess({4}, 4), Tokens());
  EXPECT_EQ(Guess({1, 2, 3, 1, 2}, 0), Tokens());
}

TEST(NgramIndex, GoesOnRepeatingWhereTheSequenceEnds) {
  EXPECT_EQ(Guess({5, 5, 5}, 4), (Tokens{5, 5, 5, 5}));
  EXPECT_EQ(Guess({1, 2, 3, 1, 2, 3, 1, 2}, 8), (Tokens{3, 1, 2, 3, 1, 2, 3, 1}));
  EXPECT_EQ(Guess(Tokens(100, 7), 50), Tokens(kMaxDraft, 7));
}

TEST(NgramIndex, ReportsHowMuchIsTheSame) {
  Memory memory;
  NgramIndex index = *NgramIndex::Create(200, &memory);
  Tokens tokens;
  for (int32_t i = 0; i < 60; ++i) tokens.push_back(1000 + i);
  tokens.push_back(1);
  for (int32_t i = 0; i < 60; ++i) {
    tokens.push_back(1000 + i);
    const NgramIndex::Match match = index.Find(tokens);
    if (i == 0) {
      EXPECT_EQ(match.end, 0u);
      continue;
    }
    EXPECT_EQ(match.end, static_cast<uint32_t>(i + 1));
    EXPECT_EQ(match.length, std::min<uint32_t>(i + 1, NgramIndex::kCompared));
  }
}

// Found token by token or all at once: the same, and never what is not there.
TEST(NgramIndex, GrowingIsTheSameAsStartingLate) {
  Memory memory;
  NgramIndex growing = *NgramIndex::Create(3000, &memory);
  Tokens tokens;
  uint32_t state = 5, found = 0;
  for (uint32_t size = 1; size <= 3000; ++size) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>((state >> 20) % 40));
    const NgramIndex::Match match = growing.Find(tokens);
    if (match.end != 0) {
      ++found;
      ASSERT_LT(match.end, size);
      ASSERT_GE(match.length, NgramIndex::kShortest);
      for (uint32_t i = 0; i < match.length; ++i) {
        ASSERT_EQ(tokens[match.end - 1 - i], tokens[size - 1 - i]);
      }
    }
    if (size % 250 != 0) continue;
    NgramIndex late = *NgramIndex::Create(3000, &memory);
    const NgramIndex::Match same = late.Find(tokens);
    EXPECT_EQ(same.end, match.end);
    EXPECT_EQ(same.length, match.length);
  }
  EXPECT_GT(found, 1000u);
}

TEST(NgramIndex, SizeIsBoundedAndCounted) {
  EXPECT_EQ(NgramIndex::Bytes(1u << 30), NgramIndex::Bytes(NgramIndex::kMaxSlots));
  EXPECT_LE(NgramIndex::Bytes(1u << 30), 1u << 20);
  Memory memory;
  {
    auto lookup = PromptLookup::Create(4096, &memory);
    ASSERT_TRUE(lookup.ok());
    EXPECT_GE(memory.used_bytes(), NgramIndex::Bytes(4096));
    const uint64_t used = memory.used_bytes();
    // Sequences that are longer than was said lose old runs, and take no more memory.
    Tokens tokens;
    for (int32_t i = 0; i < 100'000; ++i) tokens.push_back(i);
    tokens.push_back(99'990);
    tokens.push_back(99'991);
    EXPECT_EQ((*lookup)->Propose(tokens, 2), 2u);
    EXPECT_EQ((*lookup)->proposal()[0], 99'992);
    EXPECT_EQ(memory.used_bytes(), used);
  }
  EXPECT_EQ(memory.used_bytes(), 0u);
}

TEST(NgramIndex, NoMemoryIsAnError) {
  Memory limited({}, 1000);
  EXPECT_EQ(PromptLookup::Create(4096, &limited).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(limited.used_bytes(), 0u);
  AllocatorHooks hooks;
  hooks.alloc = [](void*, size_t, size_t) -> void* { return nullptr; };
  hooks.release = [](void*, void*, size_t, size_t) {};
  Memory none(hooks);
  EXPECT_EQ(PromptLookup::Create(4096, &none).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(StepCosts, FillsTheGapsBetweenFigures) {
  StepCosts costs;
  EXPECT_GT(costs.Estimate(2), costs.Estimate(1));
  costs.Record(4, 4000);
  EXPECT_DOUBLE_EQ(costs.Estimate(4), 4000);
  EXPECT_LT(costs.Estimate(1), 4000);
  EXPECT_GT(costs.Estimate(8), 4000);
  costs.Record(8, 7000);
  EXPECT_DOUBLE_EQ(costs.Estimate(6), 5500);
  EXPECT_GT(costs.Estimate(1000), costs.Estimate(8));
  costs.Record(0, 5);
  costs.Record(1000, 5);
  EXPECT_DOUBLE_EQ(costs.Estimate(6), 5500);
}

TEST(StepCosts, FollowsChangesShrugsAtOutliersAndForgets) {
  StepCosts costs;
  for (int i = 0; i < 20; ++i) costs.Record(1, 1000);
  costs.Record(1, 1'000'000'000);
  EXPECT_LT(costs.Estimate(1), 1200);
  for (int i = 0; i < 100; ++i) costs.Record(1, 3000);
  EXPECT_NEAR(costs.Estimate(1), 3000, 100);
  for (int i = 0; i < 30; ++i) costs.Record(1, 500);
  EXPECT_NEAR(costs.Estimate(1), 500, 50);
  costs.Record(8, 900'000);  // the first of its kind, and others are known
  EXPECT_LT(costs.Estimate(8), 2000);
  for (int i = 0; i < 60; ++i) {
    costs.Record(8, 9000);
    costs.Record(1, 500);
  }
  EXPECT_GT(costs.Estimate(8), 8000);
  for (int i = 0; i < 200; ++i) costs.Record(1, 500);
  EXPECT_LT(costs.Estimate(8), 2000);  // long ago: what is measured now counts
}

template <typename F>
StepCosts Measured(F&& ns) {
  StepCosts costs;
  for (int i = 0; i < 100; ++i) {
    for (uint32_t rows = 1; rows <= 16; ++rows) costs.Record(rows, ns(rows));
  }
  return costs;
}

TEST(DraftLength, IsWhatMakesMostTokensASecond) {
  const StepCosts cheap = Measured([](uint32_t) { return 1000; });  // all for the price of one
  EXPECT_EQ(BestDraftLength(cheap, 1, 1.0, 0.9, 15), 15u);
  EXPECT_EQ(BestDraftLength(cheap, 1, 1.0, 0.9, 3), 3u);
  const StepCosts dear = Measured([](uint32_t rows) { return 1000 * rows; });
  EXPECT_EQ(BestDraftLength(dear, 1, 1.0, 0.9, 15), 0u);
  const StepCosts usual = Measured([](uint32_t rows) { return 1000 + 200 * (rows - 1); });
  const uint32_t sure = BestDraftLength(usual, 1, 1.0, 0.97, 15);
  const uint32_t likely = BestDraftLength(usual, 1, 1.0, 0.6, 15);
  EXPECT_GT(sure, likely);
  EXPECT_GT(likely, 0u);
  EXPECT_EQ(BestDraftLength(usual, 1, 1.0, 0.1, 15), 0u);
  // With others in the step a token more is worth less of it, but costs no more.
  EXPECT_GT(BestDraftLength(usual, 8, 8.0, 0.97, 7), 0u);
  // Without any figures: modestly.
  const uint32_t first = BestDraftLength(StepCosts(), 1, 1.0, 0.7, 15);
  EXPECT_GE(first, 2u);
  EXPECT_LE(first, 6u);
}

TEST(AcceptanceRate, LearnsByLengthOfMatch) {
  AcceptanceRate rate;
  EXPECT_GT(rate.Probability(20), rate.Probability(2));
  for (int i = 0; i < 30; ++i) rate.Record(2, 0, true);
  EXPECT_LT(rate.Probability(2), 0.05);
  EXPECT_GT(rate.Probability(20), 0.8);
  for (int i = 0; i < 30; ++i) rate.Record(2, 5, false);
  EXPECT_GT(rate.Probability(2), 0.95);
  EXPECT_LT(rate.Probability(2), 1.0);
}

TEST(PromptLookup, CountsAndLearnsFromUnusedGuesses) {
  Memory memory;
  auto lookup = std::move(*PromptLookup::Create(100, &memory));
  Tokens tokens = {1, 2, 3, 4, 1, 2};
  ASSERT_EQ(lookup->Propose(tokens, 4), 4u);
  const auto step = lookup->Use(2);
  EXPECT_EQ(Tokens(step.begin(), step.end()), (Tokens{2, 3, 4}));
  lookup->Observe(Tokens{3, 9});  // the first guess was right, then 9 was sampled
  EXPECT_EQ(lookup->counts().drafted, 2u);
  EXPECT_EQ(lookup->counts().accepted, 1u);
  EXPECT_EQ(lookup->counts().steps, 1u);
  const double before = lookup->probability();
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(lookup->Propose(tokens, 4), 4u);
    lookup->Observe(Tokens{9});  // not used
  }
  EXPECT_LT(lookup->probability(), before / 2);
  EXPECT_EQ(lookup->counts().drafted, 2u);
  EXPECT_EQ(lookup->counts().steps, 11u);
  lookup->TurnOff();
  EXPECT_EQ(lookup->Propose(tokens, 4), 0u);
  EXPECT_TRUE(lookup->proposal().empty());
}

}  // namespace
}  // namespace qinfer::engine
