// The determinism contract on small models: logits are the same bits for every number of threads,
// cut of the prompt, budget, company in the batch, and instruction set.
#include <gtest/gtest.h>

#include <algorithm>

#include "exec_testing.h"
#define XXH_INLINE_ALL
#include "xxhash.h"

namespace qinfer::exec {
namespace {

constexpr uint32_t kTokens = 45;
// Beyond a span of keys, which few tokens of more than one thread have states of.
constexpr uint32_t kLong = kernels::kAttentionSpan + 30;

struct Case {
  const char* path;
  Activations activations;
  kernels::KvType kv;
};

uint64_t Hash(const std::vector<float>& logits) {
  return XXH3_64bits(logits.data(), logits.size() * sizeof(float));
}

std::vector<int32_t> Prompt(uint32_t vocab, uint32_t seed, uint32_t count) {
  std::vector<int32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<int32_t>((seed * 7919 + i * i * 31 + i * 17) % vocab);
  }
  return tokens;
}

class Determinism : public testing::TestWithParam<Case> {
 protected:
  // Logits of the prompt on a machine of its own.
  uint64_t HashOn(uint32_t threads, kernels::Isa isa, std::vector<uint32_t> chunks,
                  uint64_t budget = Deadline::kNever, uint32_t tokens = kTokens) {
    Machine machine(threads, isa);
    if (machine.context.kernels == nullptr) return 0;
    auto model = LoadPath(Golden(GetParam().path), &machine);
    EXPECT_TRUE(model.ok()) << model.status().message();
    if (!model.ok()) return 0;
    RunOptions run;
    run.activations = GetParam().activations;
    run.kv = GetParam().kv;
    run.chunks = std::move(chunks);
    run.unit_budget = budget;
    auto logits =
        LogitsOf(*model, machine.context, Prompt((*model)->spec().vocab_size, 1, tokens), run);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    return logits.ok() ? Hash(*logits) : 0;
  }
};

TEST_P(Determinism, InstructionSets) {
  const uint64_t expected = HashOn(1, kernels::Isa::kRef, {});
  for (const kernels::Isa isa :
       {kernels::Isa::kAvx2, kernels::Isa::kAvxVnni, kernels::Isa::kAvx512, kernels::Isa::kNeon}) {
    if (!Runs(isa)) continue;
    EXPECT_EQ(HashOn(1, isa, {}), expected) << kernels::SelectTable(isa)->name;
    EXPECT_EQ(HashOn(2, isa, {13, 1}), expected) << kernels::SelectTable(isa)->name;
  }
}

TEST_P(Determinism, Threads) {
  const uint64_t expected = HashOn(1, kernels::Isa::kAuto, {});
  for (const uint32_t threads : {2u, 3u, 5u, 8u}) {
    EXPECT_EQ(HashOn(threads, kernels::Isa::kAuto, {}), expected) << threads;
    EXPECT_EQ(HashOn(threads, kernels::Isa::kAuto, {17, 1}), expected) << threads;
  }
}

TEST_P(Determinism, SpansOfKeys) {
  const uint64_t expected = HashOn(1, kernels::Isa::kAuto, {}, Deadline::kNever, kLong);
  for (const uint32_t threads : {1u, 2u, 3u, 8u}) {
    EXPECT_EQ(HashOn(threads, kernels::Isa::kAuto, {1010, 1}, Deadline::kNever, kLong), expected)
        << threads;
    EXPECT_EQ(HashOn(threads, kernels::Isa::kAuto, {1010, 3, 1, 2}, 0, kLong), expected) << threads;
  }
}

TEST_P(Determinism, ChunksAndBudgets) {
  const uint64_t expected = HashOn(1, kernels::Isa::kAuto, {});
  for (uint32_t chunk = 1; chunk <= 40; ++chunk) {
    EXPECT_EQ(HashOn(1, kernels::Isa::kAuto, {chunk}), expected) << chunk;
  }
  EXPECT_EQ(HashOn(1, kernels::Isa::kAuto, {}, 0), expected);
  EXPECT_EQ(HashOn(2, kernels::Isa::kAuto, {7, 3, 11}, 0), expected);
}

// Several sequences in one batch, some prefilling while others decode, one forked on the way.
TEST_P(Determinism, Company) {
  const uint64_t expected = HashOn(1, kernels::Isa::kAuto, {});
  Machine machine(2);
  auto model = LoadPath(Golden(GetParam().path), &machine);
  ASSERT_TRUE(model.ok());
  const uint32_t vocab = (*model)->spec().vocab_size;
  kv::CacheOptions cache_options;
  cache_options.k_type = cache_options.v_type = GetParam().kv;
  cache_options.max_tokens = 600;
  cache_options.max_sequences = 8;
  auto cache = kv::Cache::Create(CacheLayout((*model)->spec(), GetParam().kv, GetParam().kv),
                                 cache_options, &machine.memory);
  ASSERT_TRUE(cache.ok());
  ForwardOptions options;
  options.max_batch_tokens = options.max_logit_rows = 64;
  options.activations = GetParam().activations;
  auto forward = Forward::Create(*model, machine.context, options);
  ASSERT_TRUE(forward.ok());
  struct Member {
    std::unique_ptr<kv::Sequence> sequence;
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    uint32_t step;  // tokens a step
  };
  std::vector<Member> members;
  for (uint32_t i = 0; i < 4; ++i) {
    // Members 0 and 2 have the prompt in question; the others are company.
    members.push_back({*(*cache)->NewSequence(),
                       Prompt(vocab, i % 2 == 0 ? 1 : i + 5, i % 2 == 0 ? kTokens : 60),
                       {},
                       i == 0   ? 11u
                       : i == 1 ? 1u
                       : i == 2 ? 4u
                                : 19u});
  }
  for (int round = 0; round < 200; ++round) {
    std::vector<BatchSegment> segments;
    std::vector<Member*> active;
    for (size_t i = 0; i < members.size(); ++i) {
      Member& member = members[(i + static_cast<size_t>(round)) % members.size()];
      const uint32_t at = member.sequence->length();
      const uint32_t count =
          std::min<uint32_t>(member.step, static_cast<uint32_t>(member.tokens.size()) - at);
      if (count == 0) continue;
      ASSERT_TRUE(member.sequence->Reserve(count).ok());
      BatchSegment segment;
      segment.sequence = member.sequence.get();
      segment.tokens = absl::MakeConstSpan(member.tokens.data() + at, count);
      segment.logits_from = 0;
      segment.rope_length = static_cast<uint32_t>(member.tokens.size());
      segments.push_back(segment);
      active.push_back(&member);
    }
    if (segments.empty()) break;
    ASSERT_TRUE((*forward)->Begin(segments).ok());
    auto done = (*forward)->Run(Deadline());
    ASSERT_TRUE(done.ok()) << done.status().message();
    uint32_t row = 0;
    for (size_t s = 0; s < segments.size(); ++s) {
      for (size_t t = 0; t < segments[s].tokens.size(); ++t, ++row) {
        const auto logits = (*forward)->Logits(row);
        active[s]->logits.insert(active[s]->logits.end(), logits.begin(), logits.end());
      }
      active[s]->sequence->Commit(static_cast<uint32_t>(segments[s].tokens.size()));
    }
    if (round == 1) {
      // The fork of member 0 goes on with the same tokens, in steps of its own.
      Member& first = members[0];
      auto fork = first.sequence->Fork();
      ASSERT_TRUE(fork.ok());
      std::vector<int32_t> tokens = first.tokens;
      std::vector<float> logits = first.logits;
      members.push_back({*std::move(fork), std::move(tokens), std::move(logits), 3});
    }
  }
  EXPECT_EQ(Hash(members[0].logits), expected);
  EXPECT_EQ(Hash(members[2].logits), expected);
  EXPECT_EQ(Hash(members[4].logits), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Determinism,
    testing::Values(
        Case{"models/llama-blocks/model-blocks.gguf", Activations::kAuto, kernels::KvType::kInt8},
        Case{"models/llama-blocks/model-blocks.gguf", Activations::kFloat, kernels::KvType::kF16},
        Case{"models/gemma3-small", Activations::kAuto, kernels::KvType::kInt8},
        Case{"models/gemma2-small", Activations::kAuto, kernels::KvType::kInt8},
        Case{"models/phi3-small", Activations::kAuto, kernels::KvType::kInt8},
        Case{"models/olmo2-small", Activations::kAuto, kernels::KvType::kF16},
        Case{"models/mistral-window", Activations::kAuto, kernels::KvType::kF32},
        Case{"models/llama-odd", Activations::kAuto, kernels::KvType::kF16},
        Case{"models/deepseek-v3-small", Activations::kAuto, kernels::KvType::kInt8},
        Case{"models/deepseek-v2-small", Activations::kAuto, kernels::KvType::kF16},
        Case{"models/qwen2-moe-small", Activations::kAuto, kernels::KvType::kInt8},
        Case{"models/gpt-oss-mxfp4", Activations::kAuto, kernels::KvType::kInt8}));

}  // namespace
}  // namespace qinfer::exec
