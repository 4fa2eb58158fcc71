// Format specifications of single fields: integers, floats, text.
#include "tokenizer/jinja_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

constexpr int64_t kMaxPrecision = 1000;

bool IsAlign(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

int64_t ReadCount(std::string_view text, size_t* at) {
  int64_t value = 0;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
    value = std::min<int64_t>(value * 10 + (text[*at] - '0'), int64_t{1} << 40);
    ++*at;
  }
  return value;
}

// Groups of three (or four, in other bases) from the right.
template <typename String>
void AppendGrouped(std::string_view digits, char separator, size_t group, String* out) {
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % group == 0) out->push_back(separator);
    out->push_back(digits[i]);
  }
}

char UpperAscii(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

bool IsNegative(const Value& integer) {
  return integer.Is(Kind::kBigInt) ? integer.AsString()[0] == '-' : integer.AsInt() < 0;
}

std::string SignOf(bool negative, char sign) {
  if (negative) return std::string(1, '-');
  return sign == '-' ? std::string() : std::string(1, sign);
}

void AppendInteger(Context* context, const Value& value, const FieldSpec& spec, Text* out) {
  const char type = spec.type == '\0' || spec.type == 'n' ? 'd' : spec.type;
  if (type == 'c') {
    const int64_t code = value.Is(Kind::kBigInt) ? -1 : value.AsInt();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      context->Fail("%c arg not in range(0x110000)");
      return;
    }
    AppendUtf8(static_cast<char32_t>(code), out);
    return;
  }
  const int base = type == 'd' ? 10 : type == 'b' ? 2 : type == 'o' ? 8 : 16;
  if (base != 10 && value.Is(Kind::kBigInt)) {
    context->FailUnsupported("integers beyond 64 bits are written in decimal only");
    return;
  }
  *out += SignOf(IsNegative(value), spec.sign);
  if (spec.alternate && base != 10) {
    out->push_back('0');
    out->push_back(type);
  }
  char buffer[72];
  std::string_view digits;
  if (value.Is(Kind::kBigInt)) {
    digits = value.AsString();
    if (digits[0] == '-') digits.remove_prefix(1);
  } else {
    const int64_t i = value.AsInt();
    const uint64_t magnitude = i < 0 ? ~static_cast<uint64_t>(i) + 1 : static_cast<uint64_t>(i);
    char* end = std::to_chars(buffer, buffer + sizeof(buffer), magnitude, base).ptr;
    if (type == 'X') std::transform(buffer, end, buffer, UpperAscii);
    digits = std::string_view(buffer, static_cast<size_t>(end - buffer));
  }
  if (spec.grouping != '\0') {
    AppendGrouped(digits, spec.grouping, base == 10 ? 3 : 4, out);
  } else {
    *out += digits;
  }
}

std::string FormatFloating(double value, const FieldSpec& spec) {
  std::string digits;
  const double magnitude = std::fabs(value);
  if (spec.type == '\0' && spec.precision < 0) {
    digits = FloatRepr(magnitude);
  } else {
    const char type = spec.type == '\0' || spec.type == 'n' ? 'g' : spec.type;
    digits = FormatDouble(magnitude, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
    // Without a type a float still looks like one.
    if (spec.type == '\0' && digits.find_first_of(".en") == std::string::npos) digits += ".0";
  }
  if (spec.grouping != '\0') {
    const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    std::string grouped;
    AppendGrouped(std::string_view(digits).substr(0, whole), spec.grouping, 3, &grouped);
    digits = grouped + digits.substr(whole);
  }
  return SignOf(std::signbit(value) && !std::isnan(value), spec.sign) + digits;
}

}  // namespace

bool ParseFieldSpec(std::string_view text, FieldSpec* spec) {
  size_t at = 0;
  if (!text.empty()) {
    size_t next = 0;
    DecodeUtf8(text, &next);
    if (next < text.size() && IsAlign(text[next])) {
      spec->fill = std::string(text.substr(0, next));
      spec->align = text[next];
      at = next + 1;
    } else if (IsAlign(text[0])) {
      spec->align = text[0];
      at = 1;
    }
  }
  const auto is = [&](std::string_view set) {
    return at < text.size() && set.find(text[at]) != std::string_view::npos;
  };
  if (is("+- ")) spec->sign = text[at++];
  if (is("#")) {
    spec->alternate = true;
    ++at;
  }
  if (is("0")) {
    if (spec->align == '\0') {
      spec->fill.assign(1, '0');
      spec->align = '=';
    }
    ++at;
  }
  spec->width = ReadCount(text, &at);
  if (is(",_")) spec->grouping = text[at++];
  if (is(".")) {
    ++at;
    if (!is("0123456789")) return false;
    spec->precision = ReadCount(text, &at);
  }
  if (is("bcdeEfFgGnosxX%")) spec->type = text[at++];
  return at == text.size();
}

std::string FormatDouble(double value, char type, int64_t precision, bool alternate) {
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (std::isnan(value)) return upper ? "NAN" : type == '%' ? "nan%" : "nan";
  if (std::isinf(value)) {
    return StrCat(value < 0 ? "-" : "", upper ? "INF" : "inf", type == '%' ? "%" : "");
  }
  const char kind = type == '%' ? 'f' : static_cast<char>(type | 0x20);
  if (type == '%') value *= 100;
  precision = std::min(precision, kMaxPrecision);
  if (kind == 'g' && precision == 0) precision = 1;
  std::string buffer(static_cast<size_t>(precision) + 400, '\0');
  const auto format = kind == 'e'   ? std::chars_format::scientific
                      : kind == 'f' ? std::chars_format::fixed
                                    : std::chars_format::general;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format,
                                 static_cast<int>(precision));
  std::string out(buffer.data(), end.ptr);
  if (alternate && out.find('.') == std::string::npos) {
    const size_t e = out.find('e');
    out.insert(out.begin() + static_cast<ptrdiff_t>(std::min(e, out.size())), '.');
  }
  if (upper) std::transform(out.begin(), out.end(), out.begin(), UpperAscii);
  if (type == '%') out.push_back('%');
  return out;
}

void AppendPadded(std::string_view text, const FieldSpec& spec, bool numeric, Text* out) {
  const auto size = static_cast<int64_t>(CountCodePoints(text));
  const auto pad = static_cast<uint64_t>(std::max<int64_t>(spec.width - size, 0));
  const char align = spec.align != '\0' ? spec.align : numeric ? '>' : '<';
  uint64_t left = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
  size_t prefix = 0;  // what stands before the filling
  if (align == '=') {
    prefix = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    if (spec.alternate && text.size() > prefix + 1 && text[prefix] == '0' &&
        std::string_view("xXob").find(text[prefix + 1]) != std::string_view::npos) {
      prefix += 2;
    }
  }
  MakeRoom(out, text.size() + out->get_allocator().meter()->Require(pad, spec.fill.size()));
  *out += text.substr(0, prefix);
  AppendRepeated(spec.fill, left, out);
  *out += text.substr(prefix);
  AppendRepeated(spec.fill, pad - left, out);
}

void AppendField(Context* context, const Value& value, const FieldSpec& spec, Text* out) {
  const auto bad = [&]() {
    context->Fail(StrCat("Unknown format code '", std::string(1, spec.type),
                         "' for object of type '", std::string(TypeName(value)), "'"));
  };
  static constexpr std::string_view kFloatTypes = "eEfFgG%";
  const bool float_type = kFloatTypes.find(spec.type) != std::string_view::npos;
  const bool plain = spec.type == '\0';
  if (value.Is(Kind::kBool) && plain && spec.width == 0 && spec.align == '\0') {
    AppendText(context, value, out);
    return;
  }
  if (value.IsNumber()) {
    if (spec.type == 's') return bad();
    if (value.Is(Kind::kFloat) || (float_type && !plain)) {
      if (!plain && !float_type && spec.type != 'n') return bad();
      AppendPadded(FormatFloating(ToDouble(value), spec), spec, true, out);
      return;
    }
    if (spec.precision >= 0) {
      context->Fail("Precision not allowed in integer format specifier");
      return;
    }
    Text digits(context->meter());
    AppendInteger(context, value, spec, &digits);
    if (context->ok()) AppendPadded(digits, spec, true, out);
    return;
  }
  if (!value.IsString()) {
    const bool empty = plain && spec.width == 0 && spec.align == '\0' && spec.precision < 0 &&
                       spec.sign == '-' && !spec.alternate && spec.grouping == '\0';
    if (empty) {
      AppendText(context, value, out);
      return;
    }
    context->Fail(StrCat("unsupported format string passed to ", std::string(TypeName(value)),
                         ".__format__"));
    return;
  }
  if (!plain && spec.type != 's') return bad();
  if (spec.align == '=' && spec.fill != "0") {
    context->Fail("'=' alignment not allowed in string format specifier");
    return;
  }
  std::string_view text = value.AsString();
  if (spec.precision >= 0) {
    text = text.substr(0, ByteOffset(text, static_cast<size_t>(spec.precision)));
  }
  FieldSpec padded = spec;
  if (padded.align == '=') padded.align = '<';
  AppendPadded(text, padded, false, out);
}

}  // namespace qinfer::tokenizer::jinja
