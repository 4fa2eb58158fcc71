// Shared by the kernel tests: the tables that this machine can run, random packed matrices and
// activations, and comparison of floats by bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/tables.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"
#include "src/core/half.h"
#if defined(QINFER_TEST_AVXVNNI)
#include "tests/unit/kernels/avxvnni/tables.h"
#endif

namespace qinfer::kernels {

#if defined(QINFER_TEST_EMULATED)
const Table* EmulatedAvx512Table();  // kernels/cpu/avx512 on tests/unit/kernels/emulated
#endif

// Every table but the reference one.
inline std::vector<const Table*> TablesUnderTest() {
  std::vector<const Table*> tables;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512, Isa::kNeon})
    if (const Table* table = SelectTable(isa)) tables.push_back(table);
#if defined(__aarch64__)  // the one for processors without dot product instructions too
  if (SelectTable(Isa::kNeon) != nullptr && SelectTable(Isa::kNeon) != NeonTable())
    tables.push_back(NeonTable());
#endif
#if defined(QINFER_TEST_EMULATED)
  if (SelectTable(Isa::kAvx2) != nullptr) tables.push_back(EmulatedAvx512Table());
#endif
#if defined(QINFER_TEST_AVXVNNI)
  if (SelectTable(Isa::kAvx2) != nullptr) {
    tables.push_back(AvxVnniEmulated());
    if (AvxVnniByEvex() != nullptr) tables.push_back(AvxVnniByEvex());
  }
#endif
  return tables;
}

using Rng = std::mt19937;

// 64-byte aligned storage, filled with 0xAB so that reads of what nobody wrote show.
class Bytes {
 public:
  explicit Bytes(size_t size) : lines_(size / 64 + 1) { std::memset(data(), 0xab, size); }
  uint8_t* data() { return lines_[0].bytes; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data());
  }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> lines_;
};

inline float Normal(Rng& rng) {
  // Box-Muller is not needed: a sum of uniforms has enough of a shape.
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(rng() % 65536) / 32768.0f - 1.0f;
  return sum;
}

inline std::vector<float> Normals(Rng& rng, size_t n, float scale = 1.0f) {
  std::vector<float> x(n);
  for (float& v : x) v = scale * Normal(rng);
  return x;
}

struct Shape {
  WeightKind kind;
  ScaleKind scale = ScaleKind::kNone;
  bool has_min = false;
  uint32_t group = 0;
};

inline std::string ShapeName(const Shape& s) {
  return "kind" + std::to_string(static_cast<int>(s.kind)) + "_scale" +
         std::to_string(static_cast<int>(s.scale)) + (s.has_min ? "_min_g" : "_g") +
         std::to_string(s.group);
}

inline std::vector<Shape> QuantizedShapes() {
  std::vector<Shape> shapes;
  for (const WeightKind kind : {WeightKind::kInt4, WeightKind::kInt6, WeightKind::kInt8})
    for (const ScaleKind scale :
         {ScaleKind::kF16, ScaleKind::kF32, ScaleKind::kE8M0, ScaleKind::kSub8})
      for (const bool has_min : {false, true})
        for (const uint32_t group : {16u, 32u, 64u, 128u, 0u}) {
          if (group == 16 && kind != WeightKind::kInt6) continue;
          if (scale == ScaleKind::kSub8 && group != 16 && group != 32) continue;
          if (scale == ScaleKind::kSub8 && kind == WeightKind::kInt8) continue;
          if (scale == ScaleKind::kE8M0 && has_min) continue;
          shapes.push_back({kind, scale, has_min, group});
        }
  shapes.push_back({WeightKind::kFp4, ScaleKind::kE8M0, false, 32});
  return shapes;
}

struct RandomMatrix {
  Matrix matrix;
  Bytes data;

  // All code values, padding included; `extreme`: only the smallest and the largest code.
  RandomMatrix(const Shape& shape, uint32_t rows, uint32_t cols, Rng& rng, bool extreme = false)
      : matrix(MakeShape(shape, rows, cols)), data(matrix.panels() * matrix.panel_bytes) {
    const size_t size = matrix.panels() * matrix.panel_bytes;
    for (size_t i = 0; i < size; ++i) {
      data.data()[i] = static_cast<uint8_t>(rng());
      if (extreme) data.data()[i] = rng() % 2 == 0 ? 0 : 255;
    }
    for (uint32_t p = 0; p < matrix.panels(); ++p)
      FillFloats(shape, data.data() + p * matrix.panel_bytes, rng);
    matrix.data = data.data();
  }

  static Matrix MakeShape(const Shape& shape, uint32_t rows, uint32_t cols) {
    Matrix m;
    m.rows = rows;
    m.cols = cols;
    m.kind = shape.kind;
    m.scale = shape.scale;
    m.has_min = shape.has_min;
    m.group_size = shape.group;
    m.super_group = shape.scale == ScaleKind::kSub8 ? 256 : 0;
    m.panel_bytes = layout::PanelBytes(m);
    return m;
  }

 private:
  void FillFloats(const Shape& shape, uint8_t* panel, Rng& rng) {
    if (layout::IsFloat(shape.kind)) {
      for (size_t i = 0; i < size_t{matrix.padded_cols()} * kPanelRows; ++i) {
        const float v = Normal(rng);
        const uint16_t h = shape.kind == WeightKind::kF16 ? FloatToHalf(v) : FloatToBf16(v);
        if (shape.kind == WeightKind::kF32)
          std::memcpy(panel + i * 4, &v, 4);
        else
          std::memcpy(panel + i * 2, &h, 2);
      }
      return;
    }
    const auto fill = [&](uint8_t* at, ScaleKind kind, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        const float v = 0.03f * Normal(rng);
        const uint16_t h = FloatToHalf(v);
        if (kind == ScaleKind::kF32)
          std::memcpy(at + i * 4, &v, 4);
        else if (kind == ScaleKind::kF16)
          std::memcpy(at + i * 2, &h, 2);
        else
          at[i] = static_cast<uint8_t>(110 + rng() % 20);
      }
    };
    const size_t values = size_t{layout::Groups(matrix)} * kPanelRows * (shape.has_min ? 2 : 1);
    if (shape.scale != ScaleKind::kSub8)
      fill(panel, shape.scale, values);
    else
      fill(panel, ScaleKind::kF16, layout::ScalePlane(matrix) / 2);
  }
};

struct RandomActivations {
  std::vector<float> x;
  uint32_t cols;
  Bytes codes, scales, sums;
  Activations a;

  RandomActivations(uint32_t tokens, uint32_t cols_in, uint32_t block, Rng& rng,
                    bool extreme = false)
      : x(Normals(rng, size_t{tokens} * cols_in)),
        cols(cols_in),
        codes(tokens * Stride()),
        scales(tokens * (Stride() / 32 + 1) * 4),
        sums(tokens * (Stride() / 16 + 3) * 4) {
    if (extreme)
      for (float& v : x) v = rng() % 2 == 0 ? 1.0f : -1.0f;
    a.codes = codes.as<int8_t>();
    a.scales = scales.as<float>();
    a.sums = sums.as<int32_t>();
    a.code_stride = Stride();
    a.scale_stride = Stride() / 32 + 1;
    a.sum_stride = Stride() / 16 + 3;
    a.block = block;
    for (uint32_t t = 0; t < tokens; ++t)
      SelectTable(Isa::kRef)->quantize(x.data() + size_t{t} * cols, cols, t, a);
  }
  size_t Stride() const { return (cols + 63) / 64 * 64 + 64; }
  // As if the row had nothing there.
  void ClearBlock(uint32_t row, uint32_t index) {
    const size_t begin = size_t{index} * a.block;
    const size_t end = std::min<size_t>(begin + a.block, (cols + 31) / 32 * 32);
    std::fill(a.codes + row * a.code_stride + begin, a.codes + row * a.code_stride + end,
              int8_t{0});
    std::fill(a.sums + row * a.sum_stride + begin / 16, a.sums + row * a.sum_stride + end / 16, 0);
    a.scales[row * a.scale_stride + index] = 0.0f;
  }
};

// Equal bits; two NaNs are equal whatever their payload.
inline ::testing::AssertionResult SameBits(const float* a, const float* b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (a[i] != a[i] && b[i] != b[i]) continue;
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]))
      return ::testing::AssertionFailure() << "at " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

}  // namespace qinfer::kernels
