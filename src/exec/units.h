// A phase of work: units that do not depend on each other, taken in order by a few lanes, with the
// deadline checked between them. Where it stops, a later call goes on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/executor.h"
#include "core/work.h"
#include "exec/fp_mode.h"

namespace qinfer::exec {

// Multiply-adds of one unit, with codes and with floats: some 90 µs where a thread does 150 or 10
// billion a second. Smaller units of wide weights would be too few tokens or panels for kernels to
// share what they prepare for either.
constexpr uint64_t kUnitCodes = 14000000, kUnitFloats = 800000;

// Multiply-adds of one unit with codes of two planes, of which the second has something in few
// blocks.
constexpr uint64_t UnitCodes(uint32_t planes) {
  return planes == 1 ? kUnitCodes : kUnitCodes / 3 * 2;
}

// Calls unit(lane, index) for every index in [*next, count), lanes < executor->concurrency() and
// `max_lanes`; a lane is one caller at a time, so scratch may be per lane. At least one unit is
// done if there is one. True when all have been done; else *next is where to go on.
template <typename F>
bool RunUnits(Executor* executor, uint32_t max_lanes, const Deadline& deadline, uint32_t count,
              uint32_t* next, F&& unit) {
  if (*next >= count) return true;
  const uint32_t lanes = std::min(std::min(executor->concurrency(), max_lanes), count - *next);
  if (lanes <= 1) {
    const ScopedFpMode mode;
    do {
      unit(0u, *next);
      ++*next;
    } while (*next < count && !deadline.Expired());
    return *next >= count;
  }
  std::atomic<uint32_t> shared{*next};
  ParallelFor(executor, lanes, [&](uint32_t lane) {
    const ScopedFpMode mode;
    bool first = true;
    for (;;) {
      // Every lane does one unit, whatever the clock says: somebody has to.
      if (!first && deadline.Expired()) return;
      first = false;
      const uint32_t index = shared.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      unit(lane, index);
    }
  });
  *next = std::min(shared.load(std::memory_order_relaxed), count);
  return *next >= count;
}

}  // namespace qinfer::exec
