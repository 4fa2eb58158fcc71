// Microbenchmarks of the kernels: bytes per second of matrix x vector, operations per second of
// matrix x matrix, attention by context. One thread; `isa` is the table's name. Weights of matrix x
// vector are cycled through a buffer larger than the last-level cache, except in matmul_hot.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/layout.h"
#include "src/core/half.h"
#if defined(QINFER_TEST_AVXVNNI)
#include "tests/unit/kernels/avxvnni/tables.h"
#endif

namespace qinfer::kernels {
namespace {

struct alignas(64) Line {
  uint8_t bytes[64];
};

struct Format {
  const char* name;
  WeightKind kind;
  ScaleKind scale;
  bool has_min;
  uint32_t group;
};
constexpr Format kFormats[] = {
    {"int4-g32-f16", WeightKind::kInt4, ScaleKind::kF16, false, 32},
    {"int4-g32-f16-min", WeightKind::kInt4, ScaleKind::kF16, true, 32},
    {"int4-g128-f16", WeightKind::kInt4, ScaleKind::kF16, false, 128},
    {"int4-g32-sub8-min", WeightKind::kInt4, ScaleKind::kSub8, true, 32},
    {"int6-g32-f16", WeightKind::kInt6, ScaleKind::kF16, false, 32},
    {"int6-g16-sub8", WeightKind::kInt6, ScaleKind::kSub8, false, 16},
    {"int8-g32-f16", WeightKind::kInt8, ScaleKind::kF16, false, 32},
    {"f16", WeightKind::kF16, ScaleKind::kNone, false, 0},
    {"bf16", WeightKind::kBF16, ScaleKind::kNone, false, 0},
    {"f32", WeightKind::kF32, ScaleKind::kNone, false, 0},
};
struct Size {
  uint32_t rows, cols;
};
constexpr Size kSizes[] = {{576, 576}, {1536, 576}, {576, 1536}, {49152, 576}, {4096, 4096}};

constexpr Size kHotSize = {576, 1536};  // fits into the second-level cache

// Copies of one matrix, `bytes` in all at least.
struct Weights {
  Matrix matrix;
  std::vector<Line> data;
  size_t copies;

  Weights(const Format& f, Size size, size_t bytes) {
    matrix.rows = size.rows;
    matrix.cols = size.cols;
    matrix.kind = f.kind;
    matrix.scale = f.scale;
    matrix.has_min = f.has_min;
    matrix.group_size = f.group;
    matrix.super_group = f.scale == ScaleKind::kSub8 ? 256 : 0;
    matrix.panel_bytes = layout::PanelBytes(matrix);
    copies = bytes / Bytes() + 1;
    data.resize(copies * Bytes() / 64);
    // Codes of any value; bit patterns that are small numbers in every float format.
    std::mt19937 rng(1);
    uint8_t* p = data[0].bytes;
    for (size_t i = 0; i < copies * Bytes(); ++i)
      p[i] = static_cast<uint8_t>(layout::IsFloat(f.kind) ? 0x24 + i % 2 : rng());
    const size_t scales = layout::CodePlane(matrix);
    for (size_t panel = 0; panel < copies * matrix.panels(); ++panel)
      std::memset(p + panel * matrix.panel_bytes, 0x24, scales);
  }
  size_t Bytes() const { return matrix.panels() * matrix.panel_bytes; }
  const Matrix& Copy(size_t i) {
    matrix.data = data[0].bytes + i % copies * Bytes();
    return matrix;
  }
};

struct Input {
  std::vector<float> x, scales;
  std::vector<Line> codes;
  std::vector<int32_t> sums;
  Activations a;

  Input(const Table& table, uint32_t tokens, uint32_t cols)
      : x(size_t{tokens} * cols),
        scales(size_t{tokens} * (cols / 32 + 1)),
        codes(size_t{tokens} * (cols / 64 + 1)),
        sums(size_t{tokens} * (cols / 16 + 2)) {
    std::mt19937 rng(2);
    a.block = 32;  // as the engine has it for groups of 32
    for (float& v : x) v = static_cast<float>(rng() % 2001) / 1000.0f - 1.0f;
    a.codes = reinterpret_cast<int8_t*>(codes[0].bytes);
    a.scales = scales.data();
    a.sums = sums.data();
    a.code_stride = (cols / 64 + 1) * 64;
    a.scale_stride = cols / 32 + 1;
    a.sum_stride = cols / 16 + 2;
    for (uint32_t t = 0; t < tokens; ++t) table.quantize(x.data() + size_t{t} * cols, cols, t, a);
  }
};

void Matmul(benchmark::State& state, const Table* table, Format format, Size size, uint32_t tokens,
            bool hot) {
  const bool is_float = layout::IsFloat(format.kind);
  Weights weights(format, size, tokens == 1 && !hot ? 96u << 20 : 1);
  Input input(*table, tokens, size.cols);
  std::vector<float> out(size_t{tokens} * size.rows);
  std::vector<Line> scratch(MatmulScratchBytes(weights.matrix, tokens) / 64 + 1);
  size_t i = 0;
  for (auto _ : state) {
    const Matrix& m = weights.Copy(i++);
    if (is_float)
      table->matmul_float(m, 0, m.panels(), input.x.data(), size.cols, tokens, out.data(),
                          size.rows, scratch.data());
    else
      table->matmul_int8(m, 0, m.panels(), input.a, tokens, out.data(), size.rows, scratch.data());
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  if (tokens == 1)
    state.counters["GB/s"] =
        Counter(static_cast<double>(weights.Bytes()) * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["GOPS"] =
      Counter(2e-9 * size.rows * size.cols * tokens, Counter::kIsIterationInvariantRate);
}

void Attention(benchmark::State& state, const Table* table, KvType type, uint32_t context,
               uint32_t tokens) {
  constexpr uint32_t kHeads = 3, kDim = 64;
  const size_t v_offset = KPlaneBytes(type, kDim);
  const size_t page = v_offset + VPlaneBytes(type, kDim);
  const uint32_t count = (context + kPageTokens - 1) / kPageTokens;
  std::vector<Line> data(count * page / 64);
  std::vector<const uint8_t*> pages;
  std::vector<float> x(size_t{tokens} * kHeads * kDim, 0.1f), out(x.size());
  for (uint32_t p = 0; p < count; ++p) {
    uint8_t* at = data[0].bytes + p * page;
    pages.push_back(at);
    for (uint32_t slot = 0; slot < kPageTokens; ++slot) {
      table->write_k(at, type, slot, x.data(), kDim);
      table->write_v(at + v_offset, type, slot, x.data(), kDim);
    }
  }
  AttentionArgs args;
  args.q = x.data();
  args.out = out.data();
  args.q_stride = args.out_stride = size_t{kHeads} * kDim;
  args.tokens = tokens;
  args.first_position = context - tokens;
  args.group_heads = kHeads;
  args.head_dim = args.v_head_dim = kDim;
  args.pages = pages.data();
  args.v_offset = v_offset;
  args.k_type = args.v_type = type;
  args.scale = 0.125f;
  std::vector<Line> scratch(AttentionScratchBytes(kHeads, kDim, kDim, tokens) / 64 + 1);
  args.scratch = scratch.data();
  for (auto _ : state) {
    table->attention(args);
    benchmark::ClobberMemory();
  }
  const double keys = tokens == 1 ? context : (context - tokens / 2.0) * tokens;
  state.counters["GOPS"] = benchmark::Counter(4e-9 * keys * kHeads * kDim,
                                              benchmark::Counter::kIsIterationInvariantRate);
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
    for (const uint32_t context : {128u, 512u, 4096u})
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
  using qinfer::kernels::Isa;
  for (const Isa isa : {Isa::kRef, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512, Isa::kNeon})
    if (const auto* table = qinfer::kernels::SelectTable(isa)) qinfer::kernels::Register(table);
#if defined(QINFER_TEST_AVXVNNI)
  if (const auto* table = qinfer::kernels::AvxVnniByEvex()) qinfer::kernels::Register(table);
#endif
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
