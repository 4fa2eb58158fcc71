// The AVX-VNNI integer matrix product for INT8 weights.
#include "kernels/cpu/avxvnni/avxvnni.h"

#include "kernels/cpu/avx2/matmul_run.h"

namespace qinfer::kernels::avxvnni {

void MatmulInt8(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                void* scratch) {
  avx2::Matmul<WeightKind::kInt8, avx2::Bytes8>(matrix, panel_begin, panel_end, x, tokens, out,
                                                out_stride, scratch);
}

}  // namespace qinfer::kernels::avxvnni
