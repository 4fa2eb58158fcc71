// Layers on their own: the same bits as a whole pass with F32 keys and values, with and without
// taps, and what taps see.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "exec_testing.h"

namespace qinfer::exec {
namespace {

struct Model3 {
  const char* path;
  Activations activations;
};

class Layers : public testing::TestWithParam<Model3> {};

TEST_P(Layers, SameBitsAsTheWholePass) {
  Machine machine(2);
  auto model = LoadPath(Golden(GetParam().path), &machine);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const model::ModelSpec& spec = (*model)->spec();
  std::vector<int32_t> tokens(41);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i * 37 % spec.vocab_size);
  }
  RunOptions run;
  run.activations = GetParam().activations;
  auto expected = LogitsOf(*model, machine.context, tokens, run);
  ASSERT_TRUE(expected.ok()) << expected.status().message();

  ForwardOptions options;
  options.max_batch_tokens = 64;
  options.activations = GetParam().activations;
  auto forward = Forward::CreateForLayers(spec, machine.context, options, (*model)->checkpoint());
  ASSERT_TRUE(forward.ok());
  // The sequence, and another one before it in the same call.
  std::vector<int32_t> both = {3, 1, 4, 1, 5};
  both.insert(both.end(), tokens.begin(), tokens.end());
  const uint32_t lengths[] = {5, 41};
  for (const bool tapped : {false, true}) {
    std::vector<float> hidden(both.size() * spec.hidden_size), logits(41 * spec.vocab_size);
    std::map<std::pair<uint32_t, model::LinearRole>, uint32_t> seen;
    Tap tap;
    if (tapped) {
      tap = [&](const TapInput& input) {
        EXPECT_GE(input.stride, input.cols);
        for (uint32_t t = 0; t < input.tokens; ++t) {
          for (uint32_t i = 0; i < input.cols; ++i) {
            ASSERT_TRUE(std::isfinite(input.x[t * input.stride + i]));
          }
        }
        seen[{input.layer, input.role}] += input.tokens;
      };
    }
    auto ends = LoadEnds((*model)->checkpoint(), spec, machine.context);
    ASSERT_TRUE(ends.ok());
    ASSERT_TRUE((*forward)->Embed((*ends)->weights(), both, hidden.data()).ok());
    for (uint32_t layer = 0; layer < spec.layers.size(); ++layer) {
      auto store = LoadLayer((*model)->checkpoint(), spec, layer, machine.context);
      ASSERT_TRUE(store.ok());
      ASSERT_TRUE(
          (*forward)->RunLayer((*store)->weights(), layer, lengths, hidden.data(), tap).ok());
    }
    ASSERT_TRUE(
        (*forward)
            ->Head((*ends)->weights(), hidden.data() + 5 * spec.hidden_size, 41, logits.data(), tap)
            .ok());
    ASSERT_EQ(logits.size(), expected->size());
    EXPECT_EQ(std::memcmp(logits.data(), expected->data(), logits.size() * sizeof(float)), 0);
    if (tapped) {
      EXPECT_EQ(seen.size(), spec.layers.size() * 4 + 1);
      for (const auto& [key, count] : seen) {
        EXPECT_EQ(count, key.first == UINT32_MAX ? 41u : 46u);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Layers,
    testing::Values(Model3{"models/llama-blocks/model-blocks.gguf", Activations::kAuto},
                    Model3{"models/llama-blocks/model-blocks.gguf", Activations::kFloat},
                    Model3{"models/gemma3-small", Activations::kAuto},
                    Model3{"models/mistral-window", Activations::kAuto},
                    Model3{"models/qwen2-small", Activations::kAuto},
                    Model3{"models/gemma2-small", Activations::kAuto},
                    Model3{"models/phi3-small", Activations::kAuto},
                    Model3{"models/phi3-small/model-f16.gguf", Activations::kAuto},
                    Model3{"models/smollm3-small", Activations::kAuto},
                    Model3{"models/olmo2-small", Activations::kAuto},
                    Model3{"models/llama-odd", Activations::kAuto}));

// A layer in the smallest steps gives the same bits and taps, and takes many of them.
TEST(Layers, RunInSteps) {
  Machine machine;
  auto model = LoadPath(Golden("models/mistral-window"), &machine);
  ASSERT_TRUE(model.ok());
  const model::ModelSpec& spec = (*model)->spec();
  ForwardOptions options;
  options.max_batch_tokens = 60;
  auto forward = Forward::CreateForLayers(spec, machine.context, options, (*model)->checkpoint());
  ASSERT_TRUE(forward.ok());
  const uint32_t lengths[] = {41, 19};
  std::vector<float> whole(60 * spec.hidden_size);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  std::vector<float> pieces = whole;
  std::vector<float> seen[2];
  const auto tap_into = [](std::vector<float>* out) {
    return [out](const TapInput& input) {
      for (uint32_t t = 0; t < input.tokens; ++t) {
        out->insert(out->end(), input.x + t * input.stride,
                    input.x + t * input.stride + input.cols);
      }
    };
  };
  const LayerWeights& weights = (*model)->layer(1);
  ASSERT_TRUE((*forward)->RunLayer(weights, 1, lengths, whole.data(), tap_into(&seen[0])).ok());
  EXPECT_EQ((*forward)->StepLayer({}, Deadline()).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE((*forward)->BeginLayer(weights, 1, lengths, pieces.data()).ok());
  Deadline smallest;
  smallest.until_ns = 0;
  uint32_t steps = 0;
  for (bool done = false; !done; ++steps) {
    auto step = (*forward)->StepLayer(tap_into(&seen[1]), smallest);
    ASSERT_TRUE(step.ok()) << step.status();
    done = *step;
    ASSERT_LT(steps, 100000u);
  }
  // At least a step for every token of every phase that has one unit a token.
  EXPECT_GE(steps, 60u * 4);
  EXPECT_EQ(std::memcmp(pieces.data(), whole.data(), whole.size() * sizeof(float)), 0);
  EXPECT_TRUE(seen[0] == seen[1]);
}

TEST(Layers, RefusesMisuse) {
  Machine machine;
  auto model = LoadPath(Golden("models/mistral-window"), &machine);
  ASSERT_TRUE(model.ok());
  const model::ModelSpec& spec = (*model)->spec();
  ForwardOptions options;
  options.max_batch_tokens = 8;
  auto layers = Forward::CreateForLayers(spec, machine.context, options, (*model)->checkpoint());
  auto whole = Forward::Create(*model, machine.context, options);
  ASSERT_TRUE(layers.ok());
  ASSERT_TRUE(whole.ok());
  std::vector<float> hidden(9 * spec.hidden_size);
  const LayerWeights& weights = (*model)->layer(0);
  const uint32_t nine[] = {9}, zero[] = {0}, one[] = {1};
  const auto misuse = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ((*layers)->RunLayer(weights, 0, nine, hidden.data(), {}).code(), misuse);
  EXPECT_EQ((*layers)->RunLayer(weights, 0, zero, hidden.data(), {}).code(), misuse);
  EXPECT_EQ((*layers)->RunLayer(weights, 99, one, hidden.data(), {}).code(), misuse);
  EXPECT_EQ((*whole)->RunLayer(weights, 0, one, hidden.data(), {}).code(), misuse);
  EXPECT_EQ((*layers)->Begin({}).code(), misuse);
  EXPECT_EQ((*layers)->Embed((*model)->ends(), {-1}, hidden.data()).code(), misuse);
  EXPECT_FALSE(LoadLayer((*model)->checkpoint(), spec, 99, machine.context).ok());
}

}  // namespace
}  // namespace qinfer::exec
