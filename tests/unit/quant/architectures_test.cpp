// Small models of every architecture, converted and quantized: conversion gives the source's logits
// to the bit, quantized weights stay near them, and every instruction set computes the same bits
// from them as the plain kernels.
#include <gtest/gtest.h>

#include <cmath>

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
    EXPECT_LT(RelativeError(*reference, *exact), form.error);
    EXPECT_GT(RelativeError(*reference, *exact), 0.0);
    for (const kernels::Isa isa :
         {kernels::Isa::kRef, kernels::Isa::kAvx2, kernels::Isa::kAvx512, kernels::Isa::kNeon}) {
      if (kernels::SelectTable(isa) == nullptr) continue;
      for (const uint32_t threads : {1u, 3u}) {
        auto logits = Logits(path, isa, threads, kernels::KvType::kInt8, exec::Activations::kAuto);
        ASSERT_TRUE(logits.ok()) << logits.status();
        EXPECT_EQ(*logits, *reference) << kernels::SelectTable(isa)->name << " " << threads;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Architectures,
                         testing::Values("llama-odd", "mistral-window", "qwen2-small",
                                         "qwen3-small", "gemma2-small", "gemma3-small",
                                         "gemma3-multimodal", "smollm3-small", "olmo2-small"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace qinfer::quant
