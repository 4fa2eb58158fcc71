// Loading lines of codes of each kind (docs/weight-layout.md) as bytes, on NEON: a quarter of a
// line, four rows, at a time. Internal linkage.
#pragma once

#include "kernels/cpu/neon/neon.h"

namespace qinfer::kernels::neon {
namespace {

// L::Get(p, j, r) gives the codes of rows 4r.. and of inputs 4j.. (low) and 16 + 4j.. (high) of the
// granule at p, j < 4; those of kInt8 less 128, the others as they are.
struct Lines {
  int8x16_t low, high;
};
QINFER_FN uint8x16_t Quarter(const uint8_t* line, uint32_t r) { return vld1q_u8(line + r * 16); }
QINFER_FN int8x16_t Signed(uint8x16_t v) { return vreinterpretq_s8_u8(v); }

struct Offset8 {  // kInt8
  static constexpr size_t kGranule = 512;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j, uint32_t r) {
    const uint8x16_t flip = vdupq_n_u8(128);
    return {Signed(veorq_u8(Quarter(p + j * 64, r), flip)),
            Signed(veorq_u8(Quarter(p + 256 + j * 64, r), flip))};
  }
};
struct Bytes8 {  // panels of the other kinds, widened
  static constexpr size_t kGranule = 512;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j, uint32_t r) {
    return {Signed(Quarter(p + j * 64, r)), Signed(Quarter(p + 256 + j * 64, r))};
  }
};
struct Nibbles {
  static constexpr size_t kGranule = 256;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j, uint32_t r) {
    const uint8x16_t v = Quarter(p + j * 64, r);
    return {Signed(vandq_u8(v, vdupq_n_u8(15))), Signed(vshrq_n_u8(v, 4))};
  }
};
struct Fp4 {
  static constexpr size_t kGranule = 256;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j, uint32_t r) {
    const uint8x16_t codes = vld1q_u8(layout::kFp4Codes);
    const uint8x16_t v = Quarter(p + j * 64, r);
    return {Signed(vqtbl1q_u8(codes, vandq_u8(v, vdupq_n_u8(15)))),
            Signed(vqtbl1q_u8(codes, vshrq_n_u8(v, 4)))};
  }
};
struct SixBits {
  static constexpr size_t kGranule = 384;
  QINFER_FN Lines Get(const uint8_t* p, uint32_t j, uint32_t r) {
    const uint8x16_t v = Quarter(p + j * 64, r), pairs = Quarter(p + 256 + j / 2 * 64, r);
    const uint8x16_t two = vdupq_n_u8(0x30);
    const uint8x16_t low = j % 2 == 0 ? vshlq_n_u8(pairs, 4) : pairs;
    const uint8x16_t high = j % 2 == 0 ? vshlq_n_u8(pairs, 2) : vshrq_n_u8(pairs, 2);
    return {Signed(vorrq_u8(vandq_u8(v, vdupq_n_u8(15)), vandq_u8(low, two))),
            Signed(vorrq_u8(vshrq_n_u8(v, 4), vandq_u8(high, two)))};
  }
};

}  // namespace
}  // namespace qinfer::kernels::neon
