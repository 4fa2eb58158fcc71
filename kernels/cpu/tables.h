// The tables that this build has, and which of them the processor can run. Private to kernels/.
#pragma once

#include "kernels/kernels.h"

namespace qinfer::kernels {

const Table* RefTable();
const Table* Avx2Table();
const Table* AvxVnniTable();
const Table* Avx512Table();
const Table* NeonTable();
const Table* NeonDotprodTable();

// Table::matmul_int8 of the products of each kind.
using MatmulInt = void (*)(const Matrix&, uint32_t, uint32_t, const Activations&, uint32_t, float*,
                           size_t, void*);
template <MatmulInt kInt4, MatmulInt kInt6, MatmulInt kInt8, MatmulInt kFp4>
static inline void MatmulByKind(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                                const Activations& x, uint32_t tokens, float* out,
                                size_t out_stride, void* scratch) {
  const MatmulInt run = matrix.kind == WeightKind::kInt4   ? kInt4
                        : matrix.kind == WeightKind::kInt6 ? kInt6
                        : matrix.kind == WeightKind::kFp4  ? kFp4
                                                           : kInt8;
  run(matrix, panel_begin, panel_end, x, tokens, out, out_stride, scratch);
}

}  // namespace qinfer::kernels
