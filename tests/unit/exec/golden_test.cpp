// Logits against transformers in F32, for small models of each architecture (tests/golden/
// make_models.py) and the sample model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "exec_testing.h"

namespace qinfer::exec {
namespace {

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    most = difference > most || std::isnan(difference) ? difference : most;
  }
  return most;
}

// Folder, a variant of its configuration ("" = config.json), the file with the weights.
struct Case {
  const char* folder;
  const char* variant;
  const char* weights;
};

class Golden : public testing::TestWithParam<Case> {};

TEST_P(Golden, LogitsEqualTransformers) {
  const Case& c = GetParam();
  const std::string folder = exec::Golden(std::string("models/") + c.folder + "/");
  const std::string variant = c.variant;
  Machine machine;
  format::OpenOptions options;
  options.memory = &machine.memory;
  options.access = io::Access::kCopy;
  format::SideFiles side;
  if (std::string(c.weights).find(".gguf") == std::string::npos)
    side.config_json =
        ReadText(folder + "config" + (variant.empty() ? "" : "-" + variant) + ".json");
  auto source = io::OpenFile(folder + c.weights, io::Access::kCopy, &machine.memory);
  ASSERT_TRUE(source.ok()) << source.status().message();
  auto checkpoint = format::OpenCheckpoint(*source, side, options);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  auto model = Load(*checkpoint, machine.context);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Recorded recorded(folder + "expected.safetensors");
  const std::vector<int32_t> tokens = recorded.Read<int32_t>("tokens");
  const std::vector<float> expected =
      recorded.Read<float>(variant.empty() ? "logits" : "logits." + variant);
  for (const std::vector<uint32_t>& chunks :
       {std::vector<uint32_t>{}, std::vector<uint32_t>{30, 1}, std::vector<uint32_t>{7, 3, 11}}) {
    RunOptions run;
    run.chunks = chunks;
    auto logits = LogitsOf(*model, machine.context, tokens, run);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    EXPECT_LT(MaxDifference(*logits, expected), 3e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         testing::Values(Case{"llama-odd", "", "model.safetensors"},
                                         Case{"llama-odd", "default", "model.safetensors"},
                                         Case{"llama-odd", "linear", "model.safetensors"},
                                         Case{"llama-odd", "dynamic", "model.safetensors"},
                                         Case{"llama-odd", "yarn", "model.safetensors"},
                                         Case{"llama-odd", "", "model-f16.gguf"},
                                         Case{"llama-blocks", "", "model-blocks.gguf"},
                                         Case{"mistral-window", "", "model.safetensors"},
                                         Case{"mistral-window", "full", "model.safetensors"},
                                         Case{"gemma3-small", "", "model.safetensors"}),
                         [](const testing::TestParamInfo<Case>& info) {
                           std::string name = StrCat(info.param.folder, "_", info.param.variant,
                                                     "_", info.param.weights);
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char x) { return std::isalnum(x) == 0; }, '_');
                           return name;
                         });

TEST(GoldenTinyLlama, LogitsEqualTransformers) {
  Machine machine;
  auto model = LoadPath(std::string(QINFER_SOURCE_DIR) + "/samples/models/tiny-llama", &machine);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Recorded recorded(exec::Golden("tiny-llama.safetensors"));
  const std::vector<int32_t> tokens = recorded.Read<int32_t>("tokens");
  const std::vector<int32_t> rows = recorded.Read<int32_t>("rows");
  const std::vector<float> expected = recorded.Read<float>("logits");
  auto logits = LogitsOf(*model, machine.context, tokens);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  const size_t vocab = (*model)->spec().vocab_size;
  std::vector<float> chosen;
  for (const int32_t row : rows) {
    const auto begin = logits->begin() + static_cast<long>(static_cast<size_t>(row) * vocab);
    chosen.insert(chosen.end(), begin, begin + static_cast<long>(vocab));
  }
  EXPECT_LT(MaxDifference(chosen, expected), 1e-4);
  EXPECT_NE((*model)->tokenizer(), nullptr);
  EXPECT_NE((*model)->chat_template(), nullptr);
  EXPECT_EQ((*model)->generation_defaults().eos_ids, std::vector<int32_t>{1});
}

}  // namespace
}  // namespace qinfer::exec
