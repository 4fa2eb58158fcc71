// Every feature of a configuration matters: a specification that ignores one no longer agrees with
// the recorded logits. Layers are run one at a time, since that takes any specification.
#include "features_testing.h"

namespace qinfer::exec {
namespace {

using model::LayerSpec;
using model::ModelSpec;
using model::RopeScaling;

const Ignored kNoWindow = {"window", EachLayer([](LayerSpec* l) { l->attention.window = 0; })};
const Ignored kLongerWindow = {"window by one", EachLayer([](LayerSpec* l) {
                                 if (l->attention.window != 0) ++l->attention.window;
                               })};
const Ignored kWindowEverywhere = {"layers without window", [](ModelSpec* spec) {
                                     uint32_t window = 0;
                                     for (const LayerSpec& l : spec->layers)
                                       window = std::max(window, l.attention.window);
                                     for (LayerSpec& l : spec->layers) l.attention.window = window;
                                   }};
const Ignored kNoScaling = {"rope scaling",
                            EachRope([](model::RopeSpec* r) { r->scaling = RopeScaling::kNone; })};
const Ignored kNoTheta = {"theta", EachRope([](model::RopeSpec* r) { r->theta *= 3.0; })};
const Ignored kAttentionFactor = {"attention factor of the rope",
                                  EachRope([](model::RopeSpec* r) { r->attention_factor = 1.0; })};
const Ignored kQBias = {"bias of q", EachLayer([](LayerSpec* l) { l->attention.q_bias = {}; })};
const Ignored kVBias = {"bias of v", EachLayer([](LayerSpec* l) { l->attention.v_bias = {}; })};
const Ignored kQNorm = {"norm of q", EachLayer([](LayerSpec* l) { l->attention.q_norm = {}; })};
const Ignored kKNorm = {"norm of k", EachLayer([](LayerSpec* l) { l->attention.k_norm = {}; })};
const Ignored kNormOffset = {"offset of norm weights",
                             [](ModelSpec* s) { s->norm_weight_offset = 0.0f; }};
const Ignored kEmbeddingScale = {"scale of the embedding",
                                 [](ModelSpec* s) { s->embedding_scale = 1.0f; }};
const Ignored kScale = {"scale of scores", EachLayer([](LayerSpec* l) {
                          l->attention.scale =
                              1.0f / std::sqrt(static_cast<float>(l->attention.head_dim));
                        })};
const Ignored kPostAttention = {"norm after attention",
                                EachLayer([](LayerSpec* l) { l->post_attention_norm = {}; })};
const Ignored kPostFeedForward = {"norm after the feed-forward",
                                  EachLayer([](LayerSpec* l) { l->post_feed_forward_norm = {}; })};
const Ignored kActivation = {"activation", EachLayer([](LayerSpec* l) {
                               l->feed_forward.activation =
                                   l->feed_forward.activation == kernels::Activation::kSilu
                                       ? kernels::Activation::kGeluTanh
                                       : kernels::Activation::kSilu;
                             })};
const Ignored kEpsilon = {"epsilon", [](ModelSpec* s) { s->norm_epsilon = 0.1f; }};

const std::vector<FeatureCase>& Cases() {
  static const auto* const cases = new std::vector<FeatureCase>{
      {"llama-odd",
       "",
       {kNoScaling,
        kNoTheta,
        kQBias,
        kVBias,
        kActivation,
        kEpsilon,
        {"bias of o", EachLayer([](LayerSpec* l) { l->attention.o_bias = {}; })},
        {"bias of k", EachLayer([](LayerSpec* l) { l->attention.k_bias = {}; })},
        {"bias of gate", EachLayer([](LayerSpec* l) { l->feed_forward.gate_bias = {}; })},
        {"bias of up", EachLayer([](LayerSpec* l) { l->feed_forward.up_bias = {}; })},
        {"bias of down", EachLayer([](LayerSpec* l) { l->feed_forward.down_bias = {}; })}}},
      {"llama-odd", "linear", {kNoScaling}},
      {"llama-odd",
       "yarn",
       {kNoScaling,
        kAttentionFactor,
        {"beta_slow", EachRope([](model::RopeSpec* r) { r->beta_slow = 3.0; })},
        {"the original context", EachRope([](model::RopeSpec* r) { r->original_context *= 4; })}}},
      {"mistral-window", "", {kNoWindow, kLongerWindow, kNoTheta}},
      {"gemma3-small",
       "",
       {kNoWindow,
        kLongerWindow,
        kWindowEverywhere,
        kNoScaling,
        kQNorm,
        kKNorm,
        kNormOffset,
        kEmbeddingScale,
        kScale,
        kPostAttention,
        kPostFeedForward,
        kActivation,
        {"rope of windowed layers", EachLayer([](LayerSpec* l) { l->attention.rope = 0; })}}},
      {"gemma3-multimodal", "", {kNoWindow, kNoScaling, kScale}},
      {"gemma2-small",
       "",
       {kNoWindow,
        kLongerWindow,
        kWindowEverywhere,
        kNormOffset,
        kEmbeddingScale,
        kScale,
        kPostAttention,
        kPostFeedForward,
        kActivation,
        {"cap of scores", EachLayer([](LayerSpec* l) { l->attention.softcap = 0.0f; })},
        {"cap of logits", [](ModelSpec* s) { s->logit_softcap = 0.0f; }}}},
      {"qwen2-small", "", {kNoTheta, kQBias, kVBias, {"bias of k", EachLayer([](LayerSpec* l) {
                                                        l->attention.k_bias = {};
                                                      })}}},
      {"qwen2-small", "window", {kNoWindow, kLongerWindow, kWindowEverywhere}},
      {"qwen2-small", "yarn", {kNoScaling, kAttentionFactor}},
      {"qwen3-small", "", {kQNorm, kKNorm, kNoTheta}},
      {"qwen3-small", "window", {kNoWindow, kWindowEverywhere}},
      {"phi3-small",
       "",
       {kNoScaling,
        kAttentionFactor,
        {"the switch", EachRope([](model::RopeSpec* r) { r->original_context = 100; })},
        {"partial rotation", EachRope([](model::RopeSpec* r) {
           r->dims = 24;
           r->short_factors.resize(12, 1.0);
           r->long_factors.resize(12, 1.0);
         })}}},
      {"phi3-small", "window", {kNoWindow, kLongerWindow}},
      {"smollm3-small",
       "",
       {{"layers without rope", EachLayer([](LayerSpec* l) { l->attention.rope = 0; })},
        {"layers with rope", EachLayer([](LayerSpec* l) { l->attention.rope = -1; })}}},
      {"smollm3-small", "window", {kNoWindow, kWindowEverywhere}},
      {"gpt-oss-small",
       "",
       {kNoWindow,
        kLongerWindow,
        kWindowEverywhere,
        kNoScaling,
        kNoTheta,
        kAttentionFactor,
        kQBias,
        kVBias,
        kActivation,
        {"rounding of yarn's range", EachRope([](model::RopeSpec* r) { r->truncate = true; })},
        {"sinks", EachLayer([](LayerSpec* l) { l->attention.sinks = {}; })},
        {"bias of k", EachLayer([](LayerSpec* l) { l->attention.k_bias = {}; })},
        {"bias of o", EachLayer([](LayerSpec* l) { l->attention.o_bias = {}; })},
        {"bias of the router", EachLayer([](LayerSpec* l) { l->feed_forward.router_bias = {}; })},
        {"biases of gates", EachLayer([](LayerSpec* l) { l->feed_forward.expert_gate_bias = {}; })},
        {"biases of ups", EachLayer([](LayerSpec* l) { l->feed_forward.expert_up_bias = {}; })},
        {"biases of downs", EachLayer([](LayerSpec* l) { l->feed_forward.expert_down_bias = {}; })},
        {"limit of the gate", EachLayer([](LayerSpec* l) { l->feed_forward.swiglu_limit = 1e6f; })},
        {"the clamped gate", EachLayer([](LayerSpec* l) { l->feed_forward.swiglu_limit = 0.0f; })},
        {"steepness of the gate",
         EachLayer([](LayerSpec* l) { l->feed_forward.swiglu_alpha = 1.0f; })},
        {"which columns are gates", EachLayer([](LayerSpec* l) {
           std::swap(l->feed_forward.expert_gate, l->feed_forward.expert_up);
         })},
        {"softmax over the chosen",
         EachLayer([](LayerSpec* l) { l->feed_forward.scoring = model::RouterScoring::kSoftmax; })},
        {"experts of a token", EachLayer([](LayerSpec* l) { l->feed_forward.experts_used = 1; })}}},
      {"gpt-oss-mxfp4",
       "",
       {kNoWindow,
        {"sinks", EachLayer([](LayerSpec* l) { l->attention.sinks = {}; })},
        {"which rows are gates", EachLayer([](LayerSpec* l) {
           std::swap(l->feed_forward.expert_gate, l->feed_forward.expert_up);
         })}}},
      {"olmo2-small",
       "",
       {kQNorm,
        kKNorm,
        {"norms after instead of before", EachLayer([](LayerSpec* l) {
           std::swap(l->attention_norm, l->post_attention_norm);
           std::swap(l->feed_forward_norm, l->post_feed_forward_norm);
         })},
        {"absence of norms before", EachLayer([](LayerSpec* l) {
           l->attention_norm = l->post_attention_norm;
           l->feed_forward_norm = l->post_feed_forward_norm;
         })}}},
  };
  return *cases;
}

TEST(Features, IgnoringOneBreaksAgreement) { ExpectAllMatter(Cases()); }

// The same for GGUF files: keys and tensors that the reader does not find under their names.
struct Renamed {
  const char* folder;
  const char* weights;
  const char* logits;
  std::vector<std::string> names;
};

TEST(Features, MissingInGgufBreaksAgreement) {
  const Renamed files[] = {
      {"llama-odd",
       "model-yarn.gguf",
       "logits.yarn",
       {"llama.rope.scaling.type", "llama.rope.scaling.factor", "llama.rope.freq_base",
        "llama.rope.scaling.original_context_length", "blk.1.attn_k.bias"}},
      {"qwen2-small",
       "model-f16.gguf",
       "logits",
       {"qwen2.rope.freq_base", "blk.0.attn_q.bias", "blk.1.attn_k.bias", "blk.2.attn_v.bias",
        "output.weight"}},
      {"gemma2-small",
       "model-f16.gguf",
       "logits.gguf",
       {"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping",
        "gemma2.attention.sliding_window"}},
      {"phi3-small",
       "model-f16.gguf",
       "logits",
       {"rope_factors_long.weight", "phi3.rope.scaling.attn_factor",
        "phi3.rope.scaling.original_context_length"}},
      {"smollm3-small", "model-f16.gguf", "logits", {"smollm3.rope.freq_base"}},
      {"olmo2-small", "model-f16.gguf", "logits", {"olmo2.rope.freq_base"}},
      {"gpt-oss-small",
       "model-f16.gguf",
       "logits.truncate",
       {"gpt-oss.rope.scaling.type", "gpt-oss.rope.freq_base", "gpt-oss.attention.sliding_window",
        "blk.0.attn_q.bias", "blk.1.attn_output.bias", "blk.0.ffn_gate_inp.bias",
        "blk.1.ffn_gate_exps.bias", "blk.0.ffn_up_exps.bias", "blk.1.ffn_down_exps.bias"}},
  };
  for (const Renamed& file : files) {
    const std::string folder = Golden(std::string("models/") + file.folder + "/");
    const Recorded recorded(folder + "expected.safetensors");
    const std::vector<int32_t> tokens = recorded.Read<int32_t>("tokens");
    const std::vector<float> expected = recorded.Read<float>(file.logits);
    const std::string good = ReadText(folder + file.weights);
    for (const std::string& name : file.names) {
      SCOPED_TRACE(StrCat(file.folder, ": ", name));
      std::string bytes = good;
      const size_t at = bytes.find(name);
      ASSERT_NE(at, std::string::npos);
      bytes[at + name.size() - 1] = '_';
      Machine machine;
      format::OpenOptions options;
      options.memory = &machine.memory;
      auto checkpoint = format::OpenCheckpoint(
          io::BorrowMemory({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, name),
          {}, options);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
      auto spec = model::SpecFromCheckpoint(**checkpoint);
      ASSERT_TRUE(spec.ok()) << spec.status().message();
      auto logits = LogitsBySpec(*spec, **checkpoint, machine.context, tokens);
      ASSERT_TRUE(logits.ok()) << logits.status().message();
      EXPECT_GT(MaxDifference(*logits, expected), 1e-2);
    }
  }
}

TEST(Features, LongRopeOfGgufNeedsBothTensors) {
  const std::string folder = Golden("models/phi3-small/");
  std::string bytes = ReadText(folder + "model-f16.gguf");
  const size_t at = bytes.find("rope_factors_short.weight");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = '_';
  Machine machine;
  format::OpenOptions options;
  options.memory = &machine.memory;
  auto checkpoint = format::OpenCheckpoint(
      io::BorrowMemory({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "phi"), {},
      options);
  ASSERT_TRUE(checkpoint.ok());
  const Status status = model::SpecFromCheckpoint(**checkpoint).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(std::string(status.message()).find("rope_factors_short.weight"), std::string::npos);
}

}  // namespace
}  // namespace qinfer::exec
