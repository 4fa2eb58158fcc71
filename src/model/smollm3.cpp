// SmolLM3: Llama with layers that do not rotate. GGUF files hold q and k with rows permuted, as
// Llama's do, and leave the rotation out of every fourth layer without saying so.
#include "model/decoder_source.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

constexpr double kTheta = 2e6;
constexpr uint32_t kInterval = 4;

// "no_rope_layers" says 1 where a layer does rotate.
std::vector<bool> RotatedLayers(JsonReader* reader, uint32_t layers) {
  std::vector<bool> rotated(layers);
  const std::vector<double> listed = reader->Numbers("no_rope_layers", kMaxLayers);
  const uint32_t interval = reader->Uint("no_rope_layer_interval", 1, kMaxLayers, kInterval);
  if (!listed.empty() && listed.size() < layers) {
    reader->Fail("no_rope_layers", StrCat("names ", listed.size(), " layers of ", layers));
    return rotated;
  }
  for (uint32_t i = 0; i < layers; ++i) {
    rotated[i] = listed.empty() ? (i + 1) % interval != 0 : listed[i] != 0.0;
  }
  return rotated;
}

}  // namespace

StatusOr<ModelSpec> SmolLm3FromHf(const format::JsonNode& config,
                                  const format::Checkpoint& checkpoint) {
  JsonReader reader(config, ConfigPlace(checkpoint) + ": ");
  Decoder decoder = ReadHfDecoder(&reader, "smollm3", {.max_context = 32768});
  ModelSpec& spec = decoder.spec;
  spec.ropes.push_back(RopeFromHf(&reader, decoder.attention.head_dim, kTheta, &spec.max_context));
  const std::vector<bool> rotated = RotatedLayers(&reader, decoder.layers);
  const uint32_t window = reader.Bool("use_sliding_window", false)
                              ? reader.Uint("sliding_window", 1, kMaxPosition, 0)
                              : 0;
  const std::vector<bool> windowed = WindowedLayers(&reader, decoder.layers);
  const bool attention_bias = reader.Bool("attention_bias", false);
  const bool mlp_bias = reader.Bool("mlp_bias", false);
  NameHfEnds(&reader, "model.", "lm_head.weight", true, &spec);
  QINFER_RETURN_IF_ERROR(reader.status());

  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    layer.attention.rope = rotated[i] ? 0 : -1;
    layer.attention.window = (windowed.empty() ? !rotated[i] : bool{windowed[i]}) ? window : 0;
    NameHfLayer(prefix, &layer);
    if (attention_bias) NameHfAttentionBiases(prefix, &layer);
    if (mlp_bias) NameHfMlpBiases(prefix, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

StatusOr<ModelSpec> SmolLm3FromGguf(const format::Gguf& gguf,
                                    const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "smollm3");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, "smollm3");
  ModelSpec& spec = decoder.spec;
  spec.ropes.push_back(
      RopeFromGguf(&reader, decoder.attention.head_dim, true, kTheta, spec.max_context));
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    layer.attention.rope = (i + 1) % kInterval != 0 ? 0 : -1;
    NameGgufLayer(checkpoint, StrCat("blk.", i, "."), &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
