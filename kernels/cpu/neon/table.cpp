// The NEON table.
#include "kernels/cpu/neon/neon.h"

#include "kernels/cpu/tables.h"
#include "kernels/ref/ref.h"

namespace qinfer::kernels {
namespace {

void MatmulQuantized(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                     const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                     void* scratch) {
  const auto run = matrix.kind == WeightKind::kInt4   ? neon::MatmulInt4
                   : matrix.kind == WeightKind::kInt6 ? neon::MatmulInt6
                                                      : neon::MatmulInt8;
  run(matrix, panel_begin, panel_end, x, tokens, out, out_stride, scratch);
}

constexpr Table kTable = {"neon",         MatmulQuantized,    neon::MatmulFloat, neon::DecodeRow,
                          neon::Quantize, neon::RmsNorm,      neon::Add,         neon::Scale,
                          neon::Gated,    neon::Softcap,      neon::Rope,        neon::WriteK,
                          neon::WriteV,   neon::Attention,    neon::Argmax,      neon::ExpSum,
                          neon::ExpShift, ref::QuantizeStatic};

}  // namespace

const Table* NeonTable() { return &kTable; }

}  // namespace qinfer::kernels
