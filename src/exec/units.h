// A phase of work: units that do not depend on each other, taken in order by a few lanes, with the
// deadline checked between them. Where it stops, a later call goes on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "core/executor.h"
#include "core/work.h"
#include "exec/fp_mode.h"

namespace qinfer::exec {

constexpr uint32_t kMaxLanes = 256;

// Multiply-adds of one unit, with codes and with floats: some 90 µs where a thread does 150 or 10
// billion a second. Smaller units of wide weights would be too few tokens or panels for kernels to
// share what they prepare for either.
constexpr uint64_t kUnitCodes = 14000000, kUnitFloats = 800000;

// Multiply-adds of one unit with codes of two planes, of which the second has something in few
// blocks.
constexpr uint64_t UnitCodes(uint32_t planes) {
  return planes == 1 ? kUnitCodes : kUnitCodes / 3 * 2;
}

// A lane's part of [*next, end), whose next unit lanes take one after the other: unit(index) until
// none is left, or the deadline has passed (false). But a lane's `first` is done whatever the clock
// says: somebody has to.
template <typename F>
bool TakeUnits(uint32_t* next, uint32_t end, const Deadline& deadline, bool* first, F&& unit) {
  std::atomic_ref<uint32_t> shared(*next);
  for (;;) {
    if (!*first && deadline.Expired()) return false;
    const uint32_t index = shared.fetch_add(1, std::memory_order_relaxed);
    if (index >= end) return true;
    *first = false;
    unit(index);
  }
}

// f(lane) on so many lanes, the caller's thread alone where there is one.
template <typename F>
void OnLanes(Executor* executor, uint32_t lanes, F&& f) {
  auto body = [&](uint32_t lane) {
    const ScopedFpMode mode;
    f(lane);
  };
  if (lanes <= 1) {
    body(0);
  } else {
    ParallelFor(executor, lanes, body);
  }
}

// Calls unit(lane, index) for every index in [*next, count), lanes < executor->concurrency() and
// `max_lanes`; a lane is one caller at a time, so scratch may be per lane. At least one unit is
// done if there is one. True when all have been done; else *next is where to go on.
template <typename F>
bool RunUnits(Executor* executor, uint32_t max_lanes, const Deadline& deadline, uint32_t count,
              uint32_t* next, F&& unit) {
  if (*next >= count) return true;
  const uint32_t lanes = std::min(std::min(executor->concurrency(), max_lanes), count - *next);
  OnLanes(executor, lanes, [&](uint32_t lane) {
    bool first = true;
    TakeUnits(next, count, deadline, &first, [&](uint32_t index) { unit(lane, index); });
  });
  *next = std::min(*next, count);
  return *next >= count;
}

// Where a phase of the forward pass stands. Each lane has a range of units of its own, the same in
// every phase, so that the tokens a lane has written are in its cache when it reads them; who is
// done helps the others.
class UnitCursor {
 public:
  void Reset() { used_ = 0; }
  bool begun() const { return used_ != 0; }

  // As RunUnits, from where an earlier call has left the cursor; complete, it is left reset.
  template <typename F>
  bool Run(Executor* executor, uint32_t max_lanes, const Deadline& deadline, uint32_t count,
           F&& unit) {
    if (count == 0) return true;
    const uint32_t lanes = std::min({executor->concurrency(), max_lanes, count, kMaxLanes});
    if (!begun()) Cut(count, lanes);
    OnLanes(executor, lanes, [&](uint32_t lane) {
      const uint32_t own = OwnRange(lane);
      bool first = true;
      for (uint32_t i = 0; i < used_; ++i) {
        Range& range = ranges_[(own + i) % used_];
        if (!TakeUnits(&range.next, range.end, deadline, &first,
                       [&](uint32_t index) { unit(lane, index); })) {
          return;
        }
      }
    });
    for (uint32_t i = 0; i < used_; ++i) {
      ranges_[i].next = std::min(ranges_[i].next, ranges_[i].end);
      if (ranges_[i].next < ranges_[i].end) return false;
    }
    Reset();
    return true;
  }

 private:
  struct alignas(64) Range {  // a line each: lanes do not wait for each other's counters
    uint32_t next, end;
    std::atomic<std::thread::id> owner;
  };

  void Cut(uint32_t count, uint32_t lanes) {
    used_ = lanes;
    for (uint32_t i = 0; i < lanes; ++i) {
      ranges_[i].next = static_cast<uint32_t>(uint64_t{count} * i / lanes);
      ranges_[i].end = static_cast<uint32_t>(uint64_t{count} * (i + 1) / lanes);
    }
  }
  // An executor may give its threads another lane every time.
  uint32_t OwnRange(uint32_t lane) {
    const std::thread::id self = std::this_thread::get_id();
    for (uint32_t i = 0; i < used_; ++i) {
      if (ranges_[i].owner.load(std::memory_order_relaxed) == self) return i;
    }
    const uint32_t own = lane % used_;
    ranges_[own].owner.store(self, std::memory_order_relaxed);
    return own;
  }

  uint32_t used_ = 0;  // ranges; 0: not begun
  Range ranges_[kMaxLanes] = {};
};

}  // namespace qinfer::exec
