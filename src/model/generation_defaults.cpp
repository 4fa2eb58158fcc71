// Ends and sampling defaults: generation_config.json over config.json, or GGUF metadata.
#include <algorithm>

#include "format/gguf.h"
#include "model/config_reader.h"
#include "model/spec.h"

namespace qinfer::model {
namespace {

constexpr size_t kMaxEnds = 64;

// What no model can have as a token ends nothing: the model works without, and whoever wrote the
// file hears of it.
void AddEnd(int64_t id, const std::string& place, GenerationDefaults* defaults) {
  if (id < 0 || id >= static_cast<int64_t>(kMaxVocab)) {
    defaults->warnings.push_back(StrCat(place, " is ", id, ", which is no token; it is ignored"));
    return;
  }
  std::vector<int32_t>& ids = defaults->eos_ids;
  const int32_t token = static_cast<int32_t>(id);
  if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
}

// "eos_token_id": a number or an array of numbers. True if the key is there.
StatusOr<bool> ReadEnds(const format::JsonNode& json, const std::string& where,
                        GenerationDefaults* defaults) {
  const std::string place = where + ": eos_token_id";
  const format::JsonNode* ends = json.Get("eos_token_id");
  if (ends == nullptr || ends->type == format::JsonNode::kNull) return false;
  if (ends->IsWhole()) {
    AddEnd(ends->whole, place, defaults);
    return true;
  }
  if (ends->IsArray() && ends->size <= kMaxEnds) {
    for (const format::JsonNode& element : *ends) {
      if (!element.IsWhole()) return FormatError(place + ": expected whole numbers");
      AddEnd(element.whole, place, defaults);
    }
    return true;
  }
  return FormatError(place + ": expected a whole number or a short array of them");
}

StatusOr<GenerationDefaults> FromHf(const format::Checkpoint& checkpoint, Memory* memory) {
  GenerationDefaults defaults;
  const format::SideFiles& files = checkpoint.side_files();
  bool ends = false;
  if (!files.generation_config_json.empty()) {
    const std::string where =
        checkpoint.PlaceOf(files.generation_config_json, "generation_config.json");
    QINFER_ASSIGN_OR_RETURN(const std::unique_ptr<format::JsonTree> tree,
                            ParseJsonObject(files.generation_config_json.text(), where, memory));
    const format::JsonNode& json = tree->root();
    QINFER_ASSIGN_OR_RETURN(ends, ReadEnds(json, where, &defaults));
    JsonReader reader(json, where + ": ");
    const auto number = [&](const char* key, double high, std::optional<float>* out) {
      if (reader.Has(key)) *out = static_cast<float>(reader.Number(key, 0.0, high));
    };
    // Without do_sample the other settings are leftovers of a base model.
    if (reader.Bool("do_sample", false)) {
      number("temperature", 1e6, &defaults.temperature);
      number("top_p", 1.0, &defaults.top_p);
      number("min_p", 1.0, &defaults.min_p);
      if (reader.Has("top_k")) defaults.top_k = reader.Uint("top_k", 0, kMaxVocab);
    }
    number("repetition_penalty", 1e6, &defaults.repetition_penalty);
    QINFER_RETURN_IF_ERROR(reader.status());
  }
  if (!ends && !files.config_json.empty()) {
    const std::string where = checkpoint.PlaceOf(files.config_json, "config.json");
    QINFER_ASSIGN_OR_RETURN(const std::unique_ptr<format::JsonTree> tree,
                            ParseJsonObject(files.config_json.text(), where, memory));
    const format::JsonNode& json = tree->root();
    QINFER_ASSIGN_OR_RETURN(ends, ReadEnds(json, where, &defaults));
    const format::JsonNode* text = json.Get("text_config");
    if (!ends && text != nullptr && text->IsObject()) {
      QINFER_RETURN_IF_ERROR(ReadEnds(*text, where + ": text_config", &defaults).status());
    }
  }
  return defaults;
}

}  // namespace

GenerationDefaults GenerationDefaultsFromGguf(const format::Gguf& gguf) {
  GenerationDefaults defaults;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const format::GgufValue* value = gguf.Find(key);
    if (value == nullptr) continue;
    const StatusOr<uint64_t> id = value->AsUint();
    if (!id.ok()) continue;
    AddEnd(static_cast<int64_t>(std::min<uint64_t>(*id, INT64_MAX)), StrCat(gguf.name(), ": ", key),
           &defaults);
  }
  return defaults;
}

StatusOr<GenerationDefaults> GenerationDefaultsFromCheckpoint(const format::Checkpoint& checkpoint,
                                                              Memory* memory) {
  if (checkpoint.gguf() != nullptr) return GenerationDefaultsFromGguf(*checkpoint.gguf());
  return FromHf(checkpoint, memory);
}

}  // namespace qinfer::model
