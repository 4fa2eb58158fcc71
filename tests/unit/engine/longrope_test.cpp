// Sessions of a model whose rotations switch where a sequence outgrows the original context: what a
// session predicts is a matter of its tokens alone, however it came to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "test_model.h"
#include "tests/unit/exec/exec_testing.h"

namespace qinfer::engine {
namespace {

std::string ModelPath() { return QINFER_SOURCE_DIR "/tests/golden/models/phi3-small"; }

class LongRope : public ::testing::Test {
 protected:
  void SetUp() override {
    test_ = qinfer::testing::LoadTestModel(ModelPath());
    ASSERT_NE(test_->model, nullptr) << test_->status;
    EngineOptions options;
    options.context_tokens = 128;
    options.batch_tokens = 7;
    options.k_type = options.v_type = kernels::KvType::kF32;
    options.activations = exec::Activations::kFloat;
    auto engine = Engine::Create(test_->model, test_->context, options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *engine;
    const exec::Recorded recorded(ModelPath() + "/expected.safetensors");
    tokens_ = recorded.Read<int32_t>("tokens");
    lengths_ = recorded.Read<int32_t>("lengths");
    last_ = recorded.Read<float>("last");
  }

  std::vector<float> After(Session* session) {
    auto work = session->Prefill();
    EXPECT_TRUE(work.ok()) << work.status();
    auto done = (*work)->Step(Deadline());
    EXPECT_TRUE(done.ok() && *done);
    auto logits = session->LastLogits();
    EXPECT_TRUE(logits.ok()) << logits.status();
    return logits.ok() ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }
  absl::Span<const int32_t> Range(int32_t begin, int32_t end) const {
    return absl::MakeConstSpan(tokens_).subspan(static_cast<size_t>(begin),
                                                static_cast<size_t>(end - begin));
  }
  double Difference(const std::vector<float>& logits, size_t index) const {
    double most = 0.0;
    for (size_t i = 0; i < logits.size(); ++i) {
      most = std::max(most, std::abs(double{logits[i]} - last_[index * logits.size() + i]));
    }
    return most;
  }

  std::unique_ptr<qinfer::testing::TestModel> test_;
  std::shared_ptr<Engine> engine_;
  std::vector<int32_t> tokens_, lengths_;
  std::vector<float> last_;
};

TEST_F(LongRope, PredictionsBeforeAndAfterTheSwitch) {
  ASSERT_EQ(lengths_.size(), 4u);
  std::vector<std::vector<float>> fresh;
  for (size_t i = 0; i < lengths_.size(); ++i) {
    auto session = engine_->NewSession();
    ASSERT_TRUE(session.ok());
    ASSERT_TRUE((*session)->Append(Range(0, lengths_[i])).ok());
    fresh.push_back(After(session->get()));
    EXPECT_LT(Difference(fresh.back(), i), 3e-4) << lengths_[i];
  }
  // One session that grows across the switch and is cut back gives the same bits.
  auto session = engine_->NewSession();
  ASSERT_TRUE(session.ok());
  int32_t at = 0;
  for (size_t i = 0; i < lengths_.size(); ++i) {
    ASSERT_TRUE((*session)->Append(Range(at, lengths_[i])).ok());
    at = lengths_[i];
    EXPECT_EQ(After(session->get()), fresh[i]) << at;
  }
  ASSERT_TRUE((*session)->Truncate(static_cast<uint32_t>(lengths_[1])).ok());
  EXPECT_EQ(After(session->get()), fresh[1]);
  // A fork of a short one grows by itself.
  auto fork = (*session)->Fork();
  ASSERT_TRUE(fork.ok());
  ASSERT_TRUE((*fork)->Append(Range(lengths_[1], lengths_[3])).ok());
  EXPECT_EQ(After(fork->get()), fresh[3]);
  EXPECT_EQ(After(session->get()), fresh[1]);
}

TEST_F(LongRope, GenerationGoesOnAcrossTheSwitch) {
  const auto generate = [&](int32_t from, uint32_t count) {
    auto session = *engine_->NewSession();
    EXPECT_TRUE(session->Append(Range(0, from)).ok());
    GenerateOptions options;
    options.max_tokens = count;
    options.ignore_eos = true;
    options.sampling.greedy = true;
    auto generation = session->Generate(options);
    EXPECT_TRUE(generation.ok()) << generation.status();
    auto done = (*generation)->Step(Deadline());
    EXPECT_TRUE(done.ok() && *done) << done.status();
    return session;
  };
  const auto whole = generate(20, 12);
  ASSERT_EQ(whole->length(), 32u);
  // Every token is what a session of its own predicts after those before.
  for (uint32_t n = 20; n < 32; ++n) {
    auto session = *engine_->NewSession();
    ASSERT_TRUE(session->Append(whole->tokens().subspan(0, n)).ok());
    const std::vector<float> logits = After(session.get());
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), whole->tokens()[n])
        << n;
  }
}

// The forward pass alone refuses to go on where all keys would have to be turned anew.
TEST_F(LongRope, ForwardRefusesToMix) {
  auto cache = kv::Cache::Create(
      exec::CacheLayout(test_->model->spec(), kernels::KvType::kF32, kernels::KvType::kF32),
      {kernels::KvType::kF32, kernels::KvType::kF32, 64}, &test_->memory);
  ASSERT_TRUE(cache.ok());
  exec::ForwardOptions options;
  options.max_batch_tokens = 64;
  auto forward = exec::Forward::Create(test_->model, test_->context, options);
  ASSERT_TRUE(forward.ok());
  auto sequence = (*cache)->NewSequence();
  exec::BatchSegment segment;
  segment.sequence = sequence->get();
  const auto step = [&](int32_t count, uint32_t rope_length) -> Status {
    const auto at = static_cast<int32_t>((*sequence)->length());
    segment.tokens = Range(at, at + count);
    segment.rope_length = rope_length;
    QINFER_RETURN_IF_ERROR((*sequence)->Reserve(static_cast<uint32_t>(count)));
    const Status begun = (*forward)->Begin(absl::MakeConstSpan(&segment, 1));
    if (!begun.ok()) {
      (*sequence)->Rollback();
      return begun;
    }
    QINFER_RETURN_IF_ERROR((*forward)->Run(Deadline()).status());
    (*sequence)->Commit(static_cast<uint32_t>(count));
    return OkStatus();
  };
  ASSERT_TRUE(step(20, 0).ok());
  EXPECT_EQ(step(10, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(step(1, 40).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(step(4, 0).ok());
  ASSERT_TRUE((*sequence)->Truncate(0).ok());
  EXPECT_TRUE(step(10, 30).ok());
  EXPECT_EQ((*sequence)->variant(), 1u);
  EXPECT_TRUE(step(20, 0).code() == absl::StatusCode::kOk);
}

}  // namespace
}  // namespace qinfer::engine
