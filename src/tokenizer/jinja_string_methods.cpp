// str's methods by code points. A method of Markup keeps the markup and escapes what it brings in.
#include <algorithm>
#include <array>

#include "core/checked.h"
#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

using Method = Value (*)(Context* context, const Value& self, const CallArgs& args);
struct NamedMethod {
  std::string_view name;
  Method method;
};

Value Like(Context* context, const Value& self, std::string text) {
  return context->String(std::move(text), self.IsMarkup());
}

// Text that goes into `self`: escaped if self is markup and it is not.
std::string Escaped(const Value& self, const Value& text) {
  const bool escape = self.IsMarkup() && !text.IsMarkup();
  return escape ? EscapeHtml(text.AsString()) : std::string(text.AsString());
}

template <std::string (*kMap)(std::string_view)>
Value MapMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs none(context, "str method", args, {}, 0);
  // A character's other case takes at most three times its bytes.
  if (!context->ok() || !context->Room(3 * self.AsString().size())) return Value();
  return Like(context, self, kMap(self.AsString()));
}

template <bool kLeft, bool kRight>
Value StripMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "strip", args, {"chars"}, 0);
  const std::string_view chars = bound.IsNone(0) ? "" : bound.Text(0, "");
  if (!context->ok()) return Value();
  std::string_view text = self.AsString();
  context->meter()->StepBytes(text.size() * (1 + std::min<size_t>(chars.size(), 64)));
  if (kLeft) text = StripLeft(text, chars, bound.IsNone(0));
  if (kRight) text = StripRight(text, chars, bound.IsNone(0));
  return Like(context, self, std::string(text));
}

// Pieces of text.split() on white space, at most `limit` cuts (negative: any number).
std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = StripLeft(text, "", true);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
      parts.push_back(StripRight(text, "", true));
      break;
    }
    size_t at = 0;
    size_t end = text.size();
    while (at < text.size()) {
      const size_t start = at;
      if (IsSpace(DecodeUtf8(text, &at))) {
        end = start;
        break;
      }
    }
    parts.push_back(text.substr(0, end));
    text = StripLeft(text.substr(end), "", true);
  }
  return parts;
}

std::vector<std::string_view> SplitSpaceBack(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = StripRight(text, "", true);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
      parts.push_back(text);
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      size_t previous = start - 1;
      while (previous > 0 && (static_cast<unsigned char>(text[previous]) & 0xC0) == 0x80) {
        --previous;
      }
      size_t at = previous;
      if (IsSpace(DecodeUtf8(text, &at))) break;
      start = previous;
    }
    parts.push_back(text.substr(start));
    text = StripRight(text.substr(0, start), "", true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitBy(std::string_view text, std::string_view separator,
                                      int64_t limit) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = Find(text, separator, start);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(start, at - start));
    start = at + separator.size();
  }
  parts.push_back(text.substr(start));
  return parts;
}

std::vector<std::string_view> SplitByBack(Context* context, std::string_view text,
                                          std::string_view separator, int64_t limit) {
  std::vector<std::string_view> parts;
  while (context->ok() && (limit < 0 || static_cast<int64_t>(parts.size()) < limit)) {
    // A long separator is sought in a reversed copy of all the rest.
    if (separator.size() > 16) context->meter()->StepBytes(8 * text.size());
    const size_t at = FindLast(text, separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool kBack>
Value SplitMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "split", args, {"sep", "maxsplit"}, 0);
  const bool space = bound.IsNone(0);
  const std::string_view separator = space ? "" : bound.Text(0, "");
  const int64_t limit = bound.Int(1, -1);
  if (!context->ok()) return Value();
  if (!space && separator.empty()) return context->Fail("empty separator");
  const std::string_view text = self.AsString();
  context->meter()->StepBytes(4 * text.size());
  std::vector<std::string_view> parts;
  if (kBack) {
    parts = space ? SplitSpaceBack(text, limit) : SplitByBack(context, text, separator, limit);
  } else {
    parts = space ? SplitSpace(text, limit) : SplitBy(text, separator, limit);
  }
  std::vector<Value> values;
  values.reserve(parts.size());
  for (const std::string_view part : parts) {
    if (!context->ok()) return Value();
    values.push_back(Like(context, self, std::string(part)));
  }
  return context->List(std::move(values));
}

Value SplitLinesMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "splitlines", args, {"keepends"}, 0);
  std::vector<Value> values;
  for (const std::string_view line : SplitLines(self.AsString(), bound.Bool(0, false))) {
    if (!context->ok()) return Value();
    values.push_back(Like(context, self, std::string(line)));
  }
  return context->List(std::move(values));
}

template <bool kBack>
Value PartitionMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "partition", args, {"sep"}, 1);
  const std::string_view separator = bound.Text(0, "");
  if (!context->ok()) return Value();
  if (separator.empty()) return context->Fail("empty separator");
  const std::string_view text = self.AsString();
  context->meter()->StepBytes(4 * text.size());
  const size_t at = kBack ? FindLast(text, separator) : Find(text, separator);
  std::string_view parts[3] = {"", "", ""};
  if (at == std::string_view::npos) {
    parts[kBack ? 2 : 0] = text;
  } else {
    parts[0] = text.substr(0, at);
    parts[1] = separator;
    parts[2] = text.substr(at + separator.size());
  }
  std::vector<Value> values;
  for (const std::string_view part : parts) {
    values.push_back(Like(context, self, std::string(part)));
  }
  return context->Tuple(std::move(values));
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
                    : kBack ? FindLast(window, needle)
                            : Find(window, needle);
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
  return Value::Int(static_cast<int64_t>(SplitBy(window, needle, -1).size()) - 1);
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
  return Like(context, self, std::string(text));
}

Value ReplaceMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "replace", args, {"old", "new", "count"}, 2);
  bound.Text(0, "");
  bound.Text(1, "");
  const int64_t count = bound.Int(2, -1);
  if (!context->ok()) return Value();
  return Like(
      context, self,
      ReplaceText(context, self.AsString(), bound[0].AsString(), Escaped(self, bound[1]), count));
}

Value JoinMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "join", args, {"iterable"}, 1);
  if (!context->ok()) return Value();
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  std::string out;
  for (size_t i = 0; i < items->items.size(); ++i) {
    const Value& item = items->items[i];
    if (!item.IsString() && !self.IsMarkup()) {
      return context->Fail(StrCat("sequence item ", i, ": expected str instance, ",
                                  std::string(TypeName(item)), " found"));
    }
    if (i != 0) out += self.AsString();
    out += item.IsString() ? Escaped(self, item) : EscapeHtml(ToText(context, item));
    if (!context->ok() || !context->Room(out.size())) return Value();
  }
  return Like(context, self, std::move(out));
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
  uint64_t bytes = 0;
  if (!CheckedMul<uint64_t>(fill.size(), static_cast<uint64_t>(pad), &bytes)) {
    bytes = ~uint64_t{0};
  }
  if (!context->Room(bytes)) return Value();
  std::string out;
  out.reserve(bytes + self.AsString().size());
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.AsString();
  for (int64_t i = left; i < pad; ++i) out += fill;
  return Like(context, self, std::move(out));
}

Value ZfillMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "zfill", args, {"width"}, 1);
  const int64_t width = bound.Int(0, 0);
  const std::string_view text = self.AsString();
  const auto size = static_cast<int64_t>(CountCodePoints(text));
  if (!context->ok() || width <= size) return self;
  if (!context->Room(static_cast<uint64_t>(width))) return Value();
  const bool sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  std::string out(text.substr(0, sign ? 1 : 0));
  out.append(static_cast<size_t>(width - size), '0');
  out += text.substr(sign ? 1 : 0);
  return Like(context, self, std::move(out));
}

Value ExpandTabsMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "expandtabs", args, {"tabsize"}, 0);
  const int64_t size = bound.Int(0, 8);
  if (!context->ok()) return Value();
  std::string out;
  int64_t column = 0;
  const std::string_view text = self.AsString();
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = DecodeUtf8(text, &at);
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      if (!context->Room(out.size() + static_cast<uint64_t>(spaces))) return Value();
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      out += text.substr(start, at - start);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return Like(context, self, std::move(out));
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
  const std::u32string chars = ToCodePoints(self.AsString());
  return Value::Bool(!chars.empty() && IsIdentifierStart(chars[0]) &&
                     std::all_of(chars.begin(), chars.end(), IsIdentifierPart));
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
  CallArgs named;
  if (context->ok() && bound[0].Is(Kind::kDict)) {
    for (const auto& [key, value] : bound[0].As<DictObject>()->entries) {
      if (key.IsString()) named.named.emplace_back(std::string(key.AsString()), value);
    }
  }
  return FormatBraces(context, self, named);
}

constexpr NamedMethod kMethods[] = {
    {"capitalize", MapMethod<Capitalize>},
    {"casefold", MapMethod<CaseFold>},
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
    {"join", JoinMethod},
    {"ljust", JustifyMethod<Side::kLeft>},
    {"lower", MapMethod<Lower>},
    {"lstrip", StripMethod<true, false>},
    {"partition", PartitionMethod<false>},
    {"removeprefix", RemoveAffixMethod<false>},
    {"removesuffix", RemoveAffixMethod<true>},
    {"replace", ReplaceMethod},
    {"rfind", FindMethodOf<true, false>},
    {"rindex", FindMethodOf<true, true>},
    {"rjust", JustifyMethod<Side::kRight>},
    {"rpartition", PartitionMethod<true>},
    {"rsplit", SplitMethod<true>},
    {"rstrip", StripMethod<false, true>},
    {"split", SplitMethod<false>},
    {"splitlines", SplitLinesMethod},
    {"startswith", AffixMethod<false>},
    {"strip", StripMethod<true, true>},
    {"swapcase", MapMethod<SwapCase>},
    {"title", MapMethod<Title>},
    {"upper", MapMethod<Upper>},
    {"zfill", ZfillMethod},
};

const NamedMethod* FindStringMethod(std::string_view name) {
  const auto* found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                   [name](const NamedMethod& m) { return m.name == name; });
  return found == std::end(kMethods) ? nullptr : found;
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

std::string ReplaceText(Context* context, std::string_view text, std::string_view from,
                        std::string_view to, int64_t count) {
  std::string out;
  if (!context->meter()->StepBytes(4 * text.size())) return out;
  size_t at = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    size_t hit = 0;
    if (from.empty()) {
      // Before every character, and at the end.
      if (done != 0) {
        if (at >= text.size()) break;
        size_t next = at;
        DecodeUtf8(text, &next);
        out += text.substr(at, next - at);
        at = next;
      }
      hit = at;
    } else {
      hit = Find(text, from, at);
      if (hit == std::string_view::npos) break;
    }
    out += text.substr(at, hit - at);
    out += to;
    at = hit + from.size();
    context->meter()->Step();
    if (!context->ok() || !context->Room(out.size())) return "";
  }
  out += text.substr(at);
  return out;
}

bool IsStringMethod(std::string_view name) { return FindStringMethod(name) != nullptr; }

Value CallStringMethod(Context* context, const Value& self, std::string_view name,
                       const CallArgs& args) {
  const NamedMethod* method = FindStringMethod(name);
  if (method == nullptr) return context->Fail(StrCat("str has no method ", std::string(name)));
  return method->method(context, self, args);
}

}  // namespace qinfer::tokenizer::jinja
