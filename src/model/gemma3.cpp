// Gemma 3 text models: four norms a layer, norms of q and k, windows on most layers with a rope of
// their own, scaled embeddings. Safetensors keep norm weights minus one, GGUF files do not.
#include "model/decoder_source.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

constexpr double kLocalTheta = 10000.0, kGlobalTheta = 1e6;
constexpr int32_t kGlobalRope = 0, kLocalRope = 1;
constexpr uint32_t kPattern = 6;  // every sixth layer sees everything

// Checkpoints of the multimodal model nest the text model under one of several names.
std::string TextPrefix(const format::Checkpoint& checkpoint) {
  for (const char* prefix : {"model.", "language_model.model.", "model.language_model."}) {
    if (checkpoint.Find(std::string(prefix) + "embed_tokens.weight") != nullptr) return prefix;
  }
  return "model.";
}

// Which layers have windows: layer_types, or a pattern.
std::vector<bool> GemmaWindows(JsonReader* reader, uint32_t layers) {
  std::vector<bool> windowed = WindowedLayers(reader, layers);
  if (!windowed.empty()) return windowed;
  windowed.resize(layers);
  const uint32_t old_pattern = reader->Uint("_sliding_window_pattern", 1, kMaxLayers, kPattern);
  const uint32_t pattern = reader->Uint("sliding_window_pattern", 1, kMaxLayers, old_pattern);
  for (uint32_t i = 0; i < layers; ++i) windowed[i] = (i + 1) % pattern != 0;
  return windowed;
}

void ReadRopes(JsonReader* reader, uint32_t head_dim, ModelSpec* spec) {
  RopeSpec global, local;
  const format::JsonNode* parameters = reader->Object("rope_parameters");
  const format::JsonNode* full = nullptr;
  const format::JsonNode* sliding = nullptr;
  if (parameters != nullptr) {
    JsonReader inner(*parameters, reader->where() + "rope_parameters.");
    full = inner.Object("full_attention");
    sliding = inner.Object("sliding_attention");
    reader->Fail(inner.status());
  }
  const double local_theta = reader->Number("rope_local_base_freq", 1e-3, 1e15, kLocalTheta);
  local.dims = head_dim;
  local.theta = local_theta;
  if (full != nullptr) {
    JsonReader object(*full, reader->where() + "rope_parameters.full_attention.");
    global = RopeFromHfObject(&object, head_dim, kGlobalTheta, &spec->max_context);
    reader->Fail(object.status());
  } else {
    global = RopeFromHf(reader, head_dim, kGlobalTheta, &spec->max_context);
  }
  if (sliding != nullptr) {
    JsonReader object(*sliding, reader->where() + "rope_parameters.sliding_attention.");
    local = RopeFromHfObject(&object, head_dim, local_theta, &spec->max_context);
    reader->Fail(object.status());
  }
  spec->ropes = {global, local};
}

}  // namespace

StatusOr<ModelSpec> Gemma3FromHf(const format::JsonNode& config,
                                 const format::Checkpoint& checkpoint) {
  JsonReader outer(config, ConfigPlace(checkpoint) + ": ");
  const format::JsonNode* text = outer.Object("text_config");
  QINFER_RETURN_IF_ERROR(outer.status());
  JsonReader reader(text != nullptr ? *text : config,
                    outer.where() + (text != nullptr ? "text_config." : ""));
  ModelSpec spec;
  spec.architecture = "gemma3";
  spec.hidden_size = reader.Uint("hidden_size", 1, kMaxWidth, 2304);
  // The multimodal file may say the vocabulary outside; defaults are transformers' own.
  spec.vocab_size =
      reader.Uint("vocab_size", 1, kMaxVocab, outer.Uint("vocab_size", 1, kMaxVocab, 262208));
  spec.max_context = reader.Uint("max_position_embeddings", 1, kMaxPosition, 131072);
  spec.norm_epsilon = static_cast<float>(reader.Number("rms_norm_eps", 1e-12, 1.0, 1e-6));
  spec.norm_weight_offset = 1.0f;
  // The scale is a constant of the model's own type.
  const double scale = __builtin_sqrt(static_cast<double>(spec.hidden_size));
  spec.embedding_scale = reader.Has("dtype") || reader.Has("torch_dtype")
                             ? RoundToModelType(&reader, scale)
                             : RoundToModelType(&outer, scale);
  spec.logit_softcap = static_cast<float>(reader.Number("final_logit_softcapping", 1e-3, 1e6, 0.0));
  const uint32_t layers = reader.Uint("num_hidden_layers", 1, kMaxLayers, 26);
  const uint32_t intermediate = reader.Uint("intermediate_size", 1, kMaxWidth, 9216);
  AttentionSpec attention;
  attention.heads = reader.Uint("num_attention_heads", 1, kMaxHeads, 8);
  attention.kv_heads = reader.Uint("num_key_value_heads", 1, kMaxHeads, 4);
  attention.head_dim = reader.Uint("head_dim", 1, kMaxHeadDim, 256);
  attention.v_head_dim = attention.head_dim;
  attention.scale = InverseRoot(reader.Number("query_pre_attn_scalar", 1e-6, 1e9, 256.0));
  attention.softcap = static_cast<float>(reader.Number("attn_logit_softcapping", 1e-3, 1e6, 0.0));
  const uint32_t window = reader.Uint("sliding_window", 1, kMaxPosition, 4096);
  const std::vector<bool> windowed = GemmaWindows(&reader, layers);
  ReadRopes(&reader, attention.head_dim, &spec);
  const bool attention_bias = reader.Bool("attention_bias", false);
  if (reader.Bool("use_bidirectional_attention", false)) {
    reader.Fail(UnsupportedError(reader.where() +
                                 "use_bidirectional_attention: only causal models are supported"));
  }
  const kernels::Activation activation =
      ActivationFromHf(&reader, "hidden_activation", "gelu_pytorch_tanh");
  const bool tied = reader.Bool("tie_word_embeddings", outer.Bool("tie_word_embeddings", true));
  QINFER_RETURN_IF_ERROR(reader.status());
  QINFER_RETURN_IF_ERROR(outer.status());

  const std::string root = TextPrefix(checkpoint);
  spec.embedding.name = root + "embed_tokens.weight";
  spec.final_norm.name = root + "norm.weight";
  if (!tied) {
    spec.lm_head.name =
        root == "language_model.model." ? "language_model.lm_head.weight" : "lm_head.weight";
  }
  for (uint32_t i = 0; i < layers; ++i) {
    const std::string prefix = StrCat(root, "layers.", i, ".");
    LayerSpec layer;
    layer.attention = attention;
    layer.attention.window = windowed[i] ? window : 0;
    layer.attention.rope = windowed[i] ? kLocalRope : kGlobalRope;
    layer.feed_forward.intermediate = intermediate;
    layer.feed_forward.activation = activation;
    NameHfLayer(prefix, &layer);
    layer.post_attention_norm.name = prefix + "post_attention_layernorm.weight";
    layer.feed_forward_norm.name = prefix + "pre_feedforward_layernorm.weight";
    layer.post_feed_forward_norm.name = prefix + "post_feedforward_layernorm.weight";
    if (attention_bias) NameHfAttentionBiases(prefix, &layer);
    NameHfQkNorms(prefix, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

StatusOr<ModelSpec> Gemma3FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "gemma3");
  ModelSpec spec;
  spec.architecture = "gemma3";
  spec.hidden_size = reader.Uint("embedding_length", 1, kMaxWidth);
  spec.max_context = reader.Uint("context_length", 1, kMaxPosition);
  spec.norm_epsilon =
      static_cast<float>(reader.Number("attention.layer_norm_rms_epsilon", 1e-12, 1.0));
  spec.embedding_scale = static_cast<float>(__builtin_sqrt(static_cast<double>(spec.hidden_size)));
  spec.logit_softcap = static_cast<float>(reader.Number("final_logit_softcapping", 0.0, 1e6, 0.0));
  const uint32_t layers = reader.Uint("block_count", 1, kMaxLayers);
  const uint32_t intermediate = reader.UniformUint("feed_forward_length", 1, kMaxWidth, 0);
  if (intermediate == 0) reader.Fail("feed_forward_length", "this key is required and missing");
  AttentionSpec attention;
  attention.heads = reader.UniformUint("attention.head_count", 1, kMaxHeads, 1);
  attention.kv_heads = reader.UniformUint("attention.head_count_kv", 1, kMaxHeads, attention.heads);
  attention.head_dim = reader.Uint("attention.key_length", 1, kMaxHeadDim, 256);
  attention.v_head_dim = reader.Uint("attention.value_length", 1, kMaxHeadDim, 256);
  // The 27B model scales by the width of a head as if heads shared the hidden size; its files do
  // not say so, its number of layers does.
  const bool is_27b = layers == 62;
  attention.scale = InverseRoot(is_27b ? static_cast<double>(spec.hidden_size) / attention.heads
                                       : static_cast<double>(attention.head_dim));
  const uint32_t window = reader.Uint("attention.sliding_window", 0, kMaxPosition, 0);
  const uint32_t pattern = reader.Uint("attention.sliding_window_pattern", 1, kMaxLayers, kPattern);
  RopeSpec global =
      RopeFromGguf(&reader, attention.head_dim, false, kGlobalTheta, spec.max_context);
  RopeSpec local;
  local.dims = global.dims;
  local.theta = reader.Number("rope.freq_base_swa", 1e-3, 1e15, kLocalTheta);
  spec.ropes = {global, local};
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
    const bool windowed = window != 0 && (i + 1) % pattern != 0;
    LayerSpec layer;
    layer.attention_norm.name = prefix + "attn_norm.weight";
    layer.post_attention_norm.name = prefix + "post_attention_norm.weight";
    layer.feed_forward_norm.name = prefix + "ffn_norm.weight";
    layer.post_feed_forward_norm.name = prefix + "post_ffw_norm.weight";
    layer.attention = attention;
    layer.attention.window = windowed ? window : 0;
    layer.attention.rope = windowed ? kLocalRope : kGlobalRope;
    layer.attention.q.name = prefix + "attn_q.weight";
    layer.attention.k.name = prefix + "attn_k.weight";
    layer.attention.v.name = prefix + "attn_v.weight";
    layer.attention.o.name = prefix + "attn_output.weight";
    NameGgufQkNorms(prefix, &layer);
    layer.feed_forward.intermediate = intermediate;
    layer.feed_forward.activation = kernels::Activation::kGeluTanh;
    layer.feed_forward.gate.name = prefix + "ffn_gate.weight";
    layer.feed_forward.up.name = prefix + "ffn_up.weight";
    layer.feed_forward.down.name = prefix + "ffn_down.weight";
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
