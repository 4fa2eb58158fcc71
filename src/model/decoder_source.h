// What most decoders have in common: grouped attention and a gated feed-forward read from a
// configuration, and the usual names of their tensors. What makes an architecture that one stays in
// its own file.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "format/checkpoint.h"
#include "model/config_reader.h"
#include "model/spec.h"

namespace qinfer::model {

float InverseRoot(double x);  // 1 / sqrt(x), rounded once

// Where config.json is, for messages.
inline std::string ConfigPlace(const format::Checkpoint& checkpoint) {
  return checkpoint.PlaceOf(checkpoint.side_files().config_json, "config.json");
}

// The width of the experts that every token takes: `key` says how many, at least `least` where it
// is there, each as wide as a routed one; 0 = none.
template <typename Reader>
uint32_t ReadSharedWidth(Reader* reader, const char* key, uint32_t least, uint32_t each) {
  const uint64_t wide = uint64_t{reader->Uint(key, least, kMaxExperts, 0)} * each;
  if (wide > kMaxWidth) reader->Fail(key, "makes the shared experts too wide");
  return static_cast<uint32_t>(std::min<uint64_t>(wide, kMaxWidth));
}

// Sizes of a model whose layers are alike; `attention` and `feed_forward` name nothing yet.
struct Decoder {
  ModelSpec spec;  // without layers and ropes
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  uint32_t layers = 0;
};

// What a key that is absent from config.json means to an architecture's configuration class.
struct HfDefaults {
  uint32_t max_context = 2048;
  double epsilon = 1e-6;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
};
// The sizes that have nothing to do with attention and feed-forward; the number of layers.
uint32_t ReadHfSizes(JsonReader* reader, const char* architecture, const HfDefaults& defaults,
                     ModelSpec* spec);
Decoder ReadHfDecoder(JsonReader* reader, const char* architecture, const HfDefaults& defaults);
// The embedding, the final norm and, unless "tie_word_embeddings" (absent: `tied`) says that there
// is none, the head. `root` ends in a dot.
void NameHfEnds(JsonReader* reader, const std::string& root, const std::string& head, bool tied,
                ModelSpec* spec);
// Layers that follow the model's own and predict further tokens (MTP) are left out.
void SkipPredictingLayers(uint32_t layers, uint32_t predicting, ModelSpec* spec);
// Norms before both branches, q, k, v, o, gate, up, down of the layer whose names start with
// `prefix`; and, for those that have them, biases and norms of q and k.
void NameHfLayer(const std::string& prefix, LayerSpec* layer);
void NameHfQkvBiases(const std::string& prefix, LayerSpec* layer);
void NameHfAttentionBiases(const std::string& prefix, LayerSpec* layer);  // q, k, v and o
void NameHfQkNorms(const std::string& prefix, LayerSpec* layer);
void NameHfMlpBiases(const std::string& prefix, LayerSpec* layer);

// Which layers see a window, by "layer_types"; empty where the key is absent.
std::vector<bool> WindowedLayers(JsonReader* reader, uint32_t layers);

// Qwen: windows from layer "max_window_layers" on, where "use_sliding_window" asks for them.
uint32_t WindowOfUpperLayers(JsonReader* reader);  // 0 = none
std::vector<bool> UpperLayers(JsonReader* reader, uint32_t layers);

// The same of GGUF metadata. The scale of attention is its key's or 1/sqrt(head_dim).
Decoder ReadGgufDecoder(GgufReader* reader, const format::Checkpoint& checkpoint,
                        const char* architecture);
void NameGgufEnds(const format::Checkpoint& checkpoint, ModelSpec* spec);
// Biases wherever the file has some.
void NameGgufLayer(const format::Checkpoint& checkpoint, const std::string& prefix,
                   LayerSpec* layer);
void NameGgufQkNorms(const std::string& prefix, LayerSpec* layer);

}  // namespace qinfer::model
