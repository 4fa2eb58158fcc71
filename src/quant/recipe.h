// From a recipe to a decision per tensor: which format each stored tensor gets, and why. No data is
// read here, only the table of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/checkpoint.h"
#include "model/spec.h"
#include "observe/report.h"
#include "quant/quantize.h"
#include "weights/format.h"

namespace qinfer::quant {

enum class TensorUse : uint8_t { kLinear, kHead, kEmbedding, kSmall, kUnused };
enum class TensorAction : uint8_t {
  kRaw,     // bytes as they are: norms, biases, unknown small tensors
  kExact,   // source blocks repacked without loss
  kPack,    // floats quantized (or converted) into `format`
  kDecode,  // not a type that our formats hold exactly, not quantized: decoded to F32, raw
};

struct TensorPlan {
  const format::TensorInfo* source = nullptr;
  std::string name;  // in the output; the source's name but for an added head
  TensorUse use = TensorUse::kUnused;
  TensorAction action = TensorAction::kRaw;
  model::LinearRole role = model::LinearRole::kQ;  // of a linear tensor (its first use)
  uint32_t layer = UINT32_MAX;                     // UINT32_MAX: not in a layer
  uint64_t rows = 0, cols = 0;                     // of a matrix
  weights::Format format;                          // kExact, kPack
  DType raw_type = DType::kF32;                    // kRaw, kDecode: of the elements
  uint64_t bytes = 0;                              // in the output, before padding to 64
  uint64_t panel_bytes = 0;

  bool packed() const { return action == TensorAction::kExact || action == TensorAction::kPack; }
};

struct ResolvedRecipe {
  model::ModelSpec spec;  // of the output: as the source's, with the head added where asked
  // In the order of processing: embedding, layers in order, head, everything else.
  std::vector<TensorPlan> tensors;
  bool added_head = false;  // a tied head that got a tensor of its own
};

// The recipe that keeps everything: what convert uses.
Recipe KeepRecipe();
StatusOr<ResolvedRecipe> ResolveRecipe(const model::ModelSpec& spec,
                                       const format::Checkpoint& checkpoint, const Recipe& recipe);
// For the file, the report and the journal's fingerprint; the same recipe gives the same text.
observe::Report RecipeReport(const Recipe& recipe);
std::string_view TensorUseName(const TensorPlan& plan);  // "q", ..., "head", "embedding", "small"

}  // namespace qinfer::quant
