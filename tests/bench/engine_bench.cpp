// Microbenchmarks of what lies between the kernels: choosing a token from a row of logits, by size
// of the vocabulary and options, and a loop of the thread pool without work, whose workers spin or
// have parked. Usage: engine_bench [--benchmark_filter=sampler]
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/executor.h"
#include "engine/sampling.h"
#include "kernels/kernels.h"

namespace qinfer::engine {
namespace {

constexpr uint32_t kLoops = 1000;  // between two looks at the clock

// As models give them: most within a few of each other, some far above.
std::vector<float> MakeLogits(uint32_t vocab) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal(0.0f, 2.5f);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(rng);
  for (int i = 0; i < 64; ++i) {
    logits[rng() % vocab] = 6.0f + static_cast<float>(rng() % 1000) * 0.012f;
  }
  return logits;
}

struct Case {
  const char* name;
  SamplingOptions options;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, auto change) {
    SamplingOptions options;
    change(&options);
    cases.push_back({name, options});
  };
  add("greedy", [](SamplingOptions* o) { o->greedy = true; });
  add("greedy, penalties", [](SamplingOptions* o) {
    o->greedy = true;
    o->repetition_penalty = 1.1f;
  });
  add("top-k 40, top-p 0.95", [](SamplingOptions* o) {
    o->temperature = 0.8f;
    o->top_k = 40;
    o->top_p = 0.95f;
  });
  add("top-k 40, top-p 0.95, penalties", [](SamplingOptions* o) {
    o->temperature = 0.8f;
    o->top_k = 40;
    o->top_p = 0.95f;
    o->repetition_penalty = 1.1f;
    o->frequency_penalty = 0.2f;
  });
  add("min-p 0.05", [](SamplingOptions* o) {
    o->temperature = 0.8f;
    o->min_p = 0.05f;
  });
  add("top-p 0.95", [](SamplingOptions* o) {
    o->temperature = 0.8f;
    o->top_p = 0.95f;
  });
  add("temperature alone", [](SamplingOptions* o) { o->temperature = 0.8f; });
  return cases;
}

void Sample(benchmark::State& state, uint32_t vocab, const SamplingOptions& options) {
  Memory memory;
  const std::vector<float> logits = MakeLogits(vocab);
  std::vector<int32_t> prompt(1000);  // some of its tokens are the likely ones
  std::mt19937 rng(8);
  for (int32_t& token : prompt) token = static_cast<int32_t>(rng() % vocab);
  const kernels::Table* table = kernels::SelectTable(kernels::Isa::kAuto);
  auto scratch = SamplingScratch::Create(vocab, &memory);
  auto sampler = Sampler::Create(options, vocab, prompt, 8, &memory, table);
  if (!scratch.ok() || !sampler.ok()) return state.SkipWithError("no sampler");
  std::vector<float> maxima((vocab + 15) / 16);  // which the forward pass has found
  table->panel_maxima(logits.data(), vocab, maxima.data());
  uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize((*sampler)->Sample(logits, position++, &*scratch, maxima));
  }
}

// Begins and ends a loop whose bodies wait for each other, so that each has a thread (which our
// pool has for them) and nobody does the work of one who is late. `park`: long enough after the
// last loop that workers sleep.
void Barrier(benchmark::State& state, uint32_t threads, bool park) {
  auto pool = CreateThreadPool(threads);
  if (!pool.ok()) return state.SkipWithError("no threads");
  Executor* executor = pool->get();
  std::atomic<uint32_t> arrived{0};
  uint32_t wanted = 0;
  const auto loop = [&] {
    wanted += threads;
    ParallelFor(executor, threads, [&](uint32_t) {
      arrived.fetch_add(1);
      while (arrived.load() < wanted) {
      }
    });
  };
  for (int i = 0; i < 1000; ++i) loop();
  for (auto _ : state) {
    if (park) std::this_thread::sleep_for(std::chrono::microseconds(300));
    const auto begin = std::chrono::steady_clock::now();
    for (uint32_t i = 0; i < (park ? 1 : kLoops); ++i) loop();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(took.count() / (park ? 1 : kLoops));
  }
}

void Register() {
  for (const uint32_t vocab : {49152u, 262144u}) {
    for (const Case& c : Cases()) {
      benchmark::RegisterBenchmark(
          ("sampler/" + std::to_string(vocab) + "/" + c.name).c_str(),
          [=](benchmark::State& state) { Sample(state, vocab, c.options); })
          ->Unit(benchmark::kMicrosecond);
    }
  }
  const auto barrier = [](const std::string& name, uint32_t threads, bool park, int iterations) {
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { Barrier(state, threads, park); })
        ->UseManualTime()
        ->Iterations(iterations);
  };
  barrier("barrier/1", 1, false, 1000);
  barrier("barrier/2, spinning", 2, false, 1000);
  barrier("barrier/2, parked", 2, true, 2000);
}

}  // namespace
}  // namespace qinfer::engine

int main(int argc, char** argv) {
  qinfer::engine::Register();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
