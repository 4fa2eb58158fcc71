// Guessing in itself: what the index finds, what a guess is expected to be worth, and what steps
// are remembered to cost. That guesses change no token is tested in lookup_engine_test.cpp.
#include "engine/prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
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

NgramIndex::Guess Next(const Tokens& tokens) {
  Memory memory;
  NgramIndex index = *NgramIndex::Create(tokens.size(), &memory);
  index.Add(tokens);
  return index.Next(tokens, tokens);
}

TEST(NgramIndex, FindsWhatFollowedTheLongestRun) {
  // 7 8 came twice before; with 6 before it, once: the longer run wins over the later one.
  EXPECT_EQ(Guess({6, 7, 8, 1, 2, 3, 5, 7, 8, 9, 9, 4, 6, 7, 8}, 3), (Tokens{1, 2, 3}));
  // Of equally long runs the latest.
  EXPECT_EQ(Guess({7, 8, 1, 0, 7, 8, 2, 0, 5, 7, 8}, 2), (Tokens{2, 0}));
  // One token alone is a run as well.
  EXPECT_EQ(Guess({1, 2, 3, 9, 2}, 3), (Tokens{3, 9, 2}));
  EXPECT_EQ(Guess({1, 2, 3, 4, 5, 6}, 4), Tokens());
  EXPECT_EQ(Guess({}, 4), Tokens());
  EXPECT_EQ(Guess({4}, 4), Tokens());
  EXPECT_EQ(Guess({1, 2, 3, 1, 2}, 0), Tokens());
}

TEST(NgramIndex, PlacesThatAgreeOutvoteTheLatest) {
  // 1 was followed by 5, by 5, and lately by 6.
  NgramIndex::Guess guess = Next({9, 1, 5, 8, 1, 5, 7, 1, 6, 4, 1});
  EXPECT_EQ(guess.token, 5);
  EXPECT_EQ(guess.length, 1u);
  EXPECT_DOUBLE_EQ(guess.share, 2.0 / 3.0);
  // One place where two tokens are the same against two where one is.
  guess = Next({9, 1, 5, 8, 1, 5, 7, 1, 6, 7, 1});
  EXPECT_EQ(guess.token, 6);
  EXPECT_EQ(guess.length, 2u);
  EXPECT_DOUBLE_EQ(guess.share, 3.0 / 5.0);
  // Nothing else ever followed.
  guess = Next({9, 1, 5, 8, 1, 5, 7, 1});
  EXPECT_EQ(guess.token, 5);
  EXPECT_DOUBLE_EQ(guess.share, 1.0);
  EXPECT_EQ(Next({9, 1, 5, 7}).length, 0u);
}

TEST(NgramIndex, EveryGuessIsVotedOnAnew) {
  // 1 2 is followed by 3, for which the first place says 4; but 2 3 went on with 7 twice.
  const Tokens tokens = {1, 2, 3, 4, 0, 8, 2, 3, 7, 9, 8, 2, 3, 7, 6, 1, 2};
  EXPECT_EQ(Guess(tokens, 1), (Tokens{3}));
  EXPECT_EQ(Guess(tokens, 2), (Tokens{3, 4}));  // 1 2 3: three tokens, nine votes to six
  const Tokens other = {2, 3, 4, 0, 8, 2, 3, 7, 9, 8, 2, 3, 7, 6, 1, 2};
  EXPECT_EQ(Guess(other, 2), (Tokens{3, 7}));  // 2 3: two to one
  // Where the place that was copied from ends in what was said since, the guesses go on elsewhere.
  EXPECT_EQ(Guess({5, 6, 7, 8, 9, 3, 5, 6, 4, 3, 5}, 5), (Tokens{6, 4, 3, 5, 6}));
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
  for (int32_t i = 0; i < 59; ++i) {
    tokens.push_back(1000 + i);
    index.Add(tokens);
    const NgramIndex::Guess guess = index.Next(tokens, tokens);
    EXPECT_EQ(guess.token, 1001 + i);
    EXPECT_EQ(guess.length, std::min<uint32_t>(i + 1, NgramIndex::kCompared));
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
    growing.Add(tokens);
    const NgramIndex::Guess guess = growing.Next(tokens, tokens);
    if (guess.length != 0) {
      ++found;
      Tokens run(tokens.end() - guess.length, tokens.end());
      run.push_back(guess.token);
      ASSERT_NE(std::search(tokens.begin(), tokens.end(), run.begin(), run.end()), tokens.end());
    }
    if (size % 250 != 0) continue;
    NgramIndex late = *NgramIndex::Create(3000, &memory);
    late.Add(tokens);
    const NgramIndex::Guess same = late.Next(tokens, tokens);
    EXPECT_EQ(same.token, guess.token);
    EXPECT_EQ(same.length, guess.length);
    EXPECT_EQ(same.share, guess.share);
  }
  EXPECT_GT(found, 2900u);
}

TEST(NgramIndex, SizeIsBoundedAndCounted) {
  EXPECT_EQ(NgramIndex::Bytes(1u << 30), NgramIndex::Bytes(NgramIndex::kMaxSlots));
  EXPECT_LE(NgramIndex::Bytes(1u << 30), 3u << 19);
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
  EXPECT_DOUBLE_EQ(costs.Estimate(1), 1.0);
  EXPECT_GT(costs.Estimate(2), costs.Estimate(1));
  costs.Record(4, 4000);
  EXPECT_DOUBLE_EQ(costs.Estimate(4), 4000);
  EXPECT_LT(costs.Estimate(1), 4000);
  EXPECT_GT(costs.Estimate(8), 4000);
  EXPECT_GT(costs.Estimate(1000), costs.Estimate(64));
  const double before = costs.Estimate(6);
  costs.Record(0, 5);
  costs.Record(1000, 5);
  EXPECT_DOUBLE_EQ(costs.Estimate(6), before);
}

TEST(StepCosts, FollowsChangesAndShrugsAtOutliers) {
  StepCosts costs;
  for (int i = 0; i < 20; ++i) costs.Record(1, 1000);
  costs.Record(1, 1'000'000'000);
  EXPECT_LT(costs.Estimate(1), 1060);
  for (int i = 0; i < 100; ++i) costs.Record(1, 3000);
  EXPECT_NEAR(costs.Estimate(1), 3000, 100);
  for (int i = 0; i < 60; ++i) costs.Record(1, 500);
  EXPECT_NEAR(costs.Estimate(1), 500, 50);
  for (int i = 0; i < 60; ++i) {
    costs.Record(8, 9000);
    costs.Record(1, 500);
  }
  EXPECT_NEAR(costs.Estimate(8), 9000, 300);
  for (int i = 0; i < 600; ++i) costs.Record(1, 500);
  EXPECT_LT(costs.Estimate(8), 3000);  // long ago: what is measured now counts
}

TEST(StepCosts, OneSlowStepIsNotTheLastOfItsSize) {
  StepCosts costs;
  for (int i = 0; i < 50; ++i) costs.Record(1, 1000);
  const std::vector<double> even(2, 0.5);
  ASSERT_EQ(BestDraftLength(costs, 1, 1.0, even), 2u);
  for (const uint32_t rows : {2u, 3u}) costs.Record(rows, 50'000);
  EXPECT_LT(costs.Estimate(3), 1700);
  EXPECT_GE(BestDraftLength(costs, 1, 1.0, even), 1u);
  // But if all of them are slow, it is.
  for (int i = 0; i < 8; ++i) {
    costs.Record(2, 2000);
    costs.Record(3, 3000);
  }
  EXPECT_EQ(BestDraftLength(costs, 1, 1.0, even), 0u);
}

template <typename F>
StepCosts Measured(F&& ns) {
  StepCosts costs;
  for (int i = 0; i < 100; ++i) {
    for (uint32_t rows = 1; rows <= 16; ++rows) costs.Record(rows, ns(rows));
  }
  return costs;
}

uint32_t Best(const StepCosts& costs, uint32_t rows, double expected, double probability,
              uint32_t most) {
  return BestDraftLength(costs, rows, expected, std::vector<double>(most, probability));
}

TEST(DraftLength, IsWhatMakesMostTokensASecond) {
  const StepCosts cheap = Measured([](uint32_t) { return 1000; });  // all for the price of one
  EXPECT_EQ(Best(cheap, 1, 1.0, 0.9, 15), 15u);
  EXPECT_EQ(Best(cheap, 1, 1.0, 0.9, 3), 3u);
  const StepCosts dear = Measured([](uint32_t rows) { return 1000 * rows; });
  EXPECT_EQ(Best(dear, 1, 1.0, 0.9, 15), 0u);
  const StepCosts usual = Measured([](uint32_t rows) { return 1000 + 200 * (rows - 1); });
  const uint32_t sure = Best(usual, 1, 1.0, 0.97, 15);
  const uint32_t likely = Best(usual, 1, 1.0, 0.6, 15);
  EXPECT_GT(sure, likely);
  EXPECT_GT(likely, 0u);
  EXPECT_EQ(Best(usual, 1, 1.0, 0.1, 15), 0u);
  // With others in the step a token more is worth less of it, but costs no more.
  EXPECT_GT(Best(usual, 8, 8.0, 0.97, 7), 0u);
  // Without any figures: modestly.
  const uint32_t first = Best(StepCosts(), 1, 1.0, 0.7, 15);
  EXPECT_GE(first, 2u);
  EXPECT_LE(first, 6u);
  // It ends before a guess that is hardly ever right.
  EXPECT_EQ(BestDraftLength(usual, 1, 1.0, std::vector<double>{0.9, 0.9, 0.01, 0.9}), 2u);
}

TEST(DraftLength, YieldsWhatIsRightThroughout) {
  EXPECT_DOUBLE_EQ(ExpectedAccepted({}), 0.0);
  EXPECT_DOUBLE_EQ(ExpectedAccepted(std::vector<double>{0.5, 0.5, 1.0}), 1.0);
}

constexpr NgramIndex::Guess Seen(uint32_t length, double share) { return {1, length, share}; }

TEST(AcceptanceRate, LearnsByLengthOfMatchAndAgreement) {
  AcceptanceRate rate;
  const auto probability = [&rate](uint32_t length, double share) {
    return rate.Probability(AcceptanceRate::ClassOf(Seen(length, share)));
  };
  for (uint32_t length = 1; length <= NgramIndex::kCompared; ++length) {
    EXPECT_GT(probability(length, 1.0), probability(length, 0.3)) << length;
    EXPECT_GE(probability(length + 1, 1.0), probability(length, 1.0)) << length;
  }
  EXPECT_LT(probability(1, 0.1), 0.2);
  EXPECT_GT(probability(32, 1.0), 0.95);
  const double split = probability(3, 0.4), one = probability(1, 1.0);
  for (int i = 0; i < 60; ++i) rate.Record(AcceptanceRate::ClassOf(Seen(3, 1.0)), false);
  EXPECT_LT(probability(3, 1.0), 0.1);
  EXPECT_EQ(probability(3, 0.4), split);
  EXPECT_EQ(probability(1, 1.0), one);
  for (int i = 0; i < 150; ++i) rate.Record(AcceptanceRate::ClassOf(Seen(3, 1.0)), true);
  EXPECT_GT(probability(3, 1.0), 0.95);
  EXPECT_LT(probability(3, 1.0), 1.0);
}

TEST(PromptLookup, CountsAndLearnsFromUnusedGuesses) {
  Memory memory;
  auto lookup = std::move(*PromptLookup::Create(100, &memory));
  Tokens tokens = {1, 2, 3, 4, 1, 2};
  ASSERT_EQ(lookup->Propose(tokens, 4), 4u);
  ASSERT_EQ(lookup->probabilities().size(), 4u);
  const auto step = lookup->Use(2);
  EXPECT_EQ(Tokens(step.begin(), step.end()), (Tokens{2, 3, 4}));
  lookup->Observe(Tokens{3, 9});  // the first guess was right, then 9 was sampled
  EXPECT_EQ(lookup->counts().drafted, 2u);
  EXPECT_EQ(lookup->counts().accepted, 1u);
  EXPECT_EQ(lookup->counts().steps, 1u);
  ASSERT_EQ(lookup->Propose(tokens, 4), 4u);
  const double before = lookup->probabilities()[0];
  lookup->Observe({});
  for (int i = 0; i < 80; ++i) {
    ASSERT_GE(lookup->Propose(tokens, 4), 1u);  // however bad they are
    lookup->Observe(Tokens{9});                 // not used
  }
  EXPECT_EQ(lookup->Propose(tokens, 4), 1u);  // what comes after it is never reached
  EXPECT_LT(lookup->probabilities()[0], before / 4);
  EXPECT_EQ(lookup->counts().drafted, 2u);
  EXPECT_EQ(lookup->counts().steps, 82u);
  lookup->Shorten(0);
  EXPECT_TRUE(lookup->probabilities().empty());
  lookup->TurnOff();
  EXPECT_EQ(lookup->Propose(tokens, 4), 0u);
  EXPECT_TRUE(lookup->proposal().empty());
}

}  // namespace
}  // namespace qinfer::engine
