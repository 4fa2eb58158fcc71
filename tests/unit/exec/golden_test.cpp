// Logits against transformers in F32, for small models of each architecture (tests/golden/
// make_models.py) and the sample model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "golden_testing.h"

namespace qinfer::exec {
namespace {

// Folder, a variant of its configuration ("" = config.json), the file with the weights.
struct Case {
  const char* folder;
  const char* variant;
  const char* weights;
};

// One sequence decodes token by token while another prefills in pieces, in the same batches.
void ExpectMixedBatches(const std::shared_ptr<const Model>& model, const Context& context,
                        const std::vector<int32_t>& tokens, const std::vector<float>& expected) {
  const uint32_t n = static_cast<uint32_t>(tokens.size()), vocab = model->spec().vocab_size;
  constexpr kernels::KvType kF32 = kernels::KvType::kF32;
  kv::CacheOptions cache_options;
  cache_options.k_type = cache_options.v_type = kF32;
  cache_options.max_tokens = 2 * n;
  cache_options.max_sequences = 2;
  auto cache =
      kv::Cache::Create(CacheLayout(model->spec(), kF32, kF32), cache_options, context.memory);
  ASSERT_TRUE(cache.ok());
  ForwardOptions options;
  options.max_batch_tokens = options.max_logit_rows = n;
  options.activations = Activations::kFloat;
  auto forward = Forward::Create(model, context, options);
  ASSERT_TRUE(forward.ok());
  std::unique_ptr<kv::Sequence> sequences[] = {*(*cache)->NewSequence(), *(*cache)->NewSequence()};
  std::vector<float> logits[2];
  for (bool first = true; sequences[0]->length() < n; first = false) {
    const uint32_t counts[] = {first ? 19u : 1u, std::min(5u, n - sequences[1]->length())};
    std::vector<BatchSegment> segments;
    for (uint32_t s = 0; s < 2; ++s) {
      if (counts[s] == 0) continue;
      ASSERT_TRUE(sequences[s]->Reserve(counts[s]).ok());
      BatchSegment& segment = segments.emplace_back();
      segment.sequence = sequences[s].get();
      segment.tokens = absl::MakeConstSpan(tokens.data() + sequences[s]->length(), counts[s]);
      segment.logits_from = 0;
      segment.rope_length = n;
    }
    const Status begun = (*forward)->Begin(segments);
    ASSERT_TRUE(begun.ok()) << begun.message();
    auto done = (*forward)->Run(Deadline());
    ASSERT_TRUE(done.ok() && *done);
    uint32_t row = 0;
    for (uint32_t s = 0; s < 2; ++s) {
      for (uint32_t i = 0; i < counts[s]; ++i, ++row) {
        const absl::Span<const float> values = (*forward)->Logits(row);
        logits[s].insert(logits[s].end(), values.begin(), values.end());
      }
      sequences[s]->Commit(counts[s]);
    }
  }
  ASSERT_EQ(logits[1].size(), size_t{n} * vocab);
  EXPECT_LT(MaxDifference(logits[0], expected), 3e-4);
  EXPECT_LT(MaxDifference(logits[1], expected), 3e-4);
}

class Golden : public testing::TestWithParam<Case> {};

TEST_P(Golden, LogitsEqualTransformers) {
  const Case& c = GetParam();
  const std::string folder = exec::Golden(std::string("models/") + c.folder + "/");
  const std::string variant = c.variant;
  Machine machine;
  auto checkpoint = OpenGolden(folder, variant, c.weights, &machine);
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
  ExpectMixedBatches(*model, machine.context, tokens, expected);
  const std::string weights = c.weights;
  const bool twin = weights == "model-yarn.gguf" || weights == "model-f16.gguf";
  if (!twin || recorded.checkpoint->Find("llamacpp") == nullptr ||
      (weights == "model-f16.gguf" && c.folder == std::string("llama-odd"))) {
    return;  // the twin of llama-odd has yarn
  }
  // What llama.cpp made of the same weights; its caps of scores have a precision of their own.
  auto logits = LogitsOf(*model, machine.context, tokens);
  ASSERT_TRUE(logits.ok());
  const std::vector<float> llamacpp = recorded.Read<float>("llamacpp");
  const bool caps = (*model)->spec().layers[0].attention.softcap != 0.0f;
  EXPECT_LT(MaxDifference(*logits, llamacpp), caps ? 5e-3 : 3e-4);
  const size_t vocab = (*model)->spec().vocab_size;
  for (size_t at = 0; at < logits->size(); at += vocab) {
    const auto best = [&](const std::vector<float>& x) {
      const auto row = x.begin() + static_cast<long>(at);
      return std::max_element(row, row + static_cast<long>(vocab)) - row;
    };
    EXPECT_EQ(best(*logits), best(llamacpp)) << at / vocab;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Golden,
    testing::Values(
        Case{"llama-odd", "", "model.safetensors"},
        Case{"llama-odd", "default", "model.safetensors"},
        Case{"llama-odd", "linear", "model.safetensors"},
        Case{"llama-odd", "dynamic", "model.safetensors"},
        Case{"llama-odd", "yarn", "model.safetensors"}, Case{"llama-odd", "", "model-f16.gguf"},
        Case{"llama-blocks", "", "model-blocks.gguf"},
        Case{"mistral-window", "", "model.safetensors"},
        Case{"mistral-window", "full", "model.safetensors"},
        Case{"gemma3-small", "", "model.safetensors"},
        Case{"gemma3-multimodal", "", "model.safetensors"},
        Case{"gemma2-small", "", "model.safetensors"},
        Case{"gemma2-small", "nocaps", "model.safetensors"},
        Case{"gemma2-small", "released", "model.safetensors"},
        Case{"qwen2-small", "", "model.safetensors"},
        Case{"qwen2-small", "window", "model.safetensors"},
        Case{"qwen2-small", "yarn", "model.safetensors"},
        Case{"qwen3-small", "", "model.safetensors"},
        Case{"qwen3-small", "window", "model.safetensors"},
        Case{"phi3-small", "", "model.safetensors"},
        Case{"phi3-small", "window", "model.safetensors"},
        Case{"phi3-small", "released", "model.safetensors"},
        Case{"smollm3-small", "", "model.safetensors"},
        Case{"smollm3-small", "window", "model.safetensors"},
        Case{"olmo2-small", "", "model.safetensors"}, Case{"llama-odd", "yarn", "model-yarn.gguf"},
        Case{"qwen2-small", "", "model-f16.gguf"}, Case{"qwen3-small", "", "model-f16.gguf"},
        Case{"gemma2-small", "gguf", "model-f16.gguf"}, Case{"phi3-small", "", "model-f16.gguf"},
        Case{"smollm3-small", "", "model-f16.gguf"}, Case{"olmo2-small", "", "model-f16.gguf"},
        Case{"deepseek-v3-small", "", "model.safetensors"},
        Case{"deepseek-v3-small", "rope", "model.safetensors"},
        Case{"deepseek-v3-small", "halves", "model.safetensors"},
        Case{"deepseek-v3-small", "one-group", "model.safetensors"},
        Case{"deepseek-v3-small", "sums", "model.safetensors"},
        Case{"deepseek-v3-small", "mscale", "model.safetensors"},
        Case{"deepseek-v3-biases", "", "model.safetensors"},
        Case{"deepseek-v2-small", "", "model.safetensors"},
        Case{"deepseek-v2-small", "greedy", "model.safetensors"},
        Case{"deepseek-v2-small", "two-groups", "model.safetensors"},
        Case{"mixtral-small", "", "model.safetensors"},
        Case{"mixtral-small", "window", "model.safetensors"},
        Case{"mixtral-small", "three", "model.safetensors"},
        Case{"qwen2-moe-small", "", "model.safetensors"},
        Case{"qwen2-moe-small", "norm", "model.safetensors"},
        Case{"qwen2-moe-small", "two", "model.safetensors"},
        Case{"qwen3-moe-small", "", "model.safetensors"},
        Case{"qwen3-moe-small", "raw", "model.safetensors"},
        Case{"qwen3-moe-small", "two", "model.safetensors"},
        Case{"glm4-moe-small", "", "model.safetensors"},
        Case{"glm4-moe-small", "one-group", "model.safetensors"},
        Case{"glm4-moe-small", "whole", "model.safetensors"},
        Case{"deepseek-v3-small", "gguf", "model.safetensors"},
        Case{"deepseek-v3-small", "gguf", "model-f16.gguf"},
        Case{"deepseek-v2-small", "", "model-f16.gguf"},
        Case{"qwen2-moe-small", "", "model-f16.gguf"},
        Case{"qwen3-moe-small", "", "model-f16.gguf"}, Case{"mixtral-small", "", "model-f16.gguf"},
        Case{"mixtral-small", "", "model-old.gguf"}, Case{"glm4-moe-small", "", "model-f16.gguf"},
        Case{"gpt-oss-small", "", "model.safetensors"},
        Case{"gpt-oss-small", "truncate", "model.safetensors"},
        Case{"gpt-oss-small", "layers", "model.safetensors"},
        Case{"gpt-oss-small", "limit", "model.safetensors"},
        Case{"gpt-oss-small", "truncate", "model-f16.gguf"},
        Case{"gpt-oss-mxfp4", "", "model.safetensors"},
        Case{"gpt-oss-mxfp4", "", "model-f16.gguf"}),
    [](const testing::TestParamInfo<Case>& info) {
      std::string name =
          StrCat(info.param.folder, "_", info.param.variant, "_", info.param.weights);
      std::replace_if(
          name.begin(), name.end(), [](char x) { return std::isalnum(x) == 0; }, '_');
      return name;
    });

// ---- GGUF files against llama.cpp (tests/golden/make_gguf_models.py, make_moe_gguf_models.py)

StatusOr<std::vector<float>> GgufLogits(const std::string& bytes, Machine* machine,
                                        const std::vector<int32_t>& tokens) {
  const absl::Span<const uint8_t> span(reinterpret_cast<const uint8_t*>(bytes.data()),
                                       bytes.size());
  format::OpenOptions options;
  options.memory = &machine->memory;
  options.access = io::Access::kCopy;
  QINFER_ASSIGN_OR_RETURN(
      const std::shared_ptr<format::Checkpoint> checkpoint,
      format::OpenCheckpoint(io::BorrowMemory(span, "model.gguf"), format::SideFiles(), options));
  QINFER_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model,
                          Load(checkpoint, machine->context));
  return LogitsOf(model, machine->context, tokens);
}

// Rows whose best token is the same.
size_t SameTop(const std::vector<float>& a, const std::vector<float>& b, size_t rows) {
  const size_t vocab = a.size() / rows;
  size_t same = 0;
  for (size_t r = 0; r < rows; ++r) {
    const auto top = [&](const std::vector<float>& x) {
      const auto begin = x.begin() + static_cast<long>(r * vocab);
      return std::max_element(begin, begin + static_cast<long>(vocab)) - begin;
    };
    same += top(a) == top(b) ? 1 : 0;
  }
  return same;
}

// llama.cpp looks its GELU up in a table of F16 values: that much of the difference is its own.
struct GgufCase {
  const char* name;
  double tolerance;
};
class GoldenGguf : public testing::TestWithParam<GgufCase> {};

TEST_P(GoldenGguf, LogitsEqualLlamaCpp) {
  const std::string path = exec::Golden(std::string("gguf-models/") + GetParam().name);
  Machine machine;
  const Recorded recorded(path + ".safetensors");
  const std::vector<int32_t> tokens = recorded.Read<int32_t>("tokens");
  const std::vector<float> expected = recorded.Read<float>("logits");
  auto logits = GgufLogits(ReadText(path + ".gguf"), &machine, tokens);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  ASSERT_EQ(logits->size(), expected.size());
  EXPECT_EQ(SameTop(*logits, expected, tokens.size()), tokens.size());
  EXPECT_LT(MaxDifference(*logits, expected), GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Models, GoldenGguf,
    testing::Values(GgufCase{"llama-rope-freqs", 3e-4}, GgufCase{"llama-odd", 3e-4},
                    GgufCase{"gemma3-window", 1e-2}, GgufCase{"qwen2moe", 3e-4},
                    GgufCase{"glm4moe-nextn", 3e-4}, GgufCase{"deepseek2-lite", 1e-3}),
    [](const testing::TestParamInfo<GgufCase>& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// Without the divisors of the frequencies the agreement is gone: the recorded logits depend on
// them.
TEST(GoldenGguf, RopeFrequencyFactorsMatter) {
  const std::string path = exec::Golden("gguf-models/llama-rope-freqs");
  Machine machine;
  const Recorded recorded(path + ".safetensors");
  const std::vector<int32_t> tokens = recorded.Read<int32_t>("tokens");
  const std::vector<float> expected = recorded.Read<float>("logits");
  std::string bytes = ReadText(path + ".gguf");
  const size_t at = bytes.find("rope_freqs.weight");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 10, "unused_one");
  auto logits = GgufLogits(bytes, &machine, tokens);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  ASSERT_EQ(logits->size(), expected.size());
  EXPECT_LT(SameTop(*logits, expected, tokens.size()), tokens.size());
  EXPECT_GT(MaxDifference(*logits, expected), 0.1);
}

class GoldenSample : public testing::TestWithParam<const char*> {};

TEST_P(GoldenSample, LogitsEqualTransformers) {
  Machine machine;
  const std::string name = GetParam();
  auto model = LoadPath(std::string(QINFER_SOURCE_DIR) + "/samples/models/" + name, &machine);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Recorded recorded(exec::Golden(name + ".safetensors"));
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
  EXPECT_LT(MaxDifference(chosen, expected), 2e-4);
  EXPECT_NE((*model)->tokenizer(), nullptr);
  EXPECT_NE((*model)->chat_template(), nullptr);
  EXPECT_EQ((*model)->generation_defaults().eos_ids, std::vector<int32_t>{1});
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenSample, testing::Values("tiny-llama", "tiny-deepseek"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param).substr(5);
                         });

}  // namespace
}  // namespace qinfer::exec
