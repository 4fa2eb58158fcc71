// Helpers of the tests of src/exec: loading a model, running tokens through it in pieces, reading
// recorded tensors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "exec/forward.h"
#include "exec/model.h"
#include "format/checkpoint.h"

namespace qinfer::exec {

inline std::string Golden(const std::string& path) {
  return std::string(QINFER_SOURCE_DIR) + "/tests/golden/" + path;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Whether this processor has an instruction set; says so where it has not.
inline bool Runs(kernels::Isa isa) {
  if (kernels::SelectTable(isa) != nullptr) return true;
  std::printf("this processor has no instruction set number %u: not compared\n",
              static_cast<unsigned>(isa));
  return false;
}

struct Machine {
  explicit Machine(uint32_t threads = 1, kernels::Isa isa = kernels::Isa::kAuto,
                   AllocatorHooks hooks = {}, uint64_t limit = 0)
      : memory(hooks, limit) {
    if (threads > 1) {
      StatusOr<std::unique_ptr<Executor>> pool = CreateThreadPool(threads);
      if (pool.ok()) executor = *std::move(pool);
    }
    if (executor == nullptr) executor = std::make_unique<SerialExecutor>();
    context = {&memory, executor.get(), kernels::SelectTable(isa)};
  }
  Memory memory;
  std::unique_ptr<Executor> executor;
  Context context;
};

inline StatusOr<std::shared_ptr<const Model>> Load(std::shared_ptr<format::Checkpoint> checkpoint,
                                                   const Context& context) {
  QINFER_ASSIGN_OR_RETURN(std::unique_ptr<LoadWork> work,
                          LoadWork::Create(std::move(checkpoint), context));
  QINFER_ASSIGN_OR_RETURN(const bool done, work->Step(Deadline()));
  EXPECT_TRUE(done);
  return work->TakeModel();
}

inline StatusOr<std::shared_ptr<const Model>> LoadPath(const std::string& path, Machine* machine,
                                                       io::Access access = io::Access::kMap) {
  format::OpenOptions options;
  options.memory = &machine->memory;
  options.access = access;
  QINFER_ASSIGN_OR_RETURN(std::shared_ptr<format::Checkpoint> checkpoint,
                          format::OpenCheckpoint(path, options));
  return Load(std::move(checkpoint), machine->context);
}

// One of the recorded tensors of a safetensors file, as floats or as ids.
struct Recorded {
  std::shared_ptr<format::Checkpoint> checkpoint;
  Memory memory;

  explicit Recorded(const std::string& path) {
    format::OpenOptions options;
    options.access = io::Access::kCopy;
    options.memory = &memory;
    format::SideFiles side;
    side.config_json = format::Document::Borrow("{}");
    StatusOr<std::shared_ptr<io::Source>> source = io::OpenFile(path, io::Access::kCopy, &memory);
    EXPECT_TRUE(source.ok()) << source.status().message();
    if (!source.ok()) return;
    StatusOr<std::shared_ptr<format::Checkpoint>> opened =
        format::OpenCheckpoint(*source, side, options);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    if (opened.ok()) checkpoint = *opened;
  }
  template <typename T>
  std::vector<T> Read(const std::string& name) const {
    std::vector<T> out;
    const format::TensorInfo* info = checkpoint == nullptr ? nullptr : checkpoint->Find(name);
    EXPECT_NE(info, nullptr) << name;
    if (info == nullptr) return out;
    out.resize(info->elements());
    const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(out.data()), out.size() * sizeof(T));
    EXPECT_EQ(bytes.size(), info->bytes);
    EXPECT_TRUE(checkpoint->Read(*info, 0, bytes).ok());
    return out;
  }
};

struct RunOptions {
  std::vector<uint32_t> chunks;  // sizes of the first steps; the rest in steps of the last one
  kernels::KvType kv = kernels::KvType::kF32;
  Activations activations = Activations::kFloat;
  uint64_t unit_budget = Deadline::kNever;  // Deadline::until_ns of every call of Run
  Determinism determinism = Determinism::kStrict;
  uint32_t expand_from = 0;  // ForwardOptions::expand_from
};

// A row's maxima are those of the logits that are handed out with them.
inline void ExpectMaxima(absl::Span<const float> row, absl::Span<const float> maxima) {
  ASSERT_EQ(maxima.size(), (row.size() + 15) / 16);
  for (size_t p = 0; p < maxima.size(); ++p) {
    const auto panel = row.subspan(16 * p, 16);
    ASSERT_EQ(maxima[p], *std::max_element(panel.begin(), panel.end())) << "panel " << p;
  }
}

// All logits of a sequence, row after row.
inline StatusOr<std::vector<float>> LogitsOf(std::shared_ptr<const Model> model,
                                             const Context& context,
                                             const std::vector<int32_t>& tokens,
                                             const RunOptions& options = {}) {
  const uint32_t n = static_cast<uint32_t>(tokens.size());
  kv::CacheOptions cache_options;
  cache_options.k_type = cache_options.v_type = options.kv;
  cache_options.max_tokens = n;
  QINFER_ASSIGN_OR_RETURN(std::shared_ptr<kv::Cache> cache,
                          kv::Cache::Create(CacheLayout(model->spec(), options.kv, options.kv),
                                            cache_options, context.memory));
  QINFER_ASSIGN_OR_RETURN(std::unique_ptr<kv::Sequence> sequence, cache->NewSequence());
  ForwardOptions forward_options;
  forward_options.max_batch_tokens = forward_options.max_logit_rows = n;
  forward_options.activations = options.activations;
  forward_options.max_position = n;
  forward_options.determinism = options.determinism;
  forward_options.expand_from = options.expand_from;
  forward_options.expanded_type = options.kv;
  QINFER_ASSIGN_OR_RETURN(std::unique_ptr<Forward> forward,
                          Forward::Create(model, context, forward_options));
  std::vector<float> logits;
  for (uint32_t at = 0, step = 0; at < n; ++step) {
    uint32_t count = n;
    if (!options.chunks.empty()) {
      count = options.chunks[std::min<size_t>(step, options.chunks.size() - 1)];
    }
    count = std::min(count, n - at);
    QINFER_RETURN_IF_ERROR(sequence->Reserve(count));
    BatchSegment segment;
    segment.sequence = sequence.get();
    segment.tokens = absl::MakeConstSpan(tokens.data() + at, count);
    segment.logits_from = 0;
    segment.rope_length = n;
    QINFER_RETURN_IF_ERROR(forward->Begin(absl::MakeConstSpan(&segment, 1)));
    for (;;) {
      Deadline deadline;
      deadline.until_ns = options.unit_budget;
      QINFER_ASSIGN_OR_RETURN(const bool done, forward->Run(deadline));
      if (done) break;
    }
    sequence->Commit(count);
    for (uint32_t r = 0; r < count; ++r) {
      const absl::Span<const float> row = forward->Logits(r);
      ExpectMaxima(row, forward->LogitMaxima(r));
      logits.insert(logits.end(), row.begin(), row.end());
    }
    at += count;
  }
  return logits;
}

}  // namespace qinfer::exec
