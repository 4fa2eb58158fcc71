// Helpers of the tests of src/model: a specification from a config.json alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "format/checkpoint.h"
#include "model/spec.h"

namespace qinfer::model {

inline StatusOr<ModelSpec> SpecOfConfig(const std::string& config) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("qinfer_model_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json", std::ios::binary) << config;
  Memory memory;
  format::OpenOptions options;
  options.memory = &memory;
  StatusOr<std::shared_ptr<format::Checkpoint>> checkpoint =
      format::OpenCheckpoint((folder / "config.json").string(), options);
  std::filesystem::remove_all(folder);
  if (!checkpoint.ok()) return checkpoint.status();
  return SpecFromCheckpoint(**checkpoint);
}

// A small valid configuration with `changes` (JSON members, each ending in a comma) in front, where
// readers that keep the last of equal keys would ignore them: so the base leaves out `without`.
inline std::string LlamaConfig(const std::string& changes, const std::string& without = "") {
  const std::pair<const char*, const char*> base[] = {
      {"architectures", "[\"LlamaForCausalLM\"]"},
      {"hidden_size", "64"},
      {"intermediate_size", "96"},
      {"num_hidden_layers", "2"},
      {"num_attention_heads", "4"},
      {"num_key_value_heads", "2"},
      {"max_position_embeddings", "512"},
      {"rms_norm_eps", "1e-5"},
      {"vocab_size", "100"},
  };
  std::string text = StrCat("{", changes);
  for (const auto& [key, value] : base) {
    if (without == key) continue;
    if (text.back() != '{' && text.back() != ',') text += ",";
    text.append("\"").append(key).append("\":").append(value);
  }
  text.append("}");
  return text;
}

}  // namespace qinfer::model
