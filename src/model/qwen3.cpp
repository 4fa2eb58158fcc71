// Qwen3, dense: norms of q and k in every head, no biases unless the configuration asks for them.
#include "model/decoder_source.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {

StatusOr<ModelSpec> Qwen3FromHf(const format::JsonNode& config,
                                const format::Checkpoint& checkpoint) {
  JsonReader reader(config, ConfigPlace(checkpoint) + ": ");
  Decoder decoder = ReadHfDecoder(&reader, "qwen3", {.max_context = 32768});
  ModelSpec& spec = decoder.spec;
  if (!reader.Has("head_dim")) {  // the configuration class does not divide
    decoder.attention.head_dim = decoder.attention.v_head_dim = 128;
    decoder.attention.scale = InverseRoot(128.0);
  }
  spec.ropes.push_back(RopeFromHf(&reader, decoder.attention.head_dim, 10000.0, &spec.max_context));
  const uint32_t window = WindowOfUpperLayers(&reader);
  const std::vector<bool> windowed = UpperLayers(&reader, decoder.layers);
  const bool bias = reader.Bool("attention_bias", false);
  NameHfEnds(&reader, "model.", "lm_head.weight", false, &spec);
  QINFER_RETURN_IF_ERROR(reader.status());

  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    layer.attention.window = windowed[i] ? window : 0;
    NameHfLayer(prefix, &layer);
    NameHfQkNorms(prefix, &layer);
    if (bias) NameHfAttentionBiases(prefix, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

StatusOr<ModelSpec> Qwen3FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "qwen3");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, "qwen3");
  ModelSpec& spec = decoder.spec;
  spec.ropes.push_back(
      RopeFromGguf(&reader, decoder.attention.head_dim, false, 10000.0, spec.max_context));
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameGgufLayer(checkpoint, prefix, &layer);
    NameGgufQkNorms(prefix, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
