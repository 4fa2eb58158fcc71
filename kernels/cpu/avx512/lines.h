// Loading lines of codes of each kind (docs/weight-layout.md) as bytes, on AVX-512. Internal
// linkage.
#pragma once

#include "kernels/cpu/avx512/avx512.h"

namespace qinfer::kernels::avx512 {
namespace {

// L::Get(p, j) gives the codes of inputs 4j.. (low) and 16 + 4j.. (high) of the granule at p, j
// < 4. High codes are too large by 2^kHighShift, which is cheaper to undo in the sum. L::Many is
// how tiles of many tokens get them: where that takes other lines (Bytes8), panels are widened
// first.
struct Lines {
  __m512i low, high;
};
struct Bytes8 {  // kInt8's layout, also that of widened panels
  using Many = Bytes8;
  static constexpr size_t kGranule = 512;
  static constexpr int kHighShift = 0;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j) {
    return {Load(p + j * 64), Load(p + 256 + j * 64)};
  }
};
struct WholeNibbles {  // nothing left shifted
  static constexpr size_t kGranule = 256;
  static constexpr int kHighShift = 0;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j) {
    const __m512i nibble = _mm512_set1_epi8(15), v = Load(p + j * 64);
    return {_mm512_and_si512(v, nibble), _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble)};
  }
};
struct Nibbles {
  using Many = WholeNibbles;
  static constexpr size_t kGranule = 256;
  static constexpr int kHighShift = 4;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j) {
    const __m512i v = Load(p + j * 64);
    return {_mm512_and_si512(v, _mm512_set1_epi8(15)), _mm512_and_si512(v, _mm512_set1_epi8(-16))};
  }
};
struct Fp4 {
  using Many = Fp4;
  static constexpr size_t kGranule = 256;
  static constexpr int kHighShift = 0;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i codes = _mm512_broadcast_i32x4(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(layout::kFp4Codes)));
    const __m512i v = Load(p + j * 64);
    return {_mm512_shuffle_epi8(codes, _mm512_and_si512(v, nibble)),
            _mm512_shuffle_epi8(codes, _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble))};
  }
};
struct SixBits {
  using Many = Bytes8;
  static constexpr size_t kGranule = 384;
  static constexpr int kHighShift = 0;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j) {
    const __m512i nibble = _mm512_set1_epi8(15), two = _mm512_set1_epi8(0x30);
    const __m512i v = Load(p + j * 64), pairs = Load(p + 256 + j / 2 * 64);
    const __m512i low = j % 2 == 0 ? _mm512_slli_epi16(pairs, 4) : pairs;
    const __m512i high = j % 2 == 0 ? _mm512_slli_epi16(pairs, 2) : _mm512_srli_epi16(pairs, 2);
    return {_mm512_or_si512(_mm512_and_si512(v, nibble), _mm512_and_si512(low, two)),
            _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v, 4), nibble),
                            _mm512_and_si512(high, two))};
  }
};

}  // namespace
}  // namespace qinfer::kernels::avx512
