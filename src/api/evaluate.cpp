// The perplexity task of evaluate.h.
#include <memory>
#include <utility>
#include <vector>

#include "api/model.h"
#include "api/report.h"
#include "api/structs.h"
#include "api/task.h"
#include "evaluate/perplexity.h"
#include "qinfer/evaluate.h"

namespace qinfer::api {
namespace {

// The host's callback behind the inner sink.
struct LogitsSink {
  static Status Write(void* self, absl::Span<const float> row) {
    const LogitsSink* sink = static_cast<const LogitsSink*>(self);
    const qinfer_status status =
        sink->function(sink->user, row.data(), static_cast<uint32_t>(row.size()));
    return status == QINFER_OK ? OkStatus() : CallbackError(status, "the logits callback");
  }
  qinfer_logits_fn function = nullptr;
  void* user = nullptr;
};

StatusOr<evaluate::PerplexityOptions> ReadPerplexityOptions(const qinfer_perplexity_options& read) {
  QINFER_RETURN_IF_ERROR(Reserved(read.reserved, "perplexity options.reserved"));
  evaluate::PerplexityOptions made;
  if (read.context != 0) made.context = read.context;
  made.max_windows = read.max_windows;
  QINFER_ASSIGN_OR_RETURN(made.k_type,
                          ReadKvType(read.k_type, made.k_type, "perplexity options.k_type"));
  QINFER_ASSIGN_OR_RETURN(made.v_type,
                          ReadKvType(read.v_type, made.v_type, "perplexity options.v_type"));
  QINFER_ASSIGN_OR_RETURN(made.activations, ReadActivations(read.activations, made.activations,
                                                            "perplexity options.activations"));
  QINFER_ASSIGN_OR_RETURN(made.reference_activations,
                          ReadActivations(read.reference_activations, made.reference_activations,
                                          "perplexity options.reference_activations"));
  return made;
}

}  // namespace
}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace

extern "C" {

qinfer_status qinfer_perplexity_begin(const qinfer_model* model, const int32_t* tokens,
                                      size_t count, const qinfer_perplexity_options* options,
                                      qinfer_task** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedWeights(*model->state));
    QINFER_ASSIGN_OR_RETURN(const absl::Span<const int32_t> given, Array(tokens, count, "tokens"));
    qinfer_perplexity_options read;
    QINFER_RETURN_IF_ERROR(ReadStruct(options, "perplexity options", &read));
    QINFER_ASSIGN_OR_RETURN(qinfer::evaluate::PerplexityOptions made, ReadPerplexityOptions(read));
    TaskParts task;
    task.kind = QINFER_TASK_PERPLEXITY;
    task.keep.push_back(model->state);
    std::shared_ptr<const qinfer::exec::Model> reference;
    if (read.reference != nullptr) {
      QINFER_RETURN_IF_ERROR(CheckSecond(read.reference, "options.reference"));
      QINFER_RETURN_IF_ERROR(NeedWeights(*read.reference->state));
      reference = read.reference->state->model;
      task.keep.push_back(read.reference->state);
    }
    if (read.logits != nullptr) {
      auto sink = std::make_shared<LogitsSink>(LogitsSink{read.logits, read.logits_user});
      made.sink = &LogitsSink::Write;
      made.sink_user = sink.get();
      task.keep.push_back(std::move(sink));
    }
    auto work = qinfer::evaluate::PerplexityWork::Create(
        model->state->model, std::move(reference), std::vector<int32_t>(given.begin(), given.end()),
        made, model->runtime->context());
    if (!work.ok()) return AsOption(work.status());
    task.work = std::move(work).value();
    task.collect = [](qinfer::Work* work, TaskResults* results) {
      results->report = std::make_shared<ReportState>(
          static_cast<qinfer::evaluate::PerplexityWork*>(work)->TakeReport(), false);
      return qinfer::OkStatus();
    };
    return MakeTask(model->runtime, std::move(task), out);
  });
}

}  // extern "C"
