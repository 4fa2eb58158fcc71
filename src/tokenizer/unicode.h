// What code points mean: the classes that pre-tokenizers and added tokens ask for, lower case and
// the normal forms. Encoding forms are in utf8.h.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>

#include "core/status.h"

namespace qinfer::tokenizer {

enum CharClass : uint8_t {
  kOtherClass = 0,
  kLetter = 1,
  kMark = 2,
  kDecimal = 4,       // Nd
  kOtherNumber = 8,   // Nl, No
  kPunctuation = 16,  // P
  kSymbol = 32,       // S
  kSpace = 64,        // White_Space
  kNumber = kDecimal | kOtherNumber,
};

extern const uint8_t kAsciiClass[128];
uint8_t ClassOfWide(uint32_t code_point);  // code points from 128 on
inline uint8_t ClassOf(uint32_t code_point) {
  return code_point < 128 ? kAsciiClass[code_point] : ClassOfWide(code_point);
}

inline bool IsSpace(uint32_t c) { return (ClassOf(c) & kSpace) != 0; }
// \w as Rust's regex crate has it: Alphabetic, M, Nd, Pc, Join_Control.
bool IsWord(uint32_t code_point);
// \w as Oniguruma has it: Alphabetic, M, Nd, Pc.
bool IsOnigWord(uint32_t code_point);
// What the pre-tokenizers Punctuation (ASCII symbols too) and Digits and the normalizer
// StripAccents ask for, in the versions of Unicode that the `tokenizers` package has for each.
bool IsPunctuation(uint32_t code_point);
bool IsNumeric(uint32_t code_point);
bool IsAccent(uint32_t code_point);

using String = std::pmr::string;

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// Appends the normal form of valid UTF-8.
Status AppendNormalForm(std::string_view text, NormalForm form, String* out);
// Appends the full lower-case mapping of each code point on its own (no final sigma).
void AppendLowercase(std::string_view text, String* out);

// Code points assigned after Unicode 14 of one class (a CharClass mask), as the inside of a PCRE2
// character class.
void AppendAdditionRanges(uint8_t mask, std::string* out);
// The same for a general category of two letters, or a script; nothing for any other name.
void AppendSubclassRanges(std::string_view name, std::string* out);

}  // namespace qinfer::tokenizer
