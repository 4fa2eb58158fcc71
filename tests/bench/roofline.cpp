// Where the time of a step goes: by phase of the forward pass microseconds, bytes of weights and
// keys, operations, and their rates; loops over the executor are counted too. Works on the
// library's insides; whole models against other programs are compare.py's.
// usage: roofline MODEL [--threads 2] [--depth 0] [--tokens 1] [--steps 64] [--isa N] [--copy]
// [--fast] [--all-logits]
//   a step adds --tokens tokens to a sequence of --depth tokens; the head multiplies the last one's
//   row, or with --all-logits every row, as a step does that checks guesses
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/executor.h"
#include "exec/forward.h"
#include "exec/model.h"
#include "format/checkpoint.h"
#include "kv/cache.h"

namespace {

using qinfer::exec::Linear;
using qinfer::exec::PhaseTimes;

[[noreturn]] void Fail(const qinfer::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

template <typename T>
T Take(qinfer::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status());
  return *std::move(value);
}

// Counts loops that went to several threads.
class CountingExecutor final : public qinfer::Executor {
 public:
  explicit CountingExecutor(qinfer::Executor* executor) : executor_(executor) {}
  uint32_t concurrency() const override { return executor_->concurrency(); }
  void ParallelFor(uint32_t count, void (*body)(void*, uint32_t), void* context) override {
    if (count > 1) ++loops;
    executor_->ParallelFor(count, body, context);
  }
  uint64_t loops = 0;

 private:
  qinfer::Executor* executor_;
};

struct Options {
  std::string model;
  uint32_t threads = 2, depth = 0, tokens = 1, steps = 64, isa = 0;
  qinfer::io::Access access = qinfer::io::Access::kMap;
  bool fast = false;
  bool all_logits = false;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--copy") {
      options.access = qinfer::io::Access::kCopy;
      continue;
    }
    if (name == "--fast") {
      options.fast = true;
      continue;
    }
    if (name == "--all-logits") {
      options.all_logits = true;
      continue;
    }
    if (name.rfind("--", 0) != 0) {
      options.model = name;
      continue;
    }
    const uint32_t value =
        i + 1 < argc ? static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 10)) : 0;
    if (name == "--threads") options.threads = value;
    if (name == "--depth") options.depth = value;
    if (name == "--tokens") options.tokens = std::max(1u, value);
    if (name == "--steps") options.steps = std::max(1u, value);
    if (name == "--isa") options.isa = value;
  }
  if (options.model.empty()) {
    std::fprintf(stderr,
                 "usage: roofline MODEL [--threads N] [--depth N] [--tokens N] [--steps N] "
                 "[--isa N] [--copy] [--fast] [--all-logits]\n");
    std::exit(2);
  }
  return options;
}

// What one step reads and multiplies in each phase that has weights.
struct Work {
  double bytes[PhaseTimes::kPhases] = {};
  double products[PhaseTimes::kPhases] = {};  // multiply-adds of one token
};

uint32_t PhaseOf(const char* name) {
  for (uint32_t p = 0; p < PhaseTimes::kPhases; ++p) {
    if (std::strcmp(PhaseTimes::Name(p), name) == 0) return p;
  }
  std::fprintf(stderr, "there is no phase %s\n", name);
  std::exit(1);
}

Work WorkOf(const qinfer::exec::Model& model) {
  Work work;
  const auto add = [&](const char* name, const Linear& linear) {
    if (!linear.present()) return;
    const uint32_t phase = PhaseOf(name);
    work.bytes[phase] += static_cast<double>(linear.matrix.panel_bytes) * linear.matrix.panels();
    work.products[phase] += static_cast<double>(linear.matrix.rows) * linear.matrix.cols;
  };
  for (uint32_t l = 0; l < model.spec().layers.size(); ++l) {
    const qinfer::exec::LayerWeights& layer = model.layer(l);
    const bool latent = layer.attention.q_a.present();
    add(latent ? "query up" : "q, k, v", layer.attention.q);
    add("q, k, v", layer.attention.q_a);
    add("q, k, v", layer.attention.kv_a);
    add("q, k, v", layer.attention.k);
    add("q, k, v", layer.attention.v);
    for (const Linear& head : layer.attention.k_b) add("absorb", head);
    for (const Linear& head : layer.attention.v_b) add("value up", head);
    add("out", layer.attention.o);
    add("router", layer.feed_forward.router);
    add("gate, up", layer.feed_forward.gate);
    add("gate, up", layer.feed_forward.up);
    add("down", layer.feed_forward.down);
  }
  add("head", model.ends().head);
  return work;
}

// A step of `count` tokens of no meaning.
void Step(qinfer::exec::Forward* forward, qinfer::kv::Sequence* sequence, uint32_t count,
          uint32_t vocab_size, bool all_logits, uint32_t* random) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    *random = *random * 1664525 + 1013904223;
    token = static_cast<int32_t>((*random >> 8) % vocab_size);
  }
  if (const qinfer::Status s = sequence->Reserve(count); !s.ok()) Fail(s);
  qinfer::exec::BatchSegment segment;
  segment.sequence = sequence;
  segment.tokens = tokens;
  segment.logits_from = all_logits ? 0 : count - 1;
  if (const qinfer::Status s = forward->Begin({&segment, 1}); !s.ok()) Fail(s);
  while (!Take(forward->Run(qinfer::Deadline()))) {
  }
  sequence->Commit(count);
}

void Print(const Options& options, const Work& work, const PhaseTimes& times, double loops,
           double step_ns) {
  std::printf("%-20s %10s %7s %9s %8s %8s\n", "phase", "us a step", "share", "MB", "GB/s", "GOPS");
  double all_ns = 0, bytes = 0, products = 0;
  for (uint32_t p = 0; p < PhaseTimes::kPhases; ++p) {
    if (times.ns[p] == 0) continue;
    const double ns = static_cast<double>(times.ns[p]) / options.steps;
    const double rows = p == PhaseOf("head") && !options.all_logits ? 1 : options.tokens;
    all_ns += ns;
    bytes += work.bytes[p];
    products += work.products[p] * rows;
    std::printf("%-20s %10.1f %6.1f%%", PhaseTimes::Name(p), ns / 1e3, 100 * ns / step_ns);
    if (work.bytes[p] > 0) {
      std::printf(" %9.2f %8.1f %8.1f", work.bytes[p] / 1e6, work.bytes[p] / ns,
                  2 * work.products[p] * rows / ns);
    }
    std::printf("\n");
  }
  std::printf("%-20s %10.1f %6.1f%% %9.2f %8.1f %8.1f\n", "all phases", all_ns / 1e3,
              100 * all_ns / step_ns, bytes / 1e6, bytes / step_ns, 2 * products / step_ns);
  std::printf("%-20s %10.1f, %.0f loops over several threads, %.1f tokens/s\n", "a step",
              step_ns / 1e3, loops, options.tokens * 1e9 / step_ns);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  qinfer::Memory memory;
  const std::unique_ptr<qinfer::Executor> pool = Take(qinfer::CreateThreadPool(options.threads));
  CountingExecutor executor(pool.get());
  const qinfer::exec::Context context{
      &memory, &executor,
      qinfer::kernels::SelectTable(static_cast<qinfer::kernels::Isa>(options.isa))};
  qinfer::format::OpenOptions open;
  open.memory = &memory;
  open.access = options.access;
  const std::unique_ptr<qinfer::exec::LoadWork> load = Take(qinfer::exec::LoadWork::Create(
      Take(qinfer::format::OpenCheckpoint(options.model, open)), context));
  while (!Take(load->Step(qinfer::Deadline()))) {
  }
  const std::shared_ptr<const qinfer::exec::Model> model = load->TakeModel();

  qinfer::kv::CacheOptions cache_options;
  const uint32_t batch = std::max(options.tokens, 512u);
  cache_options.max_tokens = options.depth + batch + uint64_t{options.tokens} * (options.steps + 1);
  cache_options.max_reserve = batch;
  const std::shared_ptr<qinfer::kv::Cache> cache = Take(qinfer::kv::Cache::Create(
      qinfer::exec::CacheLayout(model->spec(), cache_options.k_type, cache_options.v_type),
      cache_options, &memory));
  PhaseTimes times;
  qinfer::exec::ForwardOptions forward_options;
  forward_options.max_batch_tokens = batch;
  forward_options.times = &times;
  if (options.all_logits) forward_options.max_logit_rows = options.tokens;
  forward_options.max_position = static_cast<uint32_t>(cache_options.max_tokens);
  if (options.fast) forward_options.determinism = qinfer::exec::Determinism::kFast;
  const std::unique_ptr<qinfer::exec::Forward> forward =
      Take(qinfer::exec::Forward::Create(model, context, forward_options));
  const std::unique_ptr<qinfer::kv::Sequence> sequence = Take(cache->NewSequence());

  uint32_t random = 1;
  for (uint32_t done = 0; done < options.depth;) {
    const uint32_t count = std::min(512u, options.depth - done);
    Step(forward.get(), sequence.get(), count, model->spec().vocab_size, false, &random);
    done += count;
  }
  // Each step at the same depth, after one to warm up.
  uint64_t begin = 0;
  for (uint32_t i = 0; i <= options.steps; ++i) {
    if (i == 1) {
      times = PhaseTimes();
      executor.loops = 0;
      begin = qinfer::NowNs();
    }
    Step(forward.get(), sequence.get(), options.tokens, model->spec().vocab_size,
         options.all_logits, &random);
    if (const qinfer::Status s = sequence->Truncate(options.depth); !s.ok() && i == 0) {
      std::fprintf(stderr, "the window has moved on: steps follow each other\n");
    }
  }
  const double step_ns = static_cast<double>(qinfer::NowNs() - begin) / options.steps;
  Print(options, WorkOf(*model), times, static_cast<double>(executor.loops) / options.steps,
        step_ns);
  return 0;
}
