// DeepSeek V2, V2-Lite, V3 and R1 (and models that are made like them: Kimi K2): latent attention,
// dense layers first, then experts. Versions differ in how the router scores. Layers for predicting
// several tokens at once (MTP) follow the others in the file and are not part of the model.
#include "model/decoder_source.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

// Dimensions shared by all layers, and which layers have experts.
struct Shape {
  AttentionSpec attention;
  FeedForwardSpec dense, experts;
  uint32_t layers = 0, first_dense = 0, frequency = 1;
  uint32_t nope = 0;
  bool attention_bias = false;
  bool HasExperts(uint32_t layer) const {
    return experts.experts > 0 && layer >= first_dense && layer % frequency == 0;
  }
};

void ReadAttention(JsonReader* reader, ModelSpec* spec, Shape* shape) {
  AttentionSpec& a = shape->attention;
  a.kind = AttentionKind::kLatent;
  a.heads = reader->Uint("num_attention_heads", 1, kMaxHeads);
  a.kv_heads = 1;
  shape->nope = reader->Uint("qk_nope_head_dim", 1, kMaxHeadDim);
  a.rope_dim = reader->Uint("qk_rope_head_dim", 2, kMaxHeadDim);
  a.head_dim = shape->nope + a.rope_dim;
  a.v_head_dim = reader->Uint("v_head_dim", 1, kMaxHeadDim);
  a.latent_dim = reader->Uint("kv_lora_rank", 1, kMaxHeadDim);
  a.q_rank = reader->Uint("q_lora_rank", 1, kMaxWidth, 0);
  a.rope = 0;
  RopeSpec rope = RopeFromHf(reader, a.rope_dim, 10000.0, &spec->max_context);
  rope.interleaved = reader->Bool("rope_interleave", true);
  a.scale = static_cast<float>(YarnSoftmaxScale(reader, rope) /
                               __builtin_sqrt(static_cast<double>(a.head_dim)));
  spec->ropes.push_back(rope);
  shape->attention_bias = reader->Bool("attention_bias", false);
}

void ReadExperts(JsonReader* reader, bool v3, Shape* shape) {
  FeedForwardSpec& f = shape->experts;
  f.kind = FeedForwardKind::kExperts;
  f.activation = shape->dense.activation;
  f.experts = reader->Uint("n_routed_experts", 1, kMaxExperts, 0);
  if (f.experts == 0) return;
  f.experts_used = reader->Uint("num_experts_per_tok", 1, f.experts);
  f.expert_intermediate = reader->Uint("moe_intermediate_size", 1, kMaxWidth);
  f.intermediate = ReadSharedWidth(reader, "n_shared_experts", 1, f.expert_intermediate);
  f.normalize = reader->Bool("norm_topk_prob", v3);
  f.routed_scale = static_cast<float>(reader->Number("routed_scaling_factor", -1e6, 1e6, 1.0));
  const std::string scoring = reader->String("scoring_func", v3 ? "sigmoid" : "softmax");
  if (scoring != "sigmoid" && scoring != "softmax") {
    reader->Fail(UnsupportedError(StrCat(reader->where(), "scoring_func: \"", scoring,
                                         "\" is not supported; known are sigmoid, softmax")));
  }
  f.scoring = scoring == "sigmoid" ? RouterScoring::kSigmoid : RouterScoring::kSoftmax;
  const std::string method = reader->String("topk_method", v3 ? "noaux_tc" : "greedy");
  const bool corrected = method == "noaux_tc";
  if (!corrected && method != "greedy" && method != "group_limited_greedy") {
    reader->Fail(UnsupportedError(
        StrCat(reader->where(), "topk_method: \"", method,
               "\" is not supported; known are greedy, group_limited_greedy, noaux_tc")));
  }
  // Normalized weights are not scaled in version 2, whatever the factor says.
  if (!corrected && f.normalize) f.routed_scale = 1.0f;
  if (method != "greedy") {
    const uint32_t groups = reader->Uint("n_group", 1, f.experts, 1);
    const uint32_t used = reader->Uint("topk_group", 1, groups, groups);
    if (f.experts % groups != 0) {
      reader->Fail("n_group", StrCat("does not divide ", f.experts, " experts"));
    }
    if (used < groups) {
      f.groups = groups;
      f.groups_used = used;
      f.group_score_top = corrected ? std::min(2u, f.experts / groups) : 1;
    }
  }
  if (corrected) f.router_correction.name = "gate.e_score_correction_bias";
  shape->first_dense = reader->Uint("first_k_dense_replace", 0, kMaxLayers, 0);
  shape->frequency = reader->Uint("moe_layer_freq", 1, kMaxLayers, 1);
}

// Head h's rows of kv_b: first those of its keys, then those of its values.
void NameKvB(const std::string& name, uint32_t nope, AttentionSpec* a) {
  a->k_b.name = a->v_b.name = name;
  a->k_b.parts = a->v_b.parts = a->heads;
  a->k_b.stride = a->v_b.stride = uint64_t{nope} + a->v_head_dim;
  a->k_b.transposed = true;
  a->v_b.row_begin = nope;
}

LayerSpec NameLayer(const Shape& shape, uint32_t index) {
  const std::string prefix = StrCat("model.layers.", index, ".");
  LayerSpec layer;
  layer.attention_norm.name = prefix + "input_layernorm.weight";
  layer.feed_forward_norm.name = prefix + "post_attention_layernorm.weight";
  AttentionSpec& a = layer.attention;
  a = shape.attention;
  const std::string attention = prefix + "self_attn.";
  if (a.q_rank > 0) {
    a.q_a.name = attention + "q_a_proj.weight";
    a.q_a_norm.name = attention + "q_a_layernorm.weight";
    a.q.name = attention + "q_b_proj.weight";
    if (shape.attention_bias) a.q_a_bias.name = attention + "q_a_proj.bias";
  } else {
    a.q.name = attention + "q_proj.weight";
  }
  a.kv_a.name = attention + "kv_a_proj_with_mqa.weight";
  a.kv_a_norm.name = attention + "kv_a_layernorm.weight";
  a.o.name = attention + "o_proj.weight";
  if (shape.attention_bias) {
    a.kv_a_bias.name = attention + "kv_a_proj_with_mqa.bias";
    a.o_bias.name = attention + "o_proj.bias";
  }
  NameKvB(attention + "kv_b_proj.weight", shape.nope, &a);
  FeedForwardSpec& f = layer.feed_forward;
  const bool experts = shape.HasExperts(index);
  f = experts ? shape.experts : shape.dense;
  std::string dense = prefix + "mlp.";
  if (experts) {
    f.router.name = dense + "gate.weight";
    if (f.router_correction.present()) {
      f.router_correction.name = dense + f.router_correction.name;
    }
    f.expert_gate.name = dense + "experts.{}.gate_proj.weight";
    f.expert_up.name = dense + "experts.{}.up_proj.weight";
    f.expert_down.name = dense + "experts.{}.down_proj.weight";
    dense += "shared_experts.";
  }
  if (f.intermediate > 0) {
    f.gate.name = dense + "gate_proj.weight";
    f.up.name = dense + "up_proj.weight";
    f.down.name = dense + "down_proj.weight";
  }
  return layer;
}

StatusOr<ModelSpec> FromConfig(const format::JsonNode& config, const format::Checkpoint& checkpoint,
                               bool v3) {
  JsonReader reader(config, ConfigPlace(checkpoint) + ": ");
  ModelSpec spec;
  Shape shape;
  shape.layers =
      ReadHfSizes(&reader, v3 ? "deepseek_v3" : "deepseek_v2", {.max_context = 4096}, &spec);
  ReadAttention(&reader, &spec, &shape);
  shape.dense.activation = ActivationFromHf(&reader, "hidden_act", "silu");
  shape.dense.intermediate = reader.Uint("intermediate_size", 1, kMaxWidth);
  ReadExperts(&reader, v3, &shape);
  const uint32_t predicting = reader.Uint("num_nextn_predict_layers", 0, kMaxLayers, 0);
  NameHfEnds(&reader, "model.", "lm_head.weight", false, &spec);
  QINFER_RETURN_IF_ERROR(reader.status());

  for (uint32_t i = 0; i < shape.layers; ++i) spec.layers.push_back(NameLayer(shape, i));
  SkipPredictingLayers(shape.layers, predicting, &spec);
  return spec;
}

}  // namespace

StatusOr<ModelSpec> DeepseekV2FromHf(const format::JsonNode& config,
                                     const format::Checkpoint& checkpoint) {
  return FromConfig(config, checkpoint, false);
}

StatusOr<ModelSpec> DeepseekV3FromHf(const format::JsonNode& config,
                                     const format::Checkpoint& checkpoint) {
  return FromConfig(config, checkpoint, true);
}

}  // namespace qinfer::model
