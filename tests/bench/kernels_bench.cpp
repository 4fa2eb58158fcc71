// Microbenchmarks of the kernels: bytes per second of matrix x vector, operations per second of
// matrix x matrix and their share of what the instruction set can do, attention by context. One
// thread; names begin with the table's. Weights of matrix x vector are cycled through a buffer
// larger than the last-level cache, except in matmul_hot.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bench_data.h"
#include "peak.h"

namespace qinfer::kernels {
namespace {

// Of SmolLM2-135M (its head last) and of a Llama of 1.2 B parameters.
constexpr Size kSizes[] = {{576, 576},   {1536, 576},  {576, 1536}, {49152, 576},
                           {2048, 2048}, {5632, 2048}, {2048, 5632}};
constexpr Size kHotSize = {576, 1536};  // fits into the second-level cache

using benchmark::Counter;

void Matmul(benchmark::State& state, const Table* table, Format format, Size size, uint32_t tokens,
            bool hot) {
  Product product(table, format, size, tokens, tokens == 1 && !hot ? 96u << 20 : 1);
  size_t i = 0;
  for (auto _ : state) {
    product.Run(i++);
    benchmark::ClobberMemory();
  }
  const double operations = 2e-9 * size.rows * size.cols * tokens;
  if (tokens == 1)
    state.counters["GB/s"] = Counter(static_cast<double>(product.weights.Bytes()) * 1e-9,
                                     Counter::kIsIterationInvariantRate);
  state.counters["GOPS"] = Counter(operations, Counter::kIsIterationInvariantRate);
  const double peak = layout::IsFloat(format.kind) ? 0.0 : IntegerPeakGops(table->name);
  if (tokens > 1 && peak > 0.0)
    state.counters["peak"] = Counter(operations / peak, Counter::kIsIterationInvariantRate);
}

void Attention(benchmark::State& state, const Table* table, KvType type, uint32_t context,
               uint32_t tokens) {
  Attending attending(table, type, context, tokens);
  for (auto _ : state) {
    attending.Run();
    benchmark::ClobberMemory();
  }
  state.counters["GOPS"] = Counter(4e-9 * Attending::RowKeys(context, tokens) * Attending::kDim,
                                   Counter::kIsIterationInvariantRate);
}

void Vectors(benchmark::State& state, const Table* table, int what) {
  constexpr uint32_t kN = 1536;
  Input input(*table, 1, kN);
  std::vector<float> out(kN);
  for (auto _ : state) {
    if (what == 0) table->quantize(input.x.data(), kN, 0, input.a);
    if (what == 1) table->rms_norm(input.x.data(), input.x.data(), kN, 1e-5f, out.data());
    if (what == 2) table->gated(Activation::kSilu, input.x.data(), input.x.data(), kN, out.data());
    benchmark::ClobberMemory();
  }
}

void Register(const Table* table) {
  const std::string isa = table->name;
  const auto add = [&](const std::string& name, auto run) {
    benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMicrosecond);
  };
  for (const Format& f : kFormats)
    for (const Size& s : kSizes)
      for (const uint32_t tokens : {1u, 4u, 128u}) {
        if (tokens > 1 && s.rows > 4096) continue;
        add(isa + "/matmul/" + f.name + "/" + std::to_string(s.rows) + "x" +
                std::to_string(s.cols) + "/" + std::to_string(tokens),
            [=](benchmark::State& state) { Matmul(state, table, f, s, tokens, false); });
      }
  for (const Format& f : kFormats)
    for (const uint32_t tokens : {1u, 2u, 4u, 6u, 8u, 96u})
      add(isa + "/matmul_hot/" + f.name + "/" + std::to_string(tokens),
          [=](benchmark::State& state) { Matmul(state, table, f, kHotSize, tokens, true); });
  constexpr const char* kTypes[] = {"f32", "f16", "int8"};
  for (int type = 0; type < 3; ++type)
    for (const uint32_t context : {512u, 1024u, 4096u, 16384u})
      for (const uint32_t tokens : {1u, 64u})
        add(isa + "/attention/" + kTypes[type] + "/" + std::to_string(context) + "/" +
                std::to_string(tokens),
            [=](benchmark::State& state) {
              Attention(state, table, static_cast<KvType>(type), context, tokens);
            });
  constexpr const char* kVectors[] = {"quantize", "rms_norm", "silu"};
  for (int what = 0; what < 3; ++what)
    add(isa + "/" + kVectors[what], [=](benchmark::State& state) { Vectors(state, table, what); });
}

}  // namespace
}  // namespace qinfer::kernels

int main(int argc, char** argv) {
  for (const auto* table : qinfer::kernels::TablesToMeasure()) qinfer::kernels::Register(table);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
