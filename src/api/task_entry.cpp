// The functions of observe.h and generate.h that are about tasks of any kind, and about events.
#include <cstddef>
#include <memory>
#include <utility>

#include "api/calibration.h"
#include "api/model.h"
#include "api/report.h"
#include "api/structs.h"
#include "api/task.h"
#include "qinfer/generate.h"

namespace qinfer::api {
namespace {

// The handle is made first: where there is no memory for it the result stays with the task.
template <typename H, typename T>
Outcome TakeInto(qinfer_task* task, std::shared_ptr<T> TaskResults::*part, const char* what,
                 H** out) {
  QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
  auto handle = std::make_unique<H>(task->runtime, nullptr);
  QINFER_ASSIGN_OR_RETURN(handle->state, task->state->Take(part, what));
  task->runtime->AddHandle();
  *out = handle.release();
  return QINFER_OK;
}

// Reasons go out by number, and logprobs in place.
static_assert(static_cast<uint32_t>(engine::FinishReason::kEos) == QINFER_FINISH_EOS);
static_assert(static_cast<uint32_t>(engine::FinishReason::kStopToken) == QINFER_FINISH_STOP_TOKEN);
static_assert(static_cast<uint32_t>(engine::FinishReason::kStopString) ==
              QINFER_FINISH_STOP_STRING);
static_assert(static_cast<uint32_t>(engine::FinishReason::kMaxTokens) == QINFER_FINISH_MAX_TOKENS);
static_assert(static_cast<uint32_t>(engine::FinishReason::kContextFull) ==
              QINFER_FINISH_CONTEXT_FULL);
static_assert(sizeof(qinfer_token_logprob) == sizeof(engine::TokenLogprob) &&
              offsetof(qinfer_token_logprob, logprob) == offsetof(engine::TokenLogprob, logprob));

}  // namespace
}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace

extern "C" {

qinfer_status qinfer_task_step(qinfer_task* task, uint64_t budget_ns, qinfer_error* err) {
  return GuardHandle(err, task, "task", [&]() -> Outcome { return task->state->Step(budget_ns); });
}

qinfer_status qinfer_task_wait(qinfer_task* task, uint64_t timeout_ns, qinfer_error* err) {
  return GuardHandle(err, task, "task", [&]() -> Outcome { return task->state->Wait(timeout_ns); });
}

qinfer_status qinfer_task_run(qinfer_task* task, qinfer_error* err) {
  return GuardHandle(err, task, "task", [&]() -> Outcome { return task->state->Run(); });
}

qinfer_status qinfer_task_progress(const qinfer_task* task, qinfer_progress* out,
                                   qinfer_error* err) {
  ClearOut(out);
  return GuardHandle(err, task, "task", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(CheckOut(out, "out"));
    qinfer_progress progress = {};
    task->state->FillProgress(&progress);
    WriteOut(progress, out);
    return QINFER_OK;
  });
}

void qinfer_task_cancel(qinfer_task* task) {
  const HandleHeader* header = nullptr;
  if (CheckHandle<qinfer_task>(nullptr, task, "task", &header) == QINFER_OK) task->state->Cancel();
}

void qinfer_task_release(qinfer_task* task) {
  if (task == nullptr || task->header.magic.load() != HandleTraits<qinfer_task>::kMagic) return;
  GuardVoid([&] { task->state->Abandon(); });
  ReleaseHandle(task);
}

qinfer_status qinfer_task_take_model(qinfer_task* task, qinfer_model** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, task, "task", [&]() -> Outcome {
    return TakeInto(task, &TaskResults::model, "model", out);
  });
}

qinfer_status qinfer_task_take_report(qinfer_task* task, qinfer_report** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, task, "task", [&]() -> Outcome {
    return TakeInto(task, &TaskResults::report, "report", out);
  });
}

qinfer_status qinfer_task_take_calibration(qinfer_task* task, qinfer_calibration** out,
                                           qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, task, "task", [&]() -> Outcome {
    return TakeInto(task, &TaskResults::calibration, "calibration", out);
  });
}

qinfer_status qinfer_generate_next(qinfer_task* task, uint64_t budget_ns, qinfer_event* event,
                                   qinfer_error* err) {
  ClearOut(event);
  return GuardHandle(err, task, "task", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(CheckOut(event, "event"));
    if (!task->state->is_generation()) {
      return Misuse(QINFER_DETAIL_NO_RESULT, "this task is not a generation");
    }
    if (task->pulling.exchange(true, std::memory_order_acquire)) {
      return WithDetail(
          qinfer::BusyError("another thread is waiting for the next event of this task"),
          QINFER_DETAIL_STEPPED);
    }
    struct Leave {
      std::atomic<bool>* flag;
      ~Leave() { flag->store(false, std::memory_order_release); }
    } const leave{&task->pulling};
    std::optional<qinfer::engine::Event> next;
    Outcome outcome = task->state->NextEvent(budget_ns, &next);
    if (!next.has_value()) return outcome;
    task->event = *std::move(next);
    qinfer_event written = {};
    written.token = task->event.token;
    written.finish_reason = static_cast<uint32_t>(task->event.finish);
    written.channel = static_cast<uint32_t>(task->event.channel);
    written.text = Str(task->event.text);
    written.logprobs = reinterpret_cast<const qinfer_token_logprob*>(task->event.logprobs.data());
    written.logprob_count = task->event.logprobs.size();
    WriteOut(written, event);
    return outcome;
  });
}

qinfer_status qinfer_generate_counts(const qinfer_task* task, uint32_t* out_prompt,
                                     uint32_t* out_generated, qinfer_error* err) {
  if (out_prompt != nullptr) *out_prompt = 0;
  if (out_generated != nullptr) *out_generated = 0;
  return GuardHandle(err, task, "task",
                     [&]() -> Outcome { return task->state->Counts(out_prompt, out_generated); });
}

qinfer_status qinfer_generate_lookup_counts(const qinfer_task* task, uint64_t* out_drafted,
                                            uint64_t* out_accepted, uint64_t* out_steps,
                                            qinfer_error* err) {
  for (uint64_t* out : {out_drafted, out_accepted, out_steps}) {
    if (out != nullptr) *out = 0;
  }
  return GuardHandle(err, task, "task", [&]() -> Outcome {
    QINFER_ASSIGN_OR_RETURN(const qinfer::engine::LookupCounts counts, task->state->LookupCounts());
    if (out_drafted != nullptr) *out_drafted = counts.drafted;
    if (out_accepted != nullptr) *out_accepted = counts.accepted;
    if (out_steps != nullptr) *out_steps = counts.steps;
    return QINFER_OK;
  });
}

}  // extern "C"
