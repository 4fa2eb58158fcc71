// Llama (1 to 3, SmolLM2, TinyLlama) and Mistral: grouped attention, gated feed-forward, RMS norms
// before both. GGUF files hold q and k with rows permuted, so that rotated pairs are neighbours.
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

float AttentionScale(uint32_t head_dim) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(head_dim)));
}

struct HfOptions {
  bool attention_bias = false, mlp_bias = false;
  uint32_t window = 0;
};

StatusOr<ModelSpec> FromConfig(const nlohmann::json& config, const format::Checkpoint& checkpoint,
                               bool mistral) {
  JsonReader reader(config, checkpoint.name() + ": config.json: ");
  ModelSpec spec;
  spec.architecture = mistral ? "mistral" : "llama";
  spec.hidden_size = reader.Uint("hidden_size", 1, kMaxWidth);
  spec.vocab_size = reader.Uint("vocab_size", 1, kMaxVocab);
  spec.max_context = reader.Uint("max_position_embeddings", 1, kMaxPosition, 2048);
  spec.norm_epsilon = static_cast<float>(reader.Number("rms_norm_eps", 1e-12, 1.0, 1e-6));
  const uint32_t layers = reader.Uint("num_hidden_layers", 1, kMaxLayers);
  const uint32_t intermediate = reader.Uint("intermediate_size", 1, kMaxWidth);
  AttentionSpec attention;
  attention.heads = reader.Uint("num_attention_heads", 1, kMaxHeads);
  attention.kv_heads = reader.Uint("num_key_value_heads", 1, kMaxHeads, attention.heads);
  if (!reader.Has("head_dim") && spec.hidden_size % attention.heads != 0) {
    reader.Fail("num_attention_heads", StrCat("does not divide hidden_size ", spec.hidden_size));
  }
  attention.head_dim = reader.Uint("head_dim", 1, kMaxHeadDim, spec.hidden_size / attention.heads);
  attention.v_head_dim = attention.head_dim;
  attention.scale = AttentionScale(attention.head_dim);
  attention.rope = 0;
  HfOptions options;
  if (mistral) {
    options.window = reader.Uint("sliding_window", 1, kMaxPosition, 0);
  } else {
    options.attention_bias = reader.Bool("attention_bias", false);
    options.mlp_bias = reader.Bool("mlp_bias", false);
  }
  attention.window = options.window;
  spec.ropes.push_back(RopeFromHf(&reader, attention.head_dim, 10000.0, &spec.max_context));
  const kernels::Activation activation = ActivationFromHf(&reader, "hidden_act", "silu");
  const bool tied = reader.Bool("tie_word_embeddings", false);
  QINFER_RETURN_IF_ERROR(reader.status());

  spec.embedding.name = "model.embed_tokens.weight";
  spec.final_norm.name = "model.norm.weight";
  if (!tied) spec.lm_head.name = "lm_head.weight";
  for (uint32_t i = 0; i < layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    LayerSpec layer;
    layer.attention_norm.name = prefix + "input_layernorm.weight";
    layer.feed_forward_norm.name = prefix + "post_attention_layernorm.weight";
    layer.attention = attention;
    layer.attention.q.name = prefix + "self_attn.q_proj.weight";
    layer.attention.k.name = prefix + "self_attn.k_proj.weight";
    layer.attention.v.name = prefix + "self_attn.v_proj.weight";
    layer.attention.o.name = prefix + "self_attn.o_proj.weight";
    if (options.attention_bias) {
      layer.attention.q_bias.name = prefix + "self_attn.q_proj.bias";
      layer.attention.k_bias.name = prefix + "self_attn.k_proj.bias";
      layer.attention.v_bias.name = prefix + "self_attn.v_proj.bias";
      layer.attention.o_bias.name = prefix + "self_attn.o_proj.bias";
    }
    layer.feed_forward.intermediate = intermediate;
    layer.feed_forward.activation = activation;
    layer.feed_forward.gate.name = prefix + "mlp.gate_proj.weight";
    layer.feed_forward.up.name = prefix + "mlp.up_proj.weight";
    layer.feed_forward.down.name = prefix + "mlp.down_proj.weight";
    if (options.mlp_bias) {
      layer.feed_forward.gate_bias.name = prefix + "mlp.gate_proj.bias";
      layer.feed_forward.up_bias.name = prefix + "mlp.up_proj.bias";
      layer.feed_forward.down_bias.name = prefix + "mlp.down_proj.bias";
    }
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

StatusOr<ModelSpec> LlamaFromHf(const nlohmann::json& config,
                                const format::Checkpoint& checkpoint) {
  return FromConfig(config, checkpoint, false);
}

StatusOr<ModelSpec> MistralFromHf(const nlohmann::json& config,
                                  const format::Checkpoint& checkpoint) {
  return FromConfig(config, checkpoint, true);
}

StatusOr<ModelSpec> LlamaFromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "llama");
  ModelSpec spec;
  spec.architecture = "llama";
  spec.hidden_size = reader.Uint("embedding_length", 1, kMaxWidth);
  spec.max_context = reader.Uint("context_length", 1, kMaxPosition);
  spec.norm_epsilon =
      static_cast<float>(reader.Number("attention.layer_norm_rms_epsilon", 1e-12, 1.0));
  const uint32_t layers = reader.Uint("block_count", 1, kMaxLayers);
  const uint32_t intermediate = reader.UniformUint("feed_forward_length", 1, kMaxWidth, 0);
  if (intermediate == 0) reader.Fail("feed_forward_length", "this key is required and missing");
  if (reader.Uint("expert_count", 0, kMaxWidth, 0) != 0) {
    reader.Fail(UnsupportedError(gguf.name() + ": mixtures of experts are not supported yet"));
  }
  AttentionSpec attention;
  attention.heads = reader.UniformUint("attention.head_count", 1, kMaxHeads, 1);
  attention.kv_heads = reader.UniformUint("attention.head_count_kv", 1, kMaxHeads, attention.heads);
  attention.head_dim =
      reader.Uint("attention.key_length", 1, kMaxHeadDim, spec.hidden_size / attention.heads);
  attention.v_head_dim =
      reader.Uint("attention.value_length", 1, kMaxHeadDim, spec.hidden_size / attention.heads);
  attention.scale = static_cast<float>(reader.Number("attention.scale", 0.0, 1e6, 0.0));
  if (attention.scale == 0.0f) attention.scale = AttentionScale(attention.head_dim);
  attention.window = reader.Uint("attention.sliding_window", 0, kMaxPosition, 0);
  attention.rope = 0;
  RopeSpec rope = RopeFromGguf(&reader, attention.head_dim, true, 10000.0, spec.max_context);
  rope.frequency_factors = Optional(checkpoint, "rope_freqs.weight");
  spec.ropes.push_back(rope);
  const format::TensorInfo* embedding = checkpoint.Find("token_embd.weight");
  spec.vocab_size = reader.Uint("vocab_size", 1, kMaxVocab, 0);
  if (embedding != nullptr && embedding->rank == 2 && embedding->shape[0] <= kMaxVocab) {
    spec.vocab_size = static_cast<uint32_t>(embedding->shape[0]);
  }
  if (spec.vocab_size == 0) {
    reader.Fail(FormatError(gguf.name() + ": tensor token_embd.weight: missing or not a matrix"));
  }
  QINFER_RETURN_IF_ERROR(reader.status());

  spec.embedding.name = "token_embd.weight";
  spec.final_norm.name = "output_norm.weight";
  spec.lm_head = Optional(checkpoint, "output.weight");
  for (uint32_t i = 0; i < layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    LayerSpec layer;
    layer.attention_norm.name = prefix + "attn_norm.weight";
    layer.feed_forward_norm.name = prefix + "ffn_norm.weight";
    layer.attention = attention;
    layer.attention.q.name = prefix + "attn_q.weight";
    layer.attention.k.name = prefix + "attn_k.weight";
    layer.attention.v.name = prefix + "attn_v.weight";
    layer.attention.o.name = prefix + "attn_output.weight";
    layer.attention.q_bias = Optional(checkpoint, prefix + "attn_q.bias");
    layer.attention.k_bias = Optional(checkpoint, prefix + "attn_k.bias");
    layer.attention.v_bias = Optional(checkpoint, prefix + "attn_v.bias");
    layer.attention.o_bias = Optional(checkpoint, prefix + "attn_output.bias");
    layer.feed_forward.intermediate = intermediate;
    layer.feed_forward.gate.name = prefix + "ffn_gate.weight";
    layer.feed_forward.up.name = prefix + "ffn_up.weight";
    layer.feed_forward.down.name = prefix + "ffn_down.weight";
    layer.feed_forward.gate_bias = Optional(checkpoint, prefix + "ffn_gate.bias");
    layer.feed_forward.up_bias = Optional(checkpoint, prefix + "ffn_up.bias");
    layer.feed_forward.down_bias = Optional(checkpoint, prefix + "ffn_down.bias");
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
