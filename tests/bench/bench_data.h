// Weights, activations and pages of keys for measuring kernels: values without meaning, of a kind
// that no kernel takes a special way for. What is measured is in the programs.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/layout.h"
#include "src/core/half.h"
#if defined(QINFER_TEST_AVXVNNI)
#include "tests/unit/kernels/avxvnni/tables.h"
#endif

namespace qinfer::kernels {

// The tables that this processor can run.
inline std::vector<const Table*> TablesToMeasure() {
  std::vector<const Table*> tables;
  for (const Isa isa : {Isa::kRef, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512, Isa::kNeon}) {
    if (const Table* table = SelectTable(isa)) tables.push_back(table);
  }
#if defined(QINFER_TEST_AVXVNNI)
  if (const Table* table = AvxVnniByEvex()) tables.push_back(table);
#endif
  return tables;
}

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
inline constexpr Format kFormats[] = {
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

// One product of all rows with `tokens` tokens.
struct Product {
  const Table* table;
  Weights weights;
  uint32_t tokens;
  Input input;
  std::vector<float> out;
  std::vector<Line> scratch;

  Product(const Table* t, const Format& format, Size size, uint32_t count, size_t bytes)
      : table(t),
        weights(format, size, bytes),
        tokens(count),
        input(*t, count, size.cols),
        out(size_t{count} * size.rows),
        scratch(MatmulScratchBytes(weights.matrix, count) / 64 + 1) {}
  void Run(size_t copy) {
    const Matrix& m = weights.Copy(copy);
    if (layout::IsFloat(m.kind))
      table->matmul_float(m, 0, m.panels(), input.x.data(), m.cols, tokens, out.data(), m.rows,
                          scratch.data());
    else
      table->matmul_int8(m, 0, m.panels(), input.a, tokens, out.data(), m.rows, scratch.data());
  }
};

// Attention of the last `tokens` tokens of a context, three heads of 64 on one of keys.
struct Attending {
  static constexpr uint32_t kHeads = 3, kDim = 64;
  const Table* table;
  std::vector<Line> data, scratch;
  std::vector<const uint8_t*> pages;
  std::vector<float> x, out;
  AttentionArgs args;

  Attending(const Table* t, KvType type, uint32_t context, uint32_t tokens)
      : table(t),
        scratch(AttentionScratchBytes(kHeads, kDim, kDim, tokens) / 64 + 1),
        x(size_t{tokens} * kHeads * kDim, 0.1f),
        out(x.size()) {
    const size_t v_offset = KPlaneBytes(type, kDim);
    const size_t page = v_offset + VPlaneBytes(type, kDim);
    const uint32_t count = (context + kPageTokens - 1) / kPageTokens;
    data.resize(count * page / 64);
    for (uint32_t p = 0; p < count; ++p) {
      uint8_t* at = data[0].bytes + p * page;
      pages.push_back(at);
      for (uint32_t slot = 0; slot < kPageTokens; ++slot) {
        table->write_k(at, type, slot, x.data(), kDim);
        table->write_v(at + v_offset, type, slot, x.data(), kDim);
      }
    }
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
    args.scratch = scratch.data();
  }
  void Run() { table->attention(args); }
  // Keys that are seen, over all rows.
  static double RowKeys(uint32_t context, uint32_t tokens) {
    return kHeads * static_cast<double>(tokens) * (context - (tokens - 1) / 2.0);
  }
};

}  // namespace qinfer::kernels
