// Hand-written scanners for the pre-tokenizer patterns of known models: the same matches as the
// regular expression, in one pass without backtracking. Patterns that are not listed run on PCRE2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qinfer::tokenizer {

enum class Scanner : uint32_t {
  kGpt2 = 1,
  kLlama3,            // numbers in threes
  kQwen2,             // numbers one by one
  kDeepSeekV3,        // the third pattern of DeepSeek V3
  kNumberTriples,     // \p{N}{1,3}
  kNumber,            // \p{N}
  kCjkKana,           // [U+4E00-U+9FA5 U+3040-U+309F U+30A0-U+30FF]+
  kCjkHangul,         // [U+4E00-U+9FA5 U+0800-U+4E00 U+AC00-U+D7FF]+
  kNewline,           // [\r\n]
  kSpaceLetters,      // \s?\p{L}+
  kSpacePunctuation,  // \s?\p{P}+
  kLast = kSpacePunctuation,
};

// The scanner of a pattern as tokenizer files spell it; 0 if there is none.
uint32_t FindScanner(std::string_view pattern);
// The spelling that a scanner stands for (for programs made from GGUF, and for tests).
std::string_view ScannerPattern(Scanner scanner);

// From `begin` on (begin < text.size(), valid UTF-8), the next match [*match, *end) of the pattern;
// *match = *end = text.size() if there is none.
void ScanNext(Scanner scanner, std::string_view text, size_t begin, size_t* match, size_t* end);

}  // namespace qinfer::tokenizer
