// The turn to compute: of all tasks of a runtime one steps at a time, in the order of asking. Not a
// mutex: waiting ends at a deadline, and a thread that asks while it has the turn is told so.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace qinfer::api {

// A time of NowNs() for the waiting functions of std.
std::chrono::steady_clock::time_point TimePoint(uint64_t ns);
// NowNs() + budget, where UINT64_MAX and everything near it is Deadline::kNever.
uint64_t DeadlineAfter(uint64_t budget_ns);

class StepLock {
 public:
  // Waits for the turn until `until_ns` (NowNs() time; Deadline::kNever = for ever); false = it has
  // not come. A thread that has the turn does not get it a second time.
  bool Acquire(uint64_t until_ns);
  void Release();
  bool HeldByThisThread();

 private:
  struct Waiter {
    std::condition_variable turn;
    bool granted = false;
    Waiter* next = nullptr;
  };
  void Append(Waiter* waiter);
  void Remove(Waiter* waiter);

  std::mutex mutex_;
  bool held_ = false;
  std::thread::id owner_;
  Waiter* first_ = nullptr;
};

// Gives the turn back at the end of a scope.
class StepTurn {
 public:
  StepTurn(StepLock* lock, uint64_t until_ns) : lock_(lock), acquired_(lock->Acquire(until_ns)) {}
  ~StepTurn() {
    if (acquired_) lock_->Release();
  }
  StepTurn(const StepTurn&) = delete;
  StepTurn& operator=(const StepTurn&) = delete;
  bool acquired() const { return acquired_; }

 private:
  StepLock* lock_;
  bool acquired_;
};

}  // namespace qinfer::api
