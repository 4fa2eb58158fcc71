// Scalar access to packed panels, written for clarity: the reading of docs/weight-layout.md that
// every other kernel and packer is tested against. No arithmetic of matrix products here.
#pragma once

#include "kernels/layout.h"
#include "src/core/half.h"

namespace qinfer::kernels::ref {

// Unsigned code of row `lane` (0..15) of a panel at input k.
inline int32_t CodeAt(const Matrix& m, const uint8_t* panel, uint32_t lane, uint32_t k) {
  const uint8_t* granule =
      panel + layout::CodePlane(m) + k / kInputGranule * layout::GranuleBytes(m.kind);
  const uint32_t i = k % kInputGranule;
  if (m.kind == WeightKind::kInt8) return granule[i / 4 * 64 + lane * 4 + i % 4];
  // Nibble line j holds inputs 4j.. in its low and 16+4j.. in its high halves.
  const uint32_t high = i / 16, line = i % 16 / 4, at = lane * 4 + i % 4;
  const int32_t nibble = (granule[line * 64 + at] >> (4 * high)) & 15;
  if (m.kind == WeightKind::kInt4) return nibble;
  if (m.kind == WeightKind::kFp4) return layout::kFp4Codes[nibble];
  const uint8_t pairs = granule[256 + line / 2 * 64 + at];
  return nibble | ((pairs >> (4 * (line % 2) + 2 * high)) & 3) << 4;
}

inline float ReadScale(ScaleKind kind, const uint8_t* p) {
  switch (kind) {
    case ScaleKind::kF16: {
      uint16_t h;
      std::memcpy(&h, p, 2);
      return HalfToFloat(h);
    }
    case ScaleKind::kE8M0:
      return *p == 255 ? BitsToFloat(0x7fc00000u)
                       : BitsToFloat(*p == 0 ? 0x00400000u : static_cast<uint32_t>(*p) << 23);
    default: {
      float f;
      std::memcpy(&f, p, 4);
      return f;
    }
  }
}

// Scales and minima of one row as floats (kSub8: d * sc and dmin * mn are formed by the caller).
struct GroupScale {
  float scale = 0, min = 0;     // float scales
  int32_t sub = 0, submin = 0;  // kSub8
  float d = 0, dmin = 0;
};
inline GroupScale ScaleAt(const Matrix& m, const uint8_t* panel, uint32_t lane, uint32_t group) {
  GroupScale out;
  const size_t one = layout::ScaleBytes(m.scale);
  const uint8_t* at = panel + layout::ScalePlane(m) + group * layout::GroupScaleBytes(m);
  const uint8_t* scale = at + lane * one;
  const uint8_t* min = at + (kPanelRows + lane) * one;
  if (m.scale != ScaleKind::kSub8) {
    out.scale = ReadScale(m.scale, scale);
    if (m.has_min) out.min = ReadScale(m.scale, min);
    return out;
  }
  out.sub = m.has_min ? *scale : static_cast<int8_t>(*scale);
  if (m.has_min) out.submin = *min;
  const uint32_t super = static_cast<uint32_t>(static_cast<size_t>(group) * layout::GroupSize(m) /
                                               layout::kSuperGroup);
  const uint8_t* d = panel + super * layout::SuperStride(m) + lane * 2;
  out.d = ReadScale(ScaleKind::kF16, d);
  if (m.has_min) out.dmin = ReadScale(ScaleKind::kF16, d + 32);
  return out;
}

// The decoded weight, as Table::matmul_float defines it.
inline float WeightAt(const Matrix& m, const uint8_t* panel, uint32_t lane, uint32_t k) {
  const size_t index = static_cast<size_t>(k) * kPanelRows + lane;
  if (m.kind == WeightKind::kF32) return ReadScale(ScaleKind::kF32, panel + index * 4);
  if (layout::IsFloat(m.kind)) {
    uint16_t h;
    std::memcpy(&h, panel + index * 2, 2);
    return m.kind == WeightKind::kF16 ? HalfToFloat(h) : Bf16ToFloat(h);
  }
  const GroupScale s = ScaleAt(m, panel, lane, k / layout::GroupSize(m));
  const int32_t code = CodeAt(m, panel, lane, k);
  const bool sub = m.scale == ScaleKind::kSub8;
  const float scale = sub ? s.d * static_cast<float>(s.sub) : s.scale;
  if (!m.has_min) return scale * static_cast<float>(code - layout::ZeroPoint(m.kind));
  const float min = sub ? -(s.dmin * static_cast<float>(s.submin)) : s.min;
  return __builtin_fmaf(scale, static_cast<float>(code), min);
}

}  // namespace qinfer::kernels::ref
