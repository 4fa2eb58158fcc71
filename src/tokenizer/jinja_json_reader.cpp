// JSON text to values: strict RFC 8259, in place, so that no more memory is taken than the values
// have. Writing is in jinja_json.cpp.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/jinja_json.h"
#include "tokenizer/jinja_literal.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

class JsonReader {
 public:
  JsonReader(Context* context, std::string_view text) : context_(context), text_(text) {}

  bool ReadAll(Value* out) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;
    if (!Read(0, out)) return false;
    SkipSpace();
    return at_ == text_.size() || Fail("expected nothing more");
  }
  const std::string& error() const { return error_; }

 private:
  bool Fail(std::string_view what) {
    if (error_.empty()) error_ = StrCat("byte ", at_, ": ", std::string(what));
    return false;
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Skip(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void SkipSpace() { at_ = std::min(text_.find_first_not_of(" \t\n\r", at_), text_.size()); }
  size_t SkipDigits() {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - start;
  }

  bool Read(uint32_t depth, Value* out);
  bool ReadList(uint32_t depth, Value* out);
  bool ReadDict(uint32_t depth, Value* out);
  bool ReadWord(std::string_view word, const Value& value, Value* out);
  bool ReadNumber(Value* out);
  bool ReadString(Value* out);
  bool ReadEscape(Text* out);
  bool ReadUnit(char32_t* unit);

  Context* context_;
  const std::string_view text_;
  size_t at_ = 0;
  std::string error_;
};

bool JsonReader::Read(uint32_t depth, Value* out) {
  if (!context_->ok()) return false;
  SkipSpace();
  switch (Peek()) {
    case '[':
      return ReadList(depth + 1, out);
    case '{':
      return ReadDict(depth + 1, out);
    case '"':
      return ReadString(out);
    case 'n':
      return ReadWord("null", Value::None(), out);
    case 't':
      return ReadWord("true", Value::Bool(true), out);
    case 'f':
      return ReadWord("false", Value::Bool(false), out);
    default:
      return ReadNumber(out);
  }
}

bool JsonReader::ReadList(uint32_t depth, Value* out) {
  if (depth >= kMaxValueDepth) return Fail("nested too deeply (over 99 levels)");
  ++at_;
  Items items(context_->meter());
  SkipSpace();
  if (!Skip(']')) {
    do {
      Value item;
      if (!Read(depth, &item)) return false;
      items.push_back(std::move(item));
      SkipSpace();
    } while (Skip(','));
    if (!Skip(']')) return Fail("expected ',' or ']'");
  }
  *out = context_->List(std::move(items));
  return true;
}

bool JsonReader::ReadDict(uint32_t depth, Value* out) {
  if (depth >= kMaxValueDepth) return Fail("nested too deeply (over 99 levels)");
  ++at_;
  auto dict = MakeCounted<DictObject>(context_->meter());
  SkipSpace();
  if (!Skip('}')) {
    do {
      SkipSpace();
      if (Peek() != '"') return Fail("expected a string as the key");
      Value key;
      if (!ReadString(&key)) return false;
      SkipSpace();
      if (!Skip(':')) return Fail("expected ':'");
      Value value;
      if (!Read(depth, &value)) return false;
      dict->Set(key, std::move(value));
      SkipSpace();
    } while (Skip(','));
    if (!Skip('}')) return Fail("expected ',' or '}'");
  }
  *out = Value::Of(Kind::kDict, std::move(dict));
  return true;
}

bool JsonReader::ReadWord(std::string_view word, const Value& value, Value* out) {
  if (text_.substr(at_, word.size()) != word) return Fail("expected a value");
  at_ += word.size();
  *out = value;
  return true;
}

bool JsonReader::ReadNumber(Value* out) {
  const size_t start = at_;
  Skip('-');
  const bool zero = Peek() == '0';
  const size_t whole = SkipDigits();
  if (whole == 0) return Fail("expected a value");
  if (zero && whole > 1) return Fail("a number with a leading zero");
  bool integer = true;
  if (Skip('.')) {
    integer = false;
    if (SkipDigits() == 0) return Fail("expected a digit");
  }
  if (Skip('e') || Skip('E')) {
    integer = false;
    if (!Skip('+')) Skip('-');
    if (SkipDigits() == 0) return Fail("expected a digit");
  }
  const std::string_view digits = text_.substr(start, at_ - start);
  if (integer) {
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    *out = result.ec == std::errc() ? Value::Int(value)
                                    : Value::BigInt(Text(digits, context_->meter()));
    return true;
  }
  double value = 0;
  if (!ParseFloat(digits, &value, context_->meter()) || !std::isfinite(value)) {
    return Fail("a number that is too large");
  }
  *out = Value::Float(value);
  return true;
}

bool JsonReader::ReadString(Value* out) {
  const size_t start = ++at_;
  bool escaped = false;
  while (Peek() != '"') {
    if (at_ == text_.size()) return Fail("a string without an end");
    if (static_cast<unsigned char>(text_[at_]) < 0x20)
      return Fail("a control character in a string");
    const bool escape = text_[at_] == '\\';
    escaped |= escape;
    at_ = std::min(at_ + (escape ? 2 : 1), text_.size());
  }
  const std::string_view body = text_.substr(start, at_ - start);
  const size_t invalid = FindInvalidUtf8(body);
  if (invalid != std::string_view::npos) {
    at_ = start + invalid;
    return Fail("not valid UTF-8");
  }
  Text text(context_->meter());
  text.reserve(body.size());
  if (!escaped) {
    text += body;
  } else {
    const size_t end = at_;
    for (at_ = start; at_ < end;) {
      const size_t plain = std::min(text_.find('\\', at_), end);
      text += text_.substr(at_, plain - at_);
      at_ = plain;
      if (at_ < end && !ReadEscape(&text)) return false;
    }
  }
  ++at_;
  *out = context_->String(std::move(text));
  return true;
}

// At the backslash. What an escape stands for is no longer than itself.
bool JsonReader::ReadEscape(Text* out) {
  static constexpr std::string_view kLetters = "\"\\/bfnrt";
  static constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
  const char letter = text_[at_ + 1];
  const size_t simple = kLetters.find(letter);
  if (simple != std::string_view::npos) {
    out->push_back(kMeaning[simple]);
    at_ += 2;
    return true;
  }
  if (letter != 'u') return Fail("an escape that JSON does not have");
  char32_t c = 0;
  if (!ReadUnit(&c)) return false;
  if (c >= 0xDC00 && c < 0xE000)
    return Fail("the second half of a surrogate pair without the first");
  if (c >= 0xD800 && c < 0xDC00) {
    char32_t low = 0;
    if (text_.substr(at_, 2) != "\\u" || !ReadUnit(&low) || low < 0xDC00 || low >= 0xE000) {
      return Fail("the first half of a surrogate pair without the second");
    }
    c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
  }
  AppendUtf8(c, out);
  return true;
}

bool JsonReader::ReadUnit(char32_t* unit) {
  const std::string_view digits = text_.substr(at_ + 2, 4);
  uint32_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() != 4 || result.ec != std::errc() || result.ptr != digits.data() + 4) {
    return Fail("expected four hexadecimal digits");
  }
  *unit = value;
  at_ += 6;
  return true;
}

}  // namespace

StatusOr<Value> ParseJson(Context* context, std::string_view text, const std::string& what) {
  JsonReader reader(context, text);
  Value value;
  bool read = false;
  try {
    read = reader.ReadAll(&value);
  } catch (const MemoryLimit&) {  // which the meter knows
  }
  if (const char* limit = context->meter()->over()) {
    return BudgetError(StrCat(what, ": larger than the limit ", limit, " allows"));
  }
  if (!read) return MisuseError(StrCat(what, ": not valid JSON: ", reader.error()));
  return value;
}

}  // namespace qinfer::tokenizer::jinja
