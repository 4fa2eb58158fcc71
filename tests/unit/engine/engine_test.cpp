// Sessions and generations on the shipped model: the same tokens however the work is cut, shared
// and interrupted; ends; errors that stay where they belong.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "tests/unit/engine/session_testing.h"
#include "tests/unit/engine/test_model.h"

namespace qinfer::engine {
namespace {

using qinfer::testing::LoadTestModel;
using qinfer::testing::TestModel;

TestModel* Tiny(uint32_t threads = 2) {
  // One model per thread count for all tests; released with the program.
  static std::unique_ptr<TestModel> models[8];
  auto& model = models[threads];
  if (model == nullptr) model = LoadTestModel(qinfer::testing::TinyLlamaPath(), threads);
  return model.get();
}

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Tiny()->model == nullptr) GTEST_FAIL() << Tiny()->status.ToString();
  }
};

std::shared_ptr<Engine> MakeEngine(const EngineOptions& options = {}, uint32_t threads = 2) {
  TestModel* test = Tiny(threads);
  auto engine = Engine::Create(test->model, test->context, options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return engine.ok() ? *engine : nullptr;
}

// A prompt that the model did not see in training, of any length.
Tokens Prompt(uint32_t length, uint32_t seed = 1) {
  Tokens tokens(length);
  uint32_t state = seed;
  for (int32_t& token : tokens) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<int32_t>(300 + (state >> 8) % 1700);
  }
  return tokens;
}

GenerateOptions Sampled(uint32_t tokens, uint64_t seed) {
  GenerateOptions options = Greedy(tokens);
  options.sampling.greedy = false;
  options.sampling.seed = seed;
  options.sampling.top_p = 0.95f;
  options.sampling.repetition_penalty = 1.1f;
  return options;
}

struct Outcome {
  Tokens tokens;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::vector<std::vector<TokenLogprob>> logprobs;
};

void TakeEvents(Generation* generation, Outcome* outcome) {
  Event event;
  while (generation->NextEvent(&event)) {
    EXPECT_EQ(outcome->finish, FinishReason::kNone) << "an event after the last";
    if (event.token >= 0) outcome->tokens.push_back(event.token);
    outcome->text += event.text;
    outcome->finish = event.finish;
    outcome->logprobs.push_back(event.logprobs);
  }
}

Outcome RunToEnd(Generation* generation, uint64_t budget_ns = Deadline::kNever) {
  Outcome outcome;
  for (;;) {
    Deadline deadline;
    if (budget_ns != Deadline::kNever) deadline.until_ns = budget_ns == 0 ? 0 : NowNs() + budget_ns;
    const auto done = generation->Step(deadline);
    EXPECT_TRUE(done.ok()) << done.status().ToString();
    TakeEvents(generation, &outcome);
    if (!done.ok() || *done) return outcome;
  }
}

Outcome Generate(const std::shared_ptr<Session>& session, const GenerateOptions& options,
                 uint64_t budget_ns = Deadline::kNever) {
  auto generation = session->Generate(options);
  EXPECT_TRUE(generation.ok()) << generation.status().ToString();
  return generation.ok() ? RunToEnd(generation->get(), budget_ns) : Outcome();
}

std::vector<float> LogitsAfter(const std::shared_ptr<Session>& session) {
  auto prefill = session->Prefill();
  EXPECT_TRUE(prefill.ok()) << prefill.status().ToString();
  const auto done = (*prefill)->Step(Deadline());
  EXPECT_TRUE(done.ok() && *done) << done.status().ToString();
  const auto logits = session->LastLogits();
  EXPECT_TRUE(logits.ok()) << logits.status().ToString();
  return {logits->begin(), logits->end()};
}

TEST_F(EngineTest, TokensDoNotDependOnThreadsBatchesOrBudgets) {
  const Tokens prompt = Prompt(45);
  for (const bool sampled : {false, true}) {
    const GenerateOptions options = sampled ? Sampled(24, 7) : Greedy(24);
    const Outcome expected = Generate(MakeSession(MakeEngine(), prompt), options);
    ASSERT_EQ(expected.tokens.size(), 24u);
    EXPECT_EQ(expected.finish, FinishReason::kMaxTokens);
    for (const uint32_t threads : {1u, 3u}) {
      const auto engine = MakeEngine({}, threads);
      EXPECT_EQ(Generate(MakeSession(engine, prompt), options).tokens, expected.tokens) << threads;
    }
    for (const uint32_t batch : {1u, 7u, 16u, 33u}) {
      EngineOptions cut;
      cut.batch_tokens = batch;
      EXPECT_EQ(Generate(MakeSession(MakeEngine(cut), prompt), options).tokens, expected.tokens)
          << batch;
    }
    EXPECT_EQ(Generate(MakeSession(MakeEngine(), prompt), options, 0).tokens, expected.tokens);
    EXPECT_EQ(Generate(MakeSession(MakeEngine(), prompt), options, 100'000).tokens,
              expected.tokens);
  }
}

TEST_F(EngineTest, SessionsThatShareStepsDoNotDisturbEachOther) {
  std::vector<Outcome> alone;
  for (uint32_t i = 0; i < 5; ++i) {
    alone.push_back(
        Generate(MakeSession(MakeEngine(), Prompt(10 + 40 * i, i)), Sampled(12 + 3 * i, i)));
  }
  EngineOptions options;
  options.batch_tokens = 32;
  const auto engine = MakeEngine(options);
  std::vector<std::unique_ptr<Generation>> generations;
  for (uint32_t i = 0; i < 5; ++i) {
    generations.push_back(
        std::move(*MakeSession(engine, Prompt(10 + 40 * i, i))->Generate(Sampled(12 + 3 * i, i))));
  }
  // Stepping the longest advances all of them.
  const Outcome last = RunToEnd(generations[4].get());
  EXPECT_EQ(last.tokens, alone[4].tokens);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_GT(generations[i]->generated_tokens(), 0u) << i;
    EXPECT_EQ(RunToEnd(generations[i].get()).tokens, alone[i].tokens) << i;
  }
}

TEST_F(EngineTest, ThreadsMayStepDifferentGenerations) {
  std::vector<Outcome> alone, together(4);
  for (uint32_t i = 0; i < 4; ++i) {
    alone.push_back(Generate(MakeSession(MakeEngine(), Prompt(30, i)), Sampled(20, i)));
  }
  const auto engine = MakeEngine();
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto session = MakeSession(engine, Prompt(30, i));
      together[i] = Generate(session, Sampled(20, i), i % 2 == 0 ? Deadline::kNever : 200'000);
      EXPECT_EQ(session->length(), 50u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
}

TEST_F(EngineTest, CancelKeepsWhatIsCommittedAndGenerationGoesOnTheSame) {
  const Tokens prompt = Prompt(60);
  const Outcome expected = Generate(MakeSession(MakeEngine(), prompt), Sampled(20, 3));
  for (const uint32_t steps : {0u, 1u, 5u, 40u, 200u}) {
    const auto session = MakeSession(MakeEngine(), prompt);
    std::atomic<bool> cancel{false};
    auto generation = *session->Generate(Sampled(20, 3));
    bool done = false;
    for (uint32_t i = 0; i < steps && !done; ++i) done = *generation->Step({0, &cancel});
    if (done) break;
    cancel = true;
    EXPECT_EQ(generation->Step({0, &cancel}).status().code(), absl::StatusCode::kCancelled);
    Outcome first;
    TakeEvents(generation.get(), &first);
    EXPECT_EQ(session->length(), 60 + first.tokens.size());
    // Penalties saw 60 tokens as prompt; what was generated now counts as prompt for repetition,
    // which is the same, so the rest must be the same.
    const uint32_t left = 20 - static_cast<uint32_t>(first.tokens.size());
    const Outcome rest = Generate(session, Sampled(left, 3));
    Tokens all = first.tokens;
    all.insert(all.end(), rest.tokens.begin(), rest.tokens.end());
    EXPECT_EQ(all, expected.tokens) << steps;
  }
}

TEST_F(EngineTest, DestroyedInFlightLeavesTheOthers) {
  const Outcome expected = Generate(MakeSession(MakeEngine(), Prompt(50)), Greedy(10));
  const auto engine = MakeEngine();
  const auto doomed = MakeSession(engine, Prompt(200, 9));
  auto first = *doomed->Generate(Greedy(5));
  auto second = *MakeSession(engine, Prompt(50))->Generate(Greedy(10));
  ASSERT_TRUE(first->Step({0, nullptr}).ok());  // both are in the suspended batch
  first.reset();
  EXPECT_EQ(doomed->length(), 200u);
  EXPECT_EQ(RunToEnd(second.get()).tokens, expected.tokens);
  EXPECT_EQ(Generate(doomed, Greedy(5)).tokens,
            Generate(MakeSession(MakeEngine(), Prompt(200, 9)), Greedy(5)).tokens);
}

TEST_F(EngineTest, AFailureStaysWithItsGeneration) {
  const Outcome expected = Generate(MakeSession(MakeEngine(), Prompt(20)), Greedy(10));
  const auto engine = MakeEngine();
  GenerateOptions impossible = Greedy(5);
  for (int32_t token = 0; token < 2048; ++token) {
    impossible.sampling.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
  }
  const auto bad_session = MakeSession(engine, Prompt(20, 2));
  auto bad = *bad_session->Generate(impossible);
  auto good = *MakeSession(engine, Prompt(20))->Generate(Greedy(10));
  EXPECT_EQ(RunToEnd(good.get()).tokens, expected.tokens);
  EXPECT_EQ(bad->Step(Deadline()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(bad_session->length(), 20u);
  EXPECT_EQ(Generate(bad_session, Greedy(3)).tokens.size(), 3u);
}

TEST_F(EngineTest, AFullPoolIsABudgetErrorOfWhoCameLast) {
  EngineOptions options;
  options.context_tokens = 96;
  options.max_sessions = 2;
  const auto engine = MakeEngine(options);
  const auto a = MakeSession(engine, Prompt(60)), b = MakeSession(engine, Prompt(60, 2));
  EXPECT_EQ(Generate(a, Greedy(3)).tokens.size(), 3u);
  auto generation = *b->Generate(Greedy(3));
  const Status status = generation->Step(Deadline()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status.ToString();
  EXPECT_EQ(b->length(), 60u);
  ASSERT_TRUE(a->Truncate(0).ok());
  EXPECT_EQ(Generate(b, Greedy(3)).tokens.size(), 3u);
}

TEST_F(EngineTest, EndsAreTold) {
  const Tokens prompt = Prompt(40);
  const Outcome plain = Generate(MakeSession(MakeEngine(), prompt), Greedy(16));
  GenerateOptions stop = Greedy(16);
  stop.stop_tokens = {plain.tokens[5]};
  const size_t first = static_cast<size_t>(
      std::find(plain.tokens.begin(), plain.tokens.end(), plain.tokens[5]) - plain.tokens.begin());
  const auto session = MakeSession(MakeEngine(), prompt);
  const Outcome stopped = Generate(session, stop);
  EXPECT_EQ(stopped.finish, FinishReason::kStopToken);
  EXPECT_EQ(stopped.tokens, Tokens(plain.tokens.begin(), plain.tokens.begin() + first + 1));
  EXPECT_EQ(session->length(), 40 + first + 1);

  EngineOptions small;
  small.context_tokens = 50;
  const auto full = MakeSession(MakeEngine(small), prompt);
  GenerateOptions endless = Greedy(0);
  EXPECT_EQ(Generate(full, endless).finish, FinishReason::kContextFull);
  EXPECT_EQ(full->length(), 50u);
  const Outcome nothing = Generate(full, endless);
  EXPECT_EQ(nothing.finish, FinishReason::kContextFull);
  EXPECT_TRUE(nothing.tokens.empty());
  EXPECT_EQ(full->Append({5}).code(), absl::StatusCode::kOutOfRange);

  // A bias makes the model's own end certain.
  GenerateOptions ends = Greedy(16);
  ends.ignore_eos = false;
  ends.sampling.logit_bias = {{1, 1000.0f}};
  const Outcome ended = Generate(MakeSession(MakeEngine(), prompt), ends);
  EXPECT_EQ(ended.finish, FinishReason::kEos);
  EXPECT_EQ(ended.tokens, Tokens{1});
  EXPECT_EQ(ended.text, "");
  ends.ignore_eos = true;
  EXPECT_EQ(Generate(MakeSession(MakeEngine(), prompt), ends).tokens, Tokens(16, 1));
}

TEST_F(EngineTest, TextIsTheTokensTextCutAtStopStrings) {
  const auto* tokenizer = Tiny()->model->tokenizer();
  ASSERT_NE(tokenizer, nullptr);
  std::pmr::vector<int32_t> ids;
  ASSERT_TRUE(tokenizer->Encode("And it came to pass", {}, &ids).ok());
  const Tokens prompt(ids.begin(), ids.end());
  const Outcome plain = Generate(MakeSession(MakeEngine(), prompt), Greedy(40));
  std::string expected;
  ASSERT_TRUE(tokenizer->Decode(plain.tokens, true, &expected).ok());
  EXPECT_EQ(plain.text, expected);
  ASSERT_GT(expected.size(), 30u);
  // Stops that begin and end inside tokens.
  for (size_t begin = 5; begin + 9 < expected.size(); begin += 4) {
    GenerateOptions options = Greedy(40);
    options.stop_strings = {"never to be seen", expected.substr(begin, 9)};
    const Outcome stopped = Generate(MakeSession(MakeEngine(), prompt), options);
    EXPECT_EQ(stopped.finish, FinishReason::kStopString);
    EXPECT_EQ(stopped.text, expected.substr(0, expected.find(options.stop_strings[1])));
  }
}

TEST_F(EngineTest, ForkAndTruncateGiveWhatAFreshSessionGives) {
  const Tokens prompt = Prompt(37);
  const Outcome expected = Generate(MakeSession(MakeEngine(), prompt), Sampled(30, 5));
  const auto engine = MakeEngine();
  const auto session = MakeSession(engine, prompt);
  const auto logits = LogitsAfter(session);
  std::vector<std::shared_ptr<Session>> forks;
  for (int i = 0; i < 3; ++i) forks.push_back(*session->Fork());
  // Each writes into the half-full last page that all share.
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Generate(forks[i], Sampled(30, 5 + i)).tokens,
              Generate(MakeSession(MakeEngine(), prompt), Sampled(30, 5 + i)).tokens);
  }
  EXPECT_EQ(LogitsAfter(session), logits);
  EXPECT_EQ(Generate(session, Sampled(30, 5)).tokens, expected.tokens);
  for (const uint32_t length : {67u, 60u, 38u, 37u, 33u, 32u, 1u}) {
    ASSERT_TRUE(forks[0]->Truncate(length).ok());
    EXPECT_EQ(forks[0]->length(), length);
    const auto all = forks[0]->tokens();
    const auto fresh = MakeSession(MakeEngine(), Tokens(all.begin(), all.end()));
    EXPECT_EQ(LogitsAfter(forks[0]), LogitsAfter(fresh)) << length;
  }
  EXPECT_EQ(forks[0]->Truncate(2).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(forks[0]->Truncate(0).ok());
  ASSERT_TRUE(forks[0]->Append(prompt).ok());
  EXPECT_EQ(LogitsAfter(forks[0]), logits);
}

TEST_F(EngineTest, LogitsAreThereAfterAPrefillOnly) {
  const auto session = MakeSession(MakeEngine(), Prompt(20));
  EXPECT_EQ(session->LastLogits().status().code(), absl::StatusCode::kInvalidArgument);
  const auto logits = LogitsAfter(session);
  EXPECT_EQ(logits.size(), 2048u);
  EXPECT_EQ(LogitsAfter(session), logits);  // nothing pending: done at once
  ASSERT_TRUE(session->Append({7}).ok());
  EXPECT_FALSE(session->LastLogits().ok());
  EXPECT_NE(LogitsAfter(session), logits);
  ASSERT_TRUE(session->Truncate(20).ok());
  EXPECT_EQ(LogitsAfter(session), logits);
  const auto empty = MakeSession(MakeEngine(), {});
  EXPECT_EQ(empty->Prefill().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(empty->Generate(Greedy(1)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EngineTest, LogprobsComeWithEvents) {
  GenerateOptions options = Greedy(5);
  options.logprobs = 3;
  const auto session = MakeSession(MakeEngine(), Prompt(20));
  const Outcome outcome = Generate(session, options);
  ASSERT_EQ(outcome.logprobs.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_EQ(outcome.logprobs[i].size(), 4u);
    EXPECT_EQ(outcome.logprobs[i][0].token, outcome.tokens[i]);
    EXPECT_EQ(outcome.logprobs[i][1].token, outcome.tokens[i]);  // greedy
    EXPECT_EQ(outcome.logprobs[i][0].logprob, outcome.logprobs[i][1].logprob);
    EXPECT_LE(outcome.logprobs[i][3].logprob, outcome.logprobs[i][2].logprob);
    EXPECT_LT(outcome.logprobs[i][0].logprob, 0.0f);
  }
}

TEST_F(EngineTest, OneJobPerSession) {
  const auto session = MakeSession(MakeEngine(), Prompt(20));
  auto generation = *session->Generate(Greedy(5));
  const auto busy = absl::StatusCode::kAborted;
  EXPECT_EQ(session->Append({1}).code(), busy);
  EXPECT_EQ(session->Truncate(3).code(), busy);
  EXPECT_EQ(session->Prefill().status().code(), busy);
  EXPECT_EQ(session->Generate(Greedy(1)).status().code(), busy);
  EXPECT_EQ(session->Fork().status().code(), busy);
  RunToEnd(generation.get());
  EXPECT_TRUE(session->Append({1}).ok());  // finished, though not yet released
}

TEST_F(EngineTest, LimitsAndMistakes) {
  EngineOptions options;
  options.max_sessions = 2;
  const auto engine = MakeEngine(options);
  auto a = *engine->NewSession(), b = *engine->NewSession();
  EXPECT_EQ(engine->NewSession().status().code(), absl::StatusCode::kOutOfRange);
  ASSERT_TRUE(a->Append({5, 6}).ok());
  EXPECT_EQ(a->Fork().status().code(), absl::StatusCode::kOutOfRange);
  b.reset();
  EXPECT_TRUE(a->Fork().ok());
  EXPECT_EQ(a->Append({2048}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(a->Append({-1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(a->length(), 2u);
  EXPECT_EQ(a->Append(Tokens(5000, 5)).code(), absl::StatusCode::kOutOfRange);
  GenerateOptions hot = Greedy(1);
  hot.sampling.temperature = -1.0f;
  EXPECT_EQ(a->Generate(hot).status().code(), absl::StatusCode::kInvalidArgument);
  GenerateOptions many = Greedy(1);
  many.logprobs = 5000;
  EXPECT_EQ(a->Generate(many).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Generate(a, Greedy(2)).tokens.size(), 2u);  // and nothing is stuck
  for (const auto change : {+[](EngineOptions* o) { o->max_sessions = 0; },
                            +[](EngineOptions* o) { o->batch_tokens = 0; },
                            +[](EngineOptions* o) { o->context_tokens = UINT64_MAX; }}) {
    EngineOptions bad;
    change(&bad);
    EXPECT_EQ(Engine::Create(Tiny()->model, Tiny()->context, bad).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(EngineTest, AllocationIsWhatWasPlanned) {
  EngineOptions options;
  options.context_tokens = 512;
  TestModel* test = Tiny();
  const uint64_t before = test->memory.used_bytes();
  auto plan = Engine::PlanBytes(test->model->spec(), options, test->context);
  ASSERT_TRUE(plan.ok());
  {
    const auto engine = MakeEngine(options);
    EXPECT_EQ(test->memory.used_bytes() - before, *plan);
  }
  EXPECT_EQ(test->memory.used_bytes(), before);
}

}  // namespace
}  // namespace qinfer::engine
