// Bytes of packed panels.
#include "weights/panel.h"

#include <cmath>

namespace qinfer::weights {

using kernels::kPanelRows;
using kernels::ScaleKind;
using kernels::WeightKind;
namespace layout = kernels::layout;

kernels::Matrix Shape(const Format& format, uint64_t rows, uint64_t cols) {
  kernels::Matrix m;
  m.rows = static_cast<uint32_t>(rows);
  m.cols = static_cast<uint32_t>(cols);
  m.kind = format.kind;
  m.scale = format.scale;
  m.has_min = format.has_min;
  m.group_size = format.group_size;
  m.super_group = format.scale == ScaleKind::kSub8 ? layout::kSuperGroup : 0;
  m.panel_bytes = layout::PanelBytes(m);
  return m;
}

void PanelWriter::Clear(uint64_t panels) {
  std::memset(out_, 0, panels * shape_.panel_bytes);
  if (layout::IsFloat(shape_.kind)) return;
  uint8_t codes[kernels::kInputGranule];
  std::memset(codes, PaddingCode(format_), sizeof(codes));
  const uint32_t granules = shape_.padded_cols() / kernels::kInputGranule;
  for (uint64_t row = 0; row < panels * kPanelRows; ++row)
    for (uint32_t g = 0; g < granules; ++g) WriteCodes(row, g, codes);
}

void PanelWriter::WriteCodes(uint64_t row, uint32_t granule, const uint8_t* codes) {
  uint8_t* out = Panel(row) + layout::CodePlane(shape_) +
                 granule * layout::GranuleBytes(shape_.kind) + Lane(row) * 4;
  if (shape_.kind == WeightKind::kInt8) {
    for (uint32_t line = 0; line < 8; ++line) std::memcpy(out + line * 64, codes + line * 4, 4);
    return;
  }
  for (uint32_t line = 0; line < 4; ++line)
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t low = codes[line * 4 + i], high = codes[16 + line * 4 + i];
      out[line * 64 + i] = static_cast<uint8_t>((low & 15) | (high & 15) << 4);
      if (shape_.kind != WeightKind::kInt6) continue;
      uint8_t& pairs = out[256 + line / 2 * 64 + i];
      const uint32_t bits = low >> 4 | high >> 4 << 2;
      pairs = static_cast<uint8_t>(line % 2 == 0 ? bits : pairs | bits << 4);
    }
}

void PanelWriter::WriteScaleBits(uint64_t row, uint32_t group, uint16_t scale, uint16_t min) {
  uint8_t* out = GroupScales(row, group) + Lane(row) * 2;
  std::memcpy(out, &scale, 2);
  if (shape_.has_min) std::memcpy(out + kPanelRows * 2, &min, 2);
}

void PanelWriter::WriteScale(uint64_t row, uint32_t group, float scale, float min) {
  if (shape_.scale == ScaleKind::kF16) {
    WriteScaleBits(row, group, FloatToHalf(scale), FloatToHalf(min));
    return;
  }
  uint8_t* out = GroupScales(row, group);
  if (shape_.scale == ScaleKind::kE8M0) {
    out[Lane(row)] = static_cast<uint8_t>(FloatToBits(scale) >> 23);
    return;
  }
  std::memcpy(out + Lane(row) * 4, &scale, 4);
  if (shape_.has_min) std::memcpy(out + (kPanelRows + Lane(row)) * 4, &min, 4);
}

void PanelWriter::WriteSub(uint64_t row, uint32_t group, uint8_t sub, uint8_t submin) {
  uint8_t* out = GroupScales(row, group) + Lane(row);
  out[0] = sub;
  if (shape_.has_min) out[kPanelRows] = submin;
}

void PanelWriter::WriteSuperBits(uint64_t row, uint32_t super, uint16_t d, uint16_t dmin) {
  uint8_t* out = Panel(row) + super * layout::SuperStride(shape_) + Lane(row) * 2;
  std::memcpy(out, &d, 2);
  if (shape_.has_min) std::memcpy(out + kPanelRows * 2, &dmin, 2);
}

float RoundScale(ScaleKind kind, float scale) {
  if (kind == ScaleKind::kF32) return scale;
  if (kind == ScaleKind::kE8M0) {
    if (!(scale > 0x1p-126f)) return 0x1p-126f;
    const uint32_t bits = FloatToBits(scale);
    const uint32_t up = (bits & 0x7fffffu) > 0x3504f3u ? 1 : 0;  // mantissa above sqrt(2)
    uint32_t exponent = (bits >> 23) + up;
    if (exponent > 254) exponent = 254;
    return BitsToFloat(exponent << 23);
  }
  constexpr float kLargest = 65504.0f;
  if (scale > kLargest) return kLargest;
  if (scale < -kLargest) return -kLargest;
  return HalfToFloat(FloatToHalf(scale));
}

}  // namespace qinfer::weights
