// The thread of a runtime that steps tasks while the host does something else: started when the
// first task is handed over, ended with the last handle.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "core/status.h"

namespace qinfer::api {

// What the thread does to a task. Defined by TaskState; apart, so that the two headers do not need
// each other.
class BackgroundJob {
 public:
  virtual ~BackgroundJob() = default;
  // Works for a slice; true when there is nothing left to do. Never throws.
  virtual bool RunSlice() noexcept = 0;

 private:
  friend class Background;
  std::shared_ptr<BackgroundJob> next_;  // the queue is a list through the jobs: no allocation
};

class Background {
 public:
  Background() = default;
  ~Background() { Stop(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // NoMemoryError where no thread can be started.
  Status Add(std::shared_ptr<BackgroundJob> job);
  // Ends the thread after the slice in progress; jobs that are left are dropped.
  void Stop() noexcept;

 private:
  static void* Main(void* self);
  void Loop();
  void Push(std::shared_ptr<BackgroundJob> job);
  std::shared_ptr<BackgroundJob> Pop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<BackgroundJob> first_;
  BackgroundJob* last_ = nullptr;
  pthread_t thread_{};
  bool running_ = false;
  bool stop_ = false;
};

}  // namespace qinfer::api
