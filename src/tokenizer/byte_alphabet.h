// GPT-2's alphabet: the 256 characters that spell bytes in byte-level vocabularies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/unicode.h"

namespace qinfer::tokenizer {

// The character (code point below 0x144) that spells a byte.
uint32_t ByteToAlphabet(uint8_t byte);
// The byte that a character spells, or -1.
int AlphabetToByte(uint32_t code_point);

// Spells bytes.
void AppendByteAlphabet(std::string_view bytes, String* out);
// Reads a spelling: appends its bytes, or returns false (nothing appended) where a character is not
// of the alphabet. `spelled` is valid UTF-8.
bool AppendSpelledBytes(std::string_view spelled, std::string* out);

}  // namespace qinfer::tokenizer
