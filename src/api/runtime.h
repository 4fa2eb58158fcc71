// The state behind qinfer_runtime, which every other state keeps alive: memory, threads, kernels,
// the turn to step, and the thread for background tasks.
#pragma once

#include <atomic>
#include <memory>

#include "api/background.h"
#include "api/error.h"
#include "api/handle.h"
#include "api/step_lock.h"
#include "core/executor.h"
#include "core/log.h"
#include "core/memory.h"
#include "exec/model.h"
#include "kernels/kernels.h"
#include "qinfer/runtime.h"

namespace qinfer::api {

// The host's log function, whose levels are numbered from 1 so that 0 can be the default.
struct LogAdapter {
  static void Write(void* self, LogLevel level, const char* text, size_t size);
  qinfer_log_fn log;
  void* user;
};

class RuntimeState {
 public:
  static StatusOr<std::shared_ptr<RuntimeState>> Create(const qinfer_runtime_options& options);
  RuntimeState(const AllocatorHooks& allocator, const qinfer_runtime_options& options);

  exec::Context context() { return exec::Context{&memory, executor.get(), kernel_table}; }

  // Handles that the host holds. When the last one goes, the background thread has ended before the
  // release returns, so that the library can be unloaded.
  void AddHandle() { handles_.fetch_add(1, std::memory_order_relaxed); }
  void DropHandle() {
    if (handles_.fetch_sub(1, std::memory_order_acq_rel) == 1) background.Stop();
  }

  const AllocatorHooks hooks;
  Memory memory;
  std::unique_ptr<Executor> executor;
  const kernels::Table* kernel_table = nullptr;
  Log log;
  uint64_t flags = 0;
  StepLock step_lock;
  Background background;

 private:
  std::atomic<uint64_t> handles_{0};
  std::unique_ptr<LogAdapter> log_adapter_;
};

// The end of a handle: its state goes first, then its share of the runtime.
template <typename H>
void ReleaseHandle(H* handle) noexcept {
  if (!DropOwner(handle)) return;
  GuardVoid([&] {
    const std::shared_ptr<RuntimeState> runtime = handle->runtime;
    delete handle;
    runtime->DropHandle();
  });
}

// A new handle of `state`, counted in its runtime.
template <typename H, typename State>
H* NewHandle(std::shared_ptr<RuntimeState> runtime, std::shared_ptr<State> state) {
  RuntimeState* const counted = runtime.get();
  H* const handle = new H(std::move(runtime), std::move(state));
  counted->AddHandle();
  return handle;
}

}  // namespace qinfer::api

struct qinfer_runtime {
  qinfer_runtime(std::shared_ptr<qinfer::api::RuntimeState> self,
                 const std::shared_ptr<qinfer::api::RuntimeState>& /*the same*/)
      : header(qinfer::api::HandleTraits<qinfer_runtime>::kMagic), runtime(std::move(self)) {}
  qinfer::api::HandleHeader header;  // first
  std::shared_ptr<qinfer::api::RuntimeState> runtime;
};
