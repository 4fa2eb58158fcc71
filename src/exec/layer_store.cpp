// One layer, or the ends, loaded on its own: for calibration and quantization, which never hold the
// whole model.
#include <algorithm>
#include <optional>

#include "exec/load_pieces.h"
#include "exec/model.h"
#include "exec/tensor_set.h"

namespace qinfer::exec {
namespace {

// Takes the memory of a set, and what loads it.
StatusOr<PieceLoader> Prepare(const Context& context, TensorSet* set, Buffer* block) {
  QINFER_ASSIGN_OR_RETURN(*block,
                          Buffer::Create(context.memory, set->allocated_bytes(), "weights"));
  set->Place(block->as<uint8_t>());
  return PieceLoader::Create(context, set->scratch_bytes(), set->pieces());
}

Status LoadAll(const format::Checkpoint& checkpoint, const Context& context, TensorSet* set,
               Buffer* block) {
  QINFER_ASSIGN_OR_RETURN(PieceLoader loader, Prepare(context, set, block));
  uint32_t next = 0;
  return loader.Run(checkpoint, set, Deadline{}, &next).status();
}

class LayerStoreImpl final : public LayerStore {
 public:
  LayerStoreImpl(const format::Checkpoint& checkpoint, const model::LayerSpec& layer, TensorSet set)
      : checkpoint_(checkpoint), layer_(layer), set_(std::move(set)) {}
  Status Begin(const Context& context) {
    QINFER_ASSIGN_OR_RETURN(PieceLoader loader, Prepare(context, &set_, &block_));
    loader_ = std::move(loader);
    return OkStatus();
  }
  StatusOr<bool> Step(const Deadline& deadline) override {
    if (!loader_.has_value()) return true;
    QINFER_ASSIGN_OR_RETURN(const bool done, loader_->Run(checkpoint_, &set_, deadline, &next_));
    if (!done) return false;
    loader_.reset();
    QINFER_ASSIGN_OR_RETURN(weights_, LayerFromSet(set_, layer_));
    return true;
  }
  const LayerWeights& weights() const override { return weights_; }

 private:
  const format::Checkpoint& checkpoint_;
  const model::LayerSpec layer_;
  TensorSet set_;
  Buffer block_;
  std::optional<PieceLoader> loader_;  // while something is left to read
  uint32_t next_ = 0;
  LayerWeights weights_;
};

class EndStoreImpl final : public EndStore {
 public:
  explicit EndStoreImpl(TensorSet set) : set_(std::move(set)) {}
  Status Load(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
              const Context& context) {
    QINFER_RETURN_IF_ERROR(LoadAll(checkpoint, context, &set_, &block_));
    QINFER_ASSIGN_OR_RETURN(weights_, EndsFromSet(set_, spec));
    return OkStatus();
  }
  const EndWeights& weights() const override { return weights_; }

 private:
  TensorSet set_;
  Buffer block_;
  EndWeights weights_;
};

}  // namespace

StatusOr<std::unique_ptr<LayerStore>> OpenLayer(const format::Checkpoint& checkpoint,
                                                const model::ModelSpec& spec, uint32_t layer,
                                                const Context& context) {
  if (layer >= spec.layers.size()) {
    return MisuseError(StrCat("layer ", layer, " of a model with ", spec.layers.size()));
  }
  QINFER_ASSIGN_OR_RETURN(TensorSet set, TensorSet::PlanLayer(checkpoint, spec, layer));
  auto store = std::make_unique<LayerStoreImpl>(checkpoint, spec.layers[layer], std::move(set));
  QINFER_RETURN_IF_ERROR(store->Begin(context));
  return std::unique_ptr<LayerStore>(std::move(store));
}

StatusOr<std::unique_ptr<LayerStore>> LoadLayer(const format::Checkpoint& checkpoint,
                                                const model::ModelSpec& spec, uint32_t layer,
                                                const Context& context) {
  QINFER_ASSIGN_OR_RETURN(std::unique_ptr<LayerStore> store,
                          OpenLayer(checkpoint, spec, layer, context));
  QINFER_RETURN_IF_ERROR(store->Step(Deadline()).status());
  return store;
}

StatusOr<std::unique_ptr<EndStore>> LoadEnds(const format::Checkpoint& checkpoint,
                                             const model::ModelSpec& spec, const Context& context) {
  QINFER_ASSIGN_OR_RETURN(TensorSet set, TensorSet::PlanEnds(checkpoint, spec));
  auto store = std::make_unique<EndStoreImpl>(std::move(set));
  QINFER_RETURN_IF_ERROR(store->Load(checkpoint, spec, context));
  return std::unique_ptr<EndStore>(std::move(store));
}

}  // namespace qinfer::exec
