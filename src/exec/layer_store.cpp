// One layer, or the ends, loaded on its own: for calibration and quantization, which never hold the
// whole model.
#include <algorithm>

#include "exec/load_pieces.h"
#include "exec/model.h"
#include "exec/tensor_set.h"

namespace qinfer::exec {
namespace {

Status LoadAll(const format::Checkpoint& checkpoint, const Context& context, TensorSet* set) {
  QINFER_RETURN_IF_ERROR(set->Allocate(context.memory));
  QINFER_ASSIGN_OR_RETURN(PieceLoader loader,
                          PieceLoader::Create(context, set->scratch_bytes(), set->pieces()));
  uint32_t next = 0;
  return loader.Run(checkpoint, set, Deadline{}, &next).status();
}

class LayerStoreImpl final : public LayerStore {
 public:
  explicit LayerStoreImpl(TensorSet set) : set_(std::move(set)) {}
  Status Load(const format::Checkpoint& checkpoint, const model::LayerSpec& layer,
              const Context& context) {
    QINFER_RETURN_IF_ERROR(LoadAll(checkpoint, context, &set_));
    QINFER_ASSIGN_OR_RETURN(weights_, LayerFromSet(set_, layer));
    return OkStatus();
  }
  const LayerWeights& weights() const override { return weights_; }

 private:
  TensorSet set_;
  LayerWeights weights_;
};

class EndStoreImpl final : public EndStore {
 public:
  explicit EndStoreImpl(TensorSet set) : set_(std::move(set)) {}
  Status Load(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
              const Context& context) {
    QINFER_RETURN_IF_ERROR(LoadAll(checkpoint, context, &set_));
    QINFER_ASSIGN_OR_RETURN(weights_, EndsFromSet(set_, spec));
    return OkStatus();
  }
  const EndWeights& weights() const override { return weights_; }

 private:
  TensorSet set_;
  EndWeights weights_;
};

}  // namespace

StatusOr<std::unique_ptr<LayerStore>> LoadLayer(const format::Checkpoint& checkpoint,
                                                const model::ModelSpec& spec, uint32_t layer,
                                                const Context& context) {
  if (layer >= spec.layers.size()) {
    return MisuseError(StrCat("layer ", layer, " of a model with ", spec.layers.size()));
  }
  QINFER_ASSIGN_OR_RETURN(TensorSet set, TensorSet::PlanLayer(checkpoint, spec, layer));
  auto store = std::make_unique<LayerStoreImpl>(std::move(set));
  QINFER_RETURN_IF_ERROR(store->Load(checkpoint, spec.layers[layer], context));
  return std::unique_ptr<LayerStore>(std::move(store));
}

StatusOr<std::unique_ptr<EndStore>> LoadEnds(const format::Checkpoint& checkpoint,
                                             const model::ModelSpec& spec, const Context& context) {
  QINFER_ASSIGN_OR_RETURN(TensorSet set, TensorSet::PlanEnds(checkpoint, spec));
  auto store = std::make_unique<EndStoreImpl>(std::move(set));
  QINFER_RETURN_IF_ERROR(store->Load(checkpoint, spec, context));
  return std::unique_ptr<EndStore>(std::move(store));
}

}  // namespace qinfer::exec
