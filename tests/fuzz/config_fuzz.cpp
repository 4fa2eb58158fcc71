// config.json, generation_config.json and stored specifications from untrusted bytes: a
// specification or a status; what is accepted is consistent, survives JSON, and can be planned.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "exec/forward.h"
#include "exec/model.h"
#include "model/spec.h"
#include "tests/fuzz/config_checkpoint.h"

namespace {

using qinfer::fuzz::ConfigCheckpoint;

void Check(bool good) {
  if (!good) std::abort();
}

void Use(const ConfigCheckpoint& checkpoint, const qinfer::model::ModelSpec& spec) {
  Check(qinfer::model::ValidateSpec(spec).ok());
  const std::string json = qinfer::model::SpecToJson(spec);
  const auto again = qinfer::model::SpecFromJson(json, checkpoint.memory());
  Check(again.ok() && *again == spec);
  qinfer::Memory memory;
  qinfer::SerialExecutor executor;
  const qinfer::exec::Context context = {&memory, &executor,
                                         qinfer::kernels::SelectTable(qinfer::kernels::Isa::kRef)};
  const auto plan =
      qinfer::exec::PlanMemory(checkpoint, spec, qinfer::exec::PlanOptions(), context);
  Check(memory.peak_bytes() == 0);  // planning takes nothing
  if (plan.ok()) Check(plan->total_bytes > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const ConfigCheckpoint checkpoint(text);
  const auto spec = qinfer::model::SpecFromCheckpoint(checkpoint);
  if (spec.ok()) Use(checkpoint, *spec);
  const auto stored = qinfer::model::SpecFromJson(text, checkpoint.memory());
  if (stored.ok()) Use(checkpoint, *stored);
  (void)qinfer::model::GenerationDefaultsFromCheckpoint(checkpoint, checkpoint.memory()).ok();
  return 0;
}
