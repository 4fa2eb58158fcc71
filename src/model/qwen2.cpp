// Qwen2 and Qwen2.5: biases of q, k and v, and windows on the upper layers where they are switched
// on.
#include "model/decoder_source.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {

StatusOr<ModelSpec> Qwen2FromHf(const format::JsonNode& config,
                                const format::Checkpoint& checkpoint) {
  JsonReader reader(config, ConfigPlace(checkpoint) + ": ");
  Decoder decoder = ReadHfDecoder(&reader, "qwen2", {.max_context = 32768});
  ModelSpec& spec = decoder.spec;
  spec.ropes.push_back(RopeFromHf(&reader, decoder.attention.head_dim, 10000.0, &spec.max_context));
  const uint32_t window = WindowOfUpperLayers(&reader);
  const std::vector<bool> windowed = UpperLayers(&reader, decoder.layers);
  NameHfEnds(&reader, "model.", "lm_head.weight", false, &spec);
  QINFER_RETURN_IF_ERROR(reader.status());

  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    layer.attention.window = windowed[i] ? window : 0;
    NameHfLayer(prefix, &layer);
    NameHfQkvBiases(prefix, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

StatusOr<ModelSpec> Qwen2FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "qwen2");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, "qwen2");
  ModelSpec& spec = decoder.spec;
  spec.ropes.push_back(
      RopeFromGguf(&reader, decoder.attention.head_dim, false, 10000.0, spec.max_context));
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameGgufLayer(checkpoint, StrCat("blk.", i, "."), &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
