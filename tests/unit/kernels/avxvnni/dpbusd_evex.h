// AVX-512's encoding of the dot product instruction in place of AVX-VNNI's, for
// kernels/cpu/avxvnni. With GCC as an instruction that it knows nothing of, so that the rest is
// compiled for AVX2 and its sixteen registers, as for a processor that has AVX-VNNI alone.
#pragma once

#include <immintrin.h>

#if defined(__clang__)
#define QINFER_DPBUSD _mm256_dpbusd_epi32
#else
namespace qinfer::kernels::avxvnni_evex {

static inline __attribute__((always_inline)) __m256i Dpbusd(__m256i sum, __m256i u, __m256i s) {
  __asm__("vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(u), "xm"(s));
  return sum;
}

}  // namespace qinfer::kernels::avxvnni_evex
#define QINFER_DPBUSD ::qinfer::kernels::avxvnni_evex::Dpbusd
#endif
