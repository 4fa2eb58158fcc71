// Where things lie inside a packed panel and a KV plane: arithmetic only, shared by the packers and
// every kernel. Always inlined, so that no function compiled with instruction-set flags can be
// linked into code for an older processor.
#pragma once

#include "kernels/kernels.h"

namespace qinfer::kernels::layout {

constexpr uint32_t kLine = 64;
constexpr uint32_t kSuperGroup = 256;
constexpr uint32_t kKvGroup = 64;  // inputs per scale of an INT8 key or value

QINFER_INLINE size_t RoundToLine(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
QINFER_INLINE size_t CeilDiv(size_t x, size_t by) { return (x + by - 1) / by; }

QINFER_INLINE bool IsFloat(WeightKind kind) {
  return kind == WeightKind::kF32 || kind == WeightKind::kF16 || kind == WeightKind::kBF16;
}
QINFER_INLINE int32_t ZeroPoint(WeightKind kind) {
  return kind == WeightKind::kInt8 ? 128 : kind == WeightKind::kInt6 ? 32 : 8;
}
// Bytes of 16 rows x 32 inputs of codes: 64-byte lines of 4 inputs per 32-bit lane (kInt8: 8 lines;
// kInt4: 4 lines of two nibbles; kInt6: those and 2 lines of two-bit fields). Float kinds: 32 lines
// of one input.
QINFER_INLINE size_t GranuleBytes(WeightKind kind) {
  switch (kind) {
    case WeightKind::kF32:
      return 2048;
    case WeightKind::kF16:
    case WeightKind::kBF16:
      return 1024;
    case WeightKind::kInt8:
      return 512;
    case WeightKind::kInt6:
      return 384;
    default:
      return 256;
  }
}
// Inputs per group, the whole padded row for 0.
QINFER_INLINE uint32_t GroupSize(const Matrix& m) {
  return m.group_size == 0 ? m.padded_cols() : m.group_size;
}
QINFER_INLINE uint32_t Groups(const Matrix& m) {
  return static_cast<uint32_t>(CeilDiv(m.padded_cols(), GroupSize(m)));
}
QINFER_INLINE size_t ScaleBytes(ScaleKind scale) {
  return scale == ScaleKind::kF32 ? 4 : scale == ScaleKind::kF16 ? 2 : 1;
}
// One group's 16 scales (then 16 minima) in the scale plane.
QINFER_INLINE size_t GroupScaleBytes(const Matrix& m) {
  return IsFloat(m.kind) ? 0 : kPanelRows * ScaleBytes(m.scale) * (m.has_min ? 2 : 1);
}
// Planes of a panel in order, each padded to a line: super scales (kSub8), scales, codes.
QINFER_INLINE size_t SuperStride(const Matrix& m) { return m.has_min ? 64 : 32; }
QINFER_INLINE size_t ScalePlane(const Matrix& m) {
  return m.scale == ScaleKind::kSub8
             ? RoundToLine(CeilDiv(m.padded_cols(), kSuperGroup) * SuperStride(m))
             : 0;
}
QINFER_INLINE size_t CodePlane(const Matrix& m) {
  return IsFloat(m.kind) ? 0 : ScalePlane(m) + RoundToLine(Groups(m) * GroupScaleBytes(m));
}
QINFER_INLINE size_t PanelBytes(const Matrix& m) {
  return CodePlane(m) + m.padded_cols() / kInputGranule * GranuleBytes(m.kind);
}

// Scratch of a matrix product. Integer: the codes of two panels widened to bytes, their scales and
// minima widened to 32 bits, and per token a 32-bit value per 16 inputs. Float: kFloatPiece inputs
// of a panel as floats and 16 running totals per token.
constexpr uint32_t kFloatPiece = 256;
QINFER_INLINE size_t MatmulInt8Scratch(size_t padded, size_t groups, size_t tokens) {
  return 2 * (padded * kPanelRows + groups * 128 + (padded / kSuperGroup + 1) * 128) +
         tokens * RoundToLine(padded / 16 * 4) + 256;
}
QINFER_INLINE size_t MatmulFloatScratch(size_t tokens) {
  return size_t{kFloatPiece} * kPanelRows * 4 + tokens * 64 + 64;
}

// INT8 planes: the scales follow the codes.
QINFER_INLINE size_t KCodeBytes(uint32_t head_dim) { return CeilDiv(head_dim, 4) * 64; }
QINFER_INLINE size_t VCodeStride(uint32_t head_dim) { return CeilDiv(head_dim, 16) * 16; }
QINFER_INLINE size_t VCodeBytes(uint32_t head_dim) { return VCodeStride(head_dim) * kPageTokens; }

}  // namespace qinfer::kernels::layout
