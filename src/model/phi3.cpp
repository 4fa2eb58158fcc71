// Phi-3, Phi-3.5 and Phi-4-mini: q, k and v are rows of one stored weight, gate and up of another;
// part of a head is rotated; ropes whose frequencies switch where a sequence outgrows the original
// context.
#include "model/decoder_source.h"
#include "model/registry.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

// Rows of the fused weights: q, k, v; gate, up.
void FuseWeights(const std::string& qkv, const std::string& gate_up, LayerSpec* layer) {
  AttentionSpec& a = layer->attention;
  const uint64_t q = uint64_t{a.heads} * a.head_dim, k = uint64_t{a.kv_heads} * a.head_dim,
                 v = uint64_t{a.kv_heads} * a.v_head_dim;
  a.q = {qkv, 0, q};
  a.k = {qkv, q, k};
  a.v = {qkv, q + k, v};
  const uint64_t wide = layer->feed_forward.intermediate;
  layer->feed_forward.gate = {gate_up, 0, wide};
  layer->feed_forward.up = {gate_up, wide, wide};
}

}  // namespace

StatusOr<ModelSpec> Phi3FromHf(const format::JsonNode& config,
                               const format::Checkpoint& checkpoint) {
  JsonReader reader(config, ConfigPlace(checkpoint) + ": ");
  Decoder decoder = ReadHfDecoder(&reader, "phi3", {.max_context = 4096, .epsilon = 1e-5});
  ModelSpec& spec = decoder.spec;
  decoder.attention.window = reader.Uint("sliding_window", 1, kMaxPosition, 0);
  spec.ropes.push_back(RopeFromHf(&reader, decoder.attention.head_dim, 10000.0, &spec.max_context));
  NameHfEnds(&reader, "model.", "lm_head.weight", false, &spec);
  QINFER_RETURN_IF_ERROR(reader.status());

  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("model.layers.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameHfLayer(prefix, &layer);
    FuseWeights(prefix + "self_attn.qkv_proj.weight", prefix + "mlp.gate_up_proj.weight", &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

StatusOr<ModelSpec> Phi3FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint) {
  GgufReader reader(gguf, "phi3");
  Decoder decoder = ReadGgufDecoder(&reader, checkpoint, "phi3");
  ModelSpec& spec = decoder.spec;
  // 0 means none. llama.cpp ignores it, transformers does not.
  decoder.attention.window = reader.Uint("attention.sliding_window", 0, kMaxPosition, 0);
  RopeSpec rope =
      RopeFromGguf(&reader, decoder.attention.head_dim, false, 10000.0, spec.max_context);
  if (checkpoint.Find("rope_factors_long.weight") != nullptr) {
    ReadLongRope(&reader, checkpoint, spec.max_context, &rope);
  }
  spec.ropes.push_back(std::move(rope));
  QINFER_RETURN_IF_ERROR(reader.status());

  NameGgufEnds(checkpoint, &spec);
  for (uint32_t i = 0; i < decoder.layers; ++i) {
    const std::string prefix = StrCat("blk.", i, ".");
    LayerSpec layer{.attention = decoder.attention, .feed_forward = decoder.feed_forward};
    NameGgufLayer(checkpoint, prefix, &layer);
    FuseWeights(prefix + "attn_qkv.weight", prefix + "ffn_up.weight", &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace qinfer::model
