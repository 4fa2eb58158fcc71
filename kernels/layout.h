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
// Twice a 4-bit float (a sign, two bits of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6)
// is a whole number: what a nibble of kFp4 stands for, as an unsigned code around 12.
constexpr uint8_t kFp4Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

QINFER_INLINE int32_t ZeroPoint(WeightKind kind) {
  return kind == WeightKind::kInt8   ? 128
         : kind == WeightKind::kInt6 ? 32
         : kind == WeightKind::kFp4  ? 12
                                     : 8;
}
// Bytes of 16 rows x 32 inputs of codes: 64-byte lines of 4 inputs per 32-bit lane (kInt8: 8 lines;
// kInt4, kFp4: 4 lines of two nibbles; kInt6: those and 2 lines of two-bit fields). Float kinds: 32
// lines of one input.
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
QINFER_INLINE size_t ValuePlaneBytes(KvType type, uint32_t head_dim) {
  if (type == KvType::kInt8) return VCodeBytes(head_dim) + CeilDiv(head_dim, kKvGroup) * 64;
  return RoundToLine(size_t{head_dim} * kPageTokens * (type == KvType::kF32 ? 4 : 2));
}

// Scratch of attention: per row a quantized query, its scales and sums, and (m, l) and the sum of
// values, of a span and of those before it; after these, a block's values (latent attention).
QINFER_INLINE size_t AttentionStateBytes(size_t rows, uint32_t head_dim, uint32_t v_head_dim) {
  const size_t row =
      RoundToLine(head_dim) + 8 * CeilDiv(head_dim, 64) + 16 + 8 * CeilDiv(v_head_dim, 16) * 16;
  return RoundToLine(rows * (row + 64));
}

// The values of one page of latents as a V plane holds them: the same numbers, and for INT8 the
// same codes and scales, token after token instead of input after input.
QINFER_INLINE void LatentToValues(const uint8_t* keys, KvType type, uint32_t head_dim,
                                  uint32_t v_head_dim, uint8_t* values) {
  if (type == KvType::kF32) {
    const uint32_t* from = reinterpret_cast<const uint32_t*>(keys);
    uint32_t* to = reinterpret_cast<uint32_t*>(values);
    for (uint32_t d = 0; d < v_head_dim; ++d)
      for (uint32_t t = 0; t < kPageTokens; ++t)
        to[size_t{t} * v_head_dim + d] = from[size_t{d} * kPageTokens + t];
    return;
  }
  if (type == KvType::kF16) {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(keys);
    uint16_t* to = reinterpret_cast<uint16_t*>(values);
    for (uint32_t d = 0; d < v_head_dim; ++d)
      for (uint32_t t = 0; t < kPageTokens; ++t)
        to[size_t{t} * v_head_dim + d] = from[size_t{d} * kPageTokens + t];
    return;
  }
  const size_t stride = VCodeStride(v_head_dim);
  for (uint32_t d = 0; d < v_head_dim; ++d)
    for (uint32_t t = 0; t < kPageTokens; ++t)
      values[t * stride + d] = keys[size_t{d} / 4 * 64 + t * 4 + d % 4];
  for (uint32_t t = 0; t < kPageTokens; ++t)
    for (size_t d = v_head_dim; d < stride; ++d) values[t * stride + d] = 0;
  const uint32_t* scales = reinterpret_cast<const uint32_t*>(keys + KCodeBytes(head_dim));
  uint32_t* to = reinterpret_cast<uint32_t*>(values + VCodeBytes(v_head_dim));
  for (size_t i = 0; i < CeilDiv(v_head_dim, kKvGroup) * kPageTokens; ++i) to[i] = scales[i];
}

}  // namespace qinfer::kernels::layout
