// Generations with prompt lookup give the tokens, texts, log-probabilities and ends of generations
// without it: for every kind of sampling, cache, model and interruption; and they really guess.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "engine/engine.h"
#include "tests/unit/engine/session_testing.h"
#include "tests/unit/engine/test_model.h"

namespace qinfer::engine {
namespace {

using qinfer::testing::LoadTestModel;
using qinfer::testing::TestModel;

TestModel* Model(const std::string& path, uint32_t threads = 2) {
  static std::map<std::pair<std::string, uint32_t>, std::unique_ptr<TestModel>> models;
  auto& model = models[{path, threads}];
  if (model == nullptr) model = LoadTestModel(path, threads);
  EXPECT_NE(model->model, nullptr) << path << ": " << model->status.ToString();
  return model.get();
}
TestModel* Tiny(uint32_t threads = 2) { return Model(qinfer::testing::TinyLlamaPath(), threads); }
std::string Golden(const std::string& name) {
  return QINFER_SOURCE_DIR "/tests/golden/models/" + name;
}

std::shared_ptr<Engine> MakeEngine(TestModel* test, const EngineOptions& options = {}) {
  auto engine = Engine::Create(test->model, test->context, options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return *engine;
}

// A passage, repeated, and cut off in the middle: much to look up.
Tokens Repeating(uint32_t length, uint32_t period, uint32_t vocab, uint32_t seed = 1) {
  Tokens passage(period), tokens(length);
  uint32_t state = seed;
  for (int32_t& token : passage) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<int32_t>(10 + (state >> 8) % (vocab - 10));
  }
  for (uint32_t i = 0; i < length; ++i) tokens[i] = passage[i % period];
  return tokens;
}

struct Outcome {
  Tokens tokens;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::vector<std::pair<int32_t, float>> logprobs;
  std::vector<size_t> texts;  // sizes, in order
  LookupCounts counts;
};

void TakeEvents(Generation* generation, Outcome* outcome) {
  Event event;
  while (generation->NextEvent(&event)) {
    EXPECT_EQ(outcome->finish, FinishReason::kNone) << "an event after the last";
    if (event.token >= 0) outcome->tokens.push_back(event.token);
    outcome->text += event.text;
    outcome->texts.push_back(event.text.size());
    outcome->finish = event.finish;
    for (const TokenLogprob& l : event.logprobs) outcome->logprobs.emplace_back(l.token, l.logprob);
  }
}

Outcome Finish(Generation* generation, uint64_t budget_ns = Deadline::kNever) {
  Outcome outcome;
  for (;;) {
    Deadline deadline;
    if (budget_ns != Deadline::kNever) deadline.until_ns = NowNs() + budget_ns;
    const auto done = generation->Step(deadline);
    EXPECT_TRUE(done.ok()) << done.status().ToString();
    TakeEvents(generation, &outcome);
    if (done.ok() && !*done) continue;
    outcome.counts = generation->lookup_counts();
    return outcome;
  }
}

Outcome Generate(const std::shared_ptr<Session>& session, GenerateOptions options, bool lookup,
                 uint64_t budget_ns = Deadline::kNever) {
  options.prompt_lookup = lookup;
  auto generation = session->Generate(options);
  EXPECT_TRUE(generation.ok()) << generation.status().ToString();
  return Finish(generation->get(), budget_ns);
}

// Prefers the tokens of the prompt, so that there is something to accept, and yet draws.
GenerateOptions Sampled(uint32_t tokens, uint64_t seed, const Tokens& prompt, float bias = 6.0f) {
  GenerateOptions options = Greedy(tokens);
  options.sampling.greedy = false;
  options.sampling.seed = seed;
  Tokens once = prompt;
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  for (const int32_t token : once) options.sampling.logit_bias.emplace_back(token, bias);
  return options;
}

std::vector<GenerateOptions> Variety(const Tokens& prompt) {
  std::vector<GenerateOptions> all;
  all.push_back(Greedy(60));
  all.push_back(Greedy(60));
  all.back().sampling.repetition_penalty = 1.02f;
  all.push_back(Greedy(33));
  all.back().logprobs = 4;
  for (uint32_t i = 0; i < 6; ++i) all.push_back(Sampled(50, i, prompt));
  all[3].sampling.top_k = 3;
  all[4].sampling.top_p = 0.8f;
  all[5].sampling.min_p = 0.1f;
  all[6].sampling.frequency_penalty = 0.1f;
  all[6].sampling.presence_penalty = -0.2f;
  all[7].sampling.temperature = 0.4f;
  all[7].logprobs = 2;
  all[8].sampling.repetition_penalty = 0.9f;  // asks for repetition
  all[8].sampling.top_k = 40;
  return all;
}

void ExpectSame(const Outcome& lookup, const Outcome& plain) {
  EXPECT_EQ(lookup.tokens, plain.tokens);
  EXPECT_EQ(lookup.text, plain.text);
  EXPECT_EQ(lookup.texts, plain.texts);
  EXPECT_EQ(lookup.finish, plain.finish);
  EXPECT_EQ(lookup.logprobs, plain.logprobs);
  EXPECT_EQ(plain.counts.drafted + plain.counts.steps, 0u);
  EXPECT_LE(lookup.counts.accepted, lookup.counts.drafted);
}

TEST(LookupEngine, AcceptsGuessesOnRepetition) {
  // A bias leaves one token: whoever guesses at all is right.
  GenerateOptions certain = Greedy(120);
  certain.sampling.logit_bias = {{77, 1000.0f}};
  const Tokens prompt = Repeating(40, 13, 2000);
  const auto session = MakeSession(MakeEngine(Tiny()), prompt);
  const Outcome lookup = Generate(session, certain, true);
  EXPECT_EQ(lookup.tokens, Tokens(120, 77));
  EXPECT_EQ(session->length(), 160u);
  // At least what is guessed before any time has been measured; in truth far more.
  EXPECT_GE(lookup.counts.accepted, 2u);
  EXPECT_EQ(lookup.counts.steps + lookup.counts.accepted, 120u);
  ExpectSame(lookup, Generate(MakeSession(MakeEngine(Tiny()), prompt), certain, false));
  // The session that guessed goes on as any other, and its cache is right.
  certain.sampling.logit_bias.clear();
  Tokens all = prompt;
  all.insert(all.end(), 120, 77);
  const Outcome expected = Generate(MakeSession(MakeEngine(Tiny()), all), certain, false);
  EXPECT_EQ(Generate(session, certain, true).tokens, expected.tokens);
}

TEST(LookupEngine, EveryKindOfSamplingIsTheSame) {
  const Tokens prompt = Repeating(70, 19, 2000);
  uint64_t accepted = 0;
  int number = 0;
  for (const GenerateOptions& options : Variety(prompt)) {
    SCOPED_TRACE(number++);
    const Outcome plain = Generate(MakeSession(MakeEngine(Tiny()), prompt), options, false);
    for (const uint32_t threads : {1u, 2u}) {
      const auto session = MakeSession(MakeEngine(Tiny(threads)), prompt);
      const Outcome lookup = Generate(session, options, true);
      ExpectSame(lookup, plain);
      EXPECT_EQ(session->length(), prompt.size() + plain.tokens.size());
      accepted += lookup.counts.accepted;
    }
  }
  EXPECT_GT(accepted, 0u);
}

TEST(LookupEngine, EveryCacheAndModelIsTheSame) {
  for (const char* name : {"", "gemma3-small", "gemma2-small", "mistral-window", "mixtral-small",
                           "deepseek-v3-small", "phi3-small"}) {
    TestModel* test = *name == '\0' ? Tiny() : Model(Golden(name));
    const uint32_t vocab = test->model->spec().vocab_size;
    const Tokens prompt = Repeating(20, 7, vocab);
    uint64_t accepted = 0;
    for (const auto type : {kernels::KvType::kF32, kernels::KvType::kF16, kernels::KvType::kInt8}) {
      EngineOptions engine;
      engine.k_type = engine.v_type = type;
      engine.context_tokens = 96;
      engine.max_sessions = 1;
      for (int i = 0; i < 3; ++i) {
        // Until the context is full: past windows, and past the end of longrope's short range.
        GenerateOptions options = i == 0 ? Greedy(0) : Sampled(0, i, prompt, 5.0f);
        if (i == 2) options.sampling.logit_bias = {{5, 1000.0f}};
        options.logprobs = 1;
        const Outcome plain =
            Generate(MakeSession(MakeEngine(test, engine), prompt), options, false);
        const Outcome lookup =
            Generate(MakeSession(MakeEngine(test, engine), prompt), options, true);
        SCOPED_TRACE(StrCat(name, " cache ", static_cast<int>(type), " options ", i));
        ExpectSame(lookup, plain);
        EXPECT_EQ(plain.finish, FinishReason::kContextFull);
        accepted += lookup.counts.accepted;
      }
    }
    EXPECT_GT(accepted, 0u) << name;
  }
}

TEST(LookupEngine, EndsAreTheSame) {
  const Tokens prompt = Repeating(60, 11, 2000);
  GenerateOptions options = Greedy(48);
  const Outcome whole = Generate(MakeSession(MakeEngine(Tiny()), prompt), options, false);
  for (uint32_t tokens = 1; tokens <= 20; ++tokens) {
    options.max_tokens = tokens;
    const auto session = MakeSession(MakeEngine(Tiny()), prompt);
    const Outcome lookup = Generate(session, options, true);
    EXPECT_EQ(lookup.tokens, Tokens(whole.tokens.begin(), whole.tokens.begin() + tokens));
    EXPECT_EQ(lookup.finish, FinishReason::kMaxTokens);
    EXPECT_EQ(session->length(), prompt.size() + tokens);
  }
  for (size_t i = 0; i < whole.tokens.size(); i += 3) {
    GenerateOptions stop = Greedy(48);
    stop.stop_tokens = {whole.tokens[i]};
    ExpectSame(Generate(MakeSession(MakeEngine(Tiny()), prompt), stop, true),
               Generate(MakeSession(MakeEngine(Tiny()), prompt), stop, false));
  }
  // Stop strings that begin and end inside tokens, in text that repeats itself.
  GenerateOptions certain = Sampled(60, 4, prompt, 8.0f);
  const Outcome text = Generate(MakeSession(MakeEngine(Tiny()), prompt), certain, false);
  ASSERT_GT(text.text.size(), 40u);
  for (size_t begin = 3; begin + 7 < text.text.size(); begin += 9) {
    GenerateOptions stop = certain;
    stop.logprobs = 1;
    stop.stop_strings = {text.text.substr(begin, 7), "never to be seen"};
    ExpectSame(Generate(MakeSession(MakeEngine(Tiny()), prompt), stop, true),
               Generate(MakeSession(MakeEngine(Tiny()), prompt), stop, false));
  }
  // The model's own end, made certain after some repetition by a guess that contains it.
  Tokens with_end = prompt;
  for (size_t i = 4; i < with_end.size(); i += 11) with_end[i] = 1;
  GenerateOptions ends = Sampled(60, 6, with_end, 9.0f);
  ends.ignore_eos = false;
  ExpectSame(Generate(MakeSession(MakeEngine(Tiny()), with_end), ends, true),
             Generate(MakeSession(MakeEngine(Tiny()), with_end), ends, false));
}

TEST(LookupEngine, SessionsMixedInOneStep) {
  std::vector<Outcome> alone;
  std::vector<Tokens> prompts;
  std::vector<GenerateOptions> options;
  for (uint32_t i = 0; i < 6; ++i) {
    prompts.push_back(Repeating(10 + 30 * i, 5 + i, 2000, i));
    options.push_back(i == 1 ? Greedy(40) : Sampled(30 + 5 * i, i, prompts[i]));
    alone.push_back(Generate(MakeSession(MakeEngine(Tiny()), prompts[i]), options[i], false));
  }
  for (const uint32_t batch : {1u, 3u, 8u, 64u}) {
    EngineOptions shared;
    shared.batch_tokens = batch;
    const auto engine = MakeEngine(Tiny(), shared);
    std::vector<std::unique_ptr<Generation>> generations;
    for (uint32_t i = 0; i < 6; ++i) {
      GenerateOptions mixed = options[i];
      mixed.prompt_lookup = i % 3 != 2;
      generations.push_back(std::move(*MakeSession(engine, prompts[i])->Generate(mixed)));
    }
    for (int i = 5; i >= 0; --i) {
      const Outcome outcome = Finish(generations[i].get());
      EXPECT_EQ(outcome.tokens, alone[i].tokens) << batch << " " << i;
      EXPECT_EQ(outcome.text, alone[i].text);
      if (i % 3 == 2 || batch == 1) {
        EXPECT_EQ(outcome.counts.drafted, 0u);
      }
    }
  }
  // Threads of their own.
  const auto engine = MakeEngine(Tiny());
  std::vector<std::thread> threads;
  std::vector<Outcome> together(4);
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      together[i] = Generate(MakeSession(engine, prompts[i]), options[i], i != 2,
                             i % 2 == 0 ? Deadline::kNever : 200'000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
}

// Guesses never take a page that a plain generation would have had.
TEST(LookupEngine, SmallCachesFailNobody) {
  GenerateOptions certain = Greedy(0);
  certain.sampling.logit_bias = {{77, 1000.0f}};
  for (uint32_t context = 33; context <= 49; ++context) {
    EngineOptions small;
    small.context_tokens = context;
    small.max_sessions = 1;
    const Tokens prompt = Repeating(20, 6, 2000);
    const auto session = MakeSession(MakeEngine(Tiny(), small), prompt);
    const Outcome lookup = Generate(session, certain, true);
    EXPECT_EQ(lookup.tokens, Tokens(context - 20, 77));
    EXPECT_EQ(lookup.finish, FinishReason::kContextFull);
    EXPECT_GT(lookup.counts.accepted, 0u);
  }
  // Two that together need every page there is: 48 tokens and one more page for the second's end.
  EngineOptions two;
  two.context_tokens = 48;
  two.max_sessions = 2;
  certain.max_tokens = 20;
  certain.prompt_lookup = true;
  const auto engine = MakeEngine(Tiny(), two);
  auto a = *MakeSession(engine, Repeating(12, 6, 2000))->Generate(certain);
  auto b = *MakeSession(engine, Repeating(13, 6, 2000))->Generate(certain);
  EXPECT_EQ(Finish(a.get()).tokens, Tokens(20, 77));
  EXPECT_EQ(Finish(b.get()).tokens, Tokens(20, 77));
}

TEST(LookupEngine, TheSmallestStepsAreTheSame) {
  const Tokens prompt = Repeating(50, 9, 2000);
  for (const GenerateOptions& options : {Greedy(30), Sampled(30, 8, prompt)}) {
    const Outcome plain = Generate(MakeSession(MakeEngine(Tiny()), prompt), options, false);
    ExpectSame(Generate(MakeSession(MakeEngine(Tiny()), prompt), options, true, 1), plain);
    ExpectSame(Generate(MakeSession(MakeEngine(Tiny()), prompt), options, true, 50'000), plain);
  }
}

TEST(LookupEngine, CancelledOrDroppedMidwayGoesOnTheSame) {
  const Tokens prompt = Repeating(48, 9, 2000);
  const GenerateOptions options = Sampled(40, 3, prompt);
  const Outcome expected = Generate(MakeSession(MakeEngine(Tiny()), prompt), options, false);
  for (const bool drop : {false, true}) {
    for (uint32_t steps = 1; steps < 400; steps += 61) {
      const auto session = MakeSession(MakeEngine(Tiny()), prompt);
      std::atomic<bool> cancel{false};
      GenerateOptions lookup = options;
      lookup.prompt_lookup = true;
      auto generation = *session->Generate(lookup);
      bool done = false;
      for (uint32_t i = 0; i < steps && !done; ++i) done = *generation->Step({0, &cancel});
      if (done) break;
      Outcome first;
      if (!drop) {
        cancel = true;
        EXPECT_EQ(generation->Step({0, &cancel}).status().code(), absl::StatusCode::kCancelled);
      }
      TakeEvents(generation.get(), &first);
      generation.reset();
      ASSERT_EQ(session->length(), prompt.size() + first.tokens.size());
      GenerateOptions left = options;
      left.max_tokens = 40 - static_cast<uint32_t>(first.tokens.size());
      const Outcome rest = Generate(session, left, true);
      Tokens all = first.tokens;
      all.insert(all.end(), rest.tokens.begin(), rest.tokens.end());
      EXPECT_EQ(all, expected.tokens) << steps;
    }
  }
}

TEST(LookupEngine, TruncateForkAndGoOn) {
  const Tokens prompt = Repeating(48, 9, 2000);
  const auto session = MakeSession(MakeEngine(Tiny()), prompt);
  const Outcome first = Generate(session, Sampled(40, 3, prompt), true);
  auto fork = *session->Fork();
  for (const uint32_t length : {80u, 65u, 64u, 50u}) {
    ASSERT_TRUE(fork->Truncate(length).ok());
    const auto kept = fork->tokens();
    const Tokens tokens(kept.begin(), kept.end());
    ExpectSame(Generate(fork, Greedy(12), true),
               Generate(MakeSession(MakeEngine(Tiny()), tokens), Greedy(12), false));
  }
  Tokens all = prompt;
  all.insert(all.end(), first.tokens.begin(), first.tokens.end());
  ExpectSame(Generate(session, Greedy(12), true),
             Generate(MakeSession(MakeEngine(Tiny()), all), Greedy(12), false));
}

}  // namespace
}  // namespace qinfer::engine
