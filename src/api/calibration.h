// The state behind qinfer_calibration.
#pragma once

#include <memory>

#include "api/model.h"
#include "api/task.h"
#include "qinfer/quantize.h"
#include "quant/quantize.h"

namespace qinfer::api {

class CalibrationState {
 public:
  CalibrationState(std::shared_ptr<ModelState> of, std::shared_ptr<quant::Calibration> statistics)
      : model(std::move(of)),
        calibration(std::move(statistics)),
        exclusive(std::make_shared<Exclusive>()) {}
  std::shared_ptr<ModelState> model;  // outlives the statistics
  std::shared_ptr<quant::Calibration> calibration;
  std::shared_ptr<Exclusive> exclusive;
};

StatusOr<quant::CalibrationOptions> ReadCalibrationOptions(
    const qinfer_calibration_options* options);

}  // namespace qinfer::api

struct qinfer_calibration {
  qinfer_calibration(std::shared_ptr<qinfer::api::RuntimeState> owner,
                     std::shared_ptr<qinfer::api::CalibrationState> statistics)
      : header(qinfer::api::HandleTraits<qinfer_calibration>::kMagic),
        runtime(std::move(owner)),
        state(std::move(statistics)) {}
  qinfer::api::HandleHeader header;  // first
  std::shared_ptr<qinfer::api::RuntimeState> runtime;
  std::shared_ptr<qinfer::api::CalibrationState> state;
};
