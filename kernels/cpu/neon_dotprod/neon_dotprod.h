// The functions that differ from NEON's where the processor has dot product instructions (ARMv8.2
// dotprod): kernels/cpu/neon's headers compiled with those. Everything else is kernels/cpu/neon's.
#pragma once

#include "kernels/kernels.h"

#if !defined(__ARM_FEATURE_DOTPROD)
#error "kernels/cpu/neon_dotprod needs -march=armv8.2-a+dotprod"
#endif

namespace qinfer::kernels::neon_dotprod {

void MatmulInt4(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                void* scratch);
void MatmulInt6(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                void* scratch);
void MatmulFp4(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end, const Activations& x,
               uint32_t tokens, float* out, size_t out_stride, void* scratch);
void MatmulInt8(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                void* scratch);
void Attention(const AttentionArgs& args);

}  // namespace qinfer::kernels::neon_dotprod
