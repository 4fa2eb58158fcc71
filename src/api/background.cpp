// The loop of the background thread: one slice of each task in turn.
#include "api/background.h"

#include <signal.h>

#include <utility>

namespace qinfer::api {
namespace {

constexpr size_t kStackBytes = size_t{8} << 20;

}  // namespace

void Background::Push(std::shared_ptr<BackgroundJob> job) {
  BackgroundJob* const added = job.get();
  (last_ == nullptr ? first_ : last_->next_) = std::move(job);
  last_ = added;
}

std::shared_ptr<BackgroundJob> Background::Pop() {
  std::shared_ptr<BackgroundJob> job = std::move(first_);
  if (job == nullptr) return job;
  first_ = std::move(job->next_);
  if (first_ == nullptr) last_ = nullptr;
  return job;
}

Status Background::Add(std::shared_ptr<BackgroundJob> job) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!running_) {
    stop_ = false;
    // The host's signal handlers run on the host's threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);  // whatever the host's default is
    const int error = pthread_create(&thread_, &attributes, &Background::Main, this);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error != 0) {
      return NoMemoryError("cannot start a thread for background tasks: step or wait instead");
    }
    running_ = true;
#if defined(__linux__)
    pthread_setname_np(thread_, "qinfer-tasks");
#endif
  }
  Push(std::move(job));
  changed_.notify_one();
  return OkStatus();
}

void Background::Stop() noexcept {
  pthread_t thread;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!running_) return;
    stop_ = true;
    running_ = false;
    thread = thread_;
    changed_.notify_all();
  }
  if (pthread_equal(thread, pthread_self()) != 0) {
    // The last handle was released inside a callback on this very thread, which the contract
    // forbids; a detached thread is the least bad answer.
    pthread_detach(thread);
  } else {
    pthread_join(thread, nullptr);
  }
  for (;;) {  // what is left is dropped outside the lock, one by one
    std::shared_ptr<BackgroundJob> dropped;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      dropped = Pop();
    }
    if (dropped == nullptr) return;
  }
}

void* Background::Main(void* self) {
  static_cast<Background*>(self)->Loop();
  return nullptr;
}

void Background::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    std::shared_ptr<BackgroundJob> job = Pop();
    if (job == nullptr) {
      changed_.wait(lock);
      continue;
    }
    lock.unlock();
    if (job->RunSlice()) job.reset();  // may be the last owner: never under the lock
    lock.lock();
    if (job != nullptr) Push(std::move(job));
  }
}

}  // namespace qinfer::api
