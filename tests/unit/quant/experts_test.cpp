// Quantizing the sample model with experts and latent attention: only its routed experts, coverage
// of experts by the calibration, files that give the source's logits, FP8 sources.
#include <gtest/gtest.h>

#include <cstring>

#include "exec/forward.h"
#include "format/qinfer_file.h"
#include "quant/calibration_data.h"
#include "quant/recipe.h"
#include "test_util.h"

namespace qinfer::quant {
namespace {

std::string TinyDeepseek() { return QINFER_SOURCE_DIR "/samples/models/tiny-deepseek"; }

double Number(const observe::Report& report, const char* path) {
  const observe::Report* node = report.Find(path);
  EXPECT_NE(node, nullptr) << path;
  return node == nullptr ? -1.0 : node->AsNumber();
}

// Logits of a few tokens, float activations.
std::vector<float> LogitsOf(Host* host, std::shared_ptr<format::Checkpoint> checkpoint) {
  std::vector<float> logits;
  auto work = exec::LoadWork::Create(std::move(checkpoint), host->context);
  EXPECT_TRUE(work.ok()) << work.status();
  if (!work.ok()) return logits;
  EXPECT_TRUE(Finish(work->get()).ok());
  const std::shared_ptr<const exec::Model> model = (*work)->TakeModel();
  kv::CacheOptions options;
  options.k_type = options.v_type = kernels::KvType::kF32;
  options.max_tokens = 32;
  auto cache = kv::Cache::Create(exec::CacheLayout(model->spec(), options.k_type, options.v_type),
                                 options, &host->memory);
  EXPECT_TRUE(cache.ok());
  auto sequence = (*cache)->NewSequence();
  exec::ForwardOptions forward_options;
  forward_options.max_batch_tokens = forward_options.max_logit_rows = 20;
  forward_options.activations = exec::Activations::kFloat;
  auto forward = exec::Forward::Create(model, host->context, forward_options);
  EXPECT_TRUE(forward.ok()) << forward.status();
  std::vector<int32_t> tokens(20);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((5 + i * 37) % 87);
  EXPECT_TRUE((*sequence)->Reserve(20).ok());
  exec::BatchSegment segment;
  segment.sequence = sequence->get();
  segment.tokens = tokens;
  segment.logits_from = 0;
  EXPECT_TRUE((*forward)->Begin(absl::MakeConstSpan(&segment, 1)).ok());
  EXPECT_TRUE((*forward)->Run(Deadline()).ok());
  for (uint32_t r = 0; r < 20; ++r) {
    const auto row = (*forward)->Logits(r);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

TEST(QuantizeExperts, ExpertsAloneSaveMuchAndCostLittle) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyDeepseek());
  QuantizeOptions options;
  options.recipe.linear = weights::ParseFormat("bf16").value();
  options.recipe.overrides = {{"*.experts.*", "int4-g64-f16"}};
  options.calibration = Calibrated(&host, checkpoint, 16, 256);
  options.output_path = folder.File("experts.qinfer");
  auto work = QuantizeWork::Create(checkpoint, std::move(options), host.context);
  ASSERT_TRUE(work.ok()) << work.status();
  const Status done = Finish(work->get());
  ASSERT_TRUE(done.ok()) << done;
  const observe::Report report = (*work)->TakeReport();
  EXPECT_LT(Number(report, "evaluation.perplexity_increase"), 0.01);
  // Three layers of 16 experts, all reached by so many tokens.
  EXPECT_EQ(Number(report, "calibration.expert_coverage.experts"), 48.0);
  EXPECT_EQ(Number(report, "calibration.expert_coverage.without_tokens"), 0.0);
  // Whatever observer was asked for.
  EXPECT_EQ(report.Find("calibration.activations")->AsString(), "histogram");
  EXPECT_EQ(report.Find("calibration.expert_activations")->AsString(), "minmax");
  uint64_t before = 0, after = 0;
  const observe::Report* tensors = report.Find("tensors");
  ASSERT_NE(tensors, nullptr);
  for (size_t i = 0; i < tensors->size(); ++i) {
    const observe::Report& tensor = tensors->at(i);
    if (std::string(tensor.Find("name")->AsString()).find(".experts.") == std::string::npos) {
      continue;
    }
    before += static_cast<uint64_t>(Number(tensor, "parameters")) * 2;
    after += static_cast<uint64_t>(Number(tensor, "bytes"));
  }
  ASSERT_GT(before, 0u);
  EXPECT_LT(static_cast<double>(after), 0.27 * static_cast<double>(before));
  auto opened = host.Open(folder.File("experts.qinfer"));
  ASSERT_NE(opened, nullptr);
  EXPECT_TRUE(opened->qinfer()->VerifyAll().ok());
  EXPECT_NE(opened->qinfer()->Find("model.layers.0.self_attn.kv_b_proj.k_b.weight"), nullptr);
  EXPECT_FALSE(LogitsOf(&host, opened).empty());
}

TEST(ConvertExperts, GivesTheSameBits) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyDeepseek());
  auto sink = io::CreateFile(folder.File("same.qinfer"));
  ASSERT_TRUE(sink.ok());
  auto work = ConvertWork::Create(checkpoint, *std::move(sink), host.context);
  ASSERT_TRUE(work.ok()) << work.status();
  const Status done = Finish(work->get());
  ASSERT_TRUE(done.ok()) << done;
  auto converted = host.Open(folder.File("same.qinfer"));
  ASSERT_NE(converted, nullptr);
  const std::vector<float> a = LogitsOf(&host, checkpoint), b = LogitsOf(&host, converted);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST(Convert, RefusesAConfigurationWithoutWeights) {
  Host host;
  TemporaryFolder folder;
  std::filesystem::copy_file(TinyDeepseek() + "/config.json", folder.File("config.json"));
  auto checkpoint = host.Open(folder.File("."));
  ASSERT_NE(checkpoint, nullptr);
  auto sink = io::CreateFile(folder.File("none.qinfer"));
  ASSERT_TRUE(sink.ok());
  const auto work = ConvertWork::Create(checkpoint, *std::move(sink), host.context);
  ASSERT_FALSE(work.ok());
  EXPECT_EQ(work.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(work.status().message()).find("without weights"), std::string::npos);
}

// FP8 weights are what their blocks' factors make of them, rounded to BF16; without factors they
// are refused.
TEST(Fp8, EqualsTheDecodedWeights) {
  Host host;
  const std::string models = QINFER_SOURCE_DIR "/tests/golden/models/";
  const std::vector<float> fp8 = LogitsOf(&host, host.Open(models + "deepseek-fp8"));
  const std::vector<float> decoded = LogitsOf(&host, host.Open(models + "deepseek-fp8-decoded"));
  ASSERT_FALSE(fp8.empty());
  EXPECT_EQ(fp8, decoded);
  format::OpenOptions options;
  options.memory = &host.memory;
  format::SideFiles side;
  const std::string config = ReadText(models + "deepseek-fp8/config.json");
  side.config_json = format::Document::Borrow(config);
  auto source = io::OpenFile(models + "deepseek-fp8/model-00001-of-00002.safetensors",
                             io::Access::kMap, &host.memory);
  ASSERT_TRUE(source.ok());
  auto alone = format::OpenCheckpoint(*source, side, options);
  ASSERT_TRUE(alone.ok()) << alone.status();
  auto spec = model::SpecFromCheckpoint(**alone);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const Status refused = model::ValidateTensors(*spec, **alone);
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.message()).find("_scale_inv"), std::string::npos) << refused;
}

}  // namespace
}  // namespace qinfer::quant
