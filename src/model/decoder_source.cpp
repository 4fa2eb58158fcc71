// Keys and names that most decoders share.
#include "model/decoder_source.h"

#include "model/spec_source.h"

namespace qinfer::model {

float InverseRoot(double x) { return static_cast<float>(1.0 / __builtin_sqrt(x)); }

// ---- config.json

uint32_t ReadHfSizes(JsonReader* reader, const char* architecture, const HfDefaults& defaults,
                     ModelSpec* spec) {
  spec->architecture = architecture;
  spec->hidden_size = reader->Uint("hidden_size", 1, kMaxWidth);
  spec->vocab_size = reader->Uint("vocab_size", 1, kMaxVocab);
  spec->max_context =
      reader->Uint("max_position_embeddings", 1, kMaxPosition, defaults.max_context);
  spec->norm_epsilon =
      static_cast<float>(reader->Number("rms_norm_eps", 1e-12, 1.0, defaults.epsilon));
  return reader->Uint("num_hidden_layers", 1, kMaxLayers);
}

Decoder ReadHfDecoder(JsonReader* reader, const char* architecture, const HfDefaults& defaults) {
  Decoder decoder;
  ModelSpec& spec = decoder.spec;
  decoder.layers = ReadHfSizes(reader, architecture, defaults, &spec);
  AttentionSpec& attention = decoder.attention;
  attention.heads = reader->Uint("num_attention_heads", 1, kMaxHeads);
  attention.kv_heads = reader->Uint("num_key_value_heads", 1, kMaxHeads, attention.heads);
  if (!reader->Has("head_dim") && spec.hidden_size % attention.heads != 0) {
    reader->Fail("num_attention_heads", StrCat("does not divide hidden_size ", spec.hidden_size));
  }
  attention.head_dim = reader->Uint("head_dim", 1, kMaxHeadDim, spec.hidden_size / attention.heads);
  attention.v_head_dim = attention.head_dim;
  attention.scale = InverseRoot(attention.head_dim);
  attention.rope = 0;
  FeedForwardSpec& feed_forward = decoder.feed_forward;
  feed_forward.intermediate = reader->Uint("intermediate_size", 1, kMaxWidth);
  feed_forward.activation = ActivationFromHf(reader, defaults.activation_key, defaults.activation);
  return decoder;
}

void NameHfEnds(JsonReader* reader, const std::string& root, const std::string& head, bool tied,
                ModelSpec* spec) {
  spec->embedding.name = root + "embed_tokens.weight";
  spec->final_norm.name = root + "norm.weight";
  if (!reader->Bool("tie_word_embeddings", tied)) spec->lm_head.name = head;
}

void SkipPredictingLayers(uint32_t layers, uint32_t predicting, ModelSpec* spec) {
  for (uint32_t i = 0; i < predicting; ++i) {
    spec->skipped_prefixes.push_back(StrCat("model.layers.", layers + i, "."));
  }
}

void NameHfLayer(const std::string& prefix, LayerSpec* layer) {
  layer->attention_norm.name = prefix + "input_layernorm.weight";
  layer->feed_forward_norm.name = prefix + "post_attention_layernorm.weight";
  layer->attention.q.name = prefix + "self_attn.q_proj.weight";
  layer->attention.k.name = prefix + "self_attn.k_proj.weight";
  layer->attention.v.name = prefix + "self_attn.v_proj.weight";
  layer->attention.o.name = prefix + "self_attn.o_proj.weight";
  layer->feed_forward.gate.name = prefix + "mlp.gate_proj.weight";
  layer->feed_forward.up.name = prefix + "mlp.up_proj.weight";
  layer->feed_forward.down.name = prefix + "mlp.down_proj.weight";
}

void NameHfQkvBiases(const std::string& prefix, LayerSpec* layer) {
  layer->attention.q_bias.name = prefix + "self_attn.q_proj.bias";
  layer->attention.k_bias.name = prefix + "self_attn.k_proj.bias";
  layer->attention.v_bias.name = prefix + "self_attn.v_proj.bias";
}

void NameHfAttentionBiases(const std::string& prefix, LayerSpec* layer) {
  NameHfQkvBiases(prefix, layer);
  layer->attention.o_bias.name = prefix + "self_attn.o_proj.bias";
}

void NameHfQkNorms(const std::string& prefix, LayerSpec* layer) {
  layer->attention.q_norm.name = prefix + "self_attn.q_norm.weight";
  layer->attention.k_norm.name = prefix + "self_attn.k_norm.weight";
}

void NameHfMlpBiases(const std::string& prefix, LayerSpec* layer) {
  layer->feed_forward.gate_bias.name = prefix + "mlp.gate_proj.bias";
  layer->feed_forward.up_bias.name = prefix + "mlp.up_proj.bias";
  layer->feed_forward.down_bias.name = prefix + "mlp.down_proj.bias";
}

uint32_t WindowOfUpperLayers(JsonReader* reader) {
  if (!reader->Bool("use_sliding_window", false)) return 0;
  return reader->Uint("sliding_window", 1, kMaxPosition, 4096);
}

std::vector<bool> UpperLayers(JsonReader* reader, uint32_t layers) {
  std::vector<bool> windowed = WindowedLayers(reader, layers);
  if (!windowed.empty()) return windowed;
  const uint32_t first = reader->Uint("max_window_layers", 0, kMaxLayers, 28);
  windowed.resize(layers);
  for (uint32_t i = 0; i < layers; ++i) windowed[i] = i >= first;
  return windowed;
}

std::vector<bool> WindowedLayers(JsonReader* reader, uint32_t layers) {
  const std::vector<std::string> types = reader->Strings("layer_types", kMaxLayers);
  if (types.empty()) return {};
  std::vector<bool> windowed(layers);
  if (types.size() != layers) {
    reader->Fail("layer_types", StrCat("names ", types.size(), " layers of ", layers));
    return windowed;
  }
  for (uint32_t i = 0; i < layers; ++i) {
    windowed[i] = types[i] == "sliding_attention";
    if (!windowed[i] && types[i] != "full_attention") {
      reader->Fail(UnsupportedError(
          StrCat(reader->where(), "layer_types: \"", types[i],
                 "\" is not supported; known are full_attention, sliding_attention")));
    }
  }
  return windowed;
}

// ---- GGUF

Decoder ReadGgufDecoder(GgufReader* reader, const format::Checkpoint& checkpoint,
                        const char* architecture) {
  Decoder decoder;
  ModelSpec& spec = decoder.spec;
  spec.architecture = architecture;
  spec.hidden_size = reader->Uint("embedding_length", 1, kMaxWidth);
  spec.max_context = reader->Uint("context_length", 1, kMaxPosition);
  spec.norm_epsilon =
      static_cast<float>(reader->Number("attention.layer_norm_rms_epsilon", 1e-12, 1.0));
  decoder.layers = reader->Uint("block_count", 1, kMaxLayers);
  decoder.feed_forward.intermediate = reader->UniformUint("feed_forward_length", 1, kMaxWidth, 0);
  if (decoder.feed_forward.intermediate == 0) {
    reader->Fail("feed_forward_length", "this key is required and missing");
  }
  AttentionSpec& attention = decoder.attention;
  attention.heads = reader->UniformUint("attention.head_count", 1, kMaxHeads, 1);
  attention.kv_heads =
      reader->UniformUint("attention.head_count_kv", 1, kMaxHeads, attention.heads);
  const uint32_t shared = spec.hidden_size / attention.heads;
  attention.head_dim = reader->Uint("attention.key_length", 1, kMaxHeadDim, shared);
  attention.v_head_dim = reader->Uint("attention.value_length", 1, kMaxHeadDim, shared);
  attention.scale = static_cast<float>(reader->Number("attention.scale", 0.0, 1e6, 0.0));
  if (attention.scale == 0.0f) attention.scale = InverseRoot(attention.head_dim);
  attention.rope = 0;
  spec.vocab_size = reader->Uint("vocab_size", 1, kMaxVocab, 0);
  const format::TensorInfo* embedding = checkpoint.Find("token_embd.weight");
  if (embedding != nullptr && embedding->rank == 2 && embedding->shape[0] <= kMaxVocab) {
    spec.vocab_size = static_cast<uint32_t>(embedding->shape[0]);
  }
  if (spec.vocab_size == 0) {
    reader->Fail(
        FormatError(reader->gguf().name() + ": tensor token_embd.weight: missing or not a matrix"));
  }
  return decoder;
}

void NameGgufEnds(const format::Checkpoint& checkpoint, ModelSpec* spec) {
  spec->embedding.name = "token_embd.weight";
  spec->final_norm.name = "output_norm.weight";
  spec->lm_head = Optional(checkpoint, "output.weight");
}

void NameGgufLayer(const format::Checkpoint& checkpoint, const std::string& prefix,
                   LayerSpec* layer) {
  layer->attention_norm.name = prefix + "attn_norm.weight";
  layer->feed_forward_norm.name = prefix + "ffn_norm.weight";
  AttentionSpec& attention = layer->attention;
  attention.q.name = prefix + "attn_q.weight";
  attention.k.name = prefix + "attn_k.weight";
  attention.v.name = prefix + "attn_v.weight";
  attention.o.name = prefix + "attn_output.weight";
  attention.q_bias = Optional(checkpoint, prefix + "attn_q.bias");
  attention.k_bias = Optional(checkpoint, prefix + "attn_k.bias");
  attention.v_bias = Optional(checkpoint, prefix + "attn_v.bias");
  attention.o_bias = Optional(checkpoint, prefix + "attn_output.bias");
  FeedForwardSpec& feed_forward = layer->feed_forward;
  feed_forward.gate.name = prefix + "ffn_gate.weight";
  feed_forward.up.name = prefix + "ffn_up.weight";
  feed_forward.down.name = prefix + "ffn_down.weight";
  feed_forward.gate_bias = Optional(checkpoint, prefix + "ffn_gate.bias");
  feed_forward.up_bias = Optional(checkpoint, prefix + "ffn_up.bias");
  feed_forward.down_bias = Optional(checkpoint, prefix + "ffn_down.bias");
}

void NameGgufQkNorms(const std::string& prefix, LayerSpec* layer) {
  layer->attention.q_norm.name = prefix + "attn_q_norm.weight";
  layer->attention.k_norm.name = prefix + "attn_k_norm.weight";
}

}  // namespace qinfer::model
