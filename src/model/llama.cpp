// Llama (1 to 3, SmolLM2, TinyLlama) and Mistral: grouped attention, gated feed-forward, RMS norms
// before both. GGUF files hold q and k with rows permuted, so that rotated pairs are neighbours;
// those of Mixtral are llama files with experts.
#include "model/decoder_source.h"
#include "model/experts_gguf.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

StatusOr<ModelSpec> FromConfig(const format::JsonNode& config, const format::Checkpoint& checkpoint,
                               bool mistral) {
  JsonReader reader(config, ConfigPlace(checkpoint) + ": ");
  Decoder decoder = ReadHfDecoder(&reader, mistral ? "mistral" : "llama", {});
  ModelSpec& spec = decoder.spec;
  bool attention_bias = false, mlp_bias = false;
  if (mistral) {
    decoder.attention.window = reader.Uint("sliding_window", 1, kMaxPosition, 0);
  } else {
    attention_bias = reader.Bool("attention_bias", false);
    mlp_bias = reader.Bool("mlp_bias", false);
  }
  spec.ropes.push_back(RopeFromHf(&reader, decoder.attention.head_dim, 10000.0, &spec.max_context));
  NameHfEnds(&reader, "model.", "lm_head.weight", false, &spec);
  QINFER_RETURN_IF_ERROR(reader.status());

  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameHfLayer(prefix, &layer);
    if (attention_bias) NameHfAttentionBiases(prefix, &layer);
    if (mlp_bias) NameHfMlpBiases(prefix, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

StatusOr<ModelSpec> LlamaFromHf(const format::JsonNode& config,
                                const format::Checkpoint& checkpoint) {
  return FromConfig(config, checkpoint, false);
}

StatusOr<ModelSpec> MistralFromHf(const format::JsonNode& config,
                                  const format::Checkpoint& checkpoint) {
  return FromConfig(config, checkpoint, true);
}

StatusOr<ModelSpec> LlamaFromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "llama");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, "llama");
  ModelSpec& spec = decoder.spec;
  FeedForwardSpec experts = decoder.feed_forward;
  const bool mixtral = reader.Uint("expert_count", 0, kMaxExperts, 0) != 0;
  if (mixtral) {
    spec.architecture = "mixtral";
    ReadGgufExperts(&reader, true, &experts);
    experts.normalize = true;
  }
  decoder.attention.window = reader.Uint("attention.sliding_window", 0, kMaxPosition, 0);
  RopeSpec rope =
      RopeFromGguf(&reader, decoder.attention.head_dim, true, 10000.0, spec.max_context);
  rope.frequency_factors = Optional(checkpoint, "rope_freqs.weight");
  spec.ropes.push_back(rope);
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameGgufLayer(checkpoint, prefix, &layer);
    if (mixtral) TakeGgufExperts(checkpoint, prefix, spec.hidden_size, experts, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
