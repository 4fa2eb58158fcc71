// Who computes when: forming batches, running them in slices, handing out logits, and what happens
// to the rest when one job is cancelled or fails.
#include <algorithm>
#include <chrono>

#include "engine/engine_impl.h"
#include "exec/fp_mode.h"

namespace qinfer::engine {
namespace {

// Containers may throw where memory ends; a job's trouble must not unwind through everybody's step.
template <typename F>
Status Guarded(F&& body) {
  try {
    return body();
  } catch (const BudgetExceeded& e) {
    return BudgetError(e.what());
  } catch (const std::bad_alloc&) {
    return NoMemoryError("no memory for the bookkeeping of a generation");
  }
}

}  // namespace

EngineImpl::ExclusiveLock::ExclusiveLock(EngineImpl* engine)
    : engine_(engine), lock_(engine->mutex_) {
  engine_->WaitExclusive(&lock_);
}

EngineImpl::ExclusiveLock::~ExclusiveLock() { engine_->changed_.notify_all(); }

void EngineImpl::WaitExclusive(std::unique_lock<std::mutex>* lock) {
  ++waiting_;
  changed_.wait(*lock, [this] { return !stepping_; });
  --waiting_;
}

void EngineImpl::AddJob(Job* job) {
  job->session()->job = job;
  job->added = true;
  jobs_.push_back(job);
}

void EngineImpl::EndJob(Job* job, Job::State state, const Status& status) {
  job->state = state;
  job->status = status;
  job->session()->job = nullptr;
  std::erase(jobs_, job);
}

void EngineImpl::CancelJob(Job* job) {
  if (job->state != Job::State::kActive) return;
  const bool computing = std::any_of(batch_.begin(), batch_.end(),
                                     [job](const Item& item) { return item.job == job; });
  // The other jobs of the batch start it again: they lose time, nothing else.
  if (computing) AbandonBatch();
  EndJob(job, Job::State::kFailed, CancelledError());
}

StatusOr<bool> EngineImpl::StepJob(Job* job, const Deadline& deadline) {
  const exec::ScopedFpMode fp_mode;
  std::unique_lock<std::mutex> lock(mutex_);
  if (job->in_step) return BusyError("another thread is stepping this generation or prefill");
  job->in_step = true;
  struct Leave {
    Job* job;
    ~Leave() { job->in_step = false; }
  } leave{job};
  for (bool progressed = false;; progressed = true) {
    if (job->state == Job::State::kFinished) return true;
    if (job->state == Job::State::kFailed) return job->status;
    if (deadline.Cancelled()) {
      WaitExclusive(&lock);
      CancelJob(job);
      changed_.notify_all();
      continue;
    }
    if (progressed && deadline.Expired()) return false;
    if (stepping_) {
      // Another thread is advancing everybody, this job as well. Slices, because nobody announces a
      // cancel.
      const uint64_t now = NowNs();
      const uint64_t until = std::clamp(deadline.until_ns, now, now + kSliceNs);
      changed_.wait_for(lock, std::chrono::nanoseconds(std::max<uint64_t>(until - now, 1)));
      continue;
    }
    if (waiting_ > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(kSliceNs));
      continue;
    }
    Advance(&lock, deadline);
  }
}

void EngineImpl::Advance(std::unique_lock<std::mutex>* lock, const Deadline& deadline) {
  if (!in_flight_) {
    UseStoredLogits();
    FormBatch();
    if (batch_.empty()) return;
    const Status status = Guarded([this] {
      return forward_->Begin(absl::MakeConstSpan(segments_.data(), segments_.size()));
    });
    if (!status.ok()) {
      FailBatch(status);
      return;
    }
    in_flight_ = true;
    batch_ns_ = 0;
  }
  Deadline slice = deadline;
  slice.until_ns = std::min(deadline.until_ns, NowNs() + kSliceNs);
  stepping_ = true;
  lock->unlock();
  bool done = false;
  const uint64_t begin_ns = NowNs();
  const Status status = Guarded([&]() -> Status {
    QINFER_ASSIGN_OR_RETURN(done, forward_->Run(slice));
    return OkStatus();
  });
  batch_ns_ += NowNs() - begin_ns;  // the stepper's alone
  lock->lock();
  stepping_ = false;
  if (!status.ok()) {
    FailBatch(status);
  } else if (done) {
    RecordCosts();
    FinishBatch();
  }
  changed_.notify_all();
}

// A generation that follows a prefill directly samples its first token from the kept logits.
void EngineImpl::UseStoredLogits() {
  for (size_t i = 0; i < jobs_.size();) {
    Job* job = jobs_[i];
    SessionImpl* session = job->session();
    if (session->pending() == 0 && session->has_logits()) {
      const Status status = Guarded([&] { return job->TakeLogits(session->stored_logits(), {}); });
      if (status.ok()) {
        job->Committed(/*took_logits=*/true);
        if (job->state == Job::State::kFinished) EndJob(job, job->state, OkStatus());
      } else {
        EndJob(job, Job::State::kFailed, status);
      }
    }
    if (i < jobs_.size() && jobs_[i] == job) ++i;
  }
}

void EngineImpl::FormBatch() {
  batch_.clear();
  segments_.clear();
  order_.clear();
  for (Job* job : jobs_) {
    if (!job->alone) continue;
    order_.push_back(job);
    break;
  }
  if (order_.empty()) {
    const size_t n = jobs_.size();
    for (const bool decoding : {true, false}) {
      for (size_t i = 0; i < n; ++i) {
        Job* job = jobs_[(turn_ + i) % n];
        if ((job->session()->pending() == 1) == decoding) order_.push_back(job);
      }
    }
    ++turn_;
  }
  uint32_t room = options_.batch_tokens;
  for (Job* job : order_) {
    if (room > 0) AddItem(job, &room);
  }
  AddDrafts(room);
}

void EngineImpl::AddItem(Job* job, uint32_t* room) {
  SessionImpl* session = job->session();
  const Status fits = Guarded([&] { return session->FitRopes(); });
  if (!fits.ok()) {
    EndJob(job, Job::State::kFailed, fits);
    return;
  }
  const uint32_t begin = session->sequence()->length();
  const uint32_t count = std::min(session->pending(), *room);
  if (count == 0) {
    EndJob(job, Job::State::kFailed, InternalError("a generation has nothing to compute"));
    return;
  }
  const Status status = Guarded([&] { return session->sequence()->Reserve(count); });
  if (!status.ok()) {
    EndJob(job, Job::State::kFailed, status);
    return;
  }
  const bool wants_logits = count == session->pending();
  exec::BatchSegment segment;
  segment.sequence = session->sequence();
  segment.tokens = session->token_span().subspan(begin, count);
  if (wants_logits) segment.logits_from = count - 1;
  segment.rope_length = session->size();
  segments_.push_back(segment);
  batch_.push_back({.job = job, .count = count, .wants_logits = wants_logits});
  *room -= count;
}

// Guesses take what the batch leaves: tokens, rows of logits, and pages that are given back when
// the step is done. So nobody has less because somebody guesses. Where a prompt is computed there
// are none: steps of that size gain little from a few tokens more.
void EngineImpl::AddDrafts(uint32_t room) {
  uint32_t rows = static_cast<uint32_t>(batch_.size());
  const bool decodes = std::all_of(batch_.begin(), batch_.end(), [](const Item& item) {
    return item.count == 1 && item.wants_logits;
  });
  uint32_t left = decodes && logit_rows_ > rows ? std::min(room, logit_rows_ - rows) : 0;
  double expected = rows;
  for (size_t i = 0; i < batch_.size(); ++i) {
    Item& item = batch_[i];
    item.lookup = item.wants_logits ? item.job->ProposeDraft(left > 0 ? kMaxDraft : 0) : nullptr;
    if (item.lookup == nullptr || left == 0) continue;
    auto probabilities = item.lookup->probabilities();
    probabilities = probabilities.first(std::min<size_t>(probabilities.size(), left));
    uint32_t guessed = BestDraftLength(costs_, rows, expected, probabilities);
    guessed = ReserveDraft(item.job->session()->sequence(), guessed);
    if (guessed == 0) continue;
    segments_[i].tokens = item.lookup->Use(guessed);
    item.guessed = guessed;
    rows += guessed;
    left -= guessed;
    expected += ExpectedAccepted(probabilities.first(guessed));
  }
}

void EngineImpl::RecordCosts() {
  uint32_t rows = 0;
  for (const Item& item : batch_) {
    if (item.count != 1 || !item.wants_logits) return;
    rows += 1 + item.guessed;
  }
  costs_.Record(rows, batch_ns_);
}

// How many of `most` tokens after those reserved the cache has room for.
uint32_t EngineImpl::ReserveDraft(kv::Sequence* sequence, uint32_t most) {
  for (; most > 0; most /= 2) {
    if (Guarded([&] { return sequence->Reserve(most); }).ok()) break;
  }
  return most;
}

void EngineImpl::FinishBatch() {
  in_flight_ = false;
  uint32_t row = 0;
  for (const Item& item : batch_) {
    Job* job = item.job;
    const Status status = FinishItem(item, row);
    if (item.wants_logits) row += 1 + item.guessed;
    job->session()->sequence()->Rollback();
    job->alone = false;
    if (!status.ok()) {
      EndJob(job, Job::State::kFailed, status);
    } else if (job->state == Job::State::kFinished) {
      EndJob(job, job->state, OkStatus());
    }
  }
  batch_.clear();
}

// Commits what was computed, token by token where some were guessed: the logits after a guess are
// used when sampling has given that very token, exactly as if it had been computed afterwards.
Status EngineImpl::FinishItem(const Item& item, uint32_t first_row) {
  Job* job = item.job;
  SessionImpl* session = job->session();
  const uint32_t before = session->size();
  Status status;
  for (uint32_t i = 0; i <= item.guessed; ++i) {
    if (i > 0 && (job->state != Job::State::kActive ||
                  session->token_span().back() != item.lookup->proposal()[i - 1])) {
      break;
    }
    if (item.wants_logits) {
      status = Guarded([&] {
        return job->TakeLogits(forward_->Logits(first_row + i),
                               forward_->LogitMaxima(first_row + i));
      });
      if (!status.ok()) break;
    }
    session->sequence()->Commit(i == 0 ? item.count : 1);
    job->Committed(item.wants_logits);
  }
  if (item.lookup != nullptr) item.lookup->Observe(session->token_span().subspan(before));
  return status;
}

void EngineImpl::AbandonBatch() {
  if (in_flight_) forward_->Abandon();
  in_flight_ = false;
  for (const Item& item : batch_) item.job->session()->sequence()->Rollback();
  batch_.clear();
}

void EngineImpl::FailBatch(const Status& status) {
  const bool cancelled = absl::IsCancelled(status);  // the stepper's wish, nobody's failure
  bool guessed = false;
  for (const Item& item : batch_) {
    if (item.guessed == 0 || cancelled) continue;
    item.lookup->TurnOff();
    guessed = true;
  }
  if (guessed) {
    // Tokens that may never come may have been at fault: once more without them.
    AbandonBatch();
    return;
  }
  Job* only = batch_.size() == 1 ? batch_[0].job : nullptr;
  for (const Item& item : batch_) item.job->alone = only == nullptr && !cancelled;
  AbandonBatch();
  if (only != nullptr && !cancelled) EndJob(only, Job::State::kFailed, status);
}

void Job::Detach() {
  if (!added) return;
  EngineImpl::ExclusiveLock lock(session_->engine());
  session_->engine()->CancelJob(this);
}

}  // namespace qinfer::engine
