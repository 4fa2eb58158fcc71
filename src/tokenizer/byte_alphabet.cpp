// GPT-2's alphabet: printable Latin-1 characters spell themselves, the other bytes follow from
// U+0100 on in their order.
#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

constexpr bool Printable(uint32_t b) {
  return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

constexpr std::array<uint16_t, 256> MakeToAlphabet() {
  std::array<uint16_t, 256> table{};
  uint16_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) table[b] = Printable(b) ? static_cast<uint16_t>(b) : next++;
  return table;
}
constexpr std::array<uint16_t, 256> kToAlphabet = MakeToAlphabet();

constexpr std::array<int16_t, 0x144> MakeFromAlphabet() {
  std::array<int16_t, 0x144> table{};
  for (int16_t& entry : table) entry = -1;
  for (uint32_t b = 0; b < 256; ++b) table[kToAlphabet[b]] = static_cast<int16_t>(b);
  return table;
}
constexpr std::array<int16_t, 0x144> kFromAlphabet = MakeFromAlphabet();

}  // namespace

uint32_t ByteToAlphabet(uint8_t byte) { return kToAlphabet[byte]; }

int AlphabetToByte(uint32_t code_point) {
  return code_point < kFromAlphabet.size() ? kFromAlphabet[code_point] : -1;
}

void AppendByteAlphabet(std::string_view bytes, String* out) {
  char buffer[4];
  for (const char b : bytes)
    out->append(buffer, EncodeUtf8(kToAlphabet[static_cast<uint8_t>(b)], buffer));
}

bool AppendSpelledBytes(std::string_view spelled, std::string* out) {
  const size_t before = out->size();
  const auto* p = reinterpret_cast<const uint8_t*>(spelled.data());
  const uint8_t* end = p + spelled.size();
  while (p < end) {
    uint32_t c;
    p += DecodeValid(p, &c);
    const int byte = AlphabetToByte(c);
    if (byte < 0) {
      out->resize(before);
      return false;
    }
    out->push_back(static_cast<char>(byte));
  }
  return true;
}

}  // namespace qinfer::tokenizer
