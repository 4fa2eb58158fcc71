// GGUF files of models with experts: deepseek2 (DeepSeek V2, V3, R1, Kimi K2), qwen2moe, qwen3moe,
// glm4moe; and what Mixtral's (llama) share with them. Experts of a layer are one tensor of three
// dimensions; older files have one each.
#include "model/experts_gguf.h"

#include <algorithm>

#include "kernels/ref/math.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

TensorRef Stack(const format::Checkpoint& checkpoint, const std::string& prefix, const char* name,
                uint32_t parts, uint32_t rows) {
  TensorRef ref;
  ref.name = prefix + name + "_exps.weight";
  if (checkpoint.Find(ref.name) == nullptr &&
      checkpoint.Find(prefix + name + ".0.weight") != nullptr) {
    ref.name = prefix + name + ".{}.weight";
    return ref;
  }
  ref.parts = parts;
  ref.stride = rows;
  return ref;
}

// Keys that say how the router chooses and weighs.
void ReadRouting(GgufReader* reader, RouterScoring otherwise, FeedForwardSpec* f) {
  switch (reader->Uint("expert_gating_func", 0, 3, 0)) {
    case 1:
      f->scoring = RouterScoring::kSoftmax;
      break;
    case 2:
      f->scoring = RouterScoring::kSigmoid;
      break;
    case 3:
      f->scoring = RouterScoring::kSoftmaxChosen;
      break;
    default:
      f->scoring = otherwise;  // older files do not say
  }
  f->normalize = reader->Bool("expert_weights_norm", false);
  const uint32_t groups = reader->Uint("expert_group_count", 0, kMaxExperts, 0);
  const uint32_t used = reader->Uint("expert_group_used_count", 0, kMaxExperts, groups);
  if (groups <= 1 || used == 0 || used >= groups) return;
  if (f->experts % groups != 0) {
    reader->Fail("expert_group_count", StrCat("does not divide ", f->experts, " experts"));
    return;
  }
  f->groups = groups;
  f->groups_used = used;
  const bool sigmoid = f->scoring == RouterScoring::kSigmoid;
  f->group_score_top = sigmoid ? std::min(2u, f->experts / groups) : 1;
}

// Files may hold layers for predicting further tokens; they follow the others and are counted.
void SkipPredicting(GgufReader* reader, Decoder* decoder) {
  const uint32_t predicting = reader->Uint("nextn_predict_layers", 0, kMaxLayers, 0);
  if (predicting >= std::max(1u, decoder->layers)) {
    reader->Fail("nextn_predict_layers", StrCat("leaves nothing of ", decoder->layers, " layers"));
    return;
  }
  decoder->layers -= predicting;
  for (uint32_t i = 0; i < predicting; ++i) {
    decoder->spec.skipped_prefixes.push_back(StrCat("blk.", decoder->layers + i, "."));
  }
}

// Latent attention: newer files have kv_b split (and transposed) already.
void ReadLatent(GgufReader* reader, ModelSpec* spec, AttentionSpec* a) {
  a->kind = AttentionKind::kLatent;
  a->kv_heads = 1;
  a->latent_dim = reader->Uint("attention.kv_lora_rank", 1, kMaxHeadDim);
  a->q_rank = reader->Uint("attention.q_lora_rank", 0, kMaxWidth, 0);
  a->rope_dim = reader->Uint("rope.dimension_count", 2, kMaxHeadDim);
  a->head_dim = reader->Uint("attention.key_length_mla", 1, kMaxHeadDim, a->head_dim);
  a->v_head_dim = reader->Uint("attention.value_length_mla", 1, kMaxHeadDim, a->v_head_dim);
  if (a->rope_dim >= a->head_dim) {
    reader->Fail("rope.dimension_count", StrCat("leaves nothing of heads of ", a->head_dim));
    a->rope_dim = 0;
  }
  RopeSpec rope = RopeFromGguf(reader, a->rope_dim, true, 10000.0, spec->max_context);
  double scale = 1.0;
  if (rope.scaling == RopeScaling::kYarn) {
    // 0.1 * mscale_all_dim; cosines and sines are not scaled.
    const double growth = reader->Number("rope.scaling.yarn_log_multiplier", 0.0, 1e3, 0.0);
    scale = 1.0 + growth * kernels::math::LogD(rope.factor);
    rope.attention_factor = 1.0;
  }
  a->scale = static_cast<float>(scale * scale / __builtin_sqrt(static_cast<double>(a->head_dim)));
  spec->ropes.push_back(rope);
}

void NameLatent(const format::Checkpoint& checkpoint, const std::string& prefix, AttentionSpec* a) {
  a->k = a->v = TensorRef();
  if (a->q_rank > 0) {
    a->q_a.name = prefix + "attn_q_a.weight";
    a->q_a_norm.name = prefix + "attn_q_a_norm.weight";
    a->q.name = prefix + "attn_q_b.weight";
  }
  a->kv_a.name = prefix + "attn_kv_a_mqa.weight";
  a->kv_a_norm.name = prefix + "attn_kv_a_norm.weight";
  a->k_b.parts = a->v_b.parts = a->heads;
  if (checkpoint.Find(prefix + "attn_k_b.weight") != nullptr) {
    a->k_b.name = prefix + "attn_k_b.weight";
    a->v_b.name = prefix + "attn_v_b.weight";
    a->k_b.stride = a->latent_dim;
    a->v_b.stride = a->v_head_dim;
    return;
  }
  const uint32_t nope = a->head_dim - a->rope_dim;
  a->k_b.name = a->v_b.name = prefix + "attn_kv_b.weight";
  a->k_b.stride = a->v_b.stride = uint64_t{nope} + a->v_head_dim;
  a->k_b.transposed = true;
  a->v_b.row_begin = nope;
}

StatusOr<ModelSpec> QwenMoe(const format::Gguf& gguf, const format::Checkpoint& checkpoint,
                            bool third) {
  GgufReader reader(gguf, third ? "qwen3moe" : "qwen2moe");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, third ? "qwen3_moe" : "qwen2_moe");
  ModelSpec& spec = decoder.spec;
  spec.ropes.push_back(
      RopeFromGguf(&reader, decoder.attention.head_dim, false, 10000.0, spec.max_context));
  FeedForwardSpec experts = decoder.feed_forward;
  ReadGgufExperts(&reader, false, &experts);
  experts.normalize = third;  // not in the file: as llama.cpp has it
  if (!third) {
    experts.intermediate = reader.Uint("expert_shared_feed_forward_length", 1, kMaxWidth,
                                       decoder.feed_forward.intermediate);
  }
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameGgufLayer(checkpoint, prefix, &layer);
    if (third) NameGgufQkNorms(prefix, &layer);
    TakeGgufExperts(checkpoint, prefix, spec.hidden_size, experts, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

void ReadGgufExperts(GgufReader* reader, bool wide, FeedForwardSpec* f) {
  f->kind = FeedForwardKind::kExperts;
  f->experts = reader->Uint("expert_count", 1, kMaxExperts);
  f->experts_used = reader->Uint("expert_used_count", 1, std::max(1u, f->experts));
  const uint32_t share = f->intermediate / (wide ? 1 : std::max(1u, f->experts_used));
  f->expert_intermediate =
      reader->UniformUint("expert_feed_forward_length", 1, kMaxWidth, std::max(1u, share));
  f->intermediate = 0;
  f->routed_scale = static_cast<float>(reader->Number("expert_weights_scale", -1e6, 1e6, 1.0));
  if (f->routed_scale == 0.0f) f->routed_scale = 1.0f;  // how some files say that there is none
}

void NameGgufExperts(const format::Checkpoint& checkpoint, const std::string& prefix,
                     uint32_t hidden, FeedForwardSpec* f) {
  f->gate = f->up = f->down = f->gate_bias = f->up_bias = f->down_bias = TensorRef();
  f->router.name = prefix + "ffn_gate_inp.weight";
  f->router_correction = Optional(checkpoint, prefix + "exp_probs_b.bias");
  const uint32_t rows = f->expert_intermediate;
  f->expert_gate = Stack(checkpoint, prefix, "ffn_gate", f->experts, rows);
  f->expert_up = Stack(checkpoint, prefix, "ffn_up", f->experts, rows);
  f->expert_down = Stack(checkpoint, prefix, "ffn_down", f->experts, hidden);
  const std::string fused = prefix + "ffn_gate_up_exps.weight";
  if (checkpoint.Find(fused) != nullptr) {
    f->expert_gate.name = f->expert_up.name = fused;
    f->expert_gate.stride = f->expert_up.stride = uint64_t{rows} * 2;
    f->expert_up.row_begin = rows;
  }
  if (f->intermediate == 0) return;
  f->gate.name = prefix + "ffn_gate_shexp.weight";
  f->up.name = prefix + "ffn_up_shexp.weight";
  f->down.name = prefix + "ffn_down_shexp.weight";
  f->shared_gate = Optional(checkpoint, prefix + "ffn_gate_inp_shexp.weight");
}

void TakeGgufExperts(const format::Checkpoint& checkpoint, const std::string& prefix,
                     uint32_t hidden, const FeedForwardSpec& experts, LayerSpec* layer) {
  if (checkpoint.Find(prefix + "ffn_gate_inp.weight") == nullptr) return;
  layer->feed_forward = experts;
  NameGgufExperts(checkpoint, prefix, hidden, &layer->feed_forward);
}

StatusOr<ModelSpec> Qwen2MoeFromGguf(const format::Gguf& gguf,
                                     const format::Checkpoint& checkpoint) {
  return QwenMoe(gguf, checkpoint, false);
}

StatusOr<ModelSpec> Qwen3MoeFromGguf(const format::Gguf& gguf,
                                     const format::Checkpoint& checkpoint) {
  return QwenMoe(gguf, checkpoint, true);
}

StatusOr<ModelSpec> Glm4MoeFromGguf(const format::Gguf& gguf,
                                    const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "glm4moe");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, "glm4_moe");
  ModelSpec& spec = decoder.spec;
  SkipPredicting(&reader, &decoder);
  spec.ropes.push_back(
      RopeFromGguf(&reader, decoder.attention.head_dim, false, 10000.0, spec.max_context));
  FeedForwardSpec experts = decoder.feed_forward;
  ReadGgufExperts(&reader, false, &experts);
  experts.intermediate =
      ReadSharedWidth(&reader, "expert_shared_count", 0, experts.expert_intermediate);
  ReadRouting(&reader, RouterScoring::kSigmoid, &experts);
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameGgufLayer(checkpoint, prefix, &layer);
    layer.feed_forward_norm.name = prefix + "post_attention_norm.weight";
    if (checkpoint.Find(prefix + "attn_q_norm.weight") != nullptr) NameGgufQkNorms(prefix, &layer);
    TakeGgufExperts(checkpoint, prefix, spec.hidden_size, experts, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

StatusOr<ModelSpec> DeepseekFromGguf(const format::Gguf& gguf,
                                     const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "deepseek2");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, "deepseek_v3");
  ModelSpec& spec = decoder.spec;
  SkipPredicting(&reader, &decoder);
  ReadLatent(&reader, &spec, &decoder.attention);
  if (reader.Number("attention.temperature_scale", -1e6, 1e6, 0.0) != 0.0) {
    reader.Fail(UnsupportedError(gguf.name() +
                                 ": queries scaled by position (attention.temperature_scale) "
                                 "are not supported"));
  }
  FeedForwardSpec experts = decoder.feed_forward;
  ReadGgufExperts(&reader, false, &experts);
  experts.intermediate =
      ReadSharedWidth(&reader, "expert_shared_count", 0, experts.expert_intermediate);
  ReadRouting(&reader, RouterScoring::kSoftmax, &experts);
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameGgufLayer(checkpoint, prefix, &layer);
    NameLatent(checkpoint, prefix, &layer.attention);
    TakeGgufExperts(checkpoint, prefix, spec.hidden_size, experts, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
