// Loading a model for tests of the engine and of evaluation: the shipped tiny-llama, or a file from
// the test models' cache. Nothing is asserted here; failures show as null.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "core/executor.h"
#include "exec/model.h"
#include "format/checkpoint.h"

namespace qinfer::testing {

// What the runtime owns, and one model. Members are destroyed in reverse order.
struct TestModel {
  Memory memory;
  std::unique_ptr<Executor> executor;
  exec::Context context;
  std::shared_ptr<const exec::Model> model;
  Status status;
};

inline std::string TinyLlamaPath() { return QINFER_SOURCE_DIR "/samples/models/tiny-llama"; }

// Where tests/fetch_models.sh puts what is not shipped.
inline std::string CachedModelPath(const std::string& name) {
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "") + "/.cache/qinfer/" + name;
}

inline std::shared_ptr<const exec::Model> LoadFrom(const std::string& path,
                                                   const exec::Context& context, Status* status) {
  format::OpenOptions open;
  open.memory = context.memory;
  auto checkpoint = format::OpenCheckpoint(path, open);
  if (!checkpoint.ok()) {
    *status = checkpoint.status();
    return nullptr;
  }
  auto work = exec::LoadWork::Create(*checkpoint, context);
  if (!work.ok()) {
    *status = work.status();
    return nullptr;
  }
  const auto done = (*work)->Step(Deadline());
  if (!done.ok()) {
    *status = done.status();
    return nullptr;
  }
  return (*work)->TakeModel();
}

inline std::unique_ptr<TestModel> LoadTestModel(const std::string& path, uint32_t threads = 2,
                                                kernels::Isa isa = kernels::Isa::kAuto) {
  auto test = std::make_unique<TestModel>();
  auto executor = CreateThreadPool(threads);
  if (!executor.ok()) {
    test->status = executor.status();
    return test;
  }
  test->executor = std::move(*executor);
  test->context = {&test->memory, test->executor.get(), kernels::SelectTable(isa)};
  if (test->context.kernels == nullptr) {
    test->status = UnsupportedError("this processor does not have that instruction set");
    return test;
  }
  test->model = LoadFrom(path, test->context, &test->status);
  return test;
}

}  // namespace qinfer::testing
