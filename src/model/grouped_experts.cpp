// Models with grouped attention and experts: Mixtral, Qwen2-MoE, Qwen3-MoE, GLM-4-MoE. They differ
// in names, in how the router scores, and in which layers are dense.
#include <algorithm>

#include "model/decoder_source.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

enum class Family : uint8_t { kMixtral, kQwen2, kQwen3, kGlm4 };

struct Shape {
  Family family;
  AttentionSpec attention;
  FeedForwardSpec dense, experts;
  uint32_t layers = 0;
  bool qkv_bias = false, o_bias = false, head_norms = false;
  std::vector<bool> has_experts, windowed;
};

void ReadAttention(JsonReader* reader, ModelSpec* spec, Shape* shape) {
  const AttentionSpec& a = shape->attention;
  // Older files say the rotated share of a head outside the rope's own settings.
  const double partial = reader->Number("partial_rotary_factor", 0.0, 1.0, 1.0);
  const uint32_t dims =
      std::max(2u, static_cast<uint32_t>(static_cast<double>(a.head_dim) * partial) / 2 * 2);
  const double theta = shape->family == Family::kMixtral ? 1e6 : 10000.0;
  spec->ropes.push_back(RopeFromHf(reader, dims, theta, &spec->max_context));
  shape->qkv_bias = reader->Bool("attention_bias", false) ||
                    (shape->family == Family::kQwen2 && reader->Bool("qkv_bias", true));
  shape->o_bias = shape->family == Family::kQwen3 && shape->qkv_bias;
  shape->head_norms = shape->family == Family::kQwen3 ||
                      (shape->family == Family::kGlm4 && reader->Bool("use_qk_norm", false));
}

void ReadWindows(JsonReader* reader, Shape* shape) {
  shape->windowed.assign(shape->layers, false);
  const bool mixtral = shape->family == Family::kMixtral;
  const bool used =
      mixtral ? reader->Has("sliding_window") : reader->Bool("use_sliding_window", false);
  if (!used) return;
  shape->attention.window = reader->Uint("sliding_window", 1, kMaxPosition);
  const std::vector<std::string> types = reader->Strings("layer_types", kMaxLayers);
  const uint32_t first = mixtral ? 0 : reader->Uint("max_window_layers", 0, kMaxLayers, 28);
  if (!types.empty() && types.size() != shape->layers) {
    reader->Fail("layer_types", StrCat("names ", types.size(), " layers of ", shape->layers));
    return;
  }
  for (uint32_t i = 0; i < shape->layers; ++i) {
    shape->windowed[i] = types.empty() ? i >= first : types[i] == "sliding_attention";
  }
}

void ReadExperts(JsonReader* reader, Shape* shape) {
  FeedForwardSpec& f = shape->experts;
  f.kind = FeedForwardKind::kExperts;
  f.activation = shape->dense.activation;
  const bool glm = shape->family == Family::kGlm4;
  const char* count = glm ? "n_routed_experts" : "num_local_experts";
  if (!glm && !reader->Has(count)) count = "num_experts";
  f.experts = reader->Uint(count, 1, kMaxExperts);
  f.experts_used = reader->Uint("num_experts_per_tok", 1, std::max(1u, f.experts));
  f.expert_intermediate = shape->family == Family::kMixtral
                              ? shape->dense.intermediate
                              : reader->Uint("moe_intermediate_size", 1, kMaxWidth);
  f.normalize = shape->family == Family::kMixtral ||
                reader->Bool("norm_topk_prob", shape->family == Family::kGlm4);
  if (shape->family == Family::kQwen2) {
    f.intermediate = reader->Uint("shared_expert_intermediate_size", 1, kMaxWidth);
    f.shared_gate.name = "shared_expert_gate.weight";
  }
  if (glm) {
    f.intermediate = ReadSharedWidth(reader, "n_shared_experts", 1, f.expert_intermediate);
    f.scoring = RouterScoring::kSigmoid;
    f.routed_scale = static_cast<float>(reader->Number("routed_scaling_factor", -1e6, 1e6, 1.0));
    f.router_correction.name = "gate.e_score_correction_bias";
    const uint32_t groups = reader->Uint("n_group", 1, std::max(1u, f.experts), 1);
    const uint32_t used = reader->Uint("topk_group", 1, groups, groups);
    if (f.experts % groups != 0) {
      reader->Fail("n_group", StrCat("does not divide ", f.experts, " experts"));
    } else if (used < groups) {
      f.groups = groups;
      f.groups_used = used;
      f.group_score_top = std::min(2u, f.experts / groups);
    }
  }
}

void FindExpertLayers(JsonReader* reader, Shape* shape) {
  shape->has_experts.assign(shape->layers, true);
  if (shape->family == Family::kGlm4) {
    const uint32_t dense = reader->Uint("first_k_dense_replace", 0, kMaxLayers, 1);
    for (uint32_t i = 0; i < std::min(dense, shape->layers); ++i) shape->has_experts[i] = false;
  }
  if (shape->family != Family::kQwen2 && shape->family != Family::kQwen3) return;
  const uint32_t step = reader->Uint("decoder_sparse_step", 1, kMaxLayers, 1);
  for (uint32_t i = 0; i < shape->layers; ++i) shape->has_experts[i] = (i + 1) % step == 0;
  for (const double layer : reader->Numbers("mlp_only_layers", kMaxLayers)) {
    if (layer >= 0.0 && layer < shape->layers) {
      shape->has_experts[static_cast<size_t>(layer)] = false;
    }
  }
}

void NameExperts(const Shape& shape, const std::string& prefix, FeedForwardSpec* f) {
  const bool mixtral = shape.family == Family::kMixtral;
  const std::string mlp = prefix + (mixtral ? "block_sparse_moe." : "mlp.");
  f->router.name = mlp + "gate.weight";
  f->expert_gate.name = mlp + (mixtral ? "experts.{}.w1.weight" : "experts.{}.gate_proj.weight");
  f->expert_up.name = mlp + (mixtral ? "experts.{}.w3.weight" : "experts.{}.up_proj.weight");
  f->expert_down.name = mlp + (mixtral ? "experts.{}.w2.weight" : "experts.{}.down_proj.weight");
  if (f->router_correction.present()) f->router_correction.name = mlp + f->router_correction.name;
  if (f->shared_gate.present()) f->shared_gate.name = mlp + f->shared_gate.name;
  if (f->intermediate == 0) return;
  const std::string shared =
      mlp + (shape.family == Family::kQwen2 ? "shared_expert." : "shared_experts.");
  f->gate.name = shared + "gate_proj.weight";
  f->up.name = shared + "up_proj.weight";
  f->down.name = shared + "down_proj.weight";
}

LayerSpec NameLayer(const Shape& shape, uint32_t index) {
  const std::string prefix = StrCat("model.layers.", index, ".");
  LayerSpec layer{.attention = shape.attention, .feed_forward = shape.dense};
  if (!shape.windowed[index]) layer.attention.window = 0;
  NameHfLayer(prefix, &layer);
  if (shape.qkv_bias) NameHfQkvBiases(prefix, &layer);
  if (shape.o_bias) NameHfAttentionBiases(prefix, &layer);
  if (shape.head_norms) NameHfQkNorms(prefix, &layer);
  if (shape.has_experts[index]) {
    layer.feed_forward = shape.experts;
    NameExperts(shape, prefix, &layer.feed_forward);
  }
  return layer;
}

StatusOr<ModelSpec> FromConfig(const format::JsonNode& config, const format::Checkpoint& checkpoint,
                               Family family, const char* name) {
  JsonReader reader(config, ConfigPlace(checkpoint) + ": ");
  const double epsilon = family == Family::kMixtral ? 1e-5 : 1e-6;
  Decoder decoder = ReadHfDecoder(&reader, name, {.max_context = 32768, .epsilon = epsilon});
  ModelSpec& spec = decoder.spec;
  Shape shape;
  shape.family = family;
  shape.layers = decoder.layers;
  shape.attention = decoder.attention;
  shape.dense = decoder.feed_forward;
  ReadAttention(&reader, &spec, &shape);
  ReadWindows(&reader, &shape);
  ReadExperts(&reader, &shape);
  FindExpertLayers(&reader, &shape);
  const uint32_t predicting =
      family == Family::kGlm4 ? reader.Uint("num_nextn_predict_layers", 0, kMaxLayers, 0) : 0;
  NameHfEnds(&reader, "model.", "lm_head.weight", false, &spec);
  QINFER_RETURN_IF_ERROR(reader.status());

  for (uint32_t i = 0; i < shape.layers; ++i) spec.layers.push_back(NameLayer(shape, i));
  SkipPredictingLayers(shape.layers, predicting, &spec);
  return spec;
}

}  // namespace

StatusOr<ModelSpec> MixtralFromHf(const format::JsonNode& config,
                                  const format::Checkpoint& checkpoint) {
  return FromConfig(config, checkpoint, Family::kMixtral, "mixtral");
}
StatusOr<ModelSpec> Qwen2MoeFromHf(const format::JsonNode& config,
                                   const format::Checkpoint& checkpoint) {
  return FromConfig(config, checkpoint, Family::kQwen2, "qwen2_moe");
}
StatusOr<ModelSpec> Qwen3MoeFromHf(const format::JsonNode& config,
                                   const format::Checkpoint& checkpoint) {
  return FromConfig(config, checkpoint, Family::kQwen3, "qwen3_moe");
}
StatusOr<ModelSpec> Glm4MoeFromHf(const format::JsonNode& config,
                                  const format::Checkpoint& checkpoint) {
  return FromConfig(config, checkpoint, Family::kGlm4, "glm4_moe");
}

}  // namespace qinfer::model
