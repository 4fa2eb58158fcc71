// The layout of one formatted field, as Python's format specifications give it. Shared by
// text % args, text.format(...) and filters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/jinja_context.h"

namespace qinfer::tokenizer::jinja {

struct FieldSpec {
  std::string fill = " ";  // one character
  char align = '\0';       // < > = ^
  char sign = '-';         // - + or space
  bool alternate = false;  // #
  char grouping = '\0';    // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

// Reads [[fill]align][sign][#][0][width][grouping][.precision][type]; false if it is malformed.
bool ParseFieldSpec(std::string_view text, FieldSpec* spec);

// A number in decimal notation of type e, f, g, % or their upper-case forms.
std::string FormatDouble(double value, char type, int64_t precision, bool alternate);

// format(value, spec), appended. Fails in the context on a type that does not fit.
void AppendField(Context* context, const Value& value, const FieldSpec& spec, Text* out);

// Text that is padded to the spec's width, appended; `numeric` text goes right by default and may
// be filled after its sign.
void AppendPadded(std::string_view text, const FieldSpec& spec, bool numeric, Text* out);

}  // namespace qinfer::tokenizer::jinja
