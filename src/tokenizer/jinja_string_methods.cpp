// str's methods by code points, but for those that take texts apart and put them together, which
// are in jinja_string_parts.cpp. A method of Markup keeps the markup.
#include <algorithm>
#include <array>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

template <void (*kAppend)(std::string_view, Text*)>
Value MapMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs none(context, "str method", args, {}, 0);
  if (!context->ok()) return Value();
  Text out(context->meter());
  kAppend(self.AsString(), &out);
  return context->String(std::move(out), self.IsMarkup());
}

template <bool kLeft, bool kRight>
Value StripMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "strip", args, {"chars"}, 0);
  const std::string_view chars = bound.IsNone(0) ? "" : bound.Text(0, "");
  if (!context->ok()) return Value();
  std::string_view text = self.AsString();
  context->meter()->StepBytes(text.size() * (1 + std::min<size_t>(chars.size(), 64)));
  if (kLeft) text = StripLeft(text, chars, bound.IsNone(0), context->meter());
  if (kRight) text = StripRight(text, chars, bound.IsNone(0), context->meter());
  return context->String(text, self.IsMarkup());
}

// The code points [start, stop) of `self` as find, count, startswith and their like take them.
// False if start lies beyond the end.
bool Window(Context* context, const Value& self, const BoundArgs& bound, std::string_view* window,
            int64_t* offset) {
  const std::string_view text = self.AsString();
  *window = text;
  *offset = 0;
  if (bound.IsNone(1) && bound.IsNone(2)) return true;
  const auto size = static_cast<int64_t>(CountCodePoints(text));
  int64_t start = bound.IsNone(1) ? 0 : bound.Int(1, 0);
  int64_t stop = bound.IsNone(2) ? size : bound.Int(2, size);
  if (!context->ok()) return false;
  if (start < 0) start = std::max<int64_t>(start + size, 0);
  if (stop < 0) stop = std::max<int64_t>(stop + size, 0);
  stop = std::min(stop, size);
  if (start > stop) return false;
  const size_t from = ByteOffset(text, static_cast<size_t>(start));
  *window = text.substr(from, ByteOffset(text.substr(from), static_cast<size_t>(stop - start)));
  *offset = start;
  return true;
}

template <bool kBack, bool kMust>
Value FindMethodOf(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "find", args, {"sub", "start", "end"}, 1);
  const std::string_view needle = bound.Text(0, "");
  std::string_view window;
  int64_t offset = 0;
  context->meter()->StepBytes(4 * self.AsString().size());
  const bool inside = context->ok() && Window(context, self, bound, &window, &offset);
  if (!context->ok()) return Value();
  const size_t at = !inside ? std::string_view::npos
                    : kBack ? FindLast(window, needle, context->meter())
                            : Find(window, needle, 0, context->meter());
  if (at != std::string_view::npos) {
    return Value::Int(offset + static_cast<int64_t>(CountCodePoints(window.substr(0, at))));
  }
  return kMust ? context->Fail("substring not found") : Value::Int(-1);
}

Value CountMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "count", args, {"sub", "start", "end"}, 1);
  const std::string_view needle = bound.Text(0, "");
  std::string_view window;
  int64_t offset = 0;
  context->meter()->StepBytes(4 * self.AsString().size());
  const bool inside = context->ok() && Window(context, self, bound, &window, &offset);
  if (!context->ok() || !inside) return Value::Int(0);
  if (needle.empty()) return Value::Int(static_cast<int64_t>(CountCodePoints(window)) + 1);
  int64_t count = 0;
  for (size_t at = 0;; at += needle.size(), ++count) {
    at = Find(window, needle, at, context->meter());
    if (at == std::string_view::npos) return Value::Int(count);
  }
}

template <bool kBack>
Value AffixMethod(Context* context, const Value& self, const CallArgs& args) {
  const std::string_view name = kBack ? "endswith" : "startswith";
  const BoundArgs bound(context, name, args, {"prefix", "start", "end"}, 1);
  std::string_view window;
  int64_t offset = 0;
  if (!context->ok()) return Value();
  const bool inside = Window(context, self, bound, &window, &offset);
  if (!context->ok() || !inside) return Value::Bool(false);
  const auto matches = [&](const Value& affix) {
    if (!affix.IsString()) {
      context->Fail(StrCat(std::string(name), " first arg must be str or a tuple of str, not ",
                           std::string(TypeName(affix))));
      return false;
    }
    const std::string_view text = affix.AsString();
    if (text.size() > window.size()) return false;
    return (kBack ? window.substr(window.size() - text.size()) : window.substr(0, text.size())) ==
           text;
  };
  if (!bound[0].Is(Kind::kTuple)) return Value::Bool(matches(bound[0]));
  const auto& affixes = bound[0].As<ListObject>()->items;
  return Value::Bool(std::any_of(affixes.begin(), affixes.end(), matches));
}

template <bool kBack>
Value RemoveAffixMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "removeprefix", args, {"affix"}, 1);
  const std::string_view affix = bound.Text(0, "");
  std::string_view text = self.AsString();
  if (affix.size() <= text.size()) {
    if (kBack && text.substr(text.size() - affix.size()) == affix) text.remove_suffix(affix.size());
    if (!kBack && text.substr(0, affix.size()) == affix) text.remove_prefix(affix.size());
  }
  return context->String(text, self.IsMarkup());
}

enum class Side : uint8_t { kLeft, kRight, kCenter };

template <Side kSide>
Value JustifyMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "center", args, {"width", "fillchar"}, 1);
  const int64_t width = bound.Int(0, 0);
  const std::string_view fill = bound.Text(1, " ");
  if (!context->ok()) return Value();
  if (CountCodePoints(fill) != 1) {
    return context->Fail("the fill character must be exactly one character long");
  }
  const auto size = static_cast<int64_t>(CountCodePoints(self.AsString()));
  if (width <= size) return self;
  const int64_t pad = width - size;
  // Python's center puts the odd one left only if the width is odd.
  const int64_t left = kSide == Side::kLeft    ? 0
                       : kSide == Side::kRight ? pad
                                               : pad / 2 + (pad & width & 1);
  Text out(context->meter());
  out.reserve(context->meter()->Require(static_cast<uint64_t>(pad), fill.size()) +
              self.AsString().size());
  AppendRepeated(fill, static_cast<uint64_t>(left), &out);
  out += self.AsString();
  AppendRepeated(fill, static_cast<uint64_t>(pad - left), &out);
  return context->String(std::move(out), self.IsMarkup());
}

Value ZfillMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "zfill", args, {"width"}, 1);
  const int64_t width = bound.Int(0, 0);
  const std::string_view text = self.AsString();
  const auto size = static_cast<int64_t>(CountCodePoints(text));
  if (!context->ok() || width <= size) return self;
  const bool sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  Text out(context->meter());
  out.reserve(context->meter()->Require(static_cast<uint64_t>(width - size), 1) + text.size());
  out += text.substr(0, sign ? 1 : 0);
  AppendRepeated("0", static_cast<uint64_t>(width - size), &out);
  out += text.substr(sign ? 1 : 0);
  return context->String(std::move(out), self.IsMarkup());
}

Value ExpandTabsMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "expandtabs", args, {"tabsize"}, 0);
  const int64_t size = bound.Int(0, 8);
  if (!context->ok()) return Value();
  Text out(context->meter());
  int64_t column = 0;
  const std::string_view text = self.AsString();
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = DecodeUtf8(text, &at);
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      AppendRepeated(" ", static_cast<uint64_t>(spaces), &out);
      column += spaces;
    } else {
      out += text.substr(start, at - start);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return context->String(std::move(out), self.IsMarkup());
}

// True if the text is not empty and all its characters are of a kind.
template <bool (*kTest)(char32_t)>
Value AllMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs none(context, "str method", args, {}, 0);
  const std::string_view text = self.AsString();
  context->meter()->StepBytes(text.size());
  for (size_t at = 0; at < text.size();) {
    if (!kTest(DecodeUtf8(text, &at))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

bool IsAsciiChar(char32_t c) { return c < 0x80; }

template <bool kUpper>
Value CaseMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs none(context, "str method", args, {}, 0);
  return Value::Bool(context->ok() && HasCase(self.AsString(), kUpper));
}

Value IsTitleMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs none(context, "istitle", args, {}, 0);
  bool in_word = false;
  bool cased = false;
  const std::string_view text = self.AsString();
  for (size_t at = 0; at < text.size();) {
    const char32_t c = DecodeUtf8(text, &at);
    if (IsUpper(c) || IsTitle(c)) {
      if (in_word) return Value::Bool(false);
      in_word = cased = true;
    } else if (IsLower(c)) {
      if (!in_word) return Value::Bool(false);
    } else {
      in_word = false;
    }
  }
  return Value::Bool(cased);
}

Value IsIdentifierMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs none(context, "isidentifier", args, {}, 0);
  const std::string_view text = self.AsString();
  for (size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    const char32_t c = DecodeUtf8(text, &at);
    if (!(first ? IsIdentifierStart(c) : IsIdentifierPart(c))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

Value IsPrintableMethod(Context* context, const Value& self, const CallArgs& args) {
  if (self.AsString().empty()) return Value::Bool(true);
  return AllMethod<IsPrintable>(context, self, args);
}

Value IsAsciiMethod(Context* context, const Value& self, const CallArgs& args) {
  if (self.AsString().empty()) return Value::Bool(true);
  return AllMethod<IsAsciiChar>(context, self, args);
}

Value FormatMethod(Context* context, const Value& self, const CallArgs& args) {
  return FormatBraces(context, self, args);
}

Value FormatMapMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "format_map", args, {"mapping"}, 1);
  CallArgs named(context->meter());
  if (context->ok() && bound[0].Is(Kind::kDict)) {
    for (const auto& [key, value] : bound[0].As<DictObject>()->entries) {
      if (!key.IsString()) continue;
      named.named.emplace_back(Text(key.AsString(), context->meter()), value);
    }
  }
  return FormatBraces(context, self, named);
}

constexpr NamedStringMethod kMethods[] = {
    {"capitalize", MapMethod<AppendCapitalized>},
    {"casefold", MapMethod<AppendCaseFolded>},
    {"center", JustifyMethod<Side::kCenter>},
    {"count", CountMethod},
    {"endswith", AffixMethod<true>},
    {"expandtabs", ExpandTabsMethod},
    {"find", FindMethodOf<false, false>},
    {"format", FormatMethod},
    {"format_map", FormatMapMethod},
    {"index", FindMethodOf<false, true>},
    {"isalnum", AllMethod<IsAlnum>},
    {"isalpha", AllMethod<IsAlpha>},
    {"isascii", IsAsciiMethod},
    {"isdecimal", AllMethod<IsDecimal>},
    {"isdigit", AllMethod<IsDigit>},
    {"isidentifier", IsIdentifierMethod},
    {"islower", CaseMethod<false>},
    {"isnumeric", AllMethod<IsNumeric>},
    {"isprintable", IsPrintableMethod},
    {"isspace", AllMethod<IsSpace>},
    {"istitle", IsTitleMethod},
    {"isupper", CaseMethod<true>},
    {"ljust", JustifyMethod<Side::kLeft>},
    {"lower", MapMethod<AppendLower>},
    {"lstrip", StripMethod<true, false>},
    {"removeprefix", RemoveAffixMethod<false>},
    {"removesuffix", RemoveAffixMethod<true>},
    {"rfind", FindMethodOf<true, false>},
    {"rindex", FindMethodOf<true, true>},
    {"rjust", JustifyMethod<Side::kRight>},
    {"rstrip", StripMethod<false, true>},
    {"startswith", AffixMethod<false>},
    {"strip", StripMethod<true, true>},
    {"swapcase", MapMethod<AppendSwappedCase>},
    {"title", MapMethod<AppendTitle>},
    {"upper", MapMethod<AppendUpper>},
    {"zfill", ZfillMethod},
};

StringMethod FindStringMethod(std::string_view name) {
  const auto* found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                   [name](const NamedStringMethod& m) { return m.name == name; });
  return found == std::end(kMethods) ? FindPartsMethod(name) : found->method;
}

}  // namespace

bool HasCase(std::string_view text, bool upper) {
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = DecodeUtf8(text, &at);
    if (IsTitle(c) || (upper ? IsLower(c) : IsUpper(c))) return false;
    found |= upper ? IsUpper(c) : IsLower(c);
  }
  return found;
}

bool IsStringMethod(std::string_view name) { return FindStringMethod(name) != nullptr; }

Value CallStringMethod(Context* context, const Value& self, std::string_view name,
                       const CallArgs& args) {
  const StringMethod method = FindStringMethod(name);
  if (method == nullptr) return context->Fail(StrCat("str has no method ", std::string(name)));
  return method(context, self, args);
}

}  // namespace qinfer::tokenizer::jinja
