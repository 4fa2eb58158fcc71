// Dynamic rope scaling beyond the original context: the formula against logits that transformers
// has recorded, and sessions that grow past it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "tests/unit/exec/golden_testing.h"

namespace qinfer::engine {
namespace {

constexpr double kTheta = 500.0, kFactor = 3.0;  // kTheta: what logits.default was recorded with
constexpr uint32_t kOriginal = 24, kDims = 18;

// The theta that dynamic scaling makes kTheta of at this length, by the published formula:
// theta * (factor * length / original - (factor - 1)) ^ (dims / (dims - 2)).
double ThetaBefore(uint32_t length) {
  const double growth = kFactor * length / kOriginal - (kFactor - 1.0);
  return kTheta / std::pow(growth, kDims / (kDims - 2.0));
}

class DynamicRope : public ::testing::Test {
 protected:
  // llama-odd with its plain rope replaced.
  void Open(double theta) {
    const std::string folder = exec::Golden("models/llama-odd/");
    std::string config = exec::ReadText(folder + "config-default.json");
    const auto replace = [&](const std::string& what, const std::string& by) {
      const size_t at = config.find(what);
      ASSERT_NE(at, std::string::npos) << what;
      config.replace(at, what.size(), by);
    };
    replace("\"rope_type\": \"default\"",
            StrCat("\"rope_type\": \"dynamic\", \"factor\": ", kFactor));
    char number[40];
    std::snprintf(number, sizeof(number), "\"rope_theta\": %.17g", theta);
    replace("\"rope_theta\": 500.0", number);
    replace("\"max_position_embeddings\": 96", StrCat("\"max_position_embeddings\": ", kOriginal));
    format::SideFiles side;
    auto document = format::Document::Copy(config, &machine_.memory, "a configuration");
    ASSERT_TRUE(document.ok());
    side.config_json = *document;
    auto source = io::OpenFile(folder + "model.safetensors", io::Access::kCopy, &machine_.memory);
    ASSERT_TRUE(source.ok()) << source.status();
    format::OpenOptions options;
    options.memory = &machine_.memory;
    options.access = io::Access::kCopy;
    auto checkpoint = format::OpenCheckpoint(*source, side, options);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    auto model = exec::Load(*checkpoint, machine_.context);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    const exec::Recorded recorded(folder + "expected.safetensors");
    tokens_ = recorded.Read<int32_t>("tokens");
    expected_ = recorded.Read<float>("logits.default");
  }

  exec::Machine machine_;
  std::shared_ptr<const exec::Model> model_;
  std::vector<int32_t> tokens_;
  std::vector<float> expected_;
};

TEST_F(DynamicRope, FrequenciesOfALongSequence) {
  Open(ThetaBefore(45));
  ASSERT_NE(model_, nullptr);
  ASSERT_EQ(tokens_.size(), 45u);
  EXPECT_EQ(model_->spec().max_context, kOriginal * 3);
  for (const std::vector<uint32_t>& chunks :
       {std::vector<uint32_t>{}, std::vector<uint32_t>{30, 1}, std::vector<uint32_t>{7, 3, 11}}) {
    exec::RunOptions run;
    run.chunks = chunks;
    auto logits = exec::LogitsOf(model_, machine_.context, tokens_, run);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_LT(exec::MaxDifference(*logits, expected_), 3e-4);
  }
}

TEST_F(DynamicRope, SessionsGrowPastTheOriginalContext) {
  Open(kTheta);
  ASSERT_NE(model_, nullptr);
  EngineOptions options;
  options.context_tokens = 72;
  options.batch_tokens = 7;
  options.k_type = options.v_type = kernels::KvType::kF32;
  options.activations = exec::Activations::kFloat;
  auto engine = Engine::Create(model_, machine_.context, options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  auto session = *(*engine)->NewSession();
  ASSERT_TRUE(session->Append(absl::MakeConstSpan(tokens_).subspan(0, 20)).ok());
  GenerateOptions generate;
  generate.max_tokens = 12;
  generate.ignore_eos = true;
  generate.sampling.greedy = true;
  auto generation = session->Generate(generate);
  ASSERT_TRUE(generation.ok()) << generation.status();
  auto done = (*generation)->Step(Deadline());
  ASSERT_TRUE(done.ok() && *done) << done.status();
  // Every token is what a pass over all before it predicts, which knows no cache of shorter ones.
  const std::vector<int32_t> all(session->tokens().begin(), session->tokens().end());
  ASSERT_EQ(all.size(), 32u);
  for (size_t n = 20; n < 32; ++n) {
    const std::vector<int32_t> before(all.begin(), all.begin() + static_cast<ptrdiff_t>(n));
    auto logits = exec::LogitsOf(model_, machine_.context, before);
    ASSERT_TRUE(logits.ok()) << logits.status();
    const auto last = logits->end() - static_cast<ptrdiff_t>(model_->spec().vocab_size);
    EXPECT_EQ(std::max_element(last, logits->end()) - last, all[n]) << n;
  }
}

}  // namespace
}  // namespace qinfer::engine
