// Which architecture a checkpoint asks for, and the documents its specification is read from.
#include "model/registry.h"

#include <string>

#include "model/config_reader.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", "llama", LlamaFromHf, LlamaFromGguf},
    {"MistralForCausalLM", nullptr, MistralFromHf, nullptr},
    {"Qwen2ForCausalLM", "qwen2", Qwen2FromHf, Qwen2FromGguf},
    {"Qwen3ForCausalLM", "qwen3", Qwen3FromHf, Qwen3FromGguf},
    {"Phi3ForCausalLM", "phi3", Phi3FromHf, Phi3FromGguf},
    {"SmolLM3ForCausalLM", "smollm3", SmolLm3FromHf, SmolLm3FromGguf},
    {"Olmo2ForCausalLM", "olmo2", Olmo2FromHf, Olmo2FromGguf},
    {"Gemma2ForCausalLM", "gemma2", Gemma2FromHf, Gemma2FromGguf},
    {"Gemma3ForCausalLM", "gemma3", Gemma3FromHf, Gemma3FromGguf},
    {"Gemma3ForConditionalGeneration", nullptr, Gemma3FromHf, nullptr},
    {"DeepseekV2ForCausalLM", "deepseek2", DeepseekV2FromHf, DeepseekFromGguf},
    {"DeepseekV3ForCausalLM", nullptr, DeepseekV3FromHf, nullptr},
    {"MixtralForCausalLM", nullptr, MixtralFromHf, nullptr},
    {"Qwen2MoeForCausalLM", "qwen2moe", Qwen2MoeFromHf, Qwen2MoeFromGguf},
    {"Qwen3MoeForCausalLM", "qwen3moe", Qwen3MoeFromHf, Qwen3MoeFromGguf},
    {"Glm4MoeForCausalLM", "glm4moe", Glm4MoeFromHf, Glm4MoeFromGguf},
    {"GptOssForCausalLM", "gpt-oss", GptOssFromHf, GptOssFromGguf},
};

std::string Known(bool gguf) {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    const char* name = gguf ? architecture.gguf_name : architecture.hf_name;
    if (name != nullptr) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

StatusOr<ModelSpec> FromHf(const format::Checkpoint& checkpoint) {
  const std::string where = checkpoint.PlaceOf(checkpoint.side_files().config_json, "config.json");
  if (checkpoint.side_files().config_json.empty()) {
    const auto sources = checkpoint.sources();
    const bool files = !sources.empty() && sources.front()->IsFile(sources.front()->name());
    return FormatError(
        StrCat(where, ": missing; it says what the model is, ",
               files ? "put it beside the weights" : "give it in the source's config_json"));
  }
  QINFER_ASSIGN_OR_RETURN(
      const std::unique_ptr<format::JsonTree> tree,
      ParseJsonObject(checkpoint.side_files().config_json.text(), where, checkpoint.memory()));
  const format::JsonNode& config = tree->root();
  JsonReader reader(config, where + ": ");
  const std::vector<std::string> names = reader.Strings("architectures", 16);
  QINFER_RETURN_IF_ERROR(reader.status());
  for (const std::string& name : names) {
    for (const Architecture& architecture : kArchitectures) {
      if (architecture.hf_name != nullptr && name == architecture.hf_name) {
        return architecture.from_hf(config, checkpoint);
      }
    }
  }
  return UnsupportedError(StrCat(where, ": architecture ",
                                 names.empty() ? "(none given)" : "\"" + names[0] + "\"",
                                 " is not supported; known are ", Known(false)));
}

StatusOr<ModelSpec> FromGguf(const format::Checkpoint& checkpoint) {
  const format::Gguf& gguf = *checkpoint.gguf();
  const format::GgufValue* value = gguf.Find("general.architecture");
  if (value == nullptr)
    return FormatError(gguf.name() + ": metadata general.architecture: missing");
  QINFER_ASSIGN_OR_RETURN(const std::string_view name, value->AsString());
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.gguf_name != nullptr && name == architecture.gguf_name) {
      return architecture.from_gguf(gguf, checkpoint);
    }
  }
  return UnsupportedError(StrCat(gguf.name(), ": architecture \"", std::string(name),
                                 "\" is not supported; known are ", Known(true)));
}

}  // namespace

absl::Span<const Architecture> Architectures() { return kArchitectures; }

StatusOr<ModelSpec> SpecFromCheckpoint(const format::Checkpoint& checkpoint) {
  StatusOr<ModelSpec> spec = ModelSpec();
  if (checkpoint.qinfer() != nullptr) {
    spec = SpecFromQinfer(checkpoint);
  } else if (checkpoint.gguf() != nullptr) {
    spec = FromGguf(checkpoint);
  } else {
    spec = FromHf(checkpoint);
  }
  if (!spec.ok()) return spec;
  const Status valid = ValidateSpec(*spec);
  if (!valid.ok()) return Annotate(valid, checkpoint.name());
  return spec;
}

}  // namespace qinfer::model
