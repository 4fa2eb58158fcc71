// One tensor on its way from the checkpoint to the output, in units small enough to be interrupted
// between: packed panels, or plain bytes. Remembers its error figures.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "quant/model_writer.h"
#include "quant/pack.h"

namespace qinfer::quant {

class TensorStream {
 public:
  // Sees finished panels [begin, end) of a matrix, again and again until it is true.
  using PanelHook = std::function<StatusOr<bool>(
      uint32_t begin, uint32_t end, absl::Span<const uint8_t> bytes, const Deadline& deadline)>;

  struct Options {
    PackSettings pack;
    ObserverKind weights = ObserverKind::kMinMax;
    RangeOptions range;
    double ema_alpha = 0.95;
    absl::Span<uint8_t> keep;  // receives the whole packed tensor, or empty
    uint32_t unit_panels = 0;  // panels that the hook gets at once; 0 = a few per lane
    PanelHook hook;            // may be null
  };

  // Bytes that a stream takes from Memory without `keep`.
  static StatusOr<uint64_t> PlanBytes(const format::Checkpoint& checkpoint, const TensorPlan& plan,
                                      bool keep, uint32_t unit_panels,
                                      const exec::Context& context);
  static uint32_t DefaultUnitPanels(const TensorPlan& plan, const exec::Context& context);

  // What is given outlives the stream.
  static StatusOr<TensorStream> Create(const format::Checkpoint& checkpoint, const TensorPlan& plan,
                                       size_t index, ModelWriter* writer, Options options,
                                       const exec::Context& context);
  // One unit, or what a hook does until the deadline; true when the tensor is finished.
  StatusOr<bool> Step(const Deadline& deadline);

  const ErrorSums& errors() const { return errors_; }
  const Extremes& extremes() const { return extremes_; }
  bool clipped() const { return options_.pack.clip; }
  const Range& range() const { return options_.pack.range; }  // where clipped

 private:
  StatusOr<bool> StepPanels(const Deadline& deadline);
  StatusOr<bool> StepObserve();
  StatusOr<bool> StepBytes();

  const format::Checkpoint* checkpoint_ = nullptr;
  const TensorPlan* plan_ = nullptr;
  size_t index_ = 0;
  ModelWriter* writer_ = nullptr;
  Options options_;
  exec::Context context_;
  std::optional<TensorPacker> packer_;
  std::unique_ptr<Observer> observer_;  // while a clipping range is looked for
  uint32_t unit_panels_ = 1, panel_ = 0, packed_ = 0, observed_ = 0;
  Buffer unit_;
  uint64_t done_bytes_ = 0, source_at_ = 0;
  ErrorSums errors_;
  Extremes extremes_;
};

}  // namespace qinfer::quant
