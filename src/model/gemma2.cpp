// Gemma 2: four norms a layer, caps of scores and logits, windows on every other layer, scaled
// embeddings. Safetensors keep norm weights minus one, GGUF files do not.
#include "model/decoder_source.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

constexpr double kScoreCap = 50.0, kLogitCap = 30.0;
constexpr uint32_t kWindow = 4096;

bool Alternates(uint32_t layer) { return layer % 2 == 0; }

}  // namespace

StatusOr<ModelSpec> Gemma2FromHf(const format::JsonNode& config,
                                 const format::Checkpoint& checkpoint) {
  JsonReader reader(config, ConfigPlace(checkpoint) + ": ");
  Decoder decoder = ReadHfDecoder(&reader, "gemma2",
                                  {.max_context = 8192,
                                   .activation_key = "hidden_activation",
                                   .activation = "gelu_pytorch_tanh"});
  ModelSpec& spec = decoder.spec;
  if (!reader.Has("head_dim")) {  // the configuration class does not divide
    decoder.attention.head_dim = decoder.attention.v_head_dim = 256;
  }
  spec.norm_weight_offset = 1.0f;
  spec.embedding_scale =
      RoundToModelType(&reader, __builtin_sqrt(static_cast<double>(spec.hidden_size)));
  // A cap that is null is none; one that is not there is the class's own.
  const auto cap = [&](const char* key, double otherwise) {
    const bool none = config.Get(key) != nullptr && !reader.Has(key);
    return static_cast<float>(none ? 0.0 : reader.Number(key, 1e-3, 1e6, otherwise));
  };
  spec.logit_softcap = cap("final_logit_softcapping", kLogitCap);
  decoder.attention.softcap = cap("attn_logit_softcapping", kScoreCap);
  decoder.attention.scale = InverseRoot(reader.Number("query_pre_attn_scalar", 1e-6, 1e9, 256.0));
  const uint32_t window = reader.Uint("sliding_window", 1, kMaxPosition, kWindow);
  const std::vector<bool> windowed = WindowedLayers(&reader, decoder.layers);
  spec.ropes.push_back(RopeFromHf(&reader, decoder.attention.head_dim, 10000.0, &spec.max_context));
  const bool bias = reader.Bool("attention_bias", false);
  if (reader.Bool("use_bidirectional_attention", false)) {
    reader.Fail(UnsupportedError(reader.where() +
                                 "use_bidirectional_attention: only causal models are supported"));
  }
  NameHfEnds(&reader, "model.", "lm_head.weight", true, &spec);
  QINFER_RETURN_IF_ERROR(reader.status());

  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    layer.attention.window = (windowed.empty() ? Alternates(i) : bool{windowed[i]}) ? window : 0;
    NameHfLayer(prefix, &layer);
    layer.post_attention_norm.name = prefix + "post_attention_layernorm.weight";
    layer.feed_forward_norm.name = prefix + "pre_feedforward_layernorm.weight";
    layer.post_feed_forward_norm.name = prefix + "post_feedforward_layernorm.weight";
    if (bias) NameHfAttentionBiases(prefix, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

StatusOr<ModelSpec> Gemma2FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "gemma2");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, "gemma2");
  ModelSpec& spec = decoder.spec;
  spec.embedding_scale = static_cast<float>(__builtin_sqrt(static_cast<double>(spec.hidden_size)));
  spec.logit_softcap =
      static_cast<float>(reader.Number("final_logit_softcapping", 0.0, 1e6, kLogitCap));
  decoder.attention.softcap =
      static_cast<float>(reader.Number("attn_logit_softcapping", 0.0, 1e6, kScoreCap));
  // The 27B model scales by the width of a head as if heads shared the hidden size; its files do
  // not say so, its number of layers does.
  const bool is_27b = decoder.layers == 46;
  if (is_27b) {
    decoder.attention.scale =
        InverseRoot(static_cast<double>(spec.hidden_size) / decoder.attention.heads);
  }
  decoder.feed_forward.activation = kernels::Activation::kGeluTanh;
  const uint32_t window = reader.Uint("attention.sliding_window", 0, kMaxPosition, kWindow);
  spec.ropes.push_back(
      RopeFromGguf(&reader, decoder.attention.head_dim, false, 10000.0, spec.max_context));
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    layer.attention.window = Alternates(i) ? window : 0;
    NameGgufLayer(checkpoint, prefix, &layer);
    layer.post_attention_norm.name = prefix + "post_attention_norm.weight";
    layer.post_feed_forward_norm.name = prefix + "post_ffw_norm.weight";
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
