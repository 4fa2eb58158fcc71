// The tensors of one layer (or of the ends) on their way from a checkpoint to what kernels take:
// planned from headers, then loaded in pieces. .qinfer tensors that are mapped are used in place;
// everything else is copied or exactly repacked.
#pragma once

#include <cstdint>
#include <vector>

#include "core/memory.h"
#include "exec/model.h"
#include "format/checkpoint.h"
#include "model/stored_tensor.h"
#include "model/tensor_uses.h"

namespace qinfer::exec {

class TensorSet {
 public:
  // Finds and checks every tensor, allocates nothing that grows with the model. `spec` is not kept.
  static StatusOr<TensorSet> PlanLayer(const format::Checkpoint& checkpoint,
                                       const model::ModelSpec& spec, uint32_t layer);
  // The matrices of experts [begin, end) of a layer; and all of a layer but these.
  static StatusOr<TensorSet> PlanExperts(const format::Checkpoint& checkpoint,
                                         const model::ModelSpec& spec, uint32_t layer,
                                         uint32_t begin, uint32_t end);
  static StatusOr<TensorSet> PlanLayerWithoutExperts(const format::Checkpoint& checkpoint,
                                                     const model::ModelSpec& spec, uint32_t layer);
  static StatusOr<TensorSet> PlanEnds(const format::Checkpoint& checkpoint,
                                      const model::ModelSpec& spec);

  uint64_t allocated_bytes() const { return allocated_bytes_; }  // what Place takes
  uint64_t mapped_bytes() const { return mapped_bytes_; }        // used in place
  uint32_t pieces() const { return pieces_; }
  size_t scratch_bytes() const { return scratch_bytes_; }  // of one LoadPiece at a time

  // Gives tensors that are not used in place their memory: `memory` [allocated_bytes()], 64-byte
  // aligned, which outlives the set.
  void Place(uint8_t* memory);
  // Thread-safe for different pieces. `scratch`: scratch_bytes().
  Status LoadPiece(const format::Checkpoint& checkpoint, uint32_t piece, uint8_t* scratch);

  // After all pieces. An absent reference gives an empty Linear or null.
  StatusOr<Linear> GetLinear(const model::TensorRef& weight, const model::TensorRef& bias,
                             model::LinearRole role) const;
  // One weight a part of a stack, whether the parts share a tensor or not.
  StatusOr<std::vector<Linear>> GetStack(const model::TensorRef& weight,
                                         const model::TensorRef& bias, uint32_t parts,
                                         model::LinearRole role) const;
  // The weight of one part; it has no bias.
  StatusOr<Linear> GetPart(const model::TensorRef& weight, uint32_t part,
                           model::LinearRole role) const;
  const float* GetVector(const model::TensorRef& ref) const;
  // That of one part, of `n` values.
  const float* GetPartVector(const model::TensorRef& ref, uint32_t part, uint32_t n) const;

 private:
  struct Item {
    model::TensorRef ref;
    model::StoredTensor stored;
    uint32_t rows = 0, cols = 0, parts = 1;  // of one part
    uint32_t first_part = 0;                 // of those of the stack that are wanted
    float offset = 0.0f;                     // added to a vector
    bool vector = false, direct = true;      // direct: model::IsDirect
    bool gathered = false;                   // model::IsGathered
    uint64_t bytes = 0, panel_bytes = 0;
    uint32_t part_panels = 0;
    const uint8_t* in_place = nullptr;
    uint32_t panels_per_piece = 0, first_piece = 0, pieces = 0;
    uint8_t* placed = nullptr;
  };

  Status Add(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
             const model::TensorUse& use) {
    return Add(checkpoint, spec, use, 0, use.parts);
  }
  // Parts [begin, end) of a stack.
  Status Add(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
             const model::TensorUse& use, uint32_t begin, uint32_t end);
  Status LoadVector(const format::Checkpoint& checkpoint, Item* item, uint8_t* scratch);
  Status LoadPanels(const format::Checkpoint& checkpoint, Item* item, uint32_t piece,
                    uint8_t* scratch);
  Status PlanVector(const model::TensorUse& use, Item* item);
  Status PlanMatrix(const format::Checkpoint& checkpoint, const std::string& where, Item* item);
  Status LoadPart(const format::Checkpoint& checkpoint, const Item& item, uint32_t part,
                  uint32_t begin, uint32_t end, uint8_t* scratch, uint8_t* out);
  // Where a packed tensor's wanted panels begin in it.
  static uint64_t FirstPanel(const Item& item) {
    return item.ref.row_begin / kernels::kPanelRows + uint64_t{item.first_part} * item.part_panels;
  }
  StatusOr<Linear> MakeLinear(const Item& item, uint32_t part, model::LinearRole role) const;
  const Item* Find(const model::TensorRef& ref) const;

  std::vector<Item> items_;
  mutable size_t found_ = 0;  // where Find goes on: layers have thousands of experts' tensors
  uint64_t allocated_bytes_ = 0, mapped_bytes_ = 0;
  uint32_t pieces_ = 0;
  size_t scratch_bytes_ = 0;
};

// LayerWeights and EndWeights over a loaded set, which outlives them. Without `experts`: of a set
// that has no matrices of experts.
StatusOr<LayerWeights> LayerFromSet(const TensorSet& set, const model::LayerSpec& layer,
                                    bool experts = true);
StatusOr<EndWeights> EndsFromSet(const TensorSet& set, const model::ModelSpec& spec);

}  // namespace qinfer::exec
