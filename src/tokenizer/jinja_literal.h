// Forms of literals inside tags: how long a number or string is and what it means. Used by the
// lexer, and by filters that read numbers from text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tokenizer/jinja_meter.h"

namespace qinfer::tokenizer::jinja {

struct NumberLiteral {
  size_t length = 0;
  bool is_float = false;
  std::string text;   // decimal, without underscores
  std::string error;  // not empty: what is wrong
};

// `text` begins with a digit.
NumberLiteral MatchNumber(std::string_view text);
// The length of the string literal that `text` begins with, quotes included; 0 if it is not closed.
size_t MatchString(std::string_view text);
// Python's escapes. Returns what is wrong, or nothing.
std::string UnescapeString(std::string_view body, std::string* out);

// int(text, base) of Python: false if it is no integer, or one of over 4300 digits. `*digits` gets
// canonical decimal digits, which may be beyond 64 bits for base 10 alone.
bool ParseInteger(std::string_view text, int base, std::string* digits);
// float(text) of Python. The meter, if there is one, counts the copy that underscores ask for.
bool ParseFloat(std::string_view text, double* value, Meter* meter);

}  // namespace qinfer::tokenizer::jinja
