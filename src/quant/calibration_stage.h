// The calibration within a quantization: runs the one that was given, or one of texts that the
// model writes itself, and keeps what is finished beside the output for a run that resumes.
#pragma once

#include <memory>

#include "quant/calibration_data.h"
#include "quant/calibration_keeper.h"
#include "quant/memory_plan.h"
#include "quant/partial_store.h"
#include "quant/quantize.h"

namespace qinfer::quant {

class CalibrationStage {
 public:
  // `given` may be null.
  CalibrationStage(std::shared_ptr<const format::Checkpoint> checkpoint,
                   std::shared_ptr<Calibration> given, const exec::Context& context)
      : checkpoint_(std::move(checkpoint)), calibration_(std::move(given)), context_(context) {}
  ~CalibrationStage() { Stop(); }

  // Null where nothing is calibrated.
  const CalibrationData* data() const {
    return calibration_ == nullptr ? nullptr : &calibration_->data();
  }

  // What the steps need; it stays where it is while they run. `store` is null where nothing can be
  // kept.
  struct Needs {
    const QuantizeOptions* options = nullptr;
    const WorkSizes* sizes = nullptr;
    std::shared_ptr<const SourceTokenizer> tokenizer;
    PartialStore* store = nullptr;
  };
  // True when finished.
  StatusOr<bool> Step(const Needs& needs, const Deadline& deadline, Progress* progress);
  bool waits_next() const { return save_next_ || (run_ != nullptr && run_->waits_next()); }

  // Ends a run in progress, and gives back what the calibration was lent.
  void Stop();

  // What was taken over from an interrupted run: all of it, or the steps of a run that went on.
  bool reused() const { return reused_; }
  const CalibrationData::Reused& resumed() const { return resumed_; }

 private:
  // The only implementation there is.
  CalibrationData* mutable_data() { return static_cast<CalibrationData*>(calibration_.get()); }
  Status Begin(const Needs& needs, Progress* progress);
  Status TakeOver(const Needs& needs);
  Status Save(PartialStore* store);

  std::shared_ptr<const format::Checkpoint> checkpoint_;
  std::shared_ptr<Calibration> calibration_;
  const exec::Context context_;
  std::unique_ptr<CalibrationKeeper> keeper_;
  std::unique_ptr<Work> run_;
  bool save_next_ = false, reused_ = false;
  CalibrationData::Reused resumed_;
};

}  // namespace qinfer::quant
