// The architectures that this build knows: one row each, one file each. The forward pass knows
// none of them.
#pragma once

#include "absl/types/span.h"
#include "core/status.h"
#include "format/checkpoint.h"
#include "format/json_tree.h"
#include "model/spec.h"

namespace qinfer::model {

struct Architecture {
  const char* hf_name;    // an entry of config.json's "architectures"; null = none
  const char* gguf_name;  // "general.architecture"; null = none
  StatusOr<ModelSpec> (*from_hf)(const format::JsonNode& config,
                                 const format::Checkpoint& checkpoint);
  StatusOr<ModelSpec> (*from_gguf)(const format::Gguf& gguf, const format::Checkpoint& checkpoint);
};

absl::Span<const Architecture> Architectures();

StatusOr<ModelSpec> LlamaFromHf(const format::JsonNode& config,
                                const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> MistralFromHf(const format::JsonNode& config,
                                  const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> LlamaFromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Qwen2FromHf(const format::JsonNode& config,
                                const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Qwen2FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Qwen3FromHf(const format::JsonNode& config,
                                const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Qwen3FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Gemma2FromHf(const format::JsonNode& config,
                                 const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Gemma2FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Phi3FromHf(const format::JsonNode& config,
                               const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Phi3FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> SmolLm3FromHf(const format::JsonNode& config,
                                  const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> SmolLm3FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Olmo2FromHf(const format::JsonNode& config,
                                const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Olmo2FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Gemma3FromHf(const format::JsonNode& config,
                                 const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Gemma3FromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> DeepseekV2FromHf(const format::JsonNode& config,
                                     const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> DeepseekV3FromHf(const format::JsonNode& config,
                                     const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> MixtralFromHf(const format::JsonNode& config,
                                  const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Qwen2MoeFromHf(const format::JsonNode& config,
                                   const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Qwen3MoeFromHf(const format::JsonNode& config,
                                   const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Glm4MoeFromHf(const format::JsonNode& config,
                                  const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> GptOssFromHf(const format::JsonNode& config,
                                 const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> GptOssFromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> DeepseekFromGguf(const format::Gguf& gguf,
                                     const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Qwen2MoeFromGguf(const format::Gguf& gguf,
                                     const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Qwen3MoeFromGguf(const format::Gguf& gguf,
                                     const format::Checkpoint& checkpoint);
StatusOr<ModelSpec> Glm4MoeFromGguf(const format::Gguf& gguf, const format::Checkpoint& checkpoint);

}  // namespace qinfer::model
