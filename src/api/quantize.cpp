// Conversion and quantization: from the public options to a recipe, and the two tasks.
#include <memory>
#include <string>
#include <utility>

#include "api/calibration.h"
#include "api/model.h"
#include "api/report.h"
#include "api/structs.h"
#include "api/task.h"
#include "io/folder.h"
#include "kernels/layout.h"
#include "quant/quantize.h"
#include "weights/format.h"

namespace qinfer::api {
namespace {

constexpr uint64_t kKnownFlags = QINFER_QUANTIZE_ASYMMETRIC | QINFER_QUANTIZE_NO_CALIBRATION |
                                 QINFER_QUANTIZE_NO_SEARCH | QINFER_QUANTIZE_NO_EVALUATION |
                                 QINFER_QUANTIZE_RESUME | QINFER_QUANTIZE_STATIC_ACTIVATIONS;

// The format of linear weights: a name, changed by group size and asymmetry where those are given.
StatusOr<weights::Format> LinearFormat(const qinfer_quantize_options& options) {
  QINFER_ASSIGN_OR_RETURN(const std::string_view scheme, Text(options.scheme, "scheme"));
  StatusOr<weights::Format> parsed = weights::ParseFormat(scheme.empty() ? "int4" : scheme);
  if (!parsed.ok()) return WithDetail(parsed.status(), QINFER_DETAIL_OPTION);
  weights::Format format = *parsed;
  const bool asymmetric = (options.flags & QINFER_QUANTIZE_ASYMMETRIC) != 0;
  if (kernels::layout::IsFloat(format.kind)) {
    if (options.group_size != QINFER_GROUP_DEFAULT || asymmetric) {
      return BadOption("a float scheme has neither groups nor minima");
    }
    return format;
  }
  if (options.group_size == QINFER_GROUP_ROW) {
    format.group_size = 0;
    // One F16 scale for a whole row would lose more than it saves.
    format.scale = kernels::ScaleKind::kF32;
  } else if (options.group_size != QINFER_GROUP_DEFAULT) {
    format.group_size = options.group_size;
  }
  if (asymmetric) format.has_min = true;
  // What this makes must be one of the known formats.
  const StatusOr<weights::Format> again = weights::ParseFormat(weights::Name(format));
  if (!again.ok()) {
    return BadOption(StrCat("this scheme cannot be combined with group_size and flags: ",
                            again.status().message()));
  }
  return *again;
}

Status ReadRecipe(const qinfer_quantize_options& options, quant::Recipe* recipe) {
  QINFER_ASSIGN_OR_RETURN(recipe->linear, LinearFormat(options));
  QINFER_ASSIGN_OR_RETURN(std::string method, CopyText(options.method, "method"));
  if (!method.empty()) recipe->method = std::move(method);
  QINFER_ASSIGN_OR_RETURN(std::string embedding, CopyText(options.embedding, "embedding"));
  if (!embedding.empty()) recipe->embedding = std::move(embedding);
  QINFER_ASSIGN_OR_RETURN(recipe->head, CopyText(options.head, "head"));
  recipe->static_activations = (options.flags & QINFER_QUANTIZE_STATIC_ACTIVATIONS) != 0;
  recipe->search_scales = (options.flags & QINFER_QUANTIZE_NO_SEARCH) == 0;
  QINFER_ASSIGN_OR_RETURN(const absl::Span<const qinfer_override> overrides,
                          Array(options.overrides, options.override_count, "overrides", 65536));
  for (const qinfer_override& given : overrides) {
    quant::Override made;
    QINFER_ASSIGN_OR_RETURN(made.pattern, CopyText(given.pattern, "override.pattern"));
    QINFER_ASSIGN_OR_RETURN(made.format, CopyText(given.format, "override.format"));
    if (made.pattern.empty()) return BadOption("an override has an empty pattern");
    if (made.format != "keep") {
      const StatusOr<weights::Format> parsed = weights::ParseFormat(made.format);
      if (!parsed.ok()) {
        return BadOption(StrCat("override of ", made.pattern, ": ", parsed.status().message()));
      }
    }
    recipe->overrides.push_back(std::move(made));
  }
  return OkStatus();
}

// `task` takes what the options claim.
Status ReadQuantizeOptions(const qinfer_quantize_options* options, quant::QuantizeOptions* made,
                           TaskParts* task) {
  qinfer_quantize_options read;
  QINFER_RETURN_IF_ERROR(ReadStruct(options, "quantize options", &read));
  QINFER_RETURN_IF_ERROR(KnownFlags(read.flags, kKnownFlags, "quantize options.flags"));
  QINFER_RETURN_IF_ERROR(ReadRecipe(read, &made->recipe));
  QINFER_ASSIGN_OR_RETURN(made->calibration_options,
                          ReadCalibrationOptions(read.calibration_options));
  made->calibrate = (read.flags & QINFER_QUANTIZE_NO_CALIBRATION) == 0;
  made->evaluate = (read.flags & QINFER_QUANTIZE_NO_EVALUATION) == 0;
  made->resume = (read.flags & QINFER_QUANTIZE_RESUME) != 0;
  made->memory_limit_bytes = read.memory_limit_bytes;
  if (read.calibration == nullptr) return OkStatus();
  QINFER_RETURN_IF_ERROR(CheckSecond(read.calibration, "options.calibration"));
  if (!made->calibrate) {
    return BadOption("a calibration and QINFER_QUANTIZE_NO_CALIBRATION exclude each other");
  }
  const std::shared_ptr<CalibrationState>& state = read.calibration->state;
  QINFER_ASSIGN_OR_RETURN(Claim claim, Claim::Enter(state->exclusive, "calibration"));
  task->claims.push_back(std::move(claim));
  task->keep.push_back(state);
  made->calibration = state->calibration;
  return OkStatus();
}

}  // namespace
}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace

extern "C" {

qinfer_status qinfer_convert_begin(const qinfer_model* model, const qinfer_target* target,
                                   qinfer_task** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_ASSIGN_OR_RETURN(TargetParts parts, ReadTarget(target));
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedCheckpoint(*model->state));
    QINFER_RETURN_IF_ERROR(CheckNotInput(*model->state->checkpoint, parts.path));
    QINFER_ASSIGN_OR_RETURN(std::unique_ptr<qinfer::io::Sink> sink, OpenSink(std::move(parts)));
    TaskParts task;
    task.kind = QINFER_TASK_CONVERT;
    task.keep.push_back(model->state);
    QINFER_ASSIGN_OR_RETURN(
        task.work, qinfer::quant::ConvertWork::Create(model->state->checkpoint, std::move(sink),
                                                      model->runtime->context(),
                                                      ModelState::ShareTokenizer(model->state)));
    task.collect = [](qinfer::Work* work, TaskResults* results) {
      results->report = std::make_shared<ReportState>(
          static_cast<qinfer::quant::ConvertWork*>(work)->TakeReport(), true);
      return qinfer::OkStatus();
    };
    return MakeTask(model->runtime, std::move(task), out);
  });
}

qinfer_status qinfer_quantize_plan_get(const qinfer_model* model,
                                       const qinfer_quantize_options* options,
                                       qinfer_quantize_plan* out, qinfer_error* err) {
  ClearOut(out);
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(CheckOut(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedCheckpoint(*model->state));
    TaskParts claims;
    qinfer::quant::QuantizeOptions made;
    QINFER_RETURN_IF_ERROR(ReadQuantizeOptions(options, &made, &claims));
    made.tokenizer = ModelState::ShareTokenizer(model->state);
    QINFER_ASSIGN_OR_RETURN(const qinfer::quant::QuantizeMemoryPlan plan,
                            qinfer::quant::PlanQuantizeMemory(*model->state->checkpoint, made,
                                                              model->runtime->context()));
    qinfer_quantize_plan written = {};
    written.in_use_bytes = plan.in_use_bytes;
    written.document_bytes = plan.document_bytes;
    written.calibrate_bytes = plan.calibrate_bytes;
    written.layer_bytes = plan.layer_bytes;
    written.head_bytes = plan.head_bytes;
    written.work_bytes = plan.work_bytes;
    written.minimum_bytes = plan.minimum_bytes;
    written.total_bytes = plan.total_bytes;
    WriteOut(written, out);
    return QINFER_OK;
  });
}

qinfer_status qinfer_quantize_begin(const qinfer_model* model,
                                    const qinfer_quantize_options* options,
                                    const qinfer_target* target, qinfer_task** out,
                                    qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_ASSIGN_OR_RETURN(TargetParts parts, ReadTarget(target));
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedCheckpoint(*model->state));
    TaskParts task;
    task.kind = QINFER_TASK_QUANTIZE;
    task.keep.push_back(model->state);
    qinfer::quant::QuantizeOptions made;
    QINFER_RETURN_IF_ERROR(ReadQuantizeOptions(options, &made, &task));
    made.tokenizer = ModelState::ShareTokenizer(model->state);
    if (made.resume && parts.sink != nullptr) {
      return BadOption("QINFER_QUANTIZE_RESUME needs a target with a path");
    }
    QINFER_RETURN_IF_ERROR(CheckNotInput(*model->state->checkpoint, parts.path));
    if (parts.sink == nullptr) QINFER_RETURN_IF_ERROR(qinfer::io::CheckWritable(parts.path));
    made.output_path = std::move(parts.path);
    made.sink = std::move(parts.sink);
    qinfer::StatusOr<std::unique_ptr<qinfer::quant::QuantizeWork>> created =
        qinfer::quant::QuantizeWork::Create(model->state->checkpoint, std::move(made),
                                            model->runtime->context());
    if (!created.ok()) return AsOption(created.status());
    task.work = *std::move(created);
    task.collect = [](qinfer::Work* work, TaskResults* results) {
      results->report = std::make_shared<ReportState>(
          static_cast<qinfer::quant::QuantizeWork*>(work)->TakeReport(), true);
      return qinfer::OkStatus();
    };
    return MakeTask(model->runtime, std::move(task), out);
  });
}

}  // extern "C"
