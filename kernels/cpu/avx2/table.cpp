// The AVX2 table.
#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/tables.h"

namespace qinfer::kernels {
namespace {

void MatmulQuantized(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                     const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                     void* scratch) {
  const auto run = matrix.kind == WeightKind::kInt4   ? avx2::MatmulInt4
                   : matrix.kind == WeightKind::kInt6 ? avx2::MatmulInt6
                                                      : avx2::MatmulInt8;
  run(matrix, panel_begin, panel_end, x, tokens, out, out_stride, scratch);
}

constexpr Table kTable = {"avx2",         MatmulQuantized,     avx2::MatmulFloat, avx2::DecodeRow,
                          avx2::Quantize, avx2::RmsNorm,       avx2::Add,         avx2::Scale,
                          avx2::Gated,    avx2::Softcap,       avx2::Rope,        avx2::WriteK,
                          avx2::WriteV,   avx2::Attention,     avx2::Argmax,      avx2::ExpSum,
                          avx2::ExpShift, avx2::QuantizeStatic};

}  // namespace

const Table* Avx2Table() { return &kTable; }

}  // namespace qinfer::kernels
