// Hand-written scanners for the pre-tokenizer patterns of known models. Each alternative of a
// pattern is one `if`, in the pattern's order; the tests compare them with PCRE2.
#include "tokenizer/scanners.h"

#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

struct Known {
  Scanner scanner;
  std::string_view pattern;
};
constexpr std::string_view kNumberTriplesPattern = "\\p{N}{1,3}";
constexpr Known kKnown[] = {
    {Scanner::kGpt2,
     "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {Scanner::kGpt2,
     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {Scanner::kLlama3,
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {Scanner::kQwen2,
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {Scanner::kDeepSeekV3,
     "[!\"#$%&'()*+,\\-./"
     ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
     "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
    {Scanner::kNumberTriples, kNumberTriplesPattern},
    {Scanner::kNumber, "\\p{N}"},
    {Scanner::kCjkKana, "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"},
    {Scanner::kCjkHangul, "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"},
    {Scanner::kNewline, "[\r\n]"},
    {Scanner::kNewline, "[\\r\\n]"},
    {Scanner::kSpaceLetters, "\\s?\\p{L}+"},
    {Scanner::kSpacePunctuation, "\\s?\\p{P}+"},
};

struct Text {
  const uint8_t* data;
  size_t size;

  // Class of the character at i (i < size); *length is its size in bytes.
  uint8_t Class(size_t i, uint32_t* length) const {
    if (data[i] < 0x80) {
      *length = 1;
      return kAsciiClass[data[i]];
    }
    uint32_t c;
    *length = DecodeValid(data + i, &c);
    return ClassOfWide(c);
  }
  // End of the run of characters of these classes.
  size_t Run(size_t i, uint8_t mask) const {
    while (i < size) {
      uint32_t length;
      if ((Class(i, &length) & mask) == 0) break;
      i += length;
    }
    return i;
  }
  size_t RunExcept(size_t i, uint8_t mask) const {
    while (i < size) {
      uint32_t length;
      if ((Class(i, &length) & mask) != 0) break;
      i += length;
    }
    return i;
  }
  size_t Newlines(size_t i) const {
    while (i < size && (data[i] == '\n' || data[i] == '\r')) ++i;
    return i;
  }
  // \s+(?!\S)|\s+ at i, which is white space; with `newlines`, \s*[\r\n]+ before them.
  size_t Spaces(size_t i, bool newlines) const {
    size_t end = i;
    size_t last = i;  // start of the last character
    size_t after_newline = 0;
    while (end < size) {
      uint32_t length;
      if ((Class(end, &length) & kSpace) == 0) break;
      last = end;
      end += length;
      if (newlines && (data[last] == '\n' || data[last] == '\r')) after_newline = end;
    }
    if (after_newline != 0) return after_newline;
    return end == size || last == i ? end : last;
  }
};

// 's 't 're 've 'm 'll 'd at i: its end, or i.
size_t Contraction(const Text& t, size_t i, bool ignore_case) {
  if (t.data[i] != '\'' || i + 1 >= t.size) return i;
  const uint8_t fold = ignore_case ? 0x20 : 0;
  const auto letter = [&](size_t at) -> uint8_t {
    if (at >= t.size) return 0;
    const uint8_t c = t.data[at];
    return c >= 'A' && c <= 'Z' ? c | fold : c;
  };
  const uint8_t a = letter(i + 1);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
  // U+017F, the long s, is an s to a caseless match.
  if (ignore_case && a == 0xc5 && i + 2 < t.size && t.data[i + 2] == 0xbf) return i + 3;
  const uint8_t b = letter(i + 2);
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
  return i;
}

size_t Gpt2(const Text& t, size_t i) {
  const size_t contraction = Contraction(t, i, false);
  if (contraction != i) return contraction;
  uint32_t length;
  size_t at = i;
  uint8_t mask = t.Class(i, &length);
  if (t.data[i] == ' ' && i + 1 < t.size) {
    const uint8_t next = t.Class(i + 1, &length);
    if ((next & kSpace) == 0) {
      mask = next;
      at = i + 1;
    }
  }
  if ((mask & kLetter) != 0) return t.Run(at, kLetter);
  if ((mask & kNumber) != 0) return t.Run(at, kNumber);
  if ((mask & kSpace) == 0) return t.RunExcept(at, kSpace | kLetter | kNumber);
  return t.Spaces(i, false);
}

size_t Llama3(const Text& t, size_t i, int max_numbers) {
  const size_t contraction = Contraction(t, i, true);
  if (contraction != i) return contraction;
  uint32_t length;
  const uint8_t c = t.data[i];
  const uint8_t mask = t.Class(i, &length);
  if ((mask & kLetter) != 0) return t.Run(i, kLetter);
  size_t next = i + length;
  if ((mask & kNumber) != 0) {
    for (int n = 1; n < max_numbers && next < t.size; ++n) {
      if ((t.Class(next, &length) & kNumber) == 0) break;
      next += length;
    }
    return next;
  }
  const uint8_t next_mask = next < t.size ? t.Class(next, &length) : uint8_t{0};
  if (c != '\r' && c != '\n' && (next_mask & kLetter) != 0) return t.Run(next, kLetter);
  constexpr uint8_t kNotOther = kSpace | kLetter | kNumber;
  if ((mask & kSpace) == 0) return t.Newlines(t.RunExcept(i, kNotOther));
  if (c == ' ' && next < t.size && (next_mask & kNotOther) == 0)
    return t.Newlines(t.RunExcept(next, kNotOther));
  return t.Spaces(i, true);
}

bool IsAsciiLetter(uint8_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

// i itself where nothing matches.
size_t DeepSeekV3(const Text& t, size_t i) {
  uint32_t length;
  const uint8_t c = t.data[i];
  const uint8_t mask = t.Class(i, &length);
  constexpr uint8_t kSigns = kPunctuation | kSymbol;
  if (c < 0x80 && (mask & kSigns) != 0 && i + 1 < t.size && IsAsciiLetter(t.data[i + 1])) {
    size_t end = i + 2;
    while (end < t.size && IsAsciiLetter(t.data[end])) ++end;
    return end;
  }
  if ((mask & (kLetter | kMark)) != 0) return t.Run(i, kLetter | kMark);
  const size_t next = i + length;
  if ((mask & kSigns) != 0) return t.Newlines(t.Run(i, kSigns));
  if (next < t.size && c != '\r' && c != '\n') {
    const uint8_t next_mask = t.Class(next, &length);
    if ((next_mask & (kLetter | kMark)) != 0) return t.Run(next, kLetter | kMark);
    if (c == ' ' && (next_mask & kSigns) != 0) return t.Newlines(t.Run(next, kSigns));
  }
  return (mask & kSpace) != 0 ? t.Spaces(i, true) : i;
}

bool IsCjk(uint32_t c) { return c >= 0x4e00 && c <= 0x9fa5; }

template <typename Member>
size_t RunOf(const Text& t, size_t i, Member member) {
  while (i < t.size) {
    uint32_t c;
    const uint32_t length = DecodeValid(t.data + i, &c);
    if (!member(c)) break;
    i += length;
  }
  return i;
}

size_t SpaceThen(const Text& t, size_t i, uint8_t wanted) {
  uint32_t length;
  const uint8_t mask = t.Class(i, &length);
  if ((mask & wanted) != 0) return t.Run(i, wanted);
  if ((mask & kSpace) == 0) return i;
  const size_t end = t.Run(i + length, wanted);
  return end == i + length ? i : end;
}

// End of the match at i, or i.
size_t MatchAt(Scanner scanner, const Text& t, size_t i) {
  uint32_t length;
  switch (scanner) {
    case Scanner::kGpt2:
      return Gpt2(t, i);
    case Scanner::kLlama3:
      return Llama3(t, i, 3);
    case Scanner::kQwen2:
      return Llama3(t, i, 1);
    case Scanner::kDeepSeekV3:
      return DeepSeekV3(t, i);
    case Scanner::kNumberTriples: {
      size_t end = i;
      for (int n = 0; n < 3 && end < t.size && (t.Class(end, &length) & kNumber) != 0; ++n)
        end += length;
      return end;
    }
    case Scanner::kNumber:
      return (t.Class(i, &length) & kNumber) != 0 ? i + length : i;
    case Scanner::kCjkKana:
      if (t.data[i] < 0xe3) return i;
      return RunOf(t, i, [](uint32_t c) { return IsCjk(c) || (c >= 0x3040 && c <= 0x30ff); });
    case Scanner::kCjkHangul:
      if (t.data[i] < 0xe0) return i;
      return RunOf(t, i, [](uint32_t c) {
        return IsCjk(c) || (c >= 0x800 && c <= 0x4e00) || (c >= 0xac00 && c <= 0xd7ff);
      });
    case Scanner::kNewline:
      return t.data[i] == '\n' || t.data[i] == '\r' ? i + 1 : i;
    case Scanner::kSpaceLetters:
      return SpaceThen(t, i, kLetter);
    case Scanner::kSpacePunctuation:
      return SpaceThen(t, i, kPunctuation);
  }
  return i;
}

}  // namespace

uint32_t FindScanner(std::string_view pattern) {
  for (const Known& known : kKnown)
    if (known.pattern == pattern) return static_cast<uint32_t>(known.scanner);
  return 0;
}

std::string_view ScannerPattern(Scanner scanner) {
  for (const Known& known : kKnown)
    if (known.scanner == scanner) return known.pattern;
  return {};
}

void ScanNext(Scanner scanner, std::string_view text, size_t begin, size_t* match, size_t* end) {
  const Text t{reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  for (size_t i = begin; i < t.size; i += SequenceLength(t.data[i])) {
    const size_t stop = MatchAt(scanner, t, i);
    if (stop == i) continue;
    *match = i;
    *end = stop;
    return;
  }
  *match = *end = t.size;
}

}  // namespace qinfer::tokenizer
