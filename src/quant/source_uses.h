// What a model's specification uses each tensor of its source for: the ground that a recipe works
// on. No formats and no choices here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "model/spec.h"
#include "quant/recipe.h"

namespace qinfer::quant {

struct Use {
  TensorUse use = TensorUse::kUnused;
  model::LinearRole role = model::LinearRole::kQ;
  uint32_t layer = UINT32_MAX;
  // Of matrices in layers.
  model::TensorRef ref;
  uint32_t rows = 0, cols = 0, parts = 1, part = model::kNoPart;
};
// By the name in the source; several uses of one tensor are next to each other.
using Uses = std::multimap<std::string, Use>;

// `packed`: the source's formats are kept, so that weights that share a tensor may stay together.
Uses CollectUses(const model::ModelSpec& spec, bool packed);
// The output's specification names tensors that were split as they are there.
void NameSplit(bool packed, model::ModelSpec* spec);
// Consecutive rows of a tensor that it shares with other weights (fused q, k, v; gate, up).
bool IsRange(const model::TensorRef& ref);
// A weight that is not simply the rows of its tensor gets a tensor of its own in the output; so it
// can have a format of its own, and begin at a panel. What is packed already stays together.
bool NeedsSplit(const model::TensorRef& ref, uint32_t rows, bool packed);
// "x.kv_b_proj.weight" -> "x.kv_b_proj.k_b.weight": patterns for the source's name still fit.
std::string SplitName(const std::string& name, model::LinearRole role);
// Tensors that no inference needs, by the specification.
bool IsSkipped(const model::ModelSpec& spec, std::string_view name);
// Order of processing: embedding, layers, head, the rest; inside a class by execution order, then
// name.
uint64_t OrderOf(const Use& use);

}  // namespace qinfer::quant
