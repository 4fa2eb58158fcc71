// Perplexity and KL on the shipped model, against figures of llama.cpp and transformers; resuming,
// cancelling, and texts that do not fit. Downloaded models are in real_models_test.cpp.
#include "evaluate/perplexity.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>

#include "tests/unit/evaluate/text.h"

namespace qinfer::evaluate {
namespace {

using qinfer::testing::LoadTestModel;
using qinfer::testing::TestModel;

TestModel* Tiny() {
  static const auto model = LoadTestModel(qinfer::testing::TinyLlamaPath());
  return model.get();
}

std::string HeldOut() { return qinfer::testing::TinyLlamaPath() + "/tiny-heldout.txt"; }

class PerplexityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Tiny()->model == nullptr) GTEST_FAIL() << Tiny()->status.ToString();
    ASSERT_TRUE(ReadTokens(*Tiny()->model, HeldOut(), &tokens_));
  }
  std::unique_ptr<PerplexityWork> Make(const PerplexityOptions& options, bool reference) {
    auto work = PerplexityWork::Create(Tiny()->model, reference ? Tiny()->model : nullptr, tokens_,
                                       options, Tiny()->context);
    EXPECT_TRUE(work.ok()) << work.status().ToString();
    return work.ok() ? std::move(*work) : nullptr;
  }
  std::vector<int32_t> tokens_;
};

TEST_F(PerplexityTest, EqualsTheReferenceFigure) {
  PerplexityOptions options;
  options.context = 256;
  const auto work = Make(options, false);
  ASSERT_TRUE(RunToEnd(work.get()).ok());
  const auto report = work->TakeReport();
  EXPECT_EQ(report.Find("windows")->AsInt(), 159);
  EXPECT_EQ(report.Find("tokens")->AsInt(), 159 * 127);
  EXPECT_EQ(report.Find("context")->AsInt(), 256);
  std::printf("tiny-llama: perplexity %.5f (llama.cpp 17.9716, transformers 17.97164)\n",
              report.Find("perplexity")->AsNumber());
  EXPECT_NEAR(report.Find("perplexity")->AsNumber(), 17.9716, 0.002);
  EXPECT_GT(report.Find("perplexity_stderr")->AsNumber(), 0.1);
  EXPECT_EQ(report.Find("kl_mean"), nullptr);
}

// Of the sample model with experts and latent attention: within 0.05 % of transformers' figure.
TEST(PerplexityOfExperts, EqualsTheReferenceFigure) {
  const auto test = LoadTestModel(QINFER_SOURCE_DIR "/samples/models/tiny-deepseek");
  ASSERT_NE(test->model, nullptr) << test->status;
  std::vector<int32_t> tokens;
  ASSERT_TRUE(ReadTokens(*test->model, HeldOut(), &tokens));
  PerplexityOptions options;
  options.context = 256;
  options.activations = exec::Activations::kFloat;
  options.k_type = options.v_type = kernels::KvType::kF32;
  auto work = PerplexityWork::Create(test->model, nullptr, tokens, options, test->context);
  ASSERT_TRUE(work.ok()) << work.status();
  ASSERT_TRUE(RunToEnd(work->get()).ok());
  const auto report = (*work)->TakeReport();
  EXPECT_EQ(report.Find("tokens")->AsInt(), 20193);
  EXPECT_NEAR(report.Find("perplexity")->AsNumber(), 17.4933, 0.0005 * 17.4933);
}

TEST_F(PerplexityTest, AModelAgreesWithItself) {
  PerplexityOptions options;
  options.context = 128;
  options.max_windows = 3;
  const auto work = Make(options, true);
  ASSERT_TRUE(RunToEnd(work.get()).ok());
  const auto report = work->TakeReport();
  EXPECT_EQ(report.Find("tokens")->AsInt(), 3 * 63);
  EXPECT_EQ(report.Find("perplexity")->AsNumber(), report.Find("reference_perplexity")->AsNumber());
  for (const char* name : {"kl_mean", "kl_median", "kl_p99", "kl_p999", "kl_max"}) {
    ASSERT_NE(report.Find(name), nullptr) << name;
    EXPECT_EQ(report.Find(name)->AsNumber(), 0.0) << name;
  }
  EXPECT_EQ(report.Find("top1")->AsNumber(), 1.0);
}

TEST_F(PerplexityTest, AQuantizedCacheDivergesALittle) {
  // F16 against INT8 KV of the same weights: not by options, so by two runs with the sink.
  std::vector<float> rows[2];
  for (const bool int8 : {false, true}) {
    PerplexityOptions options;
    options.context = 128;
    options.max_windows = 1;
    if (int8) options.k_type = options.v_type = kernels::KvType::kInt8;
    options.sink = [](void* user, absl::Span<const float> row) {
      auto* out = static_cast<std::vector<float>*>(user);
      out->insert(out->end(), row.begin(), row.end());
      return OkStatus();
    };
    options.sink_user = &rows[int8 ? 1 : 0];
    const auto work = Make(options, false);
    ASSERT_TRUE(RunToEnd(work.get()).ok());
  }
  ASSERT_EQ(rows[0].size(), 63u * 2048u);
  ASSERT_EQ(rows[1].size(), rows[0].size());
  double worst = 0.0;
  for (size_t i = 0; i < rows[0].size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(rows[0][i] - rows[1][i])));
  }
  EXPECT_GT(worst, 0.0);
  EXPECT_LT(worst, 0.5);
}

TEST_F(PerplexityTest, SmallStepsGiveTheSame) {
  PerplexityOptions options;
  options.context = 64;
  options.max_windows = 2;
  const auto whole = Make(options, true), pieces = Make(options, true);
  ASSERT_TRUE(RunToEnd(whole.get()).ok());
  uint32_t steps = 0;
  for (bool done = false; !done; ++steps) {
    const auto result = pieces->Step({0, nullptr});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    done = *result;
  }
  EXPECT_GT(steps, 50u);
  EXPECT_EQ(whole->TakeReport().ToJson(), pieces->TakeReport().ToJson());
}

TEST_F(PerplexityTest, CancelAndErrorsOfTheSinkEndIt) {
  PerplexityOptions options;
  options.context = 64;
  std::atomic<bool> cancel{false};
  const uint64_t before = Tiny()->memory.used_bytes();
  {
    const auto work = Make(options, true);
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(work->Step({0, &cancel}).ok());
    cancel = true;
    EXPECT_EQ(work->Step({0, &cancel}).status().code(), absl::StatusCode::kCancelled);
  }
  options.sink = [](void*, absl::Span<const float>) { return IoError("disk full"); };
  {
    const auto work = Make(options, false);
    EXPECT_EQ(RunToEnd(work.get()).message(), "disk full");
  }
  EXPECT_EQ(Tiny()->memory.used_bytes(), before);
}

TEST_F(PerplexityTest, WhatDoesNotFitIsRefused) {
  const auto refused = [&](std::vector<int32_t> tokens, uint32_t context, const char* word) {
    PerplexityOptions options;
    options.context = context;
    const Status status =
        PerplexityWork::Create(Tiny()->model, nullptr, std::move(tokens), options, Tiny()->context)
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status.ToString();
  };
  refused(std::vector<int32_t>(63, 5), 64, "63 tokens");
  refused(std::vector<int32_t>(64, 5), 3, "context is 3");
  refused(std::vector<int32_t>(5000, 5), 4096, "1024");
  refused(std::vector<int32_t>(64, 2048), 64, "token 0");
}

}  // namespace
}  // namespace qinfer::evaluate
