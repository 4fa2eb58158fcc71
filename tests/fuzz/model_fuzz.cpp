// A whole model from untrusted bytes: a GGUF file, or a configuration, a zero byte and a
// safetensors file. Whatever the configuration says, it is checked against the tensors before
// anything that grows with it is allocated; what is accepted loads within a limit and computes a
// few tokens.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "exec/forward.h"
#include "exec/model.h"
#include "kv/cache.h"
#include "model/spec.h"

namespace {

using namespace qinfer;

constexpr uint64_t kRoom = 32 << 20;
constexpr uint32_t kTokens = 3;

void Check(bool good) {
  if (!good) std::abort();
}

void Compute(const std::shared_ptr<const exec::Model>& model, const exec::Context& context) {
  constexpr kernels::KvType kType = kernels::KvType::kF16;
  kv::CacheOptions cache_options;
  cache_options.k_type = cache_options.v_type = kType;
  cache_options.max_tokens = 16;
  cache_options.max_sequences = 1;
  auto cache = kv::Cache::Create(exec::CacheLayout(model->spec(), kType, kType), cache_options,
                                 context.memory);
  if (!cache.ok()) return;
  exec::ForwardOptions options;
  options.max_batch_tokens = kTokens;
  auto forward = exec::Forward::Create(model, context, options);
  auto sequence = (*cache)->NewSequence();
  if (!forward.ok() || !sequence.ok() || !(*sequence)->Reserve(kTokens).ok()) return;
  const int32_t tokens[kTokens] = {0, static_cast<int32_t>(model->spec().vocab_size) - 1, 0};
  exec::BatchSegment segment;
  segment.sequence = sequence->get();
  segment.tokens = tokens;
  if (!(*forward)->Begin({&segment, 1}).ok()) return;
  const auto done = (*forward)->Run(Deadline());
  Check(!done.ok() || *done);
}

void Use(const std::shared_ptr<io::Source>& source, const format::SideFiles& side, size_t size,
         Memory* memory) {
  format::OpenOptions open_options;
  open_options.memory = memory;
  open_options.access = io::Access::kCopy;
  const auto checkpoint = format::OpenCheckpoint(source, side, open_options);
  if (!checkpoint.ok()) return;
  const auto spec = model::SpecFromCheckpoint(**checkpoint);
  if (!spec.ok()) return;
  const Status valid = model::ValidateTensors(*spec, **checkpoint);
  Check(memory->peak_bytes() <= (1 << 20) + 256 * uint64_t{size});  // nothing grew with the model
  if (!valid.ok()) return;
  SerialExecutor executor;
  const exec::Context context = {memory, &executor, kernels::SelectTable(kernels::Isa::kRef)};
  exec::PlanOptions options;
  options.context_tokens = 16;
  options.batch_tokens = kTokens;
  const auto plan = exec::PlanMemory(**checkpoint, *spec, options, context);
  if (!plan.ok() || plan->total_bytes > kRoom) return;
  auto work = exec::LoadWork::Create(*checkpoint, context);
  if (!work.ok()) return;
  const auto done = (*work)->Step(Deadline());
  if (!done.ok()) return;
  Check(*done);
  Compute((*work)->TakeModel(), context);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Memory memory({}, 2 * kRoom);
  const bool gguf = size >= 4 && std::memcmp(data, "GGUF", 4) == 0;
  const uint8_t* zero =
      gguf || size == 0 ? nullptr : static_cast<const uint8_t*>(std::memchr(data, 0, size));
  format::SideFiles side;
  absl::Span<const uint8_t> weights(data, size);
  std::string config;
  if (zero != nullptr) {
    config.assign(data, zero);
    side.config_json = format::Document::Borrow(config);
    weights.remove_prefix(config.size() + 1);
  }
  Use(io::BorrowMemory(weights, "fuzz"), side, size, &memory);
  Check(memory.used_bytes() == 0);
  return 0;
}
