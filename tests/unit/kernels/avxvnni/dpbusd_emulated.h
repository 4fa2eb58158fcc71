// What the dot product instruction computes, on AVX2, for kernels/cpu/avxvnni: lets its kernels run
// where nothing has the instruction, for comparison with the reference.
#pragma once

#include <immintrin.h>

namespace qinfer::kernels::avxvnni_emulated {

static inline __attribute__((always_inline)) __m256i Dpbusd(__m256i sum, __m256i u, __m256i s) {
  const __m256i even_u = _mm256_and_si256(u, _mm256_set1_epi16(255)),
                odd_u = _mm256_srli_epi16(u, 8);
  const __m256i even_s = _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8);
  const __m256i odd_s = _mm256_srai_epi16(s, 8);
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even_u, even_s));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(odd_u, odd_s));
}

}  // namespace qinfer::kernels::avxvnni_emulated
#define QINFER_DPBUSD ::qinfer::kernels::avxvnni_emulated::Dpbusd
