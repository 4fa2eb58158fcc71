// The sums of sixteen activation codes each, for instruction sets that have SSSE3. Internal
// linkage.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/inline.h"

namespace qinfer::kernels {

QINFER_FN void SumCodes(const int8_t* codes, uint32_t padded, int32_t* sums) {
  const __m128i ones8 = _mm_set1_epi8(1), ones16 = _mm_set1_epi16(1);
  for (uint32_t k = 0; k < padded; k += 16) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + k));
    __m128i s = _mm_madd_epi16(_mm_maddubs_epi16(ones8, c), ones16);
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    sums[k / 16] = _mm_cvtsi128_si32(s);
  }
}

}  // namespace qinfer::kernels
