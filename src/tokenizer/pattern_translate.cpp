// From Oniguruma's dialect (Ruby syntax, as tokenizer files use it) to PCRE2's: the same matches,
// or an error that names what cannot be said. Also evens out the Unicode versions: classes of PCRE2
// are widened by the code points that its tables do not know yet.
#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

namespace qinfer::tokenizer {
namespace {

constexpr std::string_view kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{"
    "205f}"
    "\\x{3000}";
constexpr std::string_view kNotSpaces =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{"
    "10ffff}";
constexpr std::string_view kHex = "0-9a-fA-F";
constexpr std::string_view kNotHex = "\\x{0}-/:-@G-`g-\\x{10ffff}";
constexpr std::string_view kWord =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr uint8_t kWordAdditions = kLetter | kMark | kDecimal;

struct NamedClass {
  std::string_view name, pcre;
  uint8_t additions;
};
constexpr NamedClass kNamedClasses[] = {
    {"L", "\\p{L}", kLetter},
    {"Letter", "\\p{L}", kLetter},
    {"M", "\\p{M}", kMark},
    {"Mark", "\\p{M}", kMark},
    {"N", "\\p{N}", kNumber},
    {"Number", "\\p{N}", kNumber},
    {"Nd", "\\p{Nd}", kDecimal},
    {"Digit", "\\p{Nd}", kDecimal},
    {"P", "\\p{P}", kPunctuation},
    {"Punctuation", "\\p{P}", kPunctuation},
    {"Punct", "\\p{P}$+<=>^`|~", kPunctuation},
    {"S", "\\p{S}", kSymbol},
    {"Symbol", "\\p{S}", kSymbol},
    {"Alpha", "\\p{Alphabetic}", kLetter},
    {"Alphabetic", "\\p{Alphabetic}", kLetter},
    {"Alnum", "\\p{Alphabetic}\\p{Nd}", kLetter | kDecimal},
    {"Upper", "\\p{Uppercase}", 0},
    {"Lower", "\\p{Lowercase}", 0},
};

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  StatusOr<std::string> Run() {
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      Status status;
      if (c == '\\') {
        status = Escape(false);
      } else if (c == '[') {
        status = Class(0);
      } else if (c == '(') {
        status = Group();
      } else if (c == '{') {
        status = Brace();
      } else {
        out_.push_back(c);
        ++pos_;
      }
      if (!status.ok()) return status;
    }
    return std::move(out_);
  }

 private:
  Status Unsupported(std::string_view what) const {
    return UnsupportedError(StrCat("pattern ", std::string(in_), ": ", std::string(what),
                                   " at offset ", pos_, " is not supported"));
  }
  bool At(std::string_view text) const { return in_.substr(pos_).substr(0, text.size()) == text; }

  // A class that PCRE2 spells as `members`: alone it needs brackets.
  void EmitMembers(std::string_view members, uint8_t additions, bool in_class, bool negated) {
    if (!in_class) out_.append(negated ? "[^" : "[");
    out_.append(members);
    if (additions != 0) AppendAdditionRanges(additions, &out_);
    if (!in_class) out_.push_back(']');
  }

  Status Property(bool in_class) {
    bool negated = in_[pos_ + 1] == 'P';
    const size_t open = pos_ + 2;
    if (open >= in_.size() || in_[open] != '{') return Unsupported("a property without braces");
    const size_t close = in_.find('}', open);
    if (close == std::string_view::npos) return Unsupported("a property without its closing brace");
    std::string_view name = in_.substr(open + 1, close - open - 1);
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    for (const char c : name)
      if ((c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_')
        return Unsupported("this property");
    pos_ = close + 1;
    if (name == "Space") {
      EmitMembers(negated && in_class ? kNotSpaces : kSpaces, 0, in_class, negated);
      return OkStatus();
    }
    for (const NamedClass& known : kNamedClasses) {
      if (known.name != name) continue;
      if (!negated) {
        EmitMembers(known.pcre, known.additions, in_class, false);
      } else if (!in_class) {
        EmitMembers(known.pcre, known.additions, false, true);
      } else if (known.pcre.size() == name.size() + 4) {
        // A negated property inside a class: the additions cannot be taken out of it again.
        out_.append(StrCat("\\P{", std::string(name), "}"));
      } else {
        return Unsupported("a negated property of several classes inside brackets");
      }
      return OkStatus();
    }
    const std::string plain = StrCat(negated ? "\\P{" : "\\p{", std::string(name), "}");
    std::string additions;
    AppendSubclassRanges(name, &additions);
    if (additions.empty() || (negated && in_class)) {  // as above
      out_.append(plain);
    } else if (in_class) {
      out_.append(StrCat(plain, additions));
    } else {
      out_.append(StrCat(negated ? "[^" : "[", "\\p{", std::string(name), "}", additions, "]"));
    }
    return OkStatus();
  }

  Status Hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = pos_ + 2 + i < in_.size() ? in_[pos_ + 2 + i] : '\0';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return Unsupported("a short hexadecimal escape");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    if (digits == 2 && value >= 0x80) return Unsupported("a byte escape that is not ASCII");
    out_.append(StrCat("\\x{", absl::Hex(value), "}"));
    pos_ += 2 + digits;
    return OkStatus();
  }

  // PCRE2's own knows fewer word characters than \w here: a mark after a letter would begin a word.
  void WordBoundary(bool negated) {
    std::string word = StrCat("[", std::string(kWord));
    AppendAdditionRanges(kWordAdditions, &word);
    word.push_back(']');
    const char* after_word = negated ? "(?=" : "(?!";
    const char* after_other = negated ? "(?!" : "(?=";
    out_.append(StrCat("(?:(?<=", word, ")", after_word, word, ")|(?<!", word, ")", after_other,
                       word, "))"));
  }

  Status Escape(bool in_class) {
    if (pos_ + 1 >= in_.size()) return Unsupported("a backslash at the end");
    const char c = in_[pos_ + 1];
    switch (c) {
      case 'p':
      case 'P':
        return Property(in_class);
      case 's':
        EmitMembers(kSpaces, 0, in_class, false);
        break;
      case 'S':
        EmitMembers(in_class ? kNotSpaces : kSpaces, 0, in_class, true);
        break;
      case 'd':
        EmitMembers("\\p{Nd}", kDecimal, in_class, false);
        break;
      case 'D':
        if (in_class) return Unsupported("\\D inside brackets");
        EmitMembers("\\p{Nd}", kDecimal, false, true);
        break;
      case 'w':
      case 'W':
        if (in_class && c == 'W') return Unsupported("\\W inside brackets");
        EmitMembers(kWord, kWordAdditions, in_class, c == 'W');
        break;
      case 'b':
      case 'B':
        if (in_class) {  // b: a backspace
          if (c == 'B') return Unsupported("\\B inside brackets");
          out_.append("\\b");
        } else {
          WordBoundary(c == 'B');
        }
        break;
      case 'h':
        EmitMembers(kHex, 0, in_class, false);
        break;
      case 'H':
        EmitMembers(in_class ? kNotHex : kHex, 0, in_class, true);
        break;
      case 'v':
        out_.append("\\x{b}");
        break;
      case 'u':
        return Hex(4);
      case 'x':
        if (pos_ + 2 < in_.size() && in_[pos_ + 2] == '{') {
          out_.append("\\x");
          break;
        }
        return Hex(2);
      default: {
        const bool alphanumeric =
            (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        const std::string_view same = in_class ? "aefnrt0" : "aefnrt0123456789AGKNRXZzk";
        if (alphanumeric && same.find(c) == std::string_view::npos)
          return Unsupported(StrCat("\\", std::string(1, c)));
        // A multi-byte character after the backslash stands for itself in both.
        if (static_cast<uint8_t>(c) < 0x80) out_.push_back('\\');
        out_.push_back(c);
        break;
      }
    }
    pos_ += 2;
    return OkStatus();
  }

  Status Class(int depth) {
    if (depth > 8) return Unsupported("deeply nested brackets");
    ++pos_;
    const bool negated = pos_ < in_.size() && in_[pos_] == '^';
    const size_t begin = out_.size();
    if (depth > 0 && negated) return Unsupported("a negated set inside brackets");
    if (depth == 0) out_.append(negated ? "[^" : "[");
    if (negated) ++pos_;
    bool first = true;
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == ']' && !first) {
        ++pos_;
        if (depth == 0) out_.push_back(']');
        return OkStatus();
      }
      first = false;
      if (c == '\\') {
        QINFER_RETURN_IF_ERROR(Escape(true));
      } else if (At("&&")) {
        if (depth > 0 || negated) return Unsupported("&& in nested or negated brackets");
        return Intersection(begin);
      } else if (At("[:")) {
        const size_t close = in_.find(":]", pos_);
        if (close == std::string_view::npos) return Unsupported("an unfinished [: class");
        std::string_view name = in_.substr(pos_ + 2, close - pos_ - 2);
        if (name == "space") {
          out_.append(kSpaces);
        } else if (name == "alpha" || name == "digit" || name == "alnum" || name == "upper" ||
                   name == "lower" || name == "xdigit" || name == "cntrl") {
          out_.append(in_.substr(pos_, close + 2 - pos_));
        } else {
          return Unsupported("this [: class");
        }
        pos_ = close + 2;
      } else if (c == '[') {
        // A set inside a set is a union, unless the outer one is a negation of it: the same thing.
        QINFER_RETURN_IF_ERROR(Class(depth + 1));
      } else {
        if (c == ']') out_.push_back('\\');
        out_.push_back(c);
        ++pos_;
      }
    }
    return Unsupported("brackets without an end");
  }

  // [a&&[b]] and [a&&[^b]]: one character that is in `a`, which the output holds from `begin` on,
  // seen beforehand to be in `b` or not.
  Status Intersection(size_t begin) {
    pos_ += 2;
    if (!At("[")) return Unsupported("&& without brackets after it");
    const std::string members = out_.substr(begin);
    const bool without = At("[^");
    out_.resize(begin);
    out_.append(without ? "(?:(?![" : "(?:(?=[");
    if (without) ++pos_;
    QINFER_RETURN_IF_ERROR(Class(1));
    if (!At("]")) return Unsupported("more than one && inside brackets");
    ++pos_;
    out_.append("])").append(members).append("])");
    return OkStatus();
  }

  Status Group() {
    if (!At("(?")) {
      out_.push_back('(');
      ++pos_;
      return OkStatus();
    }
    for (const std::string_view same : {"(?:", "(?=", "(?!", "(?>", "(?<", "(?#"}) {
      if (!At(same)) continue;
      out_.append(same);
      pos_ += same.size();
      return OkStatus();
    }
    // Options: Ruby's m is "dot matches all", which PCRE2 calls s.
    out_.append("(?");
    pos_ += 2;
    while (pos_ < in_.size() && in_[pos_] != ')' && in_[pos_] != ':') {
      const char c = in_[pos_];
      if (c != 'i' && c != '-' && c != 'm') return Unsupported("this kind of group or option");
      out_.push_back(c == 'm' ? 's' : c);
      ++pos_;
    }
    return OkStatus();
  }

  // {n}, {n,}, {,n}, {n,m}; any other brace is itself.
  Status Brace() {
    size_t i = pos_ + 1;
    size_t digits = 0;
    size_t commas = 0;
    for (; i < in_.size() && (in_[i] == ',' || (in_[i] >= '0' && in_[i] <= '9')); ++i)
      ++(in_[i] == ',' ? commas : digits);
    if (i >= in_.size() || in_[i] != '}' || digits == 0 || commas > 1) {
      out_.append("\\{");
      ++pos_;
      return OkStatus();
    }
    const char next = i + 1 < in_.size() ? in_[i + 1] : '\0';
    if (next == '+' || (next == '?' && commas == 0))
      return Unsupported("a sign after a counted repetition");
    out_.push_back('{');
    if (in_[pos_ + 1] == ',') out_.push_back('0');
    out_.append(in_.substr(pos_ + 1, i - pos_));
    pos_ = i + 1;
    return OkStatus();
  }

  std::string_view in_;
  size_t pos_ = 0;
  std::string out_;
};

}  // namespace

StatusOr<std::string> TranslatePattern(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace qinfer::tokenizer
