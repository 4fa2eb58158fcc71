// Loading: in pieces, cancelled, with allocations that fail at every point, over budget; and the
// memory plan against what really happens, in every container.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <unistd.h>

#include "core/checked.h"
#include "exec_testing.h"
#include "format/qinfer_file.h"
#include "model/stored_tensor.h"

namespace qinfer::exec {
namespace {

// A host allocator that fails from its n-th call on (n < 0: never).
struct Failing {
  std::atomic<int> left{-1};
  static void* Alloc(void* user, size_t size, size_t align) {
    auto* self = static_cast<Failing*>(user);
    if (self->left >= 0 && self->left-- <= 0) {
      self->left = 0;
      return nullptr;
    }
    return std::aligned_alloc(align, (size + align - 1) / align * align);
  }
  static void Free(void*, void* ptr, size_t, size_t) { std::free(ptr); }
  AllocatorHooks hooks() { return {this, Alloc, Free}; }
};

// Open, load, make a cache and a pass, run two steps. As the API does, bad_alloc becomes a status.
Status Scenario(const std::string& path, Machine* machine) {
  try {
    auto model = LoadPath(path, machine);
    if (!model.ok()) return model.status();
    RunOptions run;
    run.chunks = {5, 1};
    run.kv = kernels::KvType::kInt8;
    return LogitsOf(*model, machine->context, {1, 2, 3, 4, 5, 6}, run).status();
  } catch (const BudgetExceeded& error) {
    return BudgetError(error.what());
  } catch (const std::bad_alloc&) {
    return NoMemoryError("caught");
  }
}

TEST(Load, EveryAllocationMayFail) {
  for (const char* path : {"models/llama-blocks/model-blocks.gguf", "models/gemma3-small"}) {
    int failures = 0;
    for (int n = 0;; ++n) {
      Failing failing;
      Machine machine(1, kernels::Isa::kAuto, failing.hooks());
      failing.left = n;
      const Status status = Scenario(Golden(path), &machine);
      EXPECT_EQ(machine.memory.used_bytes(), 0u) << path << " call " << n;
      EXPECT_EQ(machine.memory.mapped_bytes(), 0u);
      if (status.ok()) break;
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status.message();
      ++failures;
      ASSERT_LT(n, 5000);
    }
    std::printf("%s: %d allocations failed, one a run\n", path, failures);
    EXPECT_GT(failures, 10);
  }
}

TEST(Load, OverBudgetIsAStatus) {
  const std::string path = Golden("models/gemma3-small");
  Machine unlimited;
  ASSERT_TRUE(Scenario(path, &unlimited).ok());
  const uint64_t peak = unlimited.memory.peak_bytes();
  for (uint64_t limit = 1000; limit < peak; limit += peak / 23) {
    Machine machine(1, kernels::Isa::kAuto, {}, limit);
    const Status status = Scenario(path, &machine);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << limit << " " << status.message();
    EXPECT_EQ(machine.memory.used_bytes(), 0u);
    EXPECT_LE(machine.memory.peak_bytes(), limit);
  }
  Machine enough(1, kernels::Isa::kAuto, {}, peak);
  EXPECT_TRUE(Scenario(path, &enough).ok());
}

TEST(Load, InPiecesAndCancelled) {
  Machine machine(2);
  format::OpenOptions options;
  options.memory = &machine.memory;
  const std::string path = std::string(QINFER_SOURCE_DIR) + "/samples/models/tiny-llama";
  auto checkpoint = format::OpenCheckpoint(path, options);
  ASSERT_TRUE(checkpoint.ok());
  const uint64_t held = machine.memory.used_bytes();
  auto work = LoadWork::Create(*checkpoint, machine.context);
  ASSERT_TRUE(work.ok());
  EXPECT_EQ((*work)->TakeModel(), nullptr);
  Deadline at_once;
  at_once.until_ns = 0;
  int steps = 0;
  for (bool done = false; !done; ++steps) {
    auto result = (*work)->Step(at_once);
    ASSERT_TRUE(result.ok()) << result.status().message();
    done = *result;
  }
  EXPECT_GT(steps, 20);
  EXPECT_EQ((*work)->progress().done.load(), (*work)->progress().total.load());
  auto model = (*work)->TakeModel();
  ASSERT_NE(model, nullptr);
  model.reset();
  work->reset();
  EXPECT_EQ(machine.memory.used_bytes(), held);

  auto cancelled = LoadWork::Create(*checkpoint, machine.context);
  ASSERT_TRUE(cancelled.ok());
  ASSERT_TRUE((*cancelled)->Step(at_once).ok());
  EXPECT_GT(machine.memory.used_bytes(), held);
  std::atomic<bool> cancel{true};
  Deadline deadline;
  deadline.cancel = &cancel;
  EXPECT_EQ((*cancelled)->Step(deadline).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(machine.memory.used_bytes(), held);
}

// A .qinfer file of a checkpoint's tensors as they are: what conversion does, without documents.
void WriteQinfer(const std::string& from, const std::string& to) {
  Machine machine;
  format::OpenOptions options;
  options.memory = &machine.memory;
  auto checkpoint = format::OpenCheckpoint(from, options);
  ASSERT_TRUE(checkpoint.ok());
  auto spec = model::SpecFromCheckpoint(**checkpoint);
  ASSERT_TRUE(spec.ok());
  auto sink = io::CreateFile(to);
  ASSERT_TRUE(sink.ok());
  auto writer = format::QinferWriter::Create(*std::move(sink));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->SetMetadata(format::kMetaSpec, model::SpecToJson(*spec)).ok());
  std::vector<std::vector<uint8_t>> contents;
  std::vector<uint32_t> numbers;
  const auto add = [&](const model::TensorUse& use) {
    auto stored = model::FindStored(**checkpoint, use);
    ASSERT_TRUE(stored.ok());
    std::vector<uint8_t> source(stored->info->bytes);
    ASSERT_TRUE((*checkpoint)->Read(*stored->info, 0, absl::MakeSpan(source)).ok());
    format::QinferWriter::Declaration declaration;
    declaration.name = use.ref->name;
    std::vector<uint8_t> packed;
    if (use.vector) {
      declaration.shape = {use.cols};
      declaration.format = stored->dtype == DType::kF32 ? "f32" : "f16";
      packed = source;
    } else {
      declaration.shape = {use.rows, use.cols};
      declaration.format = weights::Name(stored->format);
      uint64_t panel = 0, bytes = 0;
      ASSERT_TRUE(weights::PackedSize(stored->format, use.rows, use.cols, &panel, &bytes));
      packed.resize(bytes);
      ASSERT_TRUE(
          weights::ImportRows(stored->dtype, source, 0, use.rows, use.cols, absl::MakeSpan(packed))
              .ok());
    }
    declaration.bytes = packed.size();
    auto number = (*writer)->DeclareTensor(declaration);
    ASSERT_TRUE(number.ok()) << number.status().message();
    numbers.push_back(*number);
    contents.push_back(std::move(packed));
  };
  model::ForEachEndTensor(*spec, add);
  for (const model::LayerSpec& layer : spec->layers) model::ForEachLayerTensor(*spec, layer, add);
  ASSERT_TRUE((*writer)->Begin(0).ok());
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_TRUE((*writer)->Write(numbers[i], 0, contents[i]).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
}

struct PlanCase {
  const char* source;
  bool qinfer;
  io::Access access;
  Determinism determinism = Determinism::kStrict;
};

class MemoryPlans : public testing::TestWithParam<PlanCase> {};

TEST_P(MemoryPlans, HoldWithinTenPercent) {
  const PlanCase& c = GetParam();
  std::string path = std::string(QINFER_SOURCE_DIR) + c.source;
  const std::filesystem::path made =
      std::filesystem::temp_directory_path() / StrCat("qinfer_plan_", getpid(), ".qinfer");
  if (c.qinfer) {
    WriteQinfer(path, made.string());
    path = made.string();
  }
  std::vector<float> logits[2];
  for (const uint32_t threads : {1u, 2u}) {
    Machine machine(threads);
    format::OpenOptions options;
    options.memory = &machine.memory;
    options.access = c.access;
    PlanOptions plan_options;
    plan_options.context_tokens = 96;
    plan_options.batch_tokens = 96;
    plan_options.logit_rows = 96;
    plan_options.max_sequences = 0;
    plan_options.k_type = plan_options.v_type = kernels::KvType::kF16;
    plan_options.determinism = c.determinism;
    MemoryPlan plan;
    {
      Memory other;  // asking must not disturb what is measured
      format::OpenOptions asking = options;
      asking.memory = &other;
      auto checkpoint = format::OpenCheckpoint(path, asking);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
      auto spec = model::SpecFromCheckpoint(**checkpoint);
      ASSERT_TRUE(spec.ok()) << spec.status().message();
      Context context = machine.context;
      context.memory = &other;
      auto planned = PlanMemory(**checkpoint, *spec, plan_options, context);
      ASSERT_TRUE(planned.ok()) << planned.status().message();
      plan = *planned;
    }
    auto model = LoadPath(path, &machine, c.access);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const double load_peak = static_cast<double>(machine.memory.peak_bytes());
    EXPECT_LE(load_peak, static_cast<double>(plan.load_peak_bytes));
    EXPECT_LE(static_cast<double>(plan.load_peak_bytes), 1.1 * load_peak);
    EXPECT_EQ(machine.memory.mapped_bytes(), plan.mapped_bytes);
    if (c.qinfer && c.access == io::Access::kMap) {
      EXPECT_GT(plan.mapped_bytes, 0u);
    }
    std::vector<int32_t> tokens(96);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(i % (*model)->spec().vocab_size);
    }
    RunOptions run;
    run.kv = kernels::KvType::kF16;
    run.activations = Activations::kAuto;
    run.determinism = c.determinism;
    auto result = LogitsOf(*model, machine.context, tokens, run);
    ASSERT_TRUE(result.ok());
    logits[threads - 1] = *result;
    const double peak = static_cast<double>(machine.memory.peak_bytes());
    EXPECT_LE(peak, static_cast<double>(plan.total_bytes));
    EXPECT_LE(static_cast<double>(plan.total_bytes), 1.1 * peak);
  }
  EXPECT_EQ(logits[0], logits[1]);
  if (c.qinfer) {  // the same file's tensors, the same logits
    Machine machine;
    auto model = LoadPath(std::string(QINFER_SOURCE_DIR) + c.source, &machine);
    ASSERT_TRUE(model.ok());
    std::vector<int32_t> tokens(96);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
    RunOptions run;
    run.kv = kernels::KvType::kF16;
    run.activations = Activations::kAuto;
    auto result = LogitsOf(*model, machine.context, tokens, run);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(*result, logits[0]);
    std::filesystem::remove(made);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Containers, MemoryPlans,
    testing::Values(
        PlanCase{"/samples/models/tiny-llama", false, io::Access::kMap},
        PlanCase{"/tests/golden/models/llama-blocks/model-blocks.gguf", false, io::Access::kMap},
        PlanCase{"/tests/golden/models/gemma3-small", false, io::Access::kCopy},
        PlanCase{"/tests/golden/models/phi3-small", false, io::Access::kMap},
        PlanCase{"/tests/golden/models/olmo2-small/model-f16.gguf", false, io::Access::kMap},
        PlanCase{"/tests/golden/models/llama-blocks/model-blocks.gguf", true, io::Access::kMap},
        PlanCase{"/tests/golden/models/llama-blocks/model-blocks.gguf", true, io::Access::kCopy},
        PlanCase{"/samples/models/tiny-llama", true, io::Access::kMap},
        PlanCase{"/tests/golden/models/deepseek-v3-small", false, io::Access::kMap},
        PlanCase{"/tests/golden/models/deepseek-v3-small", false, io::Access::kMap,
                 Determinism::kFast},
        PlanCase{"/samples/models/tiny-deepseek", false, io::Access::kMap, Determinism::kFast}));

TEST(MemoryPlanTest, AConfigurationAloneIsEnough) {
  Machine machine;
  format::OpenOptions options;
  options.memory = &machine.memory;
  auto checkpoint = format::OpenCheckpoint(
      std::string(QINFER_SOURCE_DIR) + "/samples/models/tiny-llama/config.json", options);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  auto spec = model::SpecFromCheckpoint(**checkpoint);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  auto plan = PlanMemory(**checkpoint, *spec, PlanOptions(), machine.context);
  ASSERT_TRUE(plan.ok());
  EXPECT_GT(plan->weight_bytes, 9'000'000u);
  EXPECT_LT(plan->weight_bytes, 11'000'000u);
  EXPECT_GT(plan->kv_bytes, 0u);
  EXPECT_FALSE(LoadWork::Create(*checkpoint, machine.context).ok());
}

}  // namespace
}  // namespace qinfer::exec
