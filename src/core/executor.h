// Where loops over independent pieces run: our own thread pool, or the host's job system. An
// executor may run bodies serially, in any order, or on fewer threads than asked; so a loop's
// bodies never wait for each other.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/status.h"

namespace qinfer {

class Executor {
 public:
  virtual ~Executor() = default;
  // How many bodies may run at once (≥ 1): how finely to cut, and how many scratch areas there are.
  virtual uint32_t concurrency() const = 0;
  // Runs body(context, i) for every i in [0, count), and returns when all have finished. Bodies do
  // not throw. One caller at a time per executor: the runtime's step lock sees to that.
  virtual void ParallelFor(uint32_t count, void (*body)(void* context, uint32_t index),
                           void* context) = 0;
};

template <typename F>
void ParallelFor(Executor* executor, uint32_t count, F&& body) {
  using Body = std::remove_reference_t<F>;
  executor->ParallelFor(
      count, [](void* context, uint32_t index) { (*static_cast<Body*>(context))(index); }, &body);
}

// Runs everything on the calling thread.
class SerialExecutor final : public Executor {
 public:
  uint32_t concurrency() const override { return 1; }
  void ParallelFor(uint32_t count, void (*body)(void*, uint32_t), void* context) override {
    for (uint32_t i = 0; i < count; ++i) body(context, i);
  }
};

// How long idle workers spin after a loop by default: longer than what one thread does between the
// loops of a layer, since waking a parked thread takes a good part of a small loop.
inline constexpr uint32_t kDefaultSpinUs = 30;

// Our pool: `threads` includes the calling thread, which is worker 0. Idle workers spin for
// `spin_us` after a loop, since the next one usually follows at once, and then park; with 0 nobody
// ever spins, also not for the end of a loop. 0 threads = DefaultThreads().
StatusOr<std::unique_ptr<Executor>> CreateThreadPool(uint32_t threads,
                                                     uint32_t spin_us = kDefaultSpinUs);

// The processors this process may use: affinity mask and cgroup quota, at least 1.
uint32_t DefaultThreads();

}  // namespace qinfer
