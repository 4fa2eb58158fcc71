// The lexer and the grammar in one: what may come next is a state, and open brackets are a stack.
#include "format/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "format/tensor_table.h"

namespace qinfer::format {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

void AppendCodePoint(uint32_t c, std::string* out) {
  const auto put = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | (c >> 6));
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3f));
    put(0x80 | ((c >> 6) & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

// Whether a valid number that is not 0 is below 1: where it fits no double, that tells the two ends
// apart.
bool IsSmall(std::string_view number) {
  const size_t e = std::min(number.find_first_of("eE"), number.size());
  const std::string_view mantissa = number.substr(0, e);
  if (e < number.size() && number[e + 1] == '-') return true;
  if (e < number.size()) return false;
  return mantissa.find_first_of("123456789") > mantissa.find('.');
}

}  // namespace

JsonText::JsonText(std::string_view text, std::string where, const JsonLimits& limits,
                   JsonEvents* events)
    : text_(text), where_(std::move(where)), limits_(limits), events_(events) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) at_ = kByteOrderMark.size();
}

StatusOr<bool> JsonText::Step(size_t stretch) {
  const size_t until = at_ + std::min(std::max(stretch, size_t{1}), text_.size() - at_);
  do {
    while (at_ < until && IsSpace(text_[at_])) ++at_;
    if (AtEnd() && want_ == Want::kNothing) return true;
    if (!AtEnd() && IsSpace(text_[at_])) return false;
    const Status status = Next();
    if (!status.ok()) {
      return Annotate(status, StrCat(where_, where_.empty() ? "" : ": ", "before byte ", at_));
    }
  } while (at_ < until);
  return AtEnd() && want_ == Want::kNothing;
}

Status JsonText::Invalid(const char* why) const {
  return FormatError(StrCat("not valid JSON: ", why));
}

Status JsonText::TooLong() const {
  return FormatError(StrCat("a text or number of more than ", limits_.max_token_bytes, " bytes"));
}

Status JsonText::Next() {
  if (AtEnd()) return Invalid("the document ends too early");
  const char c = text_[at_++];
  switch (want_) {
    case Want::kValueOrEnd:
      return c == ']' ? Close(false) : Value(c);
    case Want::kValue:
      return Value(c);
    case Want::kKeyOrEnd:
      if (c == '}') return Close(true);
      return c == '"' ? Key() : Invalid("a key or } is expected");
    case Want::kKey:
      return c == '"' ? Key() : Invalid("a key is expected");
    case Want::kColon:
      if (c != ':') return Invalid("a colon is expected");
      want_ = Want::kValue;
      return OkStatus();
    case Want::kCommaOrEnd: {
      const bool object = open_.back() == '{';
      if (c == (object ? '}' : ']')) return Close(object);
      if (c != ',') return Invalid(object ? ", or } is expected" : ", or ] is expected");
      want_ = object ? Want::kKey : Want::kValue;
      return OkStatus();
    }
    case Want::kNothing:
      return Invalid("something follows the document");
  }
  return InternalError("a JSON parser in no state");
}

Status JsonText::Open(bool object) {
  if (open_.size() == limits_.max_depth) {
    return FormatError(
        StrCat("objects and arrays nested deeper than ", limits_.max_depth, " at byte ", at_));
  }
  open_.push_back(object ? '{' : '[');
  want_ = object ? Want::kKeyOrEnd : Want::kValueOrEnd;
  return object ? events_->OnStartObject() : events_->OnStartArray();
}

Status JsonText::Close(bool object) {
  open_.pop_back();
  AfterValue();
  return object ? events_->OnEndObject() : events_->OnEndArray();
}

Status JsonText::Value(char first) {
  switch (first) {
    case '{':
      return Open(true);
    case '[':
      return Open(false);
    case '"': {
      std::string_view value;
      QINFER_RETURN_IF_ERROR(String(&value));
      AfterValue();
      return events_->OnString(value);
    }
    case 't':
      QINFER_RETURN_IF_ERROR(Literal("true"));
      AfterValue();
      return events_->OnBool(true);
    case 'f':
      QINFER_RETURN_IF_ERROR(Literal("false"));
      AfterValue();
      return events_->OnBool(false);
    case 'n':
      QINFER_RETURN_IF_ERROR(Literal("null"));
      AfterValue();
      return events_->OnNull();
    default:
      if (first != '-' && !IsDigit(first)) return Invalid("a value is expected");
      --at_;
      return Number();
  }
}

Status JsonText::Literal(std::string_view word) {
  if (text_.substr(at_ - 1, word.size()) != word) return Invalid("true, false or null is expected");
  at_ += word.size() - 1;
  return OkStatus();
}

Status JsonText::Key() {
  std::string_view key;
  QINFER_RETURN_IF_ERROR(String(&key));
  want_ = Want::kColon;
  return events_->OnKey(key);
}

Status JsonText::Number() {
  const size_t begin = at_, stop = EndOfToken(begin);
  const auto digits = [&] {
    const size_t from = at_;
    while (at_ < stop && IsDigit(text_[at_])) ++at_;
    return at_ > from;
  };
  const bool negative = Take('-');
  if (!Take('0') && !digits()) return Invalid("a digit is expected");
  bool whole = true;
  if (Take('.')) {
    whole = false;
    if (!digits()) return Invalid("a digit is expected");
  }
  if (Take('e') || Take('E')) {
    whole = false;
    if (!Take('+')) Take('-');
    if (!digits()) return Invalid("a digit is expected");
  }
  if (at_ >= stop && !AtEnd() && IsDigit(text_[at_])) return TooLong();
  const char* const from = text_.data() + begin;
  const char* const to = text_.data() + at_;
  AfterValue();
  if (whole) {
    uint64_t large = 0;
    int64_t small = 0;
    if (!negative && std::from_chars(from, to, large).ec == std::errc()) {
      return events_->OnUint(large);
    }
    if (negative && std::from_chars(from, to, small).ec == std::errc()) {
      return small < 0 ? events_->OnInt(small) : events_->OnUint(0);
    }
  }
  double value = 0;
  const std::errc error = std::from_chars(from, to, value).ec;
  if (error == std::errc::result_out_of_range && IsSmall(text_.substr(begin, at_ - begin))) {
    value = negative ? -0.0 : 0.0;
  } else if (error != std::errc() || !std::isfinite(value)) {
    return Invalid("a number is too large");
  }
  return events_->OnFloat(value);
}

// Where there is nothing to unescape, the text itself.
Status JsonText::String(std::string_view* out) {
  const size_t begin = at_, stop = EndOfToken(begin - 1);
  size_t copied = at_;  // what comes before is in `unescaped_`
  bool escapes = false;
  unsigned char any = 0;
  for (;;) {
    if (at_ >= stop) return AtEnd() ? Invalid("a text has no end") : TooLong();
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') break;
    if (c < 0x20) return Invalid("a control character in a text");
    any |= c;
    ++at_;
    if (c != '\\') continue;
    if (!escapes) unescaped_.clear();
    escapes = true;
    unescaped_.append(text_.substr(copied, at_ - 1 - copied));
    QINFER_RETURN_IF_ERROR(Escape());
    copied = at_;
  }
  const std::string_view raw = text_.substr(begin, at_ - begin);
  if (any >= 0x80 && !IsValidUtf8(raw)) return Invalid("a text is not valid UTF-8");
  if (escapes) unescaped_.append(text_.substr(copied, at_ - copied));
  *out = escapes ? std::string_view(unescaped_) : raw;
  ++at_;
  return OkStatus();
}

Status JsonText::CodeUnit(uint32_t* out) {
  *out = 0;
  const std::string_view digits = text_.substr(at_, 4);
  const char* const end = digits.data() + digits.size();
  if (digits.size() != 4 || std::from_chars(digits.data(), end, *out, 16).ptr != end) {
    return Invalid("4 hexadecimal digits are expected");
  }
  at_ += 4;
  return OkStatus();
}

Status JsonText::Escape() {
  if (AtEnd()) return Invalid("a text has no end");
  const char c = text_[at_++];
  constexpr std::string_view kShort = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
  if (const size_t i = kShort.find(c); i != std::string_view::npos) {
    unescaped_.push_back(kMeant[i]);
    return OkStatus();
  }
  if (c != 'u') return Invalid("an unknown escape in a text");
  uint32_t unit = 0;
  QINFER_RETURN_IF_ERROR(CodeUnit(&unit));
  if (unit >= 0xd800 && unit <= 0xdfff) {
    uint32_t low = 0;
    if (unit >= 0xdc00 || !Take('\\') || !Take('u')) return Invalid("half a surrogate pair");
    QINFER_RETURN_IF_ERROR(CodeUnit(&low));
    if (low < 0xdc00 || low > 0xdfff) return Invalid("half a surrogate pair");
    unit = 0x10000 + ((unit & 0x3ff) << 10 | (low & 0x3ff));
  }
  AppendCodePoint(unit, &unescaped_);
  return OkStatus();
}

}  // namespace qinfer::format
