// Quality on downloaded models (tests/fetch_models.sh) against llama.cpp's figures: perplexity on
// WikiText-2. Skipped without them.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "evaluate/perplexity.h"
#include "tests/unit/evaluate/text.h"

namespace qinfer::evaluate {
namespace {

using qinfer::testing::CachedModelPath;
using qinfer::testing::LoadTestModel;
using qinfer::testing::TestModel;

const char kSmolLm2[] = "SmolLM2-135M-Instruct.Q4_1.gguf";
const char kGemma3[] = "gemma-3-270m-q4_k_m.gguf";
const char kWikitext[] = QINFER_SHARED_DIR "/data/text/wikitext2-128k.txt";

bool Present(const std::string& path) { return std::ifstream(path).good(); }

// Perplexity over all windows of 512; negative where something failed.
double WikitextPerplexity(const char* file, exec::Activations activations, int64_t windows) {
  const auto test = LoadTestModel(CachedModelPath(file));
  EXPECT_NE(test->model, nullptr) << test->status.ToString();
  std::vector<int32_t> tokens;
  if (test->model == nullptr || !ReadTokens(*test->model, kWikitext, &tokens)) return -1.0;
  PerplexityOptions options;
  options.activations = activations;
  auto work = PerplexityWork::Create(test->model, nullptr, tokens, options, test->context);
  EXPECT_TRUE(work.ok()) << work.status().ToString();
  if (!work.ok()) return -1.0;
  const Status status = RunToEnd(work->get());
  EXPECT_TRUE(status.ok()) << status.ToString();
  const auto report = (*work)->TakeReport();
  EXPECT_EQ(report.Find("windows")->AsInt(), windows);
  return report.Find("perplexity")->AsNumber();
}

TEST(RealModels, SmolLm2Perplexity) {
  if (!Present(CachedModelPath(kSmolLm2))) GTEST_SKIP() << kSmolLm2 << " is not in ~/.cache/qinfer";
  if (!Present(kWikitext)) GTEST_SKIP() << kWikitext << " is not here";
  const double perplexity = WikitextPerplexity(kSmolLm2, exec::Activations::kInt8, 65);
  std::printf(
      "SmolLM2 Q4_1, INT8 activations: %.4f (llama.cpp 19.3725, in floating point 19.3227)\n",
      perplexity);
  EXPECT_GT(perplexity, 19.2);
  EXPECT_LT(perplexity, 19.3227 * 1.003);
}

// The next two take minutes on two cores: they are ctest entries of the full tier.
TEST(FullTier, SmolLm2PerplexityWithFloatActivations) {
  if (!Present(CachedModelPath(kSmolLm2))) GTEST_SKIP() << kSmolLm2 << " is not in ~/.cache/qinfer";
  if (!Present(kWikitext)) GTEST_SKIP() << kWikitext << " is not here";
  const double perplexity = WikitextPerplexity(kSmolLm2, exec::Activations::kFloat, 65);
  std::printf("SmolLM2 Q4_1, float activations: %.4f (llama.cpp 19.3227)\n", perplexity);
  EXPECT_NEAR(perplexity, 19.3227, 19.3227 * 0.0002);
}

TEST(FullTier, Gemma3Perplexity) {
  if (!Present(CachedModelPath(kGemma3))) GTEST_SKIP() << kGemma3 << " is not in ~/.cache/qinfer";
  if (!Present(kWikitext)) GTEST_SKIP() << kWikitext << " is not here";
  const double perplexity = WikitextPerplexity(kGemma3, exec::Activations::kAuto, 64);
  std::printf("gemma-3-270m Q4_K_M: %.4f (llama.cpp 15.1554)\n", perplexity);
  EXPECT_GT(perplexity, 14.9);
  EXPECT_LT(perplexity, 15.1554 * 1.003);
}

}  // namespace
}  // namespace qinfer::evaluate
