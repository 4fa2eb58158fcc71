// The calibration functions of quantize.h.
#include "api/calibration.h"

#include <utility>

#include "api/source.h"
#include "api/structs.h"

namespace qinfer::api {
namespace {

StatusOr<quant::ObserverKind> ReadObserver(uint32_t kind, quant::ObserverKind by_default,
                                           const char* name) {
  switch (kind) {
    case QINFER_OBSERVER_DEFAULT:
      return by_default;
    case QINFER_OBSERVER_MINMAX:
      return quant::ObserverKind::kMinMax;
    case QINFER_OBSERVER_HISTOGRAM:
      return quant::ObserverKind::kHistogram;
    case QINFER_OBSERVER_EMA:
      return quant::ObserverKind::kEma;
    default:
      return BadOption(StrCat(name, " is ", kind,
                              ", known are 0 (default), 1 (min-max), 2 (histogram) and 3 (EMA)"));
  }
}

StatusOr<quant::RangeMethod> ReadRange(uint32_t range, quant::RangeMethod by_default) {
  switch (range) {
    case QINFER_RANGE_DEFAULT:
      return by_default;
    case QINFER_RANGE_MINMAX:
      return quant::RangeMethod::kMinMax;
    case QINFER_RANGE_PERCENTILE:
      return quant::RangeMethod::kPercentile;
    case QINFER_RANGE_MSE:
      return quant::RangeMethod::kMse;
    case QINFER_RANGE_KL:
      return quant::RangeMethod::kKl;
    default:
      return BadOption(StrCat("calibration options.range is ", range,
                              ", known are 0 (default), 1 (min-max), 2 (percentile), 3 (MSE) and 4 "
                              "(KL)"));
  }
}

}  // namespace

StatusOr<quant::CalibrationOptions> ReadCalibrationOptions(
    const qinfer_calibration_options* options) {
  qinfer_calibration_options read;
  QINFER_RETURN_IF_ERROR(ReadStruct(options, "calibration options", &read));
  quant::CalibrationOptions made;
  if (read.samples != 0) made.samples = read.samples;
  if (read.sample_tokens != 0) made.sample_tokens = read.sample_tokens;
  made.seed = read.seed;
  QINFER_ASSIGN_OR_RETURN(made.activations, ReadObserver(read.activations, made.activations,
                                                         "calibration options.activations"));
  QINFER_ASSIGN_OR_RETURN(made.weights,
                          ReadObserver(read.weights, made.weights, "calibration options.weights"));
  QINFER_ASSIGN_OR_RETURN(made.range, ReadRange(read.range, made.range));
  if (read.ema_alpha != 0.0) {
    if (!(read.ema_alpha > 0.0 && read.ema_alpha < 1.0)) {
      return BadOption(StrCat("calibration options.ema_alpha is ", read.ema_alpha,
                              ", it must be in (0, 1), or 0 for the default"));
    }
    made.ema_alpha = read.ema_alpha;
  }
  if (read.percentile != 0.0) {
    if (!(read.percentile > 50.0 && read.percentile <= 100.0)) {
      return BadOption(StrCat("calibration options.percentile is ", read.percentile,
                              ", it must be in (50, 100], or 0 for the default"));
    }
    made.percentile = read.percentile;
  }
  return made;
}

}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace

extern "C" {

qinfer_status qinfer_calibration_create(qinfer_model* model,
                                        const qinfer_calibration_options* options,
                                        qinfer_calibration** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedCheckpoint(*model->state));
    QINFER_ASSIGN_OR_RETURN(const qinfer::quant::CalibrationOptions read,
                            ReadCalibrationOptions(options));
    qinfer::StatusOr<std::shared_ptr<qinfer::quant::Calibration>> made =
        qinfer::quant::Calibration::Create(model->state->checkpoint, read,
                                           model->runtime->context(),
                                           ModelState::ShareTokenizer(model->state));
    if (!made.ok()) return AsOption(made.status());
    *out = NewHandle<qinfer_calibration>(
        model->runtime, std::make_shared<CalibrationState>(model->state, *std::move(made)));
    return QINFER_OK;
  });
}

qinfer_status qinfer_calibration_add_text(qinfer_calibration* calibration, const char* text,
                                          size_t text_size, qinfer_error* err) {
  return GuardHandle(err, calibration, "calibration", [&]() -> Outcome {
    QINFER_ASSIGN_OR_RETURN(const std::string_view added, Text(text, text_size, "text"));
    QINFER_ASSIGN_OR_RETURN(const Claim claim,
                            Claim::Enter(calibration->state->exclusive, "calibration"));
    return calibration->state->calibration->AddText(added);
  });
}

qinfer_status qinfer_calibration_add_tokens(qinfer_calibration* calibration, const int32_t* tokens,
                                            size_t count, qinfer_error* err) {
  return GuardHandle(err, calibration, "calibration", [&]() -> Outcome {
    QINFER_ASSIGN_OR_RETURN(const absl::Span<const int32_t> added, Array(tokens, count, "tokens"));
    QINFER_ASSIGN_OR_RETURN(const Claim claim,
                            Claim::Enter(calibration->state->exclusive, "calibration"));
    return calibration->state->calibration->AddTokens(added);
  });
}

qinfer_status qinfer_calibration_self_generate(qinfer_calibration* calibration, qinfer_error* err) {
  return GuardHandle(err, calibration, "calibration", [&]() -> Outcome {
    QINFER_ASSIGN_OR_RETURN(const Claim claim,
                            Claim::Enter(calibration->state->exclusive, "calibration"));
    return calibration->state->calibration->UseSelfGenerated();
  });
}

qinfer_status qinfer_calibration_run_begin(qinfer_calibration* calibration, qinfer_task** out,
                                           qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, calibration, "calibration", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    const std::shared_ptr<CalibrationState> state = calibration->state;
    TaskParts task;
    task.kind = QINFER_TASK_CALIBRATE;
    QINFER_ASSIGN_OR_RETURN(Claim claim, Claim::Enter(state->exclusive, "calibration"));
    task.claims.push_back(std::move(claim));
    QINFER_ASSIGN_OR_RETURN(task.work, state->calibration->Run());
    task.keep.push_back(state);
    task.collect = [state](qinfer::Work*, TaskResults* results) {
      results->calibration = state;
      return qinfer::OkStatus();
    };
    return MakeTask(calibration->runtime, std::move(task), out);
  });
}

qinfer_status qinfer_calibration_merge(qinfer_calibration* calibration,
                                       const qinfer_calibration* other, qinfer_error* err) {
  return GuardHandle(err, calibration, "calibration", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(CheckSecond(other, "other"));
    if (other->state == calibration->state) {
      return BadOption("a calibration cannot be merged into itself");
    }
    QINFER_ASSIGN_OR_RETURN(const Claim claim,
                            Claim::Enter(calibration->state->exclusive, "calibration"));
    QINFER_ASSIGN_OR_RETURN(const Claim second,
                            Claim::Enter(other->state->exclusive, "other calibration"));
    return calibration->state->calibration->Merge(*other->state->calibration);
  });
}

qinfer_status qinfer_calibration_save(const qinfer_calibration* calibration,
                                      const qinfer_target* target, qinfer_error* err) {
  return GuardHandle(err, calibration, "calibration", [&]() -> Outcome {
    QINFER_ASSIGN_OR_RETURN(TargetParts parts, ReadTarget(target));
    QINFER_ASSIGN_OR_RETURN(const Claim claim,
                            Claim::Enter(calibration->state->exclusive, "calibration"));
    QINFER_ASSIGN_OR_RETURN(const std::unique_ptr<qinfer::io::Sink> sink,
                            OpenSink(std::move(parts)));
    return calibration->state->calibration->Save(sink.get());
  });
}

qinfer_status qinfer_calibration_load(qinfer_model* model, const qinfer_source* source,
                                      qinfer_calibration** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_ASSIGN_OR_RETURN(const SourceParts parts, ReadSource(source, &model->runtime->memory));
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedCheckpoint(*model->state));
    QINFER_ASSIGN_OR_RETURN(std::shared_ptr<qinfer::io::Source> bytes,
                            OpenBytes(parts, &model->runtime->memory));
    QINFER_ASSIGN_OR_RETURN(std::shared_ptr<qinfer::quant::Calibration> made,
                            qinfer::quant::Calibration::Load(bytes, model->state->checkpoint,
                                                             model->runtime->context()));
    *out = NewHandle<qinfer_calibration>(
        model->runtime, std::make_shared<CalibrationState>(model->state, std::move(made)));
    return QINFER_OK;
  });
}

void qinfer_calibration_release(qinfer_calibration* calibration) { ReleaseHandle(calibration); }

}  // extern "C"
