// Random configurations of small models of every architecture: values of the wrong type, zero,
// negative, huge, or at odds with the tensors. Each is refused with a message or is a model that
// computes; nothing that grows with what it says is allocated before it is checked.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "golden_testing.h"
#include "tests/fuzz/config_checkpoint.h"

namespace qinfer::exec {
namespace {

const char* const kValues[] = {
    "0",       "-1",    "1",     "2",          "3",          "5",     "0.5",
    "-0.5",    "1e308", "65536", "4294967295", "4294967296", "\"x\"", "true",
    "null",    "[]",    "{}",    "[1, 2]",     "16777216",   "1024",  "9223372036854775808",
    "-1e-300", "\"\""};

// The configuration with some of its values replaced.
std::string Mutated(const std::string& config, std::mt19937* random) {
  std::string out = config;
  const uint32_t changes = 1 + (*random)() % 3;
  for (uint32_t i = 0; i < changes; ++i) {
    std::vector<size_t> values;
    for (size_t at = out.find("\":"); at != std::string::npos; at = out.find("\":", at + 1)) {
      values.push_back(at + 2);
    }
    const size_t begin = values[(*random)() % values.size()];
    const size_t end = out.find_first_of(",\n}", begin);
    out.replace(begin, end - begin, StrCat(" ", kValues[(*random)() % std::size(kValues)]));
  }
  return out;
}

TEST(RandomConfigs, AreRefusedOrComputeWithTheirTensors) {
  uint32_t refused = 0, computed = 0;
  for (const std::string name :
       {"deepseek-v3-small", "deepseek-v2-small", "mixtral-small", "qwen2-moe-small",
        "qwen3-moe-small", "glm4-moe-small", "gpt-oss-small", "gpt-oss-mxfp4", "llama-odd",
        "mistral-window", "qwen2-small", "qwen3-small", "gemma2-small", "gemma3-small",
        "gemma3-multimodal", "phi3-small", "smollm3-small", "olmo2-small"}) {
    const std::string folder = Golden("models/" + name + "/");
    const std::string config = ReadText(folder + "config.json");
    const std::string weights = ReadText(folder + "model.safetensors");
    std::mt19937 random(17);
    for (uint32_t round = 0; round < 200; ++round) {
      const std::string text = Mutated(config, &random);
      SCOPED_TRACE(text);
      Machine machine;
      format::SideFiles side;
      side.config_json = format::Document::Borrow(text);
      format::OpenOptions options;
      options.memory = &machine.memory;
      auto checkpoint = format::OpenCheckpoint(
          io::BorrowMemory({reinterpret_cast<const uint8_t*>(weights.data()), weights.size()},
                           name),
          side, options);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
      const auto spec = model::SpecFromCheckpoint(**checkpoint);
      const Status valid = spec.ok() ? model::ValidateTensors(*spec, **checkpoint) : spec.status();
      EXPECT_LT(machine.memory.peak_bytes(), 1u << 20);
      if (!valid.ok()) {
        EXPECT_FALSE(valid.message().empty());
        ++refused;
        continue;
      }
      const auto model = Load(*checkpoint, machine.context);
      if (!model.ok()) {  // what the specification does not need: ids of ends
        EXPECT_EQ(model.status().code(), absl::StatusCode::kDataLoss) << model.status().message();
        ++refused;
        continue;
      }
      RunOptions run;
      auto logits = LogitsOf(*model, machine.context, {0, 1, 2}, run);
      EXPECT_TRUE(logits.ok() || !logits.status().message().empty());
      EXPECT_LT(machine.memory.peak_bytes(), 16u << 20);
      ++computed;
    }
  }
  EXPECT_GT(refused, 900u);
  EXPECT_GT(computed, 300u);
}

// A configuration alone: what is accepted can be planned, and planning takes no memory.
TEST(RandomConfigs, AreRefusedOrPlanned) {
  uint32_t refused = 0, planned = 0;
  for (const char* name : {"deepseek-r1", "kimi-k2"}) {
    const std::string config = ReadText(Golden(StrCat("configs/", name, ".json")));
    std::mt19937 random(18);
    for (uint32_t round = 0; round < 60; ++round) {
      const std::string text = Mutated(config, &random);
      SCOPED_TRACE(text);
      const fuzz::ConfigCheckpoint checkpoint(text);
      const auto spec = model::SpecFromCheckpoint(checkpoint);
      if (!spec.ok()) {
        ++refused;
        continue;
      }
      Machine machine;
      const auto plan = PlanMemory(checkpoint, *spec, PlanOptions(), machine.context);
      EXPECT_EQ(machine.memory.peak_bytes(), 0u);
      planned += plan.ok() && plan->total_bytes > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(refused, 30u);
  EXPECT_GT(planned, 10u);
}

TEST(RandomConfigs, ExpertsOfAllLayersAreLimited) {
  std::string config = ReadText(Golden("configs/kimi-k2.json"));
  const auto set = [&](const char* from, const char* to) {
    const size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos);
    config.replace(at, std::strlen(from), to);
  };
  set("\"num_hidden_layers\": 61", "\"num_hidden_layers\": 1024");
  set("\"n_routed_experts\": 384", "\"n_routed_experts\": 4096");
  const fuzz::ConfigCheckpoint checkpoint(config);
  const Status status = model::SpecFromCheckpoint(checkpoint).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(std::string(status.message()).find("4190208 experts"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace qinfer::exec
