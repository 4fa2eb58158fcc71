// Small models of every architecture, converted and quantized: conversion gives the source's logits
// to the bit, quantized weights stay near them, and every instruction set computes the same bits
// from them as the plain kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "format/qinfer_file.h"
#include "test_util.h"
#include "tests/unit/exec/exec_testing.h"

namespace qinfer::quant {
namespace {

std::vector<int32_t> Tokens(uint32_t vocab, uint32_t count) {
  std::vector<int32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i)
    tokens[i] = static_cast<int32_t>((i * i * 31 + i * 17) % vocab);
  return tokens;
}

StatusOr<std::vector<float>> Logits(const std::string& path, kernels::Isa isa, uint32_t threads,
                                    kernels::KvType kv, exec::Activations activations) {
  exec::Machine machine(threads, isa);
  QINFER_ASSIGN_OR_RETURN(const auto model, exec::LoadPath(path, &machine));
  exec::RunOptions run;
  run.kv = kv;
  run.activations = activations;
  if (threads > 1) run.chunks = {11, 1, 1, 7};
  return exec::LogitsOf(model, machine.context, Tokens(model->spec().vocab_size, 37), run);
}

double RelativeError(const std::vector<float>& x, const std::vector<float>& reference) {
  double error = 0.0, signal = 0.0;
  for (size_t i = 0; i < reference.size(); ++i) {
    error += std::pow(double{x[i]} - double{reference[i]}, 2);
    signal += std::pow(double{reference[i]}, 2);
  }
  return std::sqrt(error / signal);
}

class Architectures : public testing::TestWithParam<const char*> {
 protected:
  std::string source() const {
    return std::string(QINFER_SOURCE_DIR "/tests/golden/models/") + GetParam();
  }
};

TEST_P(Architectures, ConvertsToTheBit) {
  Host host;
  TemporaryFolder folder;
  const std::string path = folder.File("exact.qinfer");
  auto sink = io::CreateFile(path);
  ASSERT_TRUE(sink.ok());
  auto work = ConvertWork::Create(host.Open(source()), std::move(*sink), host.context);
  ASSERT_TRUE(work.ok()) << work.status();
  ASSERT_TRUE(Finish(work->get()).ok());
  // And says so, but of FP8 values with factors of their own.
  auto written = host.Open(path);
  ASSERT_NE(written, nullptr);
  const bool fp8 = source().find("fp8") != std::string::npos;
  for (const format::TensorInfo& info : written->tensors()) {
    const format::QinferTensor* tensor = written->qinfer()->Find(info.name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_TRUE(fp8 || tensor->import == "exact") << info.name << " " << tensor->import;
  }
  for (const kernels::KvType kv : {kernels::KvType::kF32, kernels::KvType::kInt8}) {
    auto expected = Logits(source(), kernels::Isa::kAuto, 1, kv, exec::Activations::kFloat);
    auto converted = Logits(path, kernels::Isa::kAuto, 1, kv, exec::Activations::kFloat);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(converted.ok()) << converted.status();
    EXPECT_EQ(*converted, *expected);
  }
}

TEST_P(Architectures, QuantizedAlikeOnEveryInstructionSet) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(source());
  ASSERT_NE(checkpoint, nullptr);
  auto spec = model::SpecFromCheckpoint(*checkpoint);
  ASSERT_TRUE(spec.ok()) << spec.status();
  CalibrationOptions calibration_options;
  calibration_options.samples = 6;
  calibration_options.sample_tokens = 48;
  auto calibration = Calibration::Create(checkpoint, calibration_options, host.context);
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  ASSERT_TRUE((*calibration)->AddTokens(Tokens(spec->vocab_size, 700)).ok());
  auto run = (*calibration)->Run();
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE(Finish(run->get()).ok());
  auto exact =
      Logits(source(), kernels::Isa::kAuto, 1, kernels::KvType::kF32, exec::Activations::kFloat);
  ASSERT_TRUE(exact.ok()) << exact.status();
  struct Form {
    const char* format;
    double error;
  };
  for (const Form& form : {Form{"int8", 0.1}, Form{"int4", 1.2}}) {
    SCOPED_TRACE(form.format);
    QuantizeOptions options;
    options.recipe.linear = weights::ParseFormat(form.format).value();
    options.recipe.embedding = "int8";
    options.calibration = *calibration;
    options.output_path = folder.File(std::string(form.format) + ".qinfer");
    const std::string path = options.output_path;
    auto work = QuantizeWork::Create(checkpoint, std::move(options), host.context);
    ASSERT_TRUE(work.ok()) << work.status();
    const Status finished = Finish(work->get());
    ASSERT_TRUE(finished.ok()) << finished;
    auto reference =
        Logits(path, kernels::Isa::kRef, 1, kernels::KvType::kInt8, exec::Activations::kAuto);
    ASSERT_TRUE(reference.ok()) << reference.status();
    // A small error can choose another expert, of random ones.
    const bool experts = spec->layers.back().feed_forward.kind == model::FeedForwardKind::kExperts;
    // And errors add up over the layers of a deep one.
    const double layers = static_cast<double>(spec->layers.size());
    const double depth = std::max(1.0, std::sqrt(layers / 8.0));
    EXPECT_LT(RelativeError(*reference, *exact), form.error * depth * (experts ? 3 : 1));
    EXPECT_GT(RelativeError(*reference, *exact), 0.0);
    for (const kernels::Isa isa : {kernels::Isa::kRef, kernels::Isa::kAvx2, kernels::Isa::kAvxVnni,
                                   kernels::Isa::kAvx512, kernels::Isa::kNeon}) {
      if (!exec::Runs(isa)) continue;
      for (const uint32_t threads : {1u, 3u}) {
        auto logits = Logits(path, isa, threads, kernels::KvType::kInt8, exec::Activations::kAuto);
        ASSERT_TRUE(logits.ok()) << logits.status();
        EXPECT_EQ(*logits, *reference) << kernels::SelectTable(isa)->name << " " << threads;
      }
    }
  }
}

// Weights that share a tensor in the source are tensors of their own here, with formats of their
// own; the file can be converted and quantized again.
TEST(FusedWeights, AreNamedOnTheirOwn) {
  Host host;
  TemporaryFolder folder;
  QuantizeOptions options;
  options.recipe.linear = weights::ParseFormat("int8").value();
  options.recipe.overrides = {{"*.v.weight", "f16"}, {"*gate_up_proj*", "int4"}};
  options.calibrate = options.evaluate = false;
  options.output_path = folder.File("mixed.qinfer");
  auto work = QuantizeWork::Create(host.Open(QINFER_SOURCE_DIR "/tests/golden/models/phi3-small"),
                                   std::move(options), host.context);
  ASSERT_TRUE(work.ok()) << work.status();
  ASSERT_TRUE(Finish(work->get()).ok());
  auto mixed = host.Open(folder.File("mixed.qinfer"));
  ASSERT_NE(mixed, nullptr);
  const std::pair<const char*, const char*> formats[] = {
      {"model.layers.1.self_attn.qkv_proj.q.weight", "int8"},
      {"model.layers.1.self_attn.qkv_proj.v.weight", "f16"},
      {"model.layers.2.mlp.gate_up_proj.gate.weight", "int4"},
      {"model.layers.2.mlp.gate_up_proj.up.weight", "int4"},
      {"model.layers.2.mlp.down_proj.weight", "int8"}};
  for (const auto& [name, format] : formats) {
    const format::QinferTensor* tensor = mixed->qinfer()->Find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(weights::ParseFormat(tensor->format).value(), weights::ParseFormat(format).value())
        << name;
  }
  EXPECT_EQ(mixed->Find("model.layers.1.self_attn.qkv_proj.weight"), nullptr);
  auto sink = io::CreateFile(folder.File("again.qinfer"));
  ASSERT_TRUE(sink.ok());
  auto again = ConvertWork::Create(mixed, std::move(*sink), host.context);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE(Finish(again->get()).ok());
  const auto run = [&](const char* file) {
    return Logits(folder.File(file), kernels::Isa::kAuto, 1, kernels::KvType::kF16,
                  exec::Activations::kAuto);
  };
  auto first = run("mixed.qinfer"), second = run("again.qinfer");
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(*first, *second);
}

// Experts in MXFP4 blocks are kept exactly, in one tensor or in two, and the file says so; biases
// of all experts stay one vector.
TEST(MxExperts, AreKeptExactly) {
  for (const bool gguf : {false, true}) {
    Host host;
    TemporaryFolder folder;
    const std::string source = std::string(QINFER_SOURCE_DIR "/tests/golden/models/gpt-oss-mxfp4") +
                               (gguf ? "/model-f16.gguf" : "");
    auto sink = io::CreateFile(folder.File("exact.qinfer"));
    ASSERT_TRUE(sink.ok());
    auto work = ConvertWork::Create(host.Open(source), std::move(*sink), host.context);
    ASSERT_TRUE(work.ok()) << work.status();
    ASSERT_TRUE(Finish(work->get()).ok());
    auto exact = host.Open(folder.File("exact.qinfer"));
    ASSERT_NE(exact, nullptr);
    const std::string experts = "model.layers.1.mlp.experts.", block = "blk.1.ffn_";
    for (const std::string& name :
         gguf ? std::vector<std::string>{block + "gate_exps.weight", block + "up_exps.weight",
                                         block + "down_exps.weight"}
              : std::vector<std::string>{experts + "gate_up_proj_blocks.expert_gate",
                                         experts + "gate_up_proj_blocks.expert_up",
                                         experts + "down_proj_blocks"}) {
      const format::QinferTensor* tensor = exact->qinfer()->Find(name);
      ASSERT_NE(tensor, nullptr) << name;
      EXPECT_EQ(tensor->format, "fp4-g32-e8m0");
      EXPECT_EQ(tensor->import, "exact");
      EXPECT_EQ(tensor->source_dtype, "MXFP4");
      EXPECT_EQ(tensor->rank, 3u);
    }
    const format::QinferTensor* bias =
        exact->qinfer()->Find(gguf ? block + "down_exps.bias" : experts + "gate_up_proj_bias");
    ASSERT_NE(bias, nullptr);
    EXPECT_EQ(bias->rank, 1u);
    EXPECT_EQ(exact->Find(experts + "down_proj_scales"), nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Architectures,
    testing::Values("llama-odd", "mistral-window", "qwen2-small", "qwen3-small", "gemma2-small",
                    "gemma3-small", "gemma3-multimodal", "phi3-small", "phi3-small/model-f16.gguf",
                    "smollm3-small", "olmo2-small", "deepseek-v3-small", "deepseek-v2-small",
                    "deepseek-fp8", "deepseek-v3-biases", "mixtral-small", "qwen2-moe-small",
                    "qwen3-moe-small", "glm4-moe-small", "mixtral-small/model-f16.gguf",
                    "mixtral-small/model-old.gguf", "qwen2-moe-small/model-f16.gguf",
                    "qwen3-moe-small/model-f16.gguf", "deepseek-v2-small/model-f16.gguf",
                    "deepseek-v3-small/model-f16.gguf", "glm4-moe-small/model-f16.gguf",
                    "../gguf-models/qwen2moe.gguf", "../gguf-models/glm4moe-nextn.gguf",
                    "../gguf-models/deepseek2-lite.gguf", "gpt-oss-small", "gpt-oss-mxfp4",
                    "gpt-oss-mxfp4/model-f16.gguf"),
    [](const testing::TestParamInfo<const char*>& info) {
      std::string name = info.param;
      std::replace_if(
          name.begin(), name.end(),
          [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      return name;
    });

}  // namespace
}  // namespace qinfer::quant
