// OLMo 2: norms after both branches instead of before, norms of q and k over all heads at once.
#include "model/decoder_source.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {

StatusOr<ModelSpec> Olmo2FromHf(const format::JsonNode& config,
                                const format::Checkpoint& checkpoint) {
  JsonReader reader(config, ConfigPlace(checkpoint) + ": ");
  Decoder decoder = ReadHfDecoder(&reader, "olmo2", {.epsilon = 1e-5});
  ModelSpec& spec = decoder.spec;
  decoder.attention.wide_norms = true;
  spec.ropes.push_back(RopeFromHf(&reader, decoder.attention.head_dim, 10000.0, &spec.max_context));
  const bool bias = reader.Bool("attention_bias", false);
  NameHfEnds(&reader, "model.", "lm_head.weight", false, &spec);
  QINFER_RETURN_IF_ERROR(reader.status());

  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameHfLayer(prefix, &layer);
    layer.attention_norm = layer.feed_forward_norm = {};
    layer.post_attention_norm.name = prefix + "post_attention_layernorm.weight";
    layer.post_feed_forward_norm.name = prefix + "post_feedforward_layernorm.weight";
    NameHfQkNorms(prefix, &layer);
    if (bias) NameHfAttentionBiases(prefix, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

StatusOr<ModelSpec> Olmo2FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "olmo2");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, "olmo2");
  ModelSpec& spec = decoder.spec;
  decoder.attention.wide_norms = true;
  spec.ropes.push_back(
      RopeFromGguf(&reader, decoder.attention.head_dim, false, 10000.0, spec.max_context));
  if (reader.Uint("attention.sliding_window", 0, kMaxPosition, 0) != 0) {
    reader.Fail(UnsupportedError(gguf.name() + ": metadata olmo2.attention.sliding_window: OLMo 3 "
                                               "is not supported"));
  }
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameGgufLayer(checkpoint, prefix, &layer);
    layer.attention_norm = layer.feed_forward_norm = {};
    layer.post_attention_norm.name = prefix + "post_attention_norm.weight";
    layer.post_feed_forward_norm.name = prefix + "post_ffw_norm.weight";
    NameGgufQkNorms(prefix, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
