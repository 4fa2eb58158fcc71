// The NEON integer matrix product for FP4 weights, by widening multiplications.
#include "kernels/cpu/neon/matmul_tile.h"

namespace qinfer::kernels::neon {

void MatmulFp4(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end, const Activations& x,
               uint32_t tokens, float* out, size_t out_stride, void* scratch) {
  Matmul<WeightKind::kFp4, Fp4>(matrix, panel_begin, panel_end, x, tokens, out, out_stride,
                                scratch);
}

}  // namespace qinfer::kernels::neon
