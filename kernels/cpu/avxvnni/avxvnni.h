// The functions that differ from AVX2's where the processor has dot product instructions without
// AVX-512 (AVX-VNNI): kernels/cpu/avx2's headers compiled with those. Everything else is
// kernels/cpu/avx2's. Include before any of its headers.
#pragma once

#include <immintrin.h>

#include "kernels/kernels.h"

// QINFER_DPBUSD(sum, u, s): per lane of 32 bits, adds the four products of u's bytes without a sign
// and s's with one. Tests bring others.
#if !defined(QINFER_DPBUSD)
#if !defined(__AVXVNNI__)
#error "kernels/cpu/avxvnni needs -mavxvnni"
#endif
#define QINFER_DPBUSD _mm256_dpbusd_avx_epi32
#endif

namespace qinfer::kernels::avxvnni {

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

}  // namespace qinfer::kernels::avxvnni
