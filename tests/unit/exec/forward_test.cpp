// Batches: what Begin refuses, suspending, cancelling, abandoning; logits that are not finite;
// floating-point modes of the host.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "exec_testing.h"

namespace qinfer::exec {
namespace {

constexpr char kModel[] = "models/llama-blocks/model-blocks.gguf";

struct Fixture {
  Machine machine{2};
  std::shared_ptr<const Model> model;
  std::shared_ptr<kv::Cache> cache;
  std::unique_ptr<Forward> forward;
  std::unique_ptr<kv::Sequence> sequence;

  Fixture() {
    auto loaded = LoadPath(Golden(kModel), &machine);
    EXPECT_TRUE(loaded.ok());
    model = *loaded;
    kv::CacheOptions options;
    options.max_tokens = 200;
    cache = *kv::Cache::Create(CacheLayout(model->spec(), options.k_type, options.v_type), options,
                               &machine.memory);
    sequence = *cache->NewSequence();
    ForwardOptions forward_options;
    forward_options.max_batch_tokens = 16;
    forward_options.max_logit_rows = 2;
    forward_options.max_position = 100;
    forward = *Forward::Create(model, machine.context, forward_options);
  }
  BatchSegment Segment(const std::vector<int32_t>& tokens, uint32_t logits_from) const {
    BatchSegment segment;
    segment.sequence = sequence.get();
    segment.tokens = tokens;
    segment.logits_from = logits_from;
    return segment;
  }
  Status Begin(const std::vector<int32_t>& tokens, uint32_t logits_from) {
    const BatchSegment segment = Segment(tokens, logits_from);
    return forward->Begin(absl::MakeConstSpan(&segment, 1));
  }
};

TEST(Forward, BeginRefusesMisuse) {
  Fixture f;
  const auto misuse = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(f.forward->Begin({}).code(), misuse);
  EXPECT_EQ(f.Begin({}, 0).code(), misuse);
  EXPECT_EQ(f.Begin({-1}, 0).code(), misuse);
  EXPECT_EQ(f.Begin({131}, 0).code(), misuse);
  EXPECT_EQ(f.Begin(std::vector<int32_t>(17, 1), UINT32_MAX).code(), misuse);
  EXPECT_EQ(f.Begin(std::vector<int32_t>(5, 1), 2).code(), misuse);  // three rows
  const std::vector<int32_t> two = {1, 2};
  const BatchSegment twice[] = {f.Segment(two, 1), f.Segment(two, 1)};
  EXPECT_EQ(f.forward->Begin(twice).code(), misuse);
  EXPECT_EQ(f.forward->Run(Deadline()).status().code(), misuse);
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(f.sequence->Reserve(16).ok());
    ASSERT_TRUE(f.Begin(std::vector<int32_t>(16, 3), UINT32_MAX).ok());
    EXPECT_EQ(f.Begin(two, 0).code(), misuse);  // one is in flight
    ASSERT_TRUE(f.forward->Run(Deadline()).ok());
    EXPECT_EQ(f.forward->logit_rows(), 0u);
    f.sequence->Commit(16);
  }
  ASSERT_TRUE(f.sequence->Reserve(5).ok());
  EXPECT_EQ(f.Begin(std::vector<int32_t>(5, 1), UINT32_MAX).code(), misuse);  // position 100
  EXPECT_TRUE(f.Begin(std::vector<int32_t>(4, 1), UINT32_MAX).ok());
  EXPECT_TRUE(f.forward->Logits(7).empty());
  EXPECT_TRUE(f.forward->LogitMaxima(7).empty());
}

TEST(Forward, SuspendsAfterEveryUnit) {
  Fixture f;
  ASSERT_TRUE(f.sequence->Reserve(9).ok());
  ASSERT_TRUE(f.Begin(std::vector<int32_t>(9, 5), 8).ok());
  Deadline at_once;
  at_once.until_ns = 0;
  int calls = 0;
  for (bool done = false; !done; ++calls) {
    auto result = f.forward->Run(at_once);
    ASSERT_TRUE(result.ok());
    done = *result;
    ASSERT_LT(calls, 100000);
  }
  EXPECT_GT(calls, 20);
  std::vector<float> in_pieces(f.forward->Logits(0).begin(), f.forward->Logits(0).end());
  f.sequence->Rollback();
  ASSERT_TRUE(f.sequence->Reserve(9).ok());
  ASSERT_TRUE(f.Begin(std::vector<int32_t>(9, 5), 8).ok());
  ASSERT_TRUE(f.forward->Run(Deadline()).ok());
  EXPECT_EQ(
      std::memcmp(in_pieces.data(), f.forward->Logits(0).data(), in_pieces.size() * sizeof(float)),
      0);
}

TEST(Forward, CancelAndAbandonLeaveNothingInFlight) {
  Fixture f;
  std::atomic<bool> cancel{true};
  Deadline deadline;
  deadline.cancel = &cancel;
  ASSERT_TRUE(f.sequence->Reserve(9).ok());
  ASSERT_TRUE(f.Begin(std::vector<int32_t>(9, 5), 8).ok());
  EXPECT_EQ(f.forward->Run(deadline).status().code(), absl::StatusCode::kCancelled);
  f.sequence->Rollback();
  EXPECT_EQ(f.sequence->length(), 0u);
  ASSERT_TRUE(f.sequence->Reserve(3).ok());
  ASSERT_TRUE(f.Begin(std::vector<int32_t>(3, 5), 2).ok());
  f.forward->Abandon();
  ASSERT_TRUE(f.Begin(std::vector<int32_t>(3, 5), 2).ok());
  EXPECT_TRUE(f.forward->Run(Deadline()).ok());
}

TEST(Forward, LogitsThatAreNotFiniteAreAnError) {
  Fixture f;
  // Weights are immutable in use; a test may spoil one as a corrupt file would.
  const_cast<float*>(f.model->ends().final_norm)[7] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(f.sequence->Reserve(3).ok());
  ASSERT_TRUE(f.Begin(std::vector<int32_t>(3, 5), 2).ok());
  EXPECT_EQ(f.forward->Run(Deadline()).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(f.Begin(std::vector<int32_t>(3, 5), UINT32_MAX).ok());
  EXPECT_TRUE(f.forward->Run(Deadline()).ok());  // no logits, nothing to check
}

#if defined(__x86_64__)
TEST(Forward, HostModesNeitherMatterNorChange) {
  Fixture f;
  const auto run = [&] {
    EXPECT_TRUE(f.sequence->Reserve(9).ok());
    EXPECT_TRUE(f.Begin(std::vector<int32_t>(9, 5), 8).ok());
    EXPECT_TRUE(f.forward->Run(Deadline()).ok());
    f.sequence->Rollback();
    return std::vector<float>(f.forward->Logits(0).begin(), f.forward->Logits(0).end());
  };
  const std::vector<float> expected = run();
  const unsigned saved = _mm_getcsr();
  const unsigned odd = (saved | 0x8040u | 0x6000u);  // flush, denormals are zero, truncate
  _mm_setcsr(odd);
  const std::vector<float> got = run();
  EXPECT_EQ(_mm_getcsr() & ~0x3fu, odd & ~0x3fu);  // sticky flags aside
  _mm_setcsr(saved);
  EXPECT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0);
}
#endif

TEST(Forward, PlanIsWhatCreateTakes) {
  Machine machine(2);
  auto model = LoadPath(Golden(kModel), &machine);
  ASSERT_TRUE(model.ok());
  for (const uint32_t batch : {1u, 7u, 512u}) {
    ForwardOptions options;
    options.max_batch_tokens = batch;
    options.max_logit_rows = 3;
    const uint64_t before = machine.memory.used_bytes();
    auto forward = Forward::Create(*model, machine.context, options);
    ASSERT_TRUE(forward.ok());
    EXPECT_EQ(machine.memory.used_bytes() - before,
              Forward::PlanBytes((*model)->spec(), options, machine.context));
  }
  ForwardOptions none;
  none.max_batch_tokens = 0;
  EXPECT_FALSE(Forward::Create(*model, machine.context, none).ok());
}

}  // namespace
}  // namespace qinfer::exec
