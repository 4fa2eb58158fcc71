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

// Experts of all windows have their place in one block, those of each window from its beginning.
class ExpertWindowsImpl final : public ExpertWindows {
 public:
  ExpertWindowsImpl(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                    uint32_t layer, uint32_t size)
      : checkpoint_(checkpoint), spec_(spec), layer_(layer), size_(size) {}

  // What the windows of a layer take at most.
  struct Sizes {
    uint64_t block = 0;
    size_t scratch = 0;
    uint32_t pieces = 0;
  };
  StatusOr<Sizes> Measure() const {
    Sizes sizes;
    for (uint32_t begin = 0; begin < experts(); begin += size_) {
      QINFER_ASSIGN_OR_RETURN(const TensorSet set, Plan(begin));
      sizes.block = std::max(sizes.block, set.allocated_bytes());
      sizes.scratch = std::max(sizes.scratch, set.scratch_bytes());
      sizes.pieces = std::max(sizes.pieces, set.pieces());
    }
    return sizes;
  }

  // Takes the memory, and says where in it every expert will be.
  Status Begin(const Context& context, const TensorSet& layer, FeedForwardWeights* weights) {
    const model::FeedForwardSpec& f = spec_.layers[layer_].feed_forward;
    QINFER_ASSIGN_OR_RETURN(const Sizes sizes, Measure());
    QINFER_ASSIGN_OR_RETURN(block_, Buffer::Create(context.memory, sizes.block, "experts"));
    QINFER_ASSIGN_OR_RETURN(PieceLoader loader,
                            PieceLoader::Create(context, sizes.scratch, sizes.pieces));
    loader_ = std::move(loader);
    const struct {
      const model::TensorRef &weight, &bias;
      model::LinearRole role;
      std::vector<Linear>* out;
    } stacks[] = {
        {f.expert_gate, f.expert_gate_bias, model::LinearRole::kExpertGate, &weights->expert_gate},
        {f.expert_up, f.expert_up_bias, model::LinearRole::kExpertUp, &weights->expert_up},
        {f.expert_down, f.expert_down_bias, model::LinearRole::kExpertDown, &weights->expert_down}};
    for (uint32_t begin = 0; begin < f.experts; begin += size_) {
      QINFER_ASSIGN_OR_RETURN(TensorSet set, Plan(begin));
      set.Place(block_.as<uint8_t>());
      for (const auto& stack : stacks) {
        for (uint32_t e = begin; e < End(begin); ++e) {
          QINFER_ASSIGN_OR_RETURN(Linear linear, set.GetPart(stack.weight, e, stack.role));
          linear.bias = layer.GetPartVector(stack.bias, e, linear.matrix.rows);
          stack.out->push_back(linear);
        }
      }
    }
    return OkStatus();
  }

  uint32_t size() const override { return size_; }
  StatusOr<bool> Load(uint32_t expert, const Deadline& deadline) override {
    const uint32_t begin = expert / size_ * size_;
    if (begin != begin_) {
      QINFER_ASSIGN_OR_RETURN(TensorSet set, Plan(begin));
      set_ = std::move(set);
      set_.Place(block_.as<uint8_t>());
      begin_ = begin;
      next_ = 0;
    }
    return loader_->Run(checkpoint_, &set_, deadline, &next_);
  }

 private:
  uint32_t experts() const { return spec_.layers[layer_].feed_forward.experts; }
  uint32_t End(uint32_t begin) const { return std::min(experts(), begin + size_); }
  StatusOr<TensorSet> Plan(uint32_t begin) const {
    return TensorSet::PlanExperts(checkpoint_, spec_, layer_, begin, End(begin));
  }

  const format::Checkpoint& checkpoint_;
  const model::ModelSpec& spec_;
  const uint32_t layer_, size_;
  Buffer block_;
  std::optional<PieceLoader> loader_;
  TensorSet set_;
  uint32_t begin_ = UINT32_MAX, next_ = 0;  // of the window at hand
};

// Experts of this layer take turns.
bool HasWindows(const model::LayerSpec& layer, uint32_t window) {
  return window != 0 && window < layer.feed_forward.experts &&
         layer.feed_forward.kind == model::FeedForwardKind::kExperts;
}

StatusOr<TensorSet> PlanResident(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                                 uint32_t layer, uint32_t window) {
  return HasWindows(spec.layers[layer], window)
             ? TensorSet::PlanLayerWithoutExperts(checkpoint, spec, layer)
             : TensorSet::PlanLayer(checkpoint, spec, layer);
}

class LayerStoreImpl final : public LayerStore {
 public:
  LayerStoreImpl(const format::Checkpoint& checkpoint, const model::ModelSpec& spec, uint32_t layer,
                 TensorSet set)
      : checkpoint_(checkpoint), spec_(spec), layer_(layer), set_(std::move(set)) {}
  Status Begin(const Context& context, uint32_t window) {
    QINFER_ASSIGN_OR_RETURN(PieceLoader loader, Prepare(context, &set_, &block_));
    loader_ = std::move(loader);
    context_ = context;
    window_ = window;
    return OkStatus();
  }
  StatusOr<bool> Step(const Deadline& deadline) override {
    if (!loader_.has_value()) return true;
    QINFER_ASSIGN_OR_RETURN(const bool done, loader_->Run(checkpoint_, &set_, deadline, &next_));
    if (!done) return false;
    loader_.reset();
    const model::LayerSpec& layer = spec_.layers[layer_];
    const bool windows = HasWindows(layer, window_);
    QINFER_ASSIGN_OR_RETURN(weights_, LayerFromSet(set_, layer, !windows));
    if (windows) {
      windows_.emplace(checkpoint_, spec_, layer_, window_);
      QINFER_RETURN_IF_ERROR(windows_->Begin(context_, set_, &weights_.feed_forward));
      weights_.windows = &*windows_;
    }
    return true;
  }
  const LayerWeights& weights() const override { return weights_; }

 private:
  const format::Checkpoint& checkpoint_;
  const model::ModelSpec& spec_;
  const uint32_t layer_;
  TensorSet set_;
  Context context_;
  uint32_t window_ = 0;
  Buffer block_;
  std::optional<PieceLoader> loader_;  // while something is left to read
  uint32_t next_ = 0;
  LayerWeights weights_;
  std::optional<ExpertWindowsImpl> windows_;
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
                                                const Context& context, uint32_t expert_window) {
  if (layer >= spec.layers.size()) {
    return MisuseError(StrCat("layer ", layer, " of a model with ", spec.layers.size()));
  }
  QINFER_ASSIGN_OR_RETURN(TensorSet set, PlanResident(checkpoint, spec, layer, expert_window));
  auto store = std::make_unique<LayerStoreImpl>(checkpoint, spec, layer, std::move(set));
  QINFER_RETURN_IF_ERROR(store->Begin(context, expert_window));
  return std::unique_ptr<LayerStore>(std::move(store));
}

StatusOr<uint64_t> LargestLayerBytes(const format::Checkpoint& checkpoint,
                                     const model::ModelSpec& spec, const Context& context,
                                     uint32_t expert_window) {
  uint64_t largest = 0;
  for (uint32_t l = 0; l < spec.layers.size(); ++l) {
    QINFER_ASSIGN_OR_RETURN(const TensorSet set, PlanResident(checkpoint, spec, l, expert_window));
    uint64_t bytes = PieceLoader::PlanBytes(context, set.scratch_bytes(), set.pieces());
    if (HasWindows(spec.layers[l], expert_window)) {
      const ExpertWindowsImpl windows(checkpoint, spec, l, expert_window);
      QINFER_ASSIGN_OR_RETURN(const ExpertWindowsImpl::Sizes sizes, windows.Measure());
      bytes = std::max(bytes,
                       sizes.block + PieceLoader::PlanBytes(context, sizes.scratch, sizes.pieces));
    }
    largest = std::max(largest, set.allocated_bytes() + bytes);
  }
  return largest;
}

StatusOr<uint32_t> FindExpertWindow(const format::Checkpoint& checkpoint,
                                    const model::ModelSpec& spec, const Context& context,
                                    uint64_t bytes) {
  uint32_t experts = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    experts = std::max(experts, layer.feed_forward.experts);
  }
  uint32_t window = 0;  // first all of them, then halves
  for (;;) {
    QINFER_ASSIGN_OR_RETURN(const uint64_t needed,
                            LargestLayerBytes(checkpoint, spec, context, window));
    if (needed <= bytes) return window;
    if (window == 0) {
      for (window = 1; window < experts; window *= 2) {
      }
    }
    if (window <= 1) return UINT32_MAX;
    window /= 2;
  }
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
