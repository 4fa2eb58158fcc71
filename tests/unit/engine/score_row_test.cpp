// What is selected by maxima of panels against the plain way: all scores computed, sorted and
// walked through, for random rows and options, ties and extremes.
#include "engine/score_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "engine/philox.h"

namespace qinfer::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
using Rng = std::mt19937;

const kernels::Table& Kernels() {
  static const kernels::Table* const table = kernels::SelectTable(kernels::Isa::kAuto);
  return *table;
}

struct Plain {
  std::vector<uint32_t> ids;
  std::vector<float> weights;
  uint32_t best = 0;
};

void PlainPenalties(const SamplingOptions& o, const std::vector<int32_t>& prompt,
                    const std::vector<int32_t>& generated, std::vector<float>* scores) {
  for (const auto& [token, bias] : o.logit_bias) (*scores)[token] += bias;
  std::map<int32_t, uint32_t> times_of;
  for (const int32_t token : prompt) times_of[token] += 0;
  for (const int32_t token : generated) ++times_of[token];
  for (const auto& [token, times] : times_of) {
    float& score = (*scores)[token];
    if (score == -kInfinity) continue;
    if (o.repetition_penalty != 1.0f && score != 0.0f) {
      score = score < 0.0f ? score * o.repetition_penalty : score / o.repetition_penalty;
    }
    if (times == 0 || !std::isfinite(score)) continue;
    score -= static_cast<float>(times) * o.frequency_penalty;
    score -= o.presence_penalty;
  }
}

// Nothing where every token is excluded.
std::optional<Plain> PlainProcess(std::vector<float> scores, const SamplingOptions& o,
                                  const std::vector<int32_t>& prompt,
                                  const std::vector<int32_t>& generated) {
  PlainPenalties(o, prompt, generated, &scores);
  Plain plain;
  const auto find_best = [&] {
    plain.best =
        static_cast<uint32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
    return scores[plain.best];
  };
  const auto only = [&](uint32_t token) {
    plain = {{token}, {1.0f}, token};
    return plain;
  };
  if (find_best() == -kInfinity) return std::nullopt;
  if (o.greedy || scores[plain.best] == kInfinity) return only(plain.best);
  if (o.temperature != 1.0f) {
    const uint32_t greedy = plain.best;
    for (float& score : scores) score /= o.temperature;
    if (!std::isfinite(find_best())) return only(greedy);
  }
  const float max = scores[plain.best];
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < scores.size(); ++i) {
    if (scores[i] != -kInfinity) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  const size_t least = std::max(1u, o.min_keep);
  const auto weight_of = [&](uint32_t token) {
    float weight = scores[token];
    Kernels().exp_shift(&weight, max, 1, &weight);
    return weight;
  };
  float unused;
  double mass = Kernels().exp_sum(scores.data(), scores.size(), &unused);
  if (o.top_k != 0) {
    const size_t k = std::max<size_t>(o.top_k, least);
    size_t kept = std::min(k, order.size());
    while (kept < order.size() && scores[order[kept]] == scores[order[kept - 1]]) ++kept;
    order.resize(kept);
    std::vector<uint32_t> by_id = order;
    std::sort(by_id.begin(), by_id.end());
    mass = 0.0;
    for (const uint32_t id : by_id) mass += static_cast<double>(weight_of(id));
  }
  if (o.top_p < 1.0f || o.min_p > 0.0f) {
    double before = 0.0;
    size_t kept = 0;
    for (; kept < order.size(); ++kept) {
      const float weight = weight_of(order[kept]);
      if (kept >= least &&
          ((o.top_p < 1.0f && before >= static_cast<double>(o.top_p) * mass) || weight < o.min_p)) {
        break;
      }
      before += static_cast<double>(weight);
    }
    order.resize(kept);
  }
  std::sort(order.begin(), order.end());
  for (const uint32_t id : order) plain.weights.push_back(weight_of(id));
  plain.ids = std::move(order);
  return plain;
}

template <typename T>
T OneOf(Rng& rng, std::initializer_list<T> choices) {
  return choices.begin()[rng() % choices.size()];
}

std::vector<float> RandomLogits(Rng& rng, uint32_t vocab) {
  std::vector<float> logits(vocab);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  const uint32_t kind = rng() % 6;
  for (float& x : logits) {
    x = normal(rng);
    if (kind == 1) x = std::round(x);                    // many ties
    if (kind == 2) x = 0.25f;                            // nothing else
    if (kind == 3) x = (rng() % 2 == 0 ? 0.0f : -0.0f);  // and of both signs
    if (kind == 4 && rng() % 50 == 0) x *= 2e37f;        // overflows under a bias
    if (kind == 5) x = std::round(x) * 0x1p-140f;        // no more digits after a division
  }
  return logits;
}

SamplingOptions RandomOptions(Rng& rng, uint32_t vocab) {
  SamplingOptions o;
  o.greedy = rng() % 4 == 0;
  o.temperature = OneOf(rng, {1.0f, 1.0f, 0.7f, 1.5f, 1e-3f, 1e-38f, 1e30f, 3e38f});
  o.top_k = OneOf(rng, {0u, 0u, 1u, 2u, 17u, 40u, 600u, vocab, vocab + 100});
  o.top_p = OneOf(rng, {1.0f, 1.0f, 0.95f, 0.5f, 0.0f});
  o.min_p = OneOf(rng, {0.0f, 0.0f, 0.05f, 1.0f});
  o.min_keep = OneOf(rng, {1u, 1u, 5u, vocab + 1});
  o.repetition_penalty = OneOf(rng, {1.0f, 1.0f, 1.3f, 0.5f, 1e-40f, 3e38f});
  o.frequency_penalty = OneOf(rng, {0.0f, 0.0f, 0.5f, -1.0f});
  o.presence_penalty = OneOf(rng, {0.0f, 0.0f, 1.0f, -2.0f});
  if (rng() % 2 == 0) {
    const uint32_t every = OneOf(rng, {1u, 2u, 20u, 300u});
    const bool forbids = rng() % 2 == 0;
    for (uint32_t token = rng() % every; token < vocab; token += every) {
      const float bias = OneOf(rng, {-kInfinity, 3.0f, -3.0f, 3e38f});
      o.logit_bias.emplace_back(token, forbids ? -kInfinity : bias);
    }
    std::shuffle(o.logit_bias.begin(), o.logit_bias.end(), rng);
  }
  return o;
}

std::vector<int32_t> RandomTokens(Rng& rng, uint32_t vocab, size_t most) {
  std::vector<int32_t> tokens(rng() % (most + 1));
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng() % vocab);
  return tokens;
}

TEST(ScoreRow, SelectsWhatThePlainWayDoes) {
  Memory memory;
  size_t refused = 0, several = 0, all = 0, greedy = 0;
  for (const uint32_t vocab : {1u, 5u, 16u, 17u, 255u, 256u, 257u, 1000u, 4099u}) {
    auto scratch = SamplingScratch::Create(vocab, &memory);  // one for all: what it holds is stale
    ASSERT_TRUE(scratch.ok());
    std::vector<float> maxima((vocab + 15) / 16);
    for (uint32_t round = 0; round < (vocab > 1000 ? 150 : 400); ++round) {
      Rng rng(1000 * vocab + round);
      const std::vector<float> logits = RandomLogits(rng, vocab);
      SamplingOptions options = RandomOptions(rng, vocab);
      options.seed = round;
      const auto prompt = RandomTokens(rng, vocab, 60), generated = RandomTokens(rng, vocab, 20);
      SCOPED_TRACE(testing::Message() << vocab << " tokens, round " << round);
      auto sampler = Sampler::Create(options, vocab, prompt, 32, &memory, &Kernels());
      ASSERT_TRUE(sampler.ok());
      for (const int32_t token : generated) (*sampler)->Accept(token);
      const auto plain = PlainProcess(logits, options, prompt, generated);
      ASSERT_TRUE(Kernels().panel_maxima(logits.data(), vocab, maxima.data()));
      for (const bool known : {false, true}) {
        const absl::Span<const float> given =
            known ? absl::MakeConstSpan(maxima) : absl::Span<const float>();
        const auto left = (*sampler)->Process(logits, &*scratch, given);
        ASSERT_EQ(left.ok(), plain.has_value());
        if (!left.ok()) {
          EXPECT_EQ(left.status().code(), absl::StatusCode::kInvalidArgument);
          ++refused;
          continue;
        }
        ASSERT_EQ(left->best, plain->best);
        std::vector<uint32_t> ids;
        std::vector<float> weights;
        for (size_t i = 0; i < left->size; ++i) {
          if (left->ids == nullptr && left->weights[i] == 0.0f) continue;  // or excluded
          ids.push_back(left->ids == nullptr ? static_cast<uint32_t>(i) : left->ids[i]);
          weights.push_back(left->weights[i]);
        }
        std::vector<uint32_t> want_ids;
        std::vector<float> want_weights;
        for (size_t i = 0; i < plain->ids.size(); ++i) {
          if (left->ids == nullptr && plain->weights[i] == 0.0f) continue;
          want_ids.push_back(plain->ids[i]);
          want_weights.push_back(plain->weights[i]);
        }
        ASSERT_EQ(ids, want_ids);
        ASSERT_EQ(weights, want_weights);
        const Distribution d{plain->ids.data(), plain->weights.data(), plain->ids.size(),
                             plain->best};
        const auto token = (*sampler)->Sample(logits, 7, &*scratch, given);
        ASSERT_TRUE(token.ok());
        if (left->ids != nullptr) {  // over all tokens sums have other blocks
          ASSERT_EQ(*token, Sampler::Draw(d, UniformAt(options.seed, 7)));
        }
        several += left->size > 1 ? 1 : 0;
        all += left->ids == nullptr ? 1 : 0;
        greedy += options.greedy ? 1 : 0;
      }
    }
  }
  // The cases are there.
  EXPECT_GT(refused, 100u);
  EXPECT_GT(several, 1000u);
  EXPECT_GT(all, 100u);
  EXPECT_GT(greedy, 500u);
}

// Known maxima stand for what they are of: panels that promise nothing are not read.
TEST(ScoreRow, ReadsThePanelsThatMatterAlone) {
  Memory memory;
  constexpr uint32_t kVocab = 1000;
  auto scratch = SamplingScratch::Create(kVocab, &memory);
  std::vector<float> logits(kVocab, -1.0f);
  logits[500] = 4.0f, logits[17] = 3.0f, logits[999] = 2.0f;
  std::vector<float> maxima(63);
  ASSERT_TRUE(Kernels().panel_maxima(logits.data(), kVocab, maxima.data()));
  for (uint32_t i = 0; i < kVocab; ++i) {
    if (maxima[i / 16] == -1.0f) logits[i] = 100.0f;
  }
  SamplingOptions options;
  options.greedy = true;
  const auto sample = [&] {
    auto sampler = Sampler::Create(options, kVocab, {500}, 8, &memory, &Kernels());
    return *(*sampler)->Sample(logits, 0, &*scratch, maxima);
  };
  EXPECT_EQ(sample(), 500);
  options.repetition_penalty = 4.0f;  // 4 becomes 1
  EXPECT_EQ(sample(), 17);
  options.logit_bias = {{17, -kInfinity}, {16, 2.5f}};
  EXPECT_EQ(sample(), 999);
  options = SamplingOptions();
  options.top_k = 3;
  options.min_p = 1.0f;
  EXPECT_EQ(sample(), 500);
  options.logit_bias = {{500, -kInfinity}};
  EXPECT_EQ(sample(), 17);
}

}  // namespace
}  // namespace qinfer::engine
