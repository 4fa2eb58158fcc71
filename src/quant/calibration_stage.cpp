// Steps of a calibration that is part of a quantization.
#include "quant/calibration_stage.h"

#include <utility>

#include "quant/bytes.h"

namespace qinfer::quant {
namespace {

constexpr const char* kCalibrationFile = "calibration";

}  // namespace

StatusOr<bool> CalibrationStage::Step(const Needs& needs, const Deadline& deadline,
                                      Progress* progress) {
  if (save_next_) {
    QINFER_RETURN_IF_ERROR(Save(needs.store));
    return false;
  }
  if (calibration_ == nullptr && needs.options->calibrate) {
    QINFER_ASSIGN_OR_RETURN(
        calibration_,
        Calibration::Create(checkpoint_, needs.options->calibration_options, context_));
    QINFER_RETURN_IF_ERROR(calibration_->UseSelfGenerated());
    return false;
  }
  if (run_ == nullptr) {
    if (calibration_ == nullptr || !data()->has_waiting()) return true;
    QINFER_RETURN_IF_ERROR(Begin(needs, progress));
    return false;
  }
  QINFER_ASSIGN_OR_RETURN(const bool done, run_->Step(deadline));
  progress->phase = run_->progress().phase.load();
  progress->done = run_->progress().done.load();
  progress->total = run_->progress().total.load();
  if (!done) return false;
  run_.reset();
  resumed_ = data()->reused();
  data()->ReleaseTokenizer();
  save_next_ = needs.store != nullptr;
  if (save_next_) progress->phase = "sync";
  return false;
}

Status CalibrationStage::Begin(const Needs& needs, Progress* progress) {
  QINFER_RETURN_IF_ERROR(TakeOver(needs));
  if (!data()->has_waiting()) return OkStatus();
  if (needs.tokenizer->get() != nullptr) data()->set_tokenizer(needs.tokenizer);
  mutable_data()->set_hidden_budget(needs.sizes->calibration_hidden);
  mutable_data()->set_expert_window(needs.sizes->expert_window);
  if (needs.store != nullptr) {
    keeper_ = std::make_unique<CalibrationKeeper>(needs.store,
                                                  needs.options->calibration_keep_interval_ns);
    mutable_data()->set_keeper(keeper_.get());
  }
  QINFER_ASSIGN_OR_RETURN(run_, calibration_->Run());
  if (keeper_ != nullptr) progress->phase = "sync";
  return OkStatus();
}

// What an interrupted run has calibrated: the folder's fingerprint says that samples, options and
// weights are the same. A damaged file means doing it again.
Status CalibrationStage::TakeOver(const Needs& needs) {
  if (needs.store == nullptr || !needs.options->resume) return OkStatus();
  QINFER_ASSIGN_OR_RETURN(const std::string bytes, needs.store->LoadFile(kCalibrationFile));
  if (bytes.empty()) return OkStatus();
  StatusOr<std::shared_ptr<Calibration>> loaded =
      LoadCalibration(bytes, "saved calibration", checkpoint_, context_);
  if (!loaded.ok()) return OkStatus();
  reused_ = mutable_data()->TakeOver(std::move(*static_cast<CalibrationData*>(loaded->get())));
  return OkStatus();
}

Status CalibrationStage::Save(PartialStore* store) {
  save_next_ = false;
  const std::string bytes = CalibrationBytes(*data());
  QINFER_RETURN_IF_ERROR(store->SaveFile(kCalibrationFile, AsBytes(bytes)));
  keeper_->Remove();
  keeper_.reset();
  return OkStatus();
}

void CalibrationStage::Stop() {
  run_.reset();
  keeper_.reset();
  if (calibration_ != nullptr) data()->ReleaseTokenizer();
}

}  // namespace qinfer::quant
