// The sampler against transformers (tests/golden/make_sampling.py), the generator against its
// published answers, and what must be refused.
#include "engine/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/philox.h"

namespace qinfer::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const kernels::Table* Kernels() { return kernels::SelectTable(kernels::Isa::kAuto); }

// As make_logits in make_sampling.py.
std::vector<float> MakeLogits(uint32_t seed, uint32_t vocab, double spread) {
  std::vector<float> logits(vocab);
  uint32_t state = seed;
  for (float& logit : logits) {
    state = state * 1664525u + 1013904223u;
    const uint32_t v = (state >> 8) % 4096;
    logit = static_cast<float>(std::floor(((v * v) >> 12) * spread / 256.0) / 16.0 - spread / 4.0);
  }
  return logits;
}

SamplingOptions OptionsOf(const nlohmann::json& c) {
  SamplingOptions options;
  options.temperature = c.value("temperature", 1.0f);
  options.top_k = c.value("top_k", 0u);
  options.top_p = c.value("top_p", 1.0f);
  options.min_p = c.value("min_p", 0.0f);
  options.min_keep = c.value("min_keep", 1u);
  options.repetition_penalty = c.value("repetition", 1.0f);
  options.frequency_penalty = c.value("frequency", 0.0f);
  options.presence_penalty = c.value("presence", 0.0f);
  options.seed = c["seed"].get<uint64_t>();
  if (c.contains("bias")) {
    for (const auto& pair : c["bias"]) {
      options.logit_bias.emplace_back(pair[0].get<int32_t>(), pair[1].get<float>());
    }
  }
  return options;
}

TEST(Philox, KnownAnswers) {
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Four{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(
      Philox4x32({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}),
      (Four{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      Philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (Four{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, UniformIsInRangeAndSpreads) {
  double sum = 0.0;
  for (uint64_t i = 0; i < 4096; ++i) {
    const double u = UniformAt(42, i << 20);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 4096, 0.5, 0.02);
}

TEST(Sampling, MatchesTransformers) {
  std::ifstream file(QINFER_SOURCE_DIR "/tests/golden/sampling.jsonl");
  ASSERT_TRUE(file.good());
  Memory memory;
  std::string line;
  size_t cases = 0, draws = 0;
  while (std::getline(file, line)) {
    const nlohmann::json c = nlohmann::json::parse(line);
    SCOPED_TRACE(line.substr(0, 240));
    const uint32_t vocab = c["vocab"];
    const auto logits = MakeLogits(c["logits_seed"], vocab, c["spread"]);
    const auto prompt = c["prompt"].get<std::vector<int32_t>>();
    auto scratch = SamplingScratch::Create(vocab, &memory);
    ASSERT_TRUE(scratch.ok());
    SamplingOptions options = OptionsOf(c);
    auto sampler = Sampler::Create(options, vocab, prompt, 8, &memory, Kernels());
    ASSERT_TRUE(sampler.ok()) << sampler.status().ToString();
    const uint64_t before = memory.used_bytes();
    for (int32_t token : c["generated"].get<std::vector<int32_t>>()) (*sampler)->Accept(token);

    auto left = (*sampler)->Process(logits, &*scratch);
    ASSERT_TRUE(left.ok());
    uint64_t kept = 0, sum = 0, squares = 0;
    double total = 0.0;
    std::vector<int32_t> ids;
    std::vector<double> weights;
    for (size_t i = 0; i < left->size; ++i) {
      const uint64_t id = left->ids != nullptr ? left->ids[i] : i;
      ++kept;
      sum += id;
      squares += id * id;
      total += left->weights[i];
      if (ids.size() < 24) {
        ids.push_back(static_cast<int32_t>(id));
        weights.push_back(left->weights[i]);
      }
    }
    EXPECT_EQ(kept, c["kept"].get<uint64_t>());
    EXPECT_EQ(sum, c["kept_sum"].get<uint64_t>());
    EXPECT_EQ(squares, c["kept_squares"].get<uint64_t>());
    EXPECT_EQ(ids, c["ids"].get<std::vector<int32_t>>());
    const auto expected = c["probabilities"].get<std::vector<double>>();
    ASSERT_EQ(weights.size(), expected.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_NEAR(weights[i] / total, expected[i], 1e-6 * expected[i] + 1e-9) << ids[i];
    }
    EXPECT_EQ(left->best, c["greedy"].get<uint32_t>());
    const uint64_t position = c["position"];
    for (uint64_t i = 0; i < 8; ++i) {
      const int32_t want = c["draws"][i];
      if (want < 0) continue;
      auto token = (*sampler)->Sample(logits, position + i, &*scratch);
      ASSERT_TRUE(token.ok());
      EXPECT_EQ(*token, want) << "draw " << i;
      ++draws;
    }
    EXPECT_EQ(memory.used_bytes(), before) << "allocated after the start";
    ++cases;
  }
  EXPECT_GE(cases, 50u);
  EXPECT_GE(draws, 380u);
}

TEST(Sampling, TablesOfAllInstructionSetsDrawTheSame) {
  Memory memory;
  const auto logits = MakeLogits(5, 4099, 14.0);
  auto scratch = SamplingScratch::Create(4099, &memory);
  for (const float top_p : {1.0f, 0.9f}) {
    std::vector<int32_t> first;
    for (const auto isa :
         {kernels::Isa::kRef, kernels::Isa::kAvx2, kernels::Isa::kAvxVnni, kernels::Isa::kAvx512}) {
      const kernels::Table* table = kernels::SelectTable(isa);
      if (table == nullptr) continue;
      SamplingOptions options;
      options.top_p = top_p;
      options.temperature = 0.9f;
      auto sampler = Sampler::Create(options, 4099, {}, 1, &memory, table);
      std::vector<int32_t> tokens;
      for (uint64_t i = 0; i < 200; ++i) {
        tokens.push_back(*(*sampler)->Sample(logits, i, &*scratch));
      }
      if (first.empty()) first = tokens;
      EXPECT_EQ(tokens, first) << table->name;
    }
  }
}

TEST(Sampling, DrawsFollowTheDistribution) {
  Memory memory;
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f, -1.0f};
  auto scratch = SamplingScratch::Create(4, &memory);
  SamplingOptions options;
  options.seed = 99;
  auto sampler = Sampler::Create(options, 4, {}, 1, &memory, Kernels());
  std::vector<int> counts(4);
  for (uint64_t i = 0; i < 20000; ++i) ++counts[*(*sampler)->Sample(logits, i, &*scratch)];
  const double z = std::exp(0.0) + std::exp(1.0) + std::exp(2.0) + std::exp(-1.0);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(counts[i] / 20000.0, std::exp(logits[i]) / z, 0.012);
}

TEST(Sampling, DrawAtTheEndsStaysInside) {
  const float weights[] = {0.0f, 0.5f, 0.25f, 0.0f};
  Distribution d{nullptr, weights, 4, 1};
  EXPECT_EQ(Sampler::Draw(d, 0.0), 1);
  EXPECT_EQ(Sampler::Draw(d, 0.9999999999999999), 2);
  EXPECT_EQ(Sampler::Draw(d, 0.66), 1);
  EXPECT_EQ(Sampler::Draw(d, 0.67), 2);
}

TEST(Sampling, GreedyTakesTheLowestOfEqualsAfterPenalties) {
  Memory memory;
  const std::vector<float> logits = {1.0f, 4.0f, 4.0f, 3.0f};
  auto scratch = SamplingScratch::Create(4, &memory);
  SamplingOptions options;
  options.greedy = true;
  auto plain = Sampler::Create(options, 4, {}, 1, &memory, Kernels());
  EXPECT_EQ(*(*plain)->Sample(logits, 0, &*scratch), 1);
  options.presence_penalty = 0.5f;
  auto penalised = Sampler::Create(options, 4, {}, 3, &memory, Kernels());
  EXPECT_EQ(*(*penalised)->Sample(logits, 0, &*scratch), 1);
  (*penalised)->Accept(1);
  EXPECT_EQ(*(*penalised)->Sample(logits, 1, &*scratch), 2);
  (*penalised)->Accept(2);
  EXPECT_EQ(*(*penalised)->Sample(logits, 2, &*scratch), 1);
}

TEST(Sampling, HistoryGrowsPastItsBound) {
  Memory memory;
  TokenHistory history(4, &memory);
  for (int round = 0; round < 2; ++round) {
    for (int32_t t = 0; t < 1000; ++t) history.Add(t * 7, round == 1);
  }
  ASSERT_EQ(history.entries().size(), 1000u);
  for (const auto& entry : history.entries()) EXPECT_EQ(entry.generated, 1u);
}

TEST(Sampling, ExtremesEndInATokenOrAStatus) {
  Memory memory;
  auto scratch = SamplingScratch::Create(3, &memory);
  SamplingOptions options;
  options.temperature = 1e-38f;
  auto cold = Sampler::Create(options, 3, {}, 1, &memory, Kernels());
  EXPECT_EQ(*(*cold)->Sample({1.0f, 3.0f, 2.0f}, 0, &*scratch), 1);
  options.temperature = 1e38f;
  auto hot = Sampler::Create(options, 3, {}, 1, &memory, Kernels());
  EXPECT_TRUE((*hot)->Sample({-3e38f, 3e38f, 2.0f}, 0, &*scratch).ok());
  options = SamplingOptions();
  options.logit_bias = {{0, -kInfinity}, {2, -kInfinity}};
  auto one = Sampler::Create(options, 3, {}, 1, &memory, Kernels());
  for (uint64_t i = 0; i < 20; ++i)
    EXPECT_EQ(*(*one)->Sample({9.0f, -9.0f, 9.0f}, i, &*scratch), 1);
  options.top_k = 3;
  options.top_p = 0.999f;
  auto filtered = Sampler::Create(options, 3, {}, 1, &memory, Kernels());
  EXPECT_EQ(*(*filtered)->Sample({9.0f, -9.0f, 9.0f}, 0, &*scratch), 1);
  options.logit_bias.emplace_back(1, -kInfinity);
  auto none = Sampler::Create(options, 3, {}, 1, &memory, Kernels());
  EXPECT_EQ((*none)->Sample({9.0f, -9.0f, 9.0f}, 0, &*scratch).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    auto status = (*cold)->Sample({1.0f, bad, 2.0f}, 0, &*scratch).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("token 1"), absl::string_view::npos);
  }
}

// Near zero the scores have no value any more; the limit is the most likely token.
TEST(Sampling, TinyTemperaturesAreGreedy) {
  Memory memory;
  auto scratch = SamplingScratch::Create(4, &memory);
  for (const float t : {1e-30f, 3e-37f, 1.2e-38f, 1.1754944e-38f, 1.1e-38f, 1e-40f, 1.4e-45f}) {
    SamplingOptions options;
    options.temperature = t;
    auto sampler = Sampler::Create(options, 4, {}, 1, &memory, Kernels());
    for (const auto& logits : std::vector<std::vector<float>>{{20.0f, 10.0f, 30.0f, 25.0f},
                                                              {-9.0f, -3.0f, -1.0f, -2.0f},
                                                              {-9.0f, -3.0f, 0.0f, -2.0f},
                                                              {0.5f, -1.0f, 0.75f, 0.625f}}) {
      EXPECT_EQ(*(*sampler)->Sample(logits, 0, &*scratch), 2) << t;
    }
  }
}

TEST(Sampling, ExtremePenaltiesEndInAToken) {
  Memory memory;
  auto scratch = SamplingScratch::Create(4, &memory);
  const float max = std::numeric_limits<float>::max();
  for (const bool greedy : {false, true}) {
    for (const float repetition : {1e-45f, 1e-40f, 1e-30f, 1e30f, max}) {
      for (const float other : {0.0f, 2.0f, -2.0f}) {
        SamplingOptions options;
        options.greedy = greedy;
        options.repetition_penalty = repetition;
        options.frequency_penalty = options.presence_penalty = other;
        options.logit_bias = {{3, -kInfinity}};
        auto sampler = Sampler::Create(options, 4, {0, 1, 2, 3}, 8, &memory, Kernels());
        for (uint64_t i = 0; i < 4; ++i) {
          const auto token = (*sampler)->Sample({0.0f, 2.0f, -1.0f, 5.0f}, i, &*scratch);
          if (!token.ok()) {
            EXPECT_EQ(token.status().code(), absl::StatusCode::kInvalidArgument);
            break;
          }
          EXPECT_GE(*token, 0);
          EXPECT_LT(*token, 3) << repetition << " " << other;
          (*sampler)->Accept(*token);
        }
      }
    }
  }
}

TEST(Sampling, BadOptionsAreRefusedByName) {
  const auto refused = [](auto change, const char* name) {
    SamplingOptions options;
    change(&options);
    const Status status = ValidateSampling(options, 100);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(status.message().find(name), absl::string_view::npos) << status.ToString();
  };
  const float nan = std::nanf("");
  for (const float t : {0.0f, -1.0f, nan, kInfinity}) {
    refused([&](SamplingOptions* o) { o->temperature = t; }, "temperature");
    refused([&](SamplingOptions* o) { o->repetition_penalty = t; }, "repetition_penalty");
  }
  for (const float p : {-0.1f, 1.1f, nan}) {
    refused([&](SamplingOptions* o) { o->top_p = p; }, "top_p");
    refused([&](SamplingOptions* o) { o->min_p = p; }, "min_p");
  }
  for (const float p : {-2.01f, 2.01f, 100.0f, -77.0f, nan, kInfinity}) {
    refused([&](SamplingOptions* o) { o->frequency_penalty = p; }, "frequency_penalty");
    refused([&](SamplingOptions* o) { o->presence_penalty = p; }, "presence_penalty");
  }
  SamplingOptions widest;
  widest.frequency_penalty = 2.0f;
  widest.presence_penalty = -2.0f;
  EXPECT_TRUE(ValidateSampling(widest, 100).ok());
  refused([&](SamplingOptions* o) { o->logit_bias = {{100, 1.0f}}; }, "token 100");
  refused([&](SamplingOptions* o) { o->logit_bias = {{-1, 1.0f}}; }, "token -1");
  refused([&](SamplingOptions* o) { o->logit_bias = {{7, nan}}; }, "token 7");
  refused([&](SamplingOptions* o) { o->logit_bias = {{7, 1.0f}, {8, 1.0f}, {7, 2.0f}}; }, "twice");
}

TEST(Logprobs, AreLogSoftmaxWithTheBestInOrder) {
  Memory memory;
  const uint32_t vocab = 777;
  const auto logits = MakeLogits(3, vocab, 14.0);
  auto scratch = SamplingScratch::Create(vocab, &memory);
  double z = 0.0;
  for (const float x : logits) z += std::exp(static_cast<double>(x));
  std::vector<TokenLogprob> out;
  Logprobs(logits, 5, 20, *Kernels(), &*scratch, &out);
  ASSERT_EQ(out.size(), 21u);
  EXPECT_EQ(out[0].token, 5);
  std::vector<int32_t> order(vocab);
  for (uint32_t i = 0; i < vocab; ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  for (size_t i = 0; i < out.size(); ++i) {
    if (i > 0) {
      EXPECT_EQ(out[i].token, order[i - 1]);
    }
    EXPECT_NEAR(out[i].logprob, logits[out[i].token] - std::log(z), 2e-6);
  }
  Logprobs(logits, 5, 100000, *Kernels(), &*scratch, &out);
  EXPECT_EQ(out.size(), vocab + 1);
  Logprobs(logits, 5, 0, *Kernels(), &*scratch, &out);
  EXPECT_EQ(out.size(), 1u);
}

}  // namespace
}  // namespace qinfer::engine
