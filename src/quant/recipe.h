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

// kKept: a matrix that is never quantized (a router).
enum class TensorUse : uint8_t { kLinear, kHead, kEmbedding, kSmall, kKept, kUnused };
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
  uint64_t rows = 0, cols = 0;                     // of a matrix; of one part of a stack
  uint32_t parts = 1;
  uint32_t part = model::kNoPart;  // the expert, where each has tensors of its own
  // Where the rows lie in the source. by_ref: not simply one after the other (model::ReadRows).
  model::TensorRef ref;
  bool by_ref = false;
  weights::Format format;        // kExact, kPack
  DType raw_type = DType::kF32;  // kRaw, kDecode: of the elements
  uint64_t bytes = 0;            // in the output, before padding to 64
  uint64_t panel_bytes = 0;

  uint64_t part_panels() const { return (rows + kernels::kPanelRows - 1) / kernels::kPanelRows; }
  uint64_t panels() const { return part_panels() * parts; }
  uint64_t elements() const { return rows * cols * parts; }
  bool packed() const { return action == TensorAction::kExact || action == TensorAction::kPack; }
};

struct ResolvedRecipe {
  model::ModelSpec spec;  // of the output: as the source's, with the head added where asked
  // In the order of processing: embedding, layers in order, head, everything else.
  std::vector<TensorPlan> tensors;
  bool added_head = false;          // a tied head that got a tensor of its own
  bool static_activations = false;  // the output fixes the scales of INT8 activations
  // Tensors of parts that the model leaves out (layers that predict further tokens).
  uint64_t skipped_tensors = 0, skipped_bytes = 0;
};

// The recipe that keeps everything: what convert uses.
Recipe KeepRecipe();
StatusOr<ResolvedRecipe> ResolveRecipe(const model::ModelSpec& spec,
                                       const format::Checkpoint& checkpoint, const Recipe& recipe);
const TensorPlan* HeadPlan(const ResolvedRecipe& resolved);  // the embedding's where tied
// For the file, the report and the journal's fingerprint; the same recipe gives the same text.
observe::Report RecipeReport(const Recipe& recipe);
// The type of the source's values, as its file names it; that of blocks which it holds as bytes.
std::string_view SourceTypeName(const TensorPlan& plan);
std::string_view TensorUseName(const TensorPlan& plan);  // "q", ..., "head", "embedding", "small"

}  // namespace qinfer::quant
