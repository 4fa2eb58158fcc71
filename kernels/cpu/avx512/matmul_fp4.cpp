// The AVX-512 integer matrix product for FP4 weights.
#include "kernels/cpu/avx512/matmul_tile.h"

namespace qinfer::kernels::avx512 {

void MatmulFp4(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end, const Activations& x,
               uint32_t tokens, float* out, size_t out_stride, void* scratch) {
  Matmul<WeightKind::kFp4, Fp4>(matrix, panel_begin, panel_end, x, tokens, out, out_stride,
                                scratch);
}

}  // namespace qinfer::kernels::avx512
