// Writing packed panels: where a granule of codes and a group's scales go (docs/weight-layout.md).
// Choosing codes and scales is not done here.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/half.h"
#include "kernels/layout.h"
#include "weights/format.h"

namespace qinfer::weights {

// The shape of `format` without data, for the arithmetic of kernels/layout.h.
kernels::Matrix Shape(const Format& format, uint64_t rows, uint64_t cols);

// The code that adds nothing: what padding holds.
inline uint8_t PaddingCode(const Format& format) {
  if (format.kind == kernels::WeightKind::kFp4) return 0;  // as it is stored
  return format.has_min ? 0 : static_cast<uint8_t>(kernels::layout::ZeroPoint(format.kind));
}

// Writes into whole panels that start at `out`. Lanes and groups that are not written stay what
// Clear made them: they decode to zero.
class PanelWriter {
 public:
  PanelWriter(const Format& format, uint64_t cols, uint8_t* out)
      : shape_(Shape(format, kernels::kPanelRows, cols)), format_(format), out_(out) {}

  void Clear(uint64_t panels);

  // 32 codes of `row` (from the first panel's first row) at inputs 32 * granule.
  void WriteCodes(uint64_t row, uint32_t granule, const uint8_t* codes);
  // A scale (and minimum) of F16, F32 or E8M0; kSub8: the 8-bit parts, as they are stored.
  void WriteScale(uint64_t row, uint32_t group, float scale, float min);
  void WriteScaleBits(uint64_t row, uint32_t group, uint16_t scale, uint16_t min);
  void WriteSub(uint64_t row, uint32_t group, uint8_t sub, uint8_t submin);
  void WriteSuperBits(uint64_t row, uint32_t super, uint16_t d, uint16_t dmin);
  // One value of a float kind, as it is stored.
  void WriteValue16(uint64_t row, uint64_t k, uint16_t bits) {
    std::memcpy(Panel(row) + (k * kernels::kPanelRows + Lane(row)) * 2, &bits, 2);
  }
  void WriteValue32(uint64_t row, uint64_t k, float value) {
    std::memcpy(Panel(row) + (k * kernels::kPanelRows + Lane(row)) * 4, &value, 4);
  }

  const kernels::Matrix& shape() const { return shape_; }
  const Format& format() const { return format_; }

 private:
  uint8_t* Panel(uint64_t row) const {
    return out_ + row / kernels::kPanelRows * shape_.panel_bytes;
  }
  static uint32_t Lane(uint64_t row) { return static_cast<uint32_t>(row % kernels::kPanelRows); }
  uint8_t* GroupScales(uint64_t row, uint32_t group) const {
    return Panel(row) + kernels::layout::ScalePlane(shape_) +
           group * kernels::layout::GroupScaleBytes(shape_);
  }

  kernels::Matrix shape_;
  Format format_;
  uint8_t* out_;
};

// A scale as the format stores it, and back. E8M0 takes the nearest power of two in the logarithm.
float RoundScale(kernels::ScaleKind kind, float scale);

}  // namespace qinfer::weights
