// The lexer's two modes: text between tags, and what stands inside a tag. String escapes and number
// forms are in jinja_literal.cpp.
#include "tokenizer/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "tokenizer/jinja_literal.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

// A text between tags is a statement of its own, which takes as much as three nodes.
constexpr size_t kTextWeight = 3;
constexpr size_t kNone = std::string_view::npos;
// Longest first.
constexpr std::array<std::string_view, 25> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",",
};

// Any line end becomes \n, and one at the very end goes.
std::string NormalizeNewlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out.push_back(text[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& name) : source_(std::move(source)), name_(name) {
    line_starts_.push_back(0);
    for (size_t i = 0; i < source_.size(); ++i) {
      if (source_[i] == '\n') line_starts_.push_back(i + 1);
    }
  }

  StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      QINFER_RETURN_IF_ERROR(LexText());
      QINFER_RETURN_IF_ERROR(CheckTokens());
    }
    Push(TokenKind::kEnd, "", source_.size());
    return std::move(tokens_);
  }

 private:
  Status LexText();
  Status LexComment(size_t begin);
  Status LexRaw(size_t begin, size_t body);
  Status LexTag(size_t begin, bool variable);
  Status LexInTag(std::vector<char>* open);
  size_t MatchRawBegin(size_t at) const;
  size_t MatchTagEnd(bool variable) const;
  Status LexOperator(std::vector<char>* open);
  Status CheckTokens() const {
    if (weight_ <= kMaxTokens) return OkStatus();
    return Error(StrCat("the template has over ", kMaxTokens,
                        " tokens (names, numbers, operators, tags), which is the limit"),
                 at_);
  }

  void Push(TokenKind kind, std::string text, size_t at) {
    const auto line = std::upper_bound(line_starts_.begin(), line_starts_.end(), at);
    const auto index = static_cast<size_t>(line - line_starts_.begin());
    weight_ += kind == TokenKind::kData ? kTextWeight : 1;
    tokens_.push_back({kind, std::move(text), static_cast<uint32_t>(index),
                       static_cast<uint32_t>(at - line_starts_[index - 1] + 1)});
  }
  void PushData(std::string_view text, size_t at) {
    if (!text.empty()) Push(TokenKind::kData, std::string(text), at);
  }
  Status Error(const std::string& what, size_t at) const {
    const auto line = std::upper_bound(line_starts_.begin(), line_starts_.end(), at);
    const auto index = static_cast<size_t>(line - line_starts_.begin());
    return FormatError(
        StrCat(name_, ":", index, ":", at - line_starts_[index - 1] + 1, ": ", what));
  }
  bool StartsWith(size_t at, std::string_view what) const {
    return std::string_view(source_).substr(std::min(at, source_.size())).substr(0, what.size()) ==
           what;
  }
  size_t SkipSpace(size_t at) const {
    const std::string_view rest = std::string_view(source_).substr(at);
    return source_.size() - StripLeft(rest, "", true).size();
  }
  // The text before a tag whose sign is `sign`, less the white space that goes with it.
  std::string_view TextBefore(size_t begin, char sign, bool variable) const;

  const std::string source_;
  const std::string& name_;
  std::vector<size_t> line_starts_;
  std::vector<Token> tokens_;
  size_t weight_ = 0;
  size_t at_ = 0;
  bool line_starting_ = true;  // the last match ended with a newline
};

std::string_view Lexer::TextBefore(size_t begin, char sign, bool variable) const {
  const std::string_view text = std::string_view(source_).substr(at_, begin - at_);
  if (sign == '-') return StripRight(text, "", true);
  if (sign == '+' || variable) return text;
  const size_t newline = text.rfind('\n');
  const size_t line = newline == kNone ? 0 : newline + 1;
  if (line == 0 && !line_starting_) return text;
  const std::string_view tail = text.substr(line);
  return StripLeft(tail, "", true).empty() ? text.substr(0, line) : text;
}

// {%[-+]? raw -?%}: where the raw text begins, or npos.
size_t Lexer::MatchRawBegin(size_t at) const {
  size_t i = at + 2;
  if (StartsWith(i, "-") || StartsWith(i, "+")) ++i;
  i = SkipSpace(i);
  if (!StartsWith(i, "raw")) return kNone;
  i = SkipSpace(i + 3);
  if (StartsWith(i, "-%}")) return SkipSpace(i + 3);
  return StartsWith(i, "%}") ? i + 2 : kNone;
}

Status Lexer::LexText() {
  size_t begin = at_;
  while (true) {
    begin = source_.find('{', begin);
    if (begin == kNone || StartsWith(begin, "{{") || StartsWith(begin, "{%") ||
        StartsWith(begin, "{#")) {
      break;
    }
    ++begin;
  }
  if (begin == kNone) {
    PushData(std::string_view(source_).substr(at_), at_);
    at_ = source_.size();
    return OkStatus();
  }
  const char type = source_[begin + 1];
  const char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
  const bool has_sign = sign == '-' || sign == '+';
  PushData(TextBefore(begin, sign, type == '{'), at_);
  at_ = begin + (has_sign ? 3 : 2);
  if (type == '#') return LexComment(begin);
  if (type == '%') {
    const size_t raw = MatchRawBegin(begin);
    if (raw != kNone) return LexRaw(begin, raw);
  }
  return LexTag(begin, type == '{');
}

Status Lexer::LexComment(size_t begin) {
  const size_t end = source_.find("#}", at_);
  if (end == kNone) return Error("missing end of comment tag", begin);
  const char sign = end > at_ ? source_[end - 1] : '\0';
  const size_t body = at_;
  at_ = end + 2;
  if (sign == '-') {
    at_ = SkipSpace(at_);
  } else if (sign != '+' && StartsWith(at_, "\n")) {
    ++at_;
  }
  line_starting_ = at_ > body && source_[at_ - 1] == '\n';
  return OkStatus();
}

Status Lexer::LexRaw(size_t begin, size_t body) {
  at_ = body;
  line_starting_ = source_[body - 1] == '\n';
  for (size_t tag = source_.find("{%", body); tag != kNone; tag = source_.find("{%", tag + 1)) {
    size_t i = tag + 2;
    const char sign = i < source_.size() ? source_[i] : '\0';
    if (sign == '-' || sign == '+') ++i;
    i = SkipSpace(i);
    if (!StartsWith(i, "endraw")) continue;
    i = SkipSpace(i + 6);
    size_t end = kNone;
    if (StartsWith(i, "-%}")) {
      end = SkipSpace(i + 3);
    } else if (StartsWith(i, "+%}")) {
      end = i + 3;
    } else if (StartsWith(i, "%}")) {
      end = StartsWith(i + 2, "\n") ? i + 3 : i + 2;
    } else {
      continue;
    }
    PushData(TextBefore(tag, sign, false), at_);
    at_ = end;
    line_starting_ = source_[end - 1] == '\n';
    return OkStatus();
  }
  return Error("missing end of raw directive", begin);
}

// Where the text after the tag's end begins, if it ends here.
size_t Lexer::MatchTagEnd(bool variable) const {
  if (variable) {
    if (StartsWith(at_, "-}}")) return SkipSpace(at_ + 3);
    return StartsWith(at_, "}}") ? at_ + 2 : kNone;
  }
  if (StartsWith(at_, "+%}")) return at_ + 3;
  if (StartsWith(at_, "-%}")) return SkipSpace(at_ + 3);
  if (!StartsWith(at_, "%}")) return kNone;
  return StartsWith(at_ + 2, "\n") ? at_ + 3 : at_ + 2;
}

Status Lexer::LexTag(size_t begin, bool variable) {
  Push(variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "", begin);
  std::vector<char> open;
  while (at_ < source_.size()) {
    const size_t end = open.empty() ? MatchTagEnd(variable) : kNone;
    if (end != kNone) {
      Push(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "", at_);
      at_ = end;
      line_starting_ = source_[end - 1] == '\n';
      return OkStatus();
    }
    QINFER_RETURN_IF_ERROR(LexInTag(&open));
    QINFER_RETURN_IF_ERROR(CheckTokens());
  }
  return OkStatus();  // the parser says what is missing
}

Status Lexer::LexInTag(std::vector<char>* open) {
  const size_t begin = at_;
  size_t next = at_;
  const char32_t c = DecodeUtf8(source_, &next);
  if (IsSpace(c)) {
    at_ = SkipSpace(at_);
    return OkStatus();
  }
  const std::string_view rest = std::string_view(source_).substr(at_);
  if (c >= '0' && c <= '9') {
    const NumberLiteral number = MatchNumber(rest);
    if (!number.error.empty()) return Error(number.error, begin);
    Push(number.is_float ? TokenKind::kFloat : TokenKind::kInteger, number.text, begin);
    at_ += number.length;
    return OkStatus();
  }
  if (IsIdentifierStart(c)) {
    while (at_ < source_.size()) {
      next = at_;
      if (!IsIdentifierPart(DecodeUtf8(source_, &next))) break;
      at_ = next;
    }
    Push(TokenKind::kName, source_.substr(begin, at_ - begin), begin);
    return OkStatus();
  }
  if (c == '\'' || c == '"') {
    const size_t length = MatchString(rest);
    if (length == 0) return Error("a string is not closed", begin);
    std::string text;
    const std::string error = UnescapeString(rest.substr(1, length - 2), &text);
    if (!error.empty()) return Error(error, begin);
    Push(TokenKind::kString, std::move(text), begin);
    at_ += length;
    return OkStatus();
  }
  return LexOperator(open);
}

Status Lexer::LexOperator(std::vector<char>* open) {
  const auto* found = std::find_if(kOperators.begin(), kOperators.end(),
                                   [this](std::string_view op) { return StartsWith(at_, op); });
  if (found == kOperators.end()) {
    size_t next = at_;
    DecodeUtf8(source_, &next);
    return Error(StrCat("unexpected character '", source_.substr(at_, next - at_), "'"), at_);
  }
  const char c = found->front();
  if (c == '(' || c == '[' || c == '{') {
    open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
  } else if (c == ')' || c == ']' || c == '}') {
    if (open->empty()) return Error(StrCat("unexpected '", std::string(*found), "'"), at_);
    if (open->back() != c) {
      return Error(StrCat("unexpected '", std::string(1, c), "', expected '",
                          std::string(1, open->back()), "'"),
                   at_);
    }
    open->pop_back();
  }
  Push(TokenKind::kOperator, std::string(*found), at_);
  at_ += found->size();
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<Token>> Tokenize(std::string_view text, const std::string& name) {
  if (text.size() > kMaxTemplateBytes) {
    return FormatError(StrCat(name, ": a chat template of ", text.size(), " bytes; the limit is ",
                              kMaxTemplateBytes));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != kNone) {
    return FormatError(StrCat(name, ": invalid UTF-8 at byte ", invalid));
  }
  return Lexer(NormalizeNewlines(text), name).Run();
}

}  // namespace qinfer::tokenizer::jinja
