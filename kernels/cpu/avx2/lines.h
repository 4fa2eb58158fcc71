// Loading lines of codes of each kind (docs/weight-layout.md) as bytes, on AVX2. Internal linkage.
#pragma once

#include "kernels/cpu/avx2/avx2.h"

namespace qinfer::kernels::avx2 {
namespace {

// L::Get(p, j) gives the codes of inputs 4j.. (low) and 16 + 4j.. (high) of the granule at p, j <
// 4, each in two vectors of eight rows.
struct Lines {
  __m256i low0, low1, high0, high1;  // [input half][row half]
};
struct Bytes8 {  // kInt8's layout, also that of widened panels
  static constexpr size_t kGranule = 512;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j) {
    const uint8_t* q = p + j * 64;
    return {Load(q), Load(q + 32), Load(q + 256), Load(q + 288)};
  }
};
struct Nibbles {
  static constexpr size_t kGranule = 256;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j) {
    const __m256i mask = _mm256_set1_epi8(15);
    const __m256i a = Load(p + j * 64), b = Load(p + j * 64 + 32);
    return {_mm256_and_si256(a, mask), _mm256_and_si256(b, mask),
            _mm256_and_si256(_mm256_srli_epi16(a, 4), mask),
            _mm256_and_si256(_mm256_srli_epi16(b, 4), mask)};
  }
};
struct Fp4 {
  static constexpr size_t kGranule = 256;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j) {
    const __m256i codes = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(layout::kFp4Codes)));
    const Lines nibbles = Nibbles::Get(p, j);
    return {_mm256_shuffle_epi8(codes, nibbles.low0), _mm256_shuffle_epi8(codes, nibbles.low1),
            _mm256_shuffle_epi8(codes, nibbles.high0), _mm256_shuffle_epi8(codes, nibbles.high1)};
  }
};
struct SixBits {
  static constexpr size_t kGranule = 384;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j) {
    Lines out = Nibbles::Get(p, j);
    const __m256i mask = _mm256_set1_epi8(0x30);
    const __m256i a = Load(p + 256 + j / 2 * 64), b = Load(p + 288 + j / 2 * 64);
    if (j % 2 == 0) {
      out.low0 = Or(out.low0, _mm256_slli_epi16(a, 4), mask);
      out.low1 = Or(out.low1, _mm256_slli_epi16(b, 4), mask);
      out.high0 = Or(out.high0, _mm256_slli_epi16(a, 2), mask);
      out.high1 = Or(out.high1, _mm256_slli_epi16(b, 2), mask);
    } else {
      out.low0 = Or(out.low0, a, mask);
      out.low1 = Or(out.low1, b, mask);
      out.high0 = Or(out.high0, _mm256_srli_epi16(a, 2), mask);
      out.high1 = Or(out.high1, _mm256_srli_epi16(b, 2), mask);
    }
    return out;
  }
  QINFER_FN __m256i Or(__m256i nibble, __m256i pairs, __m256i mask) {
    return _mm256_or_si256(nibble, _mm256_and_si256(pairs, mask));
  }
};

}  // namespace
}  // namespace qinfer::kernels::avx2
