// Work in progress: what a task of the public API steps, polls and cancels. Load, quantize,
// generate and evaluate are each a Work; threads, waiting and handles are added in src/api.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/status.h"

namespace qinfer {

inline uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// When to stop. Checked between units of at most about 100 µs of work.
struct Deadline {
  static constexpr uint64_t kNever = UINT64_MAX;
  uint64_t until_ns = kNever;                 // NowNs() time; 0 = after the smallest unit
  const std::atomic<bool>* cancel = nullptr;  // may be null

  bool Cancelled() const { return cancel != nullptr && cancel->load(std::memory_order_relaxed); }
  // True when the caller should return with its partial progress kept.
  bool Expired() const { return Cancelled() || (until_ns != kNever && NowNs() >= until_ns); }
};

struct Progress {
  std::atomic<uint64_t> done{0}, total{0};  // units of the Work's own choice; total 0 = unknown
  std::atomic<const char*> phase{""};  // static strings: "read", "calibrate", "quantize layer", ...
};

class Work {
 public:
  virtual ~Work() = default;
  // Does at least one smallest unit and then goes on until finished or `deadline`. True when
  // finished: then the result can be taken, and Step is not called again. On an error or a cancel
  // (CancelledError) all effects are rolled back to the last committed state, and Step is not
  // called again. One caller at a time.
  virtual StatusOr<bool> Step(const Deadline& deadline) = 0;
  // Whether the next unit waits for a disk, for as long as that takes: Step returns before it, also
  // where time is left, so that it can be a step of its own. Asked between steps.
  virtual bool waits_next() const { return false; }
  const Progress& progress() const { return progress_; }

 protected:
  Progress progress_;
};

}  // namespace qinfer
