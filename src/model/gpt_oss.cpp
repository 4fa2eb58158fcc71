// gpt-oss: windows on every second layer, a sink logit in every head's softmax, biases everywhere,
// YaRN, and experts with a clamped gate. Checkpoints hold the experts as MXFP4 blocks, or in BF16
// with inputs outside (transposed); gate and up alternate in one tensor either way.
#include <algorithm>

#include "kernels/ref/math.h"
#include "model/decoder_source.h"
#include "model/experts_gguf.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

constexpr double kTheta = 150000.0;
constexpr float kAlpha = 1.702f, kLimit = 7.0f;

// The rope of a configuration that says nothing about it.
RopeSpec DefaultRope(uint32_t head_dim) {
  RopeSpec rope;
  rope.dims = head_dim;
  rope.theta = kTheta;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 32.0;
  rope.truncate = false;
  rope.original_context = 4096;
  rope.attention_factor = 0.1 * kernels::math::LogD(rope.factor) + 1.0;
  return rope;
}

void ReadRope(JsonReader* reader, uint32_t head_dim, ModelSpec* spec) {
  const bool given = reader->Has("rope_parameters") || reader->Has("rope_scaling");
  spec->ropes.push_back(given ? RopeFromHf(reader, head_dim, kTheta, &spec->max_context)
                              : DefaultRope(head_dim));
}

// Every second layer from the first on, unless the configuration lists them.
std::vector<bool> Windows(JsonReader* reader, uint32_t layers) {
  std::vector<bool> windowed = WindowedLayers(reader, layers);
  if (!windowed.empty()) return windowed;
  windowed.resize(layers);
  for (uint32_t i = 0; i < layers; ++i) windowed[i] = i % 2 == 0;
  return windowed;
}

void ReadExperts(JsonReader* reader, FeedForwardSpec* f) {
  if (f->activation != kernels::Activation::kSilu) {
    reader->Fail("hidden_act", "experts have a clamped gate, which goes with silu only");
  }
  f->kind = FeedForwardKind::kExperts;
  f->expert_intermediate = f->intermediate;
  f->intermediate = 0;
  const char* count = reader->Has("num_local_experts") ? "num_local_experts" : "num_experts";
  f->experts = reader->Uint(count, 1, kMaxExperts);
  const char* used =
      reader->Has("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token";
  f->experts_used = reader->Uint(used, 1, std::max(1u, f->experts));
  f->scoring = RouterScoring::kSoftmaxChosen;
  f->swiglu_alpha =
      static_cast<float>(reader->Number("swiglu_alpha", 1e-3, 1e3, static_cast<double>(kAlpha)));
  f->swiglu_limit =
      static_cast<float>(reader->Number("swiglu_limit", 1e-3, 1e6, static_cast<double>(kLimit)));
}

// Whether the configuration announces MXFP4; other methods have other tensors.
bool AnnouncesMx(JsonReader* reader) {
  const format::JsonNode* object = reader->Object("quantization_config");
  if (object == nullptr) return false;
  JsonReader inner(*object, reader->where() + "quantization_config.");
  const std::string method = inner.String("quant_method", "");
  reader->Fail(inner.status());
  if (method != "mxfp4") {
    reader->Fail(UnsupportedError(StrCat(inner.where(), "quant_method: \"", method,
                                         "\" is not supported for gpt-oss; mxfp4 is")));
  }
  return true;
}

// Experts in MXFP4 are told by their tensors where there are some.
bool HasBlocks(const format::Checkpoint& checkpoint, const std::string& name, bool announced) {
  if (checkpoint.container() == format::Container::kConfigOnly) return announced;
  return checkpoint.Find(name + "_blocks") != nullptr;
}

// Parts of `rows` rows; with `step` 2 the even ones of twice as many, or the odd ones.
TensorRef Stack(const std::string& name, uint32_t parts, uint64_t rows, uint32_t step,
                uint32_t first) {
  TensorRef ref;
  ref.name = name;
  ref.parts = parts;
  ref.stride = rows * step;
  ref.step = step;
  ref.row_begin = first;
  return ref;
}

// The same of a tensor [parts][inputs][outputs].
TensorRef Transposed(const std::string& name, uint32_t parts, uint64_t inputs, uint32_t step,
                     uint32_t first) {
  TensorRef ref;
  ref.name = name;
  ref.parts = parts;
  ref.stride = inputs;
  ref.transposed = true;
  ref.column = first;
  ref.column_step = step;
  return ref;
}

void NameHfExperts(const format::Checkpoint& checkpoint, const std::string& prefix, uint32_t hidden,
                   bool announced, FeedForwardSpec* f) {
  const std::string experts = prefix + "mlp.experts.";
  const std::string both = experts + "gate_up_proj", down = experts + "down_proj";
  const uint32_t n = f->experts, wide = f->expert_intermediate;
  f->gate = f->up = f->down = TensorRef();
  f->router.name = prefix + "mlp.router.weight";
  f->router_bias.name = prefix + "mlp.router.bias";
  if (HasBlocks(checkpoint, both, announced)) {
    f->expert_gate = Stack(both + "_blocks", n, wide, 2, 0);
    f->expert_up = Stack(both + "_blocks", n, wide, 2, 1);
  } else {
    f->expert_gate = Transposed(both, n, hidden, 2, 0);
    f->expert_up = Transposed(both, n, hidden, 2, 1);
  }
  f->expert_down = HasBlocks(checkpoint, down, announced) ? Stack(down + "_blocks", n, hidden, 1, 0)
                                                          : Transposed(down, n, wide, 1, 0);
  f->expert_gate_bias = Stack(both + "_bias", n, wide, 2, 0);
  f->expert_up_bias = Stack(both + "_bias", n, wide, 2, 1);
  f->expert_down_bias = Stack(down + "_bias", n, hidden, 1, 0);
}

// Biases of experts, wherever the file has some.
void NameGgufBiases(const format::Checkpoint& checkpoint, const std::string& prefix,
                    uint32_t hidden, FeedForwardSpec* f) {
  const uint32_t n = f->experts, wide = f->expert_intermediate;
  f->router_bias = Optional(checkpoint, prefix + "ffn_gate_inp.bias");
  const auto find = [&](const char* name, uint64_t rows) {
    TensorRef ref = Optional(checkpoint, prefix + name);
    return ref.present() ? Stack(ref.name, n, rows, 1, 0) : ref;
  };
  f->expert_gate_bias = find("ffn_gate_exps.bias", wide);
  f->expert_up_bias = find("ffn_up_exps.bias", wide);
  f->expert_down_bias = find("ffn_down_exps.bias", hidden);
  // Gate and up in one, as their weights may be.
  const TensorRef both = find("ffn_gate_up_exps.bias", uint64_t{wide} * 2);
  if (!both.present()) return;
  f->expert_gate_bias = f->expert_up_bias = both;
  f->expert_up_bias.row_begin = wide;
}

}  // namespace

StatusOr<ModelSpec> GptOssFromHf(const format::JsonNode& config,
                                 const format::Checkpoint& checkpoint) {
  JsonReader reader(config, ConfigPlace(checkpoint) + ": ");
  Decoder decoder = ReadHfDecoder(&reader, "gpt_oss", {.max_context = 131072, .epsilon = 1e-5});
  ModelSpec& spec = decoder.spec;
  if (!reader.Has("head_dim")) {  // the configuration class does not divide
    decoder.attention.head_dim = decoder.attention.v_head_dim = 64;
    decoder.attention.scale = InverseRoot(64.0);
  }
  ReadRope(&reader, decoder.attention.head_dim, &spec);
  const uint32_t window = reader.Uint("sliding_window", 1, kMaxPosition, 0);
  const std::vector<bool> windowed = Windows(&reader, decoder.layers);
  const bool bias = reader.Bool("attention_bias", true);
  ReadExperts(&reader, &decoder.feed_forward);
  const bool announced = AnnouncesMx(&reader);
  NameHfEnds(&reader, "model.", "lm_head.weight", false, &spec);
  QINFER_RETURN_IF_ERROR(reader.status());

  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    layer.attention.window = windowed[i] ? window : 0;
    NameHfLayer(prefix, &layer);
    if (bias) NameHfAttentionBiases(prefix, &layer);
    layer.attention.sinks.name = prefix + "self_attn.sinks";
    NameHfExperts(checkpoint, prefix, spec.hidden_size, announced, &layer.feed_forward);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

StatusOr<ModelSpec> GptOssFromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "gpt-oss");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, "gpt_oss");
  ModelSpec& spec = decoder.spec;
  spec.ropes.push_back(
      RopeFromGguf(&reader, decoder.attention.head_dim, false, kTheta, spec.max_context));
  const uint32_t window = reader.Uint("attention.sliding_window", 0, kMaxPosition, 0);
  FeedForwardSpec experts = decoder.feed_forward;
  ReadGgufExperts(&reader, true, &experts);
  experts.scoring = RouterScoring::kSoftmaxChosen;
  // Not in the file: as llama.cpp has them.
  experts.swiglu_alpha = kAlpha;
  experts.swiglu_limit = kLimit;
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = experts};
    layer.attention.window = i % 2 == 0 ? window : 0;
    NameGgufLayer(checkpoint, prefix, &layer);
    layer.feed_forward_norm.name = prefix + "post_attention_norm.weight";
    layer.attention.sinks.name = prefix + "attn_sinks.weight";
    if (checkpoint.Find(layer.attention.sinks.name) == nullptr) {  // as older files have it
      layer.attention.sinks.name = prefix + "attn_sinks";
    }
    NameGgufExperts(checkpoint, prefix, spec.hidden_size, &layer.feed_forward);
    NameGgufBiases(checkpoint, prefix, spec.hidden_size, &layer.feed_forward);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
