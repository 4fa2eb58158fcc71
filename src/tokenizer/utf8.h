// UTF-8: decoding, validation and lossy repair. What code points mean is in unicode.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qinfer::tokenizer {

// Decodes the sequence at p in valid UTF-8 and returns its length. `p` is not at the end.
inline uint32_t DecodeValid(const uint8_t* p, uint32_t* code_point) {
  const uint32_t c = p[0];
  if (c < 0x80) {
    *code_point = c;
    return 1;
  }
  if (c < 0xe0) {
    *code_point = ((c & 0x1f) << 6) | (p[1] & 0x3fu);
    return 2;
  }
  if (c < 0xf0) {
    *code_point = ((c & 0x0f) << 12) | ((p[1] & 0x3fu) << 6) | (p[2] & 0x3fu);
    return 3;
  }
  *code_point =
      ((c & 0x07) << 18) | ((p[1] & 0x3fu) << 12) | ((p[2] & 0x3fu) << 6) | (p[3] & 0x3fu);
  return 4;
}

// Length of the sequence that starts with this byte of valid UTF-8.
inline uint32_t SequenceLength(uint8_t lead) {
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// Length of the well-formed sequence at the start of `s`, or 0; then *bad is how many bytes one
// replacement character stands for (Unicode's "maximal subpart", at least 1). `s` is not empty.
uint32_t CheckSequence(std::string_view s, uint32_t* bad);

// Offset of the first byte that is not well-formed UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view s);

// Writes 1 to 4 bytes; the code point is a scalar value.
uint32_t EncodeUtf8(uint32_t code_point, char* out);
void AppendUtf8(uint32_t code_point, std::string* out);

// Appends `bytes` with every maximal ill-formed part replaced by U+FFFD.
void AppendLossy(std::string_view bytes, std::string* out);

}  // namespace qinfer::tokenizer
