// Stepping: one stepper per task, one task at a time per runtime, in slices, so that others get
// their turn and a cancel is seen soon. No lock is held while the work runs or while anything is
// destroyed.
#include "api/task.h"

#include <algorithm>
#include <utility>

#include "api/structs.h"
#include "exec/fp_mode.h"

namespace qinfer::api {
namespace {

// How long one stepper keeps the turn while others may be waiting.
constexpr uint64_t kSliceNs = 10'000'000;
// How long a generation is stepped at a time while somebody waits for its next event.
constexpr uint64_t kEventSliceNs = 200'000;

}  // namespace

StatusOr<Claim> Claim::Enter(std::shared_ptr<Exclusive> object, const char* what) {
  if (!object->TryEnter()) {
    return WithDetail(BusyError(StrCat("this ", what,
                                       " is in use by another call, or by a task that has not "
                                       "finished; step, cancel or release that first")),
                      QINFER_DETAIL_SESSION_IN_USE);
  }
  Claim claim;
  claim.object_ = std::move(object);
  return claim;
}

TaskState::TaskState(std::shared_ptr<RuntimeState> runtime, TaskParts parts)
    : runtime_(std::move(runtime)),
      kind_(parts.kind),
      is_generation_(parts.generation != nullptr),
      parts_(std::move(parts)) {
  if (is_generation_) prompt_tokens_ = parts_.generation->prompt_tokens();
}

TaskState::~TaskState() {
  if (parts_.work == nullptr) return;
  // Rolling back touches the engine, which another task may be stepping.
  const StepTurn turn(&runtime_->step_lock, Deadline::kNever);
  parts_.work.reset();
}

Status TaskState::CheckFinished() const {
  if (!finished_) {
    return Misuse(QINFER_DETAIL_NOT_FINISHED, "the task has not finished: step it or wait for it");
  }
  return status_.ok() ? OkStatus() : Annotate(status_, "the task has failed");
}

Status TaskState::NotInside() const {
  if (!runtime_->step_lock.HeldByThisThread()) return OkStatus();
  return WithDetail(BusyError("a task is being stepped on this very thread: callbacks may only "
                              "cancel, ask for progress and read reports"),
                    QINFER_DETAIL_REENTERED);
}

Outcome TaskState::Ended() const {
  if (!status_.ok()) return status_;
  return QINFER_OK;
}

TaskState::Entry TaskState::Enter(bool background) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (finished_) return Entry::kFinished;
  if (stepping_ || (background_ && !background)) return Entry::kBusy;
  stepping_ = true;
  return Entry::kEntered;
}

void TaskState::Leave() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stepping_ = false;
  }
  changed_.notify_all();
}

bool TaskState::Slice(uint64_t until_ns, bool until_event) {
  {
    const StepTurn turn(&runtime_->step_lock, until_ns);
    if (!turn.acquired()) return false;
    DoWork(until_ns, until_event);
  }
  changed_.notify_all();  // events, or the end
  return !Finished();
}

bool TaskState::Finished() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_;
}

void TaskState::DoWork(uint64_t until_ns, bool until_event) noexcept {
  const exec::ScopedFpMode mode;
  const uint64_t begin = NowNs();
  const uint64_t slice = begin + (until_event ? kEventSliceNs : kSliceNs);
  Status status;
  bool finished = false;
  try {
    Deadline deadline;
    deadline.until_ns = std::min(until_ns, slice);
    deadline.cancel = &cancel_;
    if (cancel_.load()) {
      status = CancelledError();
    } else {
      StatusOr<bool> stepped = parts_.work->Step(deadline);
      if (stepped.ok()) {
        finished = *stepped;
      } else {
        status = stepped.status();
      }
    }
    DrainEvents();
    if (finished && parts_.collect != nullptr) {
      status = parts_.collect(parts_.work.get(), &results_);
    }
  } catch (...) {
    status = StatusOfException();
  }
  step_ns_.fetch_add(NowNs() - begin, std::memory_order_relaxed);
  if (finished || !status.ok()) Finish(std::move(status));
}

// Events of this generation may also have come from steps of its batch mates.
void TaskState::DrainEvents() {
  if (!is_generation_) return;
  engine::Event event;
  while (parts_.generation->NextEvent(&event)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
    event = engine::Event();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  prompt_tokens_ = parts_.generation->prompt_tokens();
  generated_tokens_ = parts_.generation->generated_tokens();
  lookup_counts_ = parts_.generation->lookup_counts();
}

void TaskState::Finish(Status status) {
  TaskParts ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Progress& progress = parts_.work->progress();
    final_done_ = progress.done.load();
    final_total_ = progress.total.load();
    final_phase_ = progress.phase.load();
    ended = std::move(parts_);
    parts_ = TaskParts();
    if (!status.ok()) results_ = TaskResults();
  }
  ended.work.reset();  // rolls back what was not committed
  ended.claims.clear();
  ended.keep.clear();
  ended.collect = nullptr;  // holds some of that as well
  const std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
  status_ = std::move(status);
}

Outcome TaskState::Step(uint64_t budget_ns) {
  QINFER_RETURN_IF_ERROR(NotInside());
  const uint64_t until = DeadlineAfter(budget_ns);
  const Entry entry = Enter(false);
  if (entry == Entry::kBusy) {
    return WithDetail(BusyError("this task is stepped by another thread or in the background; wait "
                                "for it, or ask for its progress"),
                      QINFER_DETAIL_STEPPED);
  }
  if (entry == Entry::kEntered) {
    const auto goes_on = [&] {
      return until == Deadline::kNever || (NowNs() < until && !parts_.work->waits_next());
    };
    while (Slice(until, false) && goes_on()) {
    }
    Leave();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_ ? Ended() : Outcome(QINFER_PENDING);
}

Outcome TaskState::Wait(uint64_t timeout_ns) {
  if (timeout_ns == 0) {  // only asked
    const std::lock_guard<std::mutex> lock(mutex_);
    return finished_ ? Ended() : Outcome(QINFER_PENDING);
  }
  QINFER_RETURN_IF_ERROR(NotInside());
  const uint64_t until = DeadlineAfter(timeout_ns);
  const auto in_time = [&] { return until == Deadline::kNever || NowNs() < until; };
  for (;;) {
    const Entry entry = Enter(false);
    if (entry == Entry::kEntered) {
      while (Slice(until, false) && in_time()) {
      }
      Leave();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    const auto ready = [&] { return finished_ || (!stepping_ && !background_); };
    if (until == Deadline::kNever) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_until(lock, TimePoint(until), ready);
    }
    if (finished_) return Ended();
    if (!in_time()) return QINFER_PENDING;
  }
}

Outcome TaskState::NextEvent(uint64_t budget_ns, std::optional<engine::Event>* out) {
  const uint64_t until = DeadlineAfter(budget_ns);
  const auto in_time = [&] { return until == Deadline::kNever || NowNs() < until; };
  const auto take = [&]() -> bool {  // under mutex_
    if (events_.empty()) return false;
    out->emplace(std::move(events_.front()));
    events_.pop_front();
    return true;
  };
  for (bool first = true;; first = false) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (take()) return QINFER_OK;
      if (finished_) return status_.ok() ? Outcome(QINFER_END) : Outcome(status_);
    }
    QINFER_RETURN_IF_ERROR(NotInside());
    if (!first && !in_time()) return QINFER_PENDING;
    if (Enter(false) == Entry::kEntered) {
      while (!HasEvent() && Slice(until, true) && in_time()) {
      }
      Leave();
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    const auto ready = [&] {
      return finished_ || !events_.empty() || (!stepping_ && !background_);
    };
    if (until == Deadline::kNever) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_until(lock, TimePoint(until), ready);
    }
  }
}

bool TaskState::HasEvent() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !events_.empty();
}

void TaskState::Abandon() {
  cancel_.store(true);
  // Inside a callback whoever steps ends it.
  if (!runtime_->step_lock.HeldByThisThread()) EndWork();
  TaskResults dropped;  // outside the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  if (finished_) std::swap(dropped, results_);
}

void TaskState::EndWork() {
  for (;;) {
    const Entry entry = Enter(true);
    if (entry == Entry::kFinished) return;
    if (entry == Entry::kEntered) {
      Slice(Deadline::kNever, false);
      Leave();
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return finished_ || !stepping_; });
  }
}

Status TaskState::Run() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (background_ || finished_) return OkStatus();
    background_ = true;
  }
  Status status = runtime_->background.Add(shared_from_this());
  if (status.ok()) return status;
  const std::lock_guard<std::mutex> lock(mutex_);
  background_ = false;
  return status;
}

bool TaskState::RunSlice() noexcept {
  try {
    const uint64_t until = DeadlineAfter(kSliceNs);
    if (Enter(true) == Entry::kEntered) {
      Slice(until, false);
      Leave();
    } else {  // a step that began before the task was handed over
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait_until(lock, TimePoint(until), [&] { return finished_ || !stepping_; });
    }
    return Finished();
  } catch (...) {  // mutexes may throw in theory; the thread must live
    return false;
  }
}

void TaskState::FillProgress(qinfer_progress* out) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  out->kind = kind_;
  out->background = background_ ? 1 : 0;
  out->step_ns = step_ns_.load(std::memory_order_relaxed);
  out->status = !finished_ ? QINFER_PENDING : CodeOf(status_);
  const char* phase = final_phase_;
  if (parts_.work != nullptr) {
    const Progress& progress = parts_.work->progress();
    out->done = progress.done.load(std::memory_order_relaxed);
    out->total = progress.total.load(std::memory_order_relaxed);
    phase = progress.phase.load(std::memory_order_relaxed);
  } else {
    out->done = final_done_;
    out->total = final_total_;
  }
  out->phase = Str(phase == nullptr ? "" : phase);
}

Status TaskState::Counts(uint32_t* prompt, uint32_t* generated) const {
  if (!is_generation_) {
    return Misuse(QINFER_DETAIL_NO_RESULT, "this task is not a generation");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (prompt != nullptr) *prompt = prompt_tokens_;
  if (generated != nullptr) *generated = generated_tokens_;
  return OkStatus();
}

StatusOr<engine::LookupCounts> TaskState::LookupCounts() const {
  if (!is_generation_) {
    return Misuse(QINFER_DETAIL_NO_RESULT, "this task is not a generation");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return lookup_counts_;
}

Status MakeTask(const std::shared_ptr<RuntimeState>& runtime, TaskParts parts, qinfer_task** out) {
  auto state = std::make_shared<TaskState>(runtime, std::move(parts));
  if ((runtime->flags & QINFER_RUNTIME_BACKGROUND_TASKS) != 0) {
    qinfer_task* const task = NewHandle<qinfer_task>(runtime, state);
    Status status = state->Run();
    if (!status.ok()) {
      ReleaseHandle(task);
      return status;
    }
    *out = task;
    return OkStatus();
  }
  *out = NewHandle<qinfer_task>(runtime, std::move(state));
  return OkStatus();
}

}  // namespace qinfer::api
