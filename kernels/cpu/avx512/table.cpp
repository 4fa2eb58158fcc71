// The AVX-512 table.
#include "kernels/cpu/avx512/avx512.h"
#include "kernels/cpu/tables.h"

namespace qinfer::kernels {
namespace {

void MatmulQuantized(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                     const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                     void* scratch) {
  const auto run = matrix.kind == WeightKind::kInt4   ? avx512::MatmulInt4
                   : matrix.kind == WeightKind::kInt6 ? avx512::MatmulInt6
                                                      : avx512::MatmulInt8;
  run(matrix, panel_begin, panel_end, x, tokens, out, out_stride, scratch);
}

constexpr Table kTable = {
    "avx512",        MatmulQuantized,  avx512::MatmulFloat,   avx512::DecodeRow, avx512::Quantize,
    avx512::RmsNorm, avx512::Add,      avx512::Scale,         avx512::Gated,     avx512::Softcap,
    avx512::Rope,    avx512::WriteK,   avx512::WriteV,        avx512::Attention, avx512::Argmax,
    avx512::ExpSum,  avx512::ExpShift, avx512::QuantizeStatic};

}  // namespace

const Table* Avx512Table() { return &kTable; }

}  // namespace qinfer::kernels
