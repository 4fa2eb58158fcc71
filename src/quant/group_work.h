// Quantizing one group of tensors (the embedding; a layer; the head and the rest): streams them
// into the output, runs held-out samples through the group in floating point and quantized, and
// describes what came out. One group is the unit of resuming.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quant/calibration_data.h"
#include "quant/drift.h"
#include "quant/model_writer.h"
#include "quant/tensor_stream.h"

namespace qinfer::quant {

// What all groups share; lives in the QuantizeWork.
struct GroupShared {
  std::shared_ptr<const format::Checkpoint> checkpoint;
  const model::ModelSpec* spec = nullptr;  // of the source
  const ResolvedRecipe* resolved = nullptr;
  const Recipe* recipe = nullptr;
  const CalibrationOptions* calibration_options = nullptr;
  const CalibrationData* calibration = nullptr;  // null: no statistics
  ModelWriter* writer = nullptr;
  Drift* drift = nullptr;  // null: nothing is evaluated
  uint32_t head_slice_panels = 64;
  exec::Context context;
};

struct Group {
  uint32_t layer = UINT32_MAX;  // of a layer group
  bool embedding = false, head = false;
  size_t begin = 0, end = 0;  // range of ResolvedRecipe::tensors
};
// A packed matrix that its layer needs when it is run.
inline bool IsLayerMatrix(const TensorPlan& plan) {
  return plan.packed() && (plan.use == TensorUse::kLinear || plan.use == TensorUse::kKept);
}
// Embedding, layers in order, then the head with everything else.
std::vector<Group> MakeGroups(const ResolvedRecipe& resolved, uint32_t layers);

// The reference's slices of the head: the source's own format, exactly.
StatusOr<TensorPlan> ReferencePlan(const TensorPlan& plan, const format::Checkpoint& checkpoint);

class GroupWork {
 public:
  static StatusOr<std::unique_ptr<GroupWork>> Create(const GroupShared& shared, const Group& group);
  // One unit, or units of one kind until the deadline; true when the group is finished.
  StatusOr<bool> Step(const Deadline& deadline);
  // Norms and biases of a layer that is run quantized, beside its packed tensors.
  static uint64_t VectorBytes(const model::ModelSpec& spec, uint32_t layer);
  // {"layer", "tensors": [...], "hidden": {...}, "evaluation": {...}}
  const observe::Report& report() const { return report_; }

 private:
  enum class Phase : uint8_t {
    kEmbedReference,
    kReference,
    kHeadInputs,
    kTensors,
    kQuantized,
    kTiedHead,
    kDone
  };

  GroupWork(const GroupShared& shared, const Group& group) : shared_(shared), group_(group) {}
  StatusOr<bool> StepSample();
  StatusOr<bool> StepReference(const Deadline& deadline);
  StatusOr<bool> StepTensors(const Deadline& deadline);
  StatusOr<bool> StepQuantized(const Deadline& deadline);
  StatusOr<bool> StepTiedHead(const Deadline& deadline);
  StatusOr<TensorStream> OpenStream(size_t index);
  StatusOr<bool> EvaluateSlice(const TensorPlan& plan, uint32_t begin, uint32_t end,
                               absl::Span<const uint8_t> panels, const Deadline& deadline);
  void Describe(const TensorPlan& plan, const TensorStream& stream);
  StatusOr<const InputStats*> StatsOf(const TensorPlan& plan, uint32_t part) const;
  float StaticScale(const TensorPlan& plan) const;  // of its inputs; 0 = not fixed
  Status BuildLayer();
  StatusOr<exec::Linear> MakeLinear(const model::TensorRef& weight, const model::TensorRef& bias,
                                    model::LinearRole role);
  StatusOr<const float*> MakeVector(const model::TensorRef& ref, uint32_t n, bool norm);
  StatusOr<const TensorPlan*> PlanNamed(const std::string& name, size_t* index) const;
  StatusOr<std::vector<exec::Linear>> MakeStack(const model::TensorRef& weight,
                                                const model::TensorRef& bias, uint32_t parts,
                                                model::LinearRole role);
  Status ImportanceOf(const TensorPlan& plan, PackSettings* settings);
  bool StepDrift();

  GroupShared shared_;
  Group group_;
  Phase phase_ = Phase::kTensors;
  size_t tensor_ = 0, sample_ = 0;
  std::optional<TensorStream> stream_;
  Buffer importance_;
  uint32_t uncovered_ = 0;       // parts of the tensor at hand whose inputs were never seen
  std::vector<Buffer> kept_;     // packed tensors of a layer, by index - group_.begin
  std::vector<Buffer> vectors_;  // its norms and biases
  std::unique_ptr<exec::LayerStore> store_;
  exec::LayerWeights weights_;
  bool built_ = false;
  std::optional<TensorPlan> reference_plan_;
  std::optional<TensorPacker> reference_, tied_;
  Buffer reference_panels_, tied_panels_;
  uint32_t reference_at_ = 0, tied_at_ = 0, tied_packed_ = 0;  // panels
  ErrorSums drift_sums_;
  observe::Report report_;
};

}  // namespace qinfer::quant
