// The reference table, and the sizes that every table shares.
#include <algorithm>

#include "kernels/cpu/tables.h"
#include "kernels/layout.h"
#include "kernels/ref/ref.h"

namespace qinfer::kernels {

const Table* RefTable() {
  static constexpr Table kTable = {
      "ref",        ref::MatmulInt8, ref::MatmulFloat,    ref::DecodeRow,   ref::Quantize,
      ref::RmsNorm, ref::Add,        ref::Scale,          ref::Gated,       ref::Softcap,
      ref::Rope,    ref::WriteK,     ref::WriteV,         ref::Attention,   ref::Argmax,
      ref::ExpSum,  ref::ExpShift,   ref::QuantizeStatic, ref::DecodePanel, ref::PanelMaxima};
  return &kTable;
}

size_t MatmulScratchBytes(const Matrix& matrix, uint32_t tokens) {
  const size_t padded = matrix.padded_cols();
  if (layout::IsFloat(matrix.kind)) return layout::MatmulFloatScratch(tokens);
  return std::max(layout::MatmulInt8Scratch(padded, layout::Groups(matrix), tokens),
                  layout::MatmulFloatScratch(tokens));
}

size_t AttentionScratchBytes(uint32_t group_heads, uint32_t head_dim, uint32_t v_head_dim,
                             uint32_t tokens) {
  const size_t rows = size_t{group_heads} * tokens;
  // Once: a block's keys and values as floats, scores and probabilities of a few rows.
  const size_t block = size_t{kAttentionBlock} * 4 * (head_dim + 16 + v_head_dim + 16);
  return layout::AttentionStateBytes(rows, head_dim, v_head_dim) + block + 8192;
}

size_t KPlaneBytes(KvType type, uint32_t head_dim) {
  if (type == KvType::kInt8)
    return layout::KCodeBytes(head_dim) + layout::CeilDiv(head_dim, layout::kKvGroup) * 64;
  return layout::RoundToLine(size_t{head_dim} * kPageTokens * (type == KvType::kF32 ? 4 : 2));
}

size_t VPlaneBytes(KvType type, uint32_t head_dim) {
  return layout::ValuePlaneBytes(type, head_dim);
}

}  // namespace qinfer::kernels
