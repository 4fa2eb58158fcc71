// Numbers and string escapes as Python writes them.
#include "tokenizer/jinja_literal.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include "core/checked.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

// Python reads no longer ones from text.
constexpr size_t kMaxIntegerDigits = 4300;

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Length of digits of `base` in which single underscores may stand between two digits.
size_t MatchDigits(std::string_view text, int base) {
  size_t i = 0;
  while (i < text.size()) {
    const bool between =
        text[i] == '_' && i > 0 && i + 1 < text.size() && DigitValue(text[i + 1]) < base;
    if (DigitValue(text[i]) >= base && !between) break;
    ++i;
  }
  return i;
}

std::string WithoutUnderscores(std::string_view text) {
  std::string out(text);
  out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
  return out;
}

bool DigitsToDecimal(std::string_view digits, int base, std::string* out) {
  if (base == 10) {
    const size_t first = std::min(digits.find_first_not_of('0'), digits.size() - 1);
    *out = std::string(digits.substr(first));
    return true;
  }
  uint64_t value = 0;
  for (const char c : digits) {
    if (!CheckedMul<uint64_t>(value, static_cast<uint64_t>(base), &value) ||
        !CheckedAdd<uint64_t>(value, static_cast<uint64_t>(DigitValue(c)), &value)) {
      return false;
    }
  }
  *out = std::to_string(value);
  return true;
}

NumberLiteral MatchPrefixed(std::string_view text, int base) {
  NumberLiteral number;
  size_t start = 2;
  if (text.size() > 2 && text[2] == '_') start = 3;
  const size_t length = MatchDigits(text.substr(start), base);
  if (length == 0) return number;
  number.length = start + length;
  if (!DigitsToDecimal(WithoutUnderscores(text.substr(start, length)), base, &number.text)) {
    number.error = "an integer that is not decimal must fit 64 bits";
  }
  return number;
}

// Hex digits of an escape; false if there are fewer than `count`.
bool ReadHex(std::string_view text, size_t at, size_t count, char32_t* value) {
  if (text.size() - at < count) return false;
  *value = 0;
  for (size_t k = 0; k < count; ++k) {
    const int digit = DigitValue(text[at + k]);
    if (digit >= 16) return false;
    *value = *value * 16 + static_cast<char32_t>(digit);
  }
  return true;
}

// `word`, which is in lower case, in any case.
bool IsWord(std::string_view text, std::string_view word) {
  return text.size() == word.size() &&
         std::equal(text.begin(), text.end(), word.begin(),
                    [](char a, char b) { return static_cast<char>(a | 0x20) == b; });
}

// A backslash before a character beyond ASCII: Python sees the character's own escape there, whose
// backslash is then the escaped one.
void AppendEscapedForm(char32_t c, std::string* out) {
  const size_t digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  *out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
  for (size_t k = digits; k-- > 0;) out->push_back("0123456789abcdef"[(c >> (4 * k)) & 15]);
}

}  // namespace

NumberLiteral MatchNumber(std::string_view text) {
  NumberLiteral number;
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(text[1] | 0x20);
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (base != 0) {
      number = MatchPrefixed(text, base);
      if (number.length != 0) return number;
    }
  }
  const size_t whole = MatchDigits(text, 10);
  size_t end = whole;
  if (end + 1 < text.size() && text[end] == '.' && DigitValue(text[end + 1]) < 10) {
    end += 1 + MatchDigits(text.substr(end + 1), 10);
    number.is_float = true;
  }
  if (end < text.size() && (text[end] | 0x20) == 'e') {
    size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const size_t digits = MatchDigits(text.substr(std::min(exponent, text.size())), 10);
    if (digits != 0) {
      end = exponent + digits;
      number.is_float = true;
    }
  }
  if (number.is_float) {
    number.length = end;
    number.text = WithoutUnderscores(text.substr(0, end));
    return number;
  }
  // A leading zero stands alone or before other zeros.
  number.length = whole;
  if (text[0] == '0') number.length = std::min(whole, text.find_first_not_of("0_", 0));
  while (number.length > 1 && text[number.length - 1] == '_') --number.length;
  DigitsToDecimal(WithoutUnderscores(text.substr(0, number.length)), 10, &number.text);
  return number;
}

size_t MatchString(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[0]) {
      return i + 1;
    }
  }
  return 0;
}

std::string UnescapeString(std::string_view body, std::string* out) {
  out->clear();
  for (size_t i = 0; i < body.size();) {
    if (body[i] != '\\' || i + 1 >= body.size()) {
      out->push_back(body[i++]);
      continue;
    }
    const char c = body[i + 1];
    static constexpr std::string_view kSimple = "\\'\"abfnrtv";
    static constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
    const size_t simple = kSimple.find(c);
    if (simple != std::string_view::npos) {
      out->push_back(kMeaning[simple]);
      i += 2;
    } else if (c == '\n') {
      i += 2;
    } else if (c >= '0' && c <= '7') {
      char32_t value = 0;
      size_t k = i + 1;
      for (; k < body.size() && k < i + 4 && body[k] >= '0' && body[k] <= '7'; ++k) {
        value = value * 8 + static_cast<char32_t>(body[k] - '0');
      }
      AppendUtf8(value, out);
      i = k;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      char32_t value = 0;
      if (!ReadHex(body, i + 2, digits, &value)) {
        return std::string("truncated \\") + c + " escape in a string";
      }
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
        return std::string("a \\") + c + " escape in a string is no character";
      }
      AppendUtf8(value, out);
      i += 2 + digits;
    } else if (c == 'N') {
      return "\\N escapes in strings are not supported: write the character itself";
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      size_t next = i + 1;
      AppendEscapedForm(DecodeUtf8(body, &next), out);
      i = next;
    } else {
      out->push_back('\\');
      out->push_back(c);
      i += 2;
    }
  }
  return "";
}

bool ParseInteger(std::string_view text, int base, std::string* digits) {
  text = StripRight(StripLeft(text, "", true), "", true);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const bool zero = text.size() > 2 && text[0] == '0';
  const char kind = zero ? static_cast<char>(text[1] | 0x20) : '\0';
  const int prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
  if (prefix != 0 && (base == prefix || base == 0)) {
    base = prefix;
    text.remove_prefix(text[2] == '_' ? 3 : 2);
  } else if (base == 0) {
    base = 10;
    if (zero && text.find_first_not_of("0_") != std::string_view::npos) return false;
  }
  if (base < 2 || base > 36 || text.empty() || MatchDigits(text, base) != text.size()) return false;
  const auto underscores = static_cast<size_t>(std::count(text.begin(), text.end(), '_'));
  if (text.size() - underscores > kMaxIntegerDigits) return false;
  if (!DigitsToDecimal(WithoutUnderscores(text), base, digits)) return false;
  if (negative && *digits != "0") digits->insert(digits->begin(), '-');
  return true;
}

bool ParseFloat(std::string_view text, double* value, Meter* meter) {
  text = StripRight(StripLeft(text, "", true), "", true);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (IsWord(text, "inf") || IsWord(text, "infinity")) {
    *value = std::numeric_limits<double>::infinity();
  } else if (IsWord(text, "nan")) {
    *value = std::numeric_limits<double>::quiet_NaN();
  } else {
    Text plain(meter);
    if (text.find('_') != std::string_view::npos) {
      for (size_t i = 0; i < text.size(); ++i) {
        const bool between = i > 0 && i + 1 < text.size() && DigitValue(text[i - 1]) < 10 &&
                             DigitValue(text[i + 1]) < 10;
        if (text[i] == '_' && !between) return false;
      }
      plain.reserve(text.size());
      for (const char c : text) {
        if (c != '_') plain.push_back(c);
      }
      text = plain;
    }
    if (text.empty() || (DigitValue(text[0]) >= 10 && text[0] != '.')) return false;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, *value);
    if (result.ptr != end) return false;
    if (result.ec == std::errc::result_out_of_range) {
      const size_t exponent = text.find_first_of("eE");
      const bool tiny = text[0] == '0' ||
                        (exponent != std::string_view::npos && text.substr(exponent + 1, 1) == "-");
      *value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    } else if (result.ec != std::errc()) {
      return false;
    }
  }
  if (negative) *value = -*value;
  return true;
}

}  // namespace qinfer::tokenizer::jinja
