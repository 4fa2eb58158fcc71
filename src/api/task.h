// The state behind qinfer_task: a Work of the inner library with threads, waiting, cancelling and
// results around it. Which Work it is, and how its result is collected, is said by whoever begins
// it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "api/background.h"
#include "api/error.h"
#include "api/handle.h"
#include "api/runtime.h"
#include "core/work.h"
#include "engine/engine.h"
#include "qinfer/observe.h"

namespace qinfer::api {

class ModelState;
class CalibrationState;
class ReportState;

// What a finished task can give.
struct TaskResults {
  std::shared_ptr<ModelState> model;
  std::shared_ptr<ReportState> report;
  std::shared_ptr<CalibrationState> calibration;
};

// An object that takes one caller at a time (a session, a calibration): calls enter it for their
// duration, tasks for theirs.
class Exclusive {
 public:
  bool TryEnter() { return !inside_.exchange(true, std::memory_order_acquire); }
  void Leave() { inside_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> inside_{false};
};

// Leaves at the end of its life; keeps the object alive until then.
class Claim {
 public:
  Claim() = default;
  // BusyError naming `what` if somebody is inside.
  static StatusOr<Claim> Enter(std::shared_ptr<Exclusive> object, const char* what);
  Claim(Claim&&) = default;
  Claim& operator=(Claim&& other) noexcept {
    Leave();
    object_ = std::move(other.object_);
    return *this;
  }
  ~Claim() { Leave(); }

 private:
  void Leave() {
    if (object_ != nullptr) object_->Leave();
    object_.reset();
  }
  std::shared_ptr<Exclusive> object_;
};

// In the order in which it is taken apart, last first: the work, then what it has claimed, then
// what it needs alive.
struct TaskParts {
  uint32_t kind = 0;                        // QINFER_TASK_...
  std::vector<std::shared_ptr<void>> keep;  // what `work` needs alive
  std::vector<Claim> claims;                // given up when the work has ended
  std::unique_ptr<Work> work;
  engine::Generation* generation = nullptr;  // `work` itself where it is one
  // Called once, after the work has finished, on the thread that finished it.
  std::function<Status(Work* work, TaskResults* results)> collect;
};

class TaskState final : public BackgroundJob, public std::enable_shared_from_this<TaskState> {
 public:
  TaskState(std::shared_ptr<RuntimeState> runtime, TaskParts parts);
  ~TaskState() override;

  // See qinfer_task_step, _wait, _run, _progress. OK = finished.
  Outcome Step(uint64_t budget_ns);
  Outcome Wait(uint64_t timeout_ns);
  Status Run();
  void Cancel() { cancel_.store(true); }
  // Cancels and returns when nothing of the work or its results is left: what they held is free
  // again, whoever still holds this object (the background thread may, for a moment).
  void Abandon();
  void FillProgress(qinfer_progress* out) const;

  // The next event of a generation: OK with `*out` filled, PENDING, END, or the task's error.
  Outcome NextEvent(uint64_t budget_ns, std::optional<engine::Event>* out);
  Status Counts(uint32_t* prompt, uint32_t* generated) const;
  StatusOr<engine::LookupCounts> LookupCounts() const;
  bool is_generation() const { return is_generation_; }

  // Moves one result out. `part` selects it from the results.
  template <typename T>
  StatusOr<std::shared_ptr<T>> Take(std::shared_ptr<T> TaskResults::*part, const char* what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    QINFER_RETURN_IF_ERROR(CheckFinished());
    if (results_.*part == nullptr) {
      return Misuse(QINFER_DETAIL_NO_RESULT,
                    StrCat("this task has no ", what, ", or it has been taken"));
    }
    return std::move(results_.*part);
  }

  bool RunSlice() noexcept override;

 private:
  enum class Entry : uint8_t { kEntered, kBusy, kFinished };
  // Becomes the stepper, and stops being it. In between the runtime's turn may be given up.
  Entry Enter(bool background);
  void Leave();
  // As the stepper: waits for the turn and works until `until_ns`, at most one slice; with
  // `until_event` a short one. False: the turn has not come, or the task has ended.
  bool Slice(uint64_t until_ns, bool until_event);
  bool Finished() const;
  bool HasEvent() const;
  void DoWork(uint64_t until_ns, bool until_event) noexcept;  // with the turn
  void DrainEvents();
  void Finish(Status status);
  void EndWork();
  Status CheckFinished() const;
  Status NotInside() const;  // BusyError on the thread that is stepping a task of this runtime
  Outcome Ended() const;     // of a finished task; under mutex_

  const std::shared_ptr<RuntimeState> runtime_;
  const uint32_t kind_;
  const bool is_generation_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  TaskParts parts_;        // the stepper's; `work` is only replaced under mutex_
  bool stepping_ = false;  // somebody is inside parts_.work
  bool background_ = false;
  bool finished_ = false;
  Status status_;  // of a finished task
  TaskResults results_;
  std::deque<engine::Event> events_;
  uint32_t prompt_tokens_ = 0, generated_tokens_ = 0;
  engine::LookupCounts lookup_counts_;
  uint64_t final_done_ = 0, final_total_ = 0;
  const char* final_phase_ = "";
  std::atomic<bool> cancel_{false};
  std::atomic<uint64_t> step_ns_{0};
};

}  // namespace qinfer::api

struct qinfer_task {
  qinfer_task(std::shared_ptr<qinfer::api::RuntimeState> owner,
              std::shared_ptr<qinfer::api::TaskState> work)
      : header(qinfer::api::HandleTraits<qinfer_task>::kMagic),
        runtime(std::move(owner)),
        state(std::move(work)) {}
  qinfer::api::HandleHeader header;  // first
  std::shared_ptr<qinfer::api::RuntimeState> runtime;
  std::shared_ptr<qinfer::api::TaskState> state;
  // What the last event handed out points to, and who is inside qinfer_generate_next.
  std::atomic<bool> pulling{false};
  qinfer::engine::Event event;
};

namespace qinfer::api {

// A task handle, handed to the background where the runtime says so.
Status MakeTask(const std::shared_ptr<RuntimeState>& runtime, TaskParts parts, qinfer_task** out);

}  // namespace qinfer::api
