// Creating a runtime from its options, and the functions of runtime.h that are about it.
#include "api/runtime.h"

#include <algorithm>
#include <utility>

#include "api/structs.h"
#include "exec/fp_mode.h"

namespace qinfer::api {
namespace {

// The host's job system. Its threads have the host's float modes, so each body sets ours.
class HostExecutor final : public Executor {
 public:
  explicit HostExecutor(const qinfer_executor& table) : table_(table) {}
  uint32_t concurrency() const override { return std::max(table_.max_concurrency, 1u); }
  void ParallelFor(uint32_t count, void (*body)(void*, uint32_t), void* context) override {
    if (count == 0) return;
    if (count == 1) {
      body(context, 0);
      return;
    }
    Call call{body, context};
    table_.parallel_for(table_.user, count, &HostExecutor::Run, &call);
  }

 private:
  struct Call {
    void (*body)(void*, uint32_t);
    void* context;
  };
  static void QINFER_CALL Run(void* context, uint32_t index) {
    const exec::ScopedFpMode mode;
    const Call* call = static_cast<const Call*>(context);
    call->body(call->context, index);
  }
  qinfer_executor table_;
};

// The table in use goes by its name.
uint32_t IsaOf(const kernels::Table& table) {
  const std::string_view name = table.name;
  if (name == "avx2") return QINFER_ISA_AVX2;
  if (name == "avxvnni") return QINFER_ISA_AVXVNNI;
  if (name == "avx512") return QINFER_ISA_AVX512;
  if (name == "neon" || name == "neon-dotprod") return QINFER_ISA_NEON;
  return QINFER_ISA_REF;
}

StatusOr<AllocatorHooks> ReadAllocator(const qinfer_allocator* table) {
  qinfer_allocator read;
  QINFER_RETURN_IF_ERROR(ReadStruct(table, "allocator", &read));
  QINFER_RETURN_IF_ERROR(Reserved(read.reserved, "allocator.reserved"));
  if (table != nullptr && (read.alloc == nullptr || read.release == nullptr)) {
    return BadOption("allocator: both alloc and release are needed");
  }
  return AllocatorHooks{read.user, read.alloc, read.release};
}

StatusOr<std::unique_ptr<Executor>> MakeExecutor(const qinfer_runtime_options& options) {
  if (options.executor == nullptr) {
    const uint32_t spin_us = options.spin_us == 0                   ? kDefaultSpinUs
                             : options.spin_us == QINFER_SPIN_NEVER ? 0
                                                                    : options.spin_us;
    auto pool = CreateThreadPool(options.threads, spin_us);
    if (!pool.ok()) return AsOption(pool.status());
    return pool;
  }
  qinfer_executor table;
  QINFER_RETURN_IF_ERROR(ReadStruct(options.executor, "executor", &table));
  if (table.parallel_for == nullptr) return BadOption("executor.parallel_for is NULL");
  if (table.max_concurrency == 0 || table.max_concurrency > 1024) {
    return BadOption(
        StrCat("executor.max_concurrency is ", table.max_concurrency, ", it must be in [1, 1024]"));
  }
  return std::unique_ptr<Executor>(std::make_unique<HostExecutor>(table));
}

}  // namespace

void LogAdapter::Write(void* self, LogLevel level, const char* text, size_t size) {
  const LogAdapter* adapter = static_cast<const LogAdapter*>(self);
  adapter->log(adapter->user, static_cast<int32_t>(level) + 1, text, size);
}

RuntimeState::RuntimeState(const AllocatorHooks& allocator, const qinfer_runtime_options& options)
    : hooks(allocator), memory(allocator, options.host_bytes_limit), flags(options.flags) {}

StatusOr<std::shared_ptr<RuntimeState>> RuntimeState::Create(
    const qinfer_runtime_options& options) {
  QINFER_RETURN_IF_ERROR(
      KnownFlags(options.flags, QINFER_RUNTIME_BACKGROUND_TASKS, "runtime options.flags"));
  QINFER_RETURN_IF_ERROR(Reserved(options.reserved, "runtime options.reserved"));
  if (options.next != nullptr) {
    return Misuse(QINFER_DETAIL_RESERVED, "runtime options.next is reserved and must be NULL");
  }
  if (options.log_level > QINFER_LOG_DEBUG) {
    return BadOption(StrCat("runtime options.log_level is ", options.log_level, ", known are 0 to ",
                            QINFER_LOG_DEBUG));
  }
  if (options.cpu_isa_cap > QINFER_ISA_AVXVNNI) {
    return BadOption(StrCat("runtime options.cpu_isa_cap is ", options.cpu_isa_cap,
                            ", known are 0 to ", QINFER_ISA_AVXVNNI));
  }
  QINFER_ASSIGN_OR_RETURN(const AllocatorHooks hooks, ReadAllocator(options.allocator));
  auto state = std::make_shared<RuntimeState>(hooks, options);
  if (options.log != nullptr) {
    state->log_adapter_ = std::make_unique<LogAdapter>(LogAdapter{options.log, options.log_user});
    const uint32_t level = options.log_level == 0 ? QINFER_LOG_WARNING : options.log_level;
    state->log = Log(&LogAdapter::Write, state->log_adapter_.get(), LogLevel(level - 1));
  }
  // The public numbers are those of kernels::Isa.
  state->kernel_table = kernels::SelectTable(static_cast<kernels::Isa>(options.cpu_isa_cap));
  if (state->kernel_table == nullptr) {
    static constexpr const char* kNames[] = {"auto", "ref", "avx2", "avx512", "neon", "avxvnni"};
    return UnsupportedError(StrCat("this processor cannot run cpu_isa_cap = ", options.cpu_isa_cap,
                                   " (", kNames[options.cpu_isa_cap],
                                   "); QINFER_ISA_AUTO takes the best that it has"));
  }
  QINFER_ASSIGN_OR_RETURN(state->executor, MakeExecutor(options));
  if (state->log.Enabled(LogLevel::kInfo)) {
    state->log.Write(LogLevel::kInfo,
                     StrCat("qinfer ", QINFER_VERSION_STRING, ": ", state->kernel_table->name,
                            " kernels, ", state->executor->concurrency(), " threads"));
  }
  return state;
}

}  // namespace qinfer::api

using qinfer::api::Guard;
using qinfer::api::GuardHandle;
using qinfer::api::Outcome;
using qinfer::api::RuntimeState;

extern "C" {

qinfer_status qinfer_runtime_create(uint32_t abi, const qinfer_runtime_options* options,
                                    qinfer_runtime** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return Guard(err, nullptr, [&]() -> Outcome {
    using namespace qinfer::api;
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    if (abi != QINFER_ABI) {
      return AbiError(QINFER_DETAIL_VERSION,
                      qinfer::StrCat("the program was compiled for interface ", abi,
                                     ", this library has ", QINFER_ABI));
    }
    qinfer_runtime_options read;
    QINFER_RETURN_IF_ERROR(ReadStruct(options, "runtime options", &read));
    QINFER_ASSIGN_OR_RETURN(std::shared_ptr<RuntimeState> state, RuntimeState::Create(read));
    *out = NewHandle<qinfer_runtime>(state, state);
    return QINFER_OK;
  });
}

qinfer_runtime* qinfer_runtime_retain(qinfer_runtime* runtime) {
  return qinfer::api::RetainHandle(runtime);
}

void qinfer_runtime_release(qinfer_runtime* runtime) { qinfer::api::ReleaseHandle(runtime); }

qinfer_status qinfer_runtime_info_get(const qinfer_runtime* runtime, qinfer_runtime_info* out,
                                      qinfer_error* err) {
  qinfer::api::ClearOut(out);
  return GuardHandle(err, runtime, "runtime", [&]() -> Outcome {
    using namespace qinfer::api;
    QINFER_RETURN_IF_ERROR(CheckOut(out, "out"));
    const RuntimeState& state = *runtime->runtime;
    qinfer_runtime_info info = {};
    info.threads = state.executor->concurrency();
    info.cpu_isa = IsaOf(*state.kernel_table);
    info.cpu_isa_name = Str(state.kernel_table->name);
    WriteOut(info, out);
    return QINFER_OK;
  });
}

qinfer_status qinfer_runtime_memory(const qinfer_runtime* runtime, qinfer_memory_usage* out,
                                    qinfer_error* err) {
  qinfer::api::ClearOut(out);
  return GuardHandle(err, runtime, "runtime", [&]() -> Outcome {
    using namespace qinfer::api;
    QINFER_RETURN_IF_ERROR(CheckOut(out, "out"));
    const qinfer::Memory& memory = runtime->runtime->memory;
    qinfer_memory_usage usage = {};
    usage.used_bytes = memory.used_bytes();
    usage.mapped_bytes = memory.mapped_bytes();
    usage.peak_bytes = memory.peak_bytes();
    usage.limit_bytes = memory.limit_bytes();
    WriteOut(usage, out);
    return QINFER_OK;
  });
}

qinfer_status qinfer_runtime_reset_peak(qinfer_runtime* runtime, qinfer_error* err) {
  return GuardHandle(err, runtime, "runtime", [&]() -> Outcome {
    runtime->runtime->memory.ResetPeak();
    return QINFER_OK;
  });
}

}  // extern "C"
