// The queue of those who wait for the turn lies on their stacks: nothing is allocated.
#include "api/step_lock.h"

#include <chrono>

#include "core/work.h"

namespace qinfer::api {

std::chrono::steady_clock::time_point TimePoint(uint64_t ns) {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(static_cast<int64_t>(ns))));
}

uint64_t DeadlineAfter(uint64_t budget_ns) {
  // Longer than a century is for ever; and the sum with now must not wrap a signed number.
  constexpr uint64_t kLong = uint64_t{100} * 366 * 24 * 3600 * 1'000'000'000;
  return budget_ns >= kLong ? Deadline::kNever : NowNs() + budget_ns;
}

void StepLock::Append(Waiter* waiter) {
  Waiter** at = &first_;
  while (*at != nullptr) at = &(*at)->next;
  *at = waiter;
}

void StepLock::Remove(Waiter* waiter) {
  Waiter** at = &first_;
  while (*at != nullptr && *at != waiter) at = &(*at)->next;
  if (*at != nullptr) *at = waiter->next;
}

bool StepLock::Acquire(uint64_t until_ns) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (held_ && owner_ == std::this_thread::get_id()) return false;
  if (held_) {
    Waiter waiter;
    Append(&waiter);
    if (until_ns == Deadline::kNever) {
      waiter.turn.wait(lock, [&] { return waiter.granted; });
    } else if (!waiter.turn.wait_until(lock, TimePoint(until_ns), [&] { return waiter.granted; })) {
      Remove(&waiter);
      return false;
    }
    // Whoever released has taken us off the queue and left `held_` set for us.
  }
  held_ = true;
  owner_ = std::this_thread::get_id();
  return true;
}

bool StepLock::HeldByThisThread() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return held_ && owner_ == std::this_thread::get_id();
}

void StepLock::Release() {
  std::lock_guard<std::mutex> lock(mutex_);
  owner_ = std::thread::id();
  if (first_ == nullptr) {
    held_ = false;
    return;
  }
  Waiter* const next = first_;
  first_ = next->next;
  next->granted = true;
  next->turn.notify_one();
}

}  // namespace qinfer::api
