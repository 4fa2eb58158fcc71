// Filters from text to text.
#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

// markupsafe.soft_str: a string stays what it is, anything else becomes text.
Value SoftText(Context* context, const Value& value) {
  if (value.IsString()) return value;
  Text text(context->meter());
  AppendText(context, value, &text);
  return context->String(std::move(text));
}

template <void (*kAppend)(std::string_view, Text*)>
Value MapFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "filter", args, {"s"}, 1);
  if (!context->ok()) return Value();
  const Value text = SoftText(context, bound[0]);
  Text out(context->meter());
  kAppend(text.AsString(), &out);
  return context->String(std::move(out), text.IsMarkup());
}

// Upper case after spaces and opening brackets, lower case elsewhere.
void AppendTitleWords(std::string_view text, Text* out) {
  out->reserve(text.size());
  const auto flush = [out](std::string_view word) {
    if (word.empty()) return;
    size_t first = 0;
    DecodeUtf8(word, &first);
    AppendUpper(word.substr(0, first), out);
    AppendLower(word.substr(first), out);
  };
  size_t word = 0;  // where it begins
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = DecodeUtf8(text, &at);
    if (!IsSpace(c) && c != '-' && c != '(' && c != '{' && c != '[' && c != '<') continue;
    flush(text.substr(word, start - word));
    *out += text.substr(start, at - start);
    word = at;
  }
  flush(text.substr(word));
}

Value TrimFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "trim", args, {"value", "chars"}, 1);
  if (!context->ok()) return Value();
  CallArgs rest(context->meter());
  if (bound.Has(1)) rest.positional.push_back(bound[1]);
  return CallStringMethod(context, SoftText(context, bound[0]), "strip", rest);
}

Value ReplaceFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "replace", args, {"s", "old", "new", "count"}, 3);
  const int64_t count = bound.IsNone(3) ? -1 : bound.Int(3, -1);
  if (!context->ok()) return Value();
  Text text(context->meter());
  Text from(context->meter());
  Text to(context->meter());
  return context->String(ReplaceText(context, TextOf(context, bound[0], &text),
                                     TextOf(context, bound[1], &from),
                                     TextOf(context, bound[2], &to), count));
}

Value IndentFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "indent", args, {"s", "width", "first", "blank"}, 1);
  if (!context->ok()) return Value();
  if (!bound[0].IsString()) {
    if (bound[0].IsUndefined()) return context->FailUndefined(bound[0]);
    return context->Fail(StrCat("indent: expected text, got ", std::string(TypeName(bound[0]))));
  }
  const bool given = bound.Has(1) && bound[1].IsString();
  const std::string_view unit = given ? bound[1].AsString() : " ";
  const int64_t width = given ? 1 : std::max<int64_t>(bound.Int(1, 4), 0);
  if (!context->ok()) return Value();
  const bool first = bound.Bool(2, false);
  const bool blank = bound.Bool(3, false);
  // Calls visit(line, at_start, indented) for each line of the text and a line end behind it: one
  // that ends the text begins another line, but a carriage return becomes one with it.
  const auto each = [&](auto visit) {
    std::string_view rest = bound[0].AsString();
    bool more = true;
    for (bool at_start = true; more; at_start = false) {
      const std::string_view before = rest;
      const std::string_view line = CutLine(&rest, false);
      more = !rest.empty() || (line.size() < before.size() && before.back() != '\r');
      visit(line, at_start, at_start ? first : blank || !line.empty());
    }
  };
  uint64_t size = 0;
  uint64_t indents = 0;
  each([&](std::string_view line, bool at_start, bool indented) {
    size += line.size() + (at_start ? 0 : 1);
    indents += indented ? 1 : 0;
  });
  Meter* meter = context->meter();
  Text out(meter);
  out.reserve(size +
              meter->Require(indents, meter->Require(static_cast<uint64_t>(width), unit.size())));
  each([&](std::string_view line, bool at_start, bool indented) {
    if (!at_start) out.push_back('\n');
    if (indented) AppendRepeated(unit, static_cast<uint64_t>(width), &out);
    out += line;
  });
  return context->String(std::move(out), bound[0].IsMarkup());
}

Value TruncateFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "truncate", args, {"s", "length", "killwords", "end", "leeway"},
                        1);
  const int64_t length = bound.Int(1, 255);
  const std::string_view end = bound.Text(3, "...");
  const int64_t leeway = bound.IsNone(4) ? 5 : bound.Int(4, 5);
  if (!context->ok()) return Value();
  const auto end_size = static_cast<int64_t>(CountCodePoints(end));
  if (length < end_size) {
    return context->Fail(StrCat("expected length >= ", end_size, ", got ", length));
  }
  if (leeway < 0) return context->Fail(StrCat("expected leeway >= 0, got ", leeway));
  const int64_t size = Length(context, bound[0]);
  if (!context->ok() || size <= length || size - length <= leeway) return bound[0];
  const std::string_view text = bound.Text(0, "");
  if (!context->ok()) return Value();
  std::string_view kept = text.substr(0, ByteOffset(text, static_cast<size_t>(length - end_size)));
  if (!bound.Bool(2, false)) {
    const size_t space = kept.rfind(' ');
    if (space != std::string_view::npos) kept = kept.substr(0, space);
  }
  return context->String(Joined(context->meter(), {kept, end}), bound[0].IsMarkup());
}

Value WordCountFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "wordcount", args, {"s"}, 1);
  if (!context->ok()) return Value();
  Text scratch(context->meter());
  const std::string_view text = TextOf(context, bound[0], &scratch);
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = DecodeUtf8(text, &at);
    const bool word = IsAlnum(c) || c == '_';
    words += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value::Int(words);
}

Value CenterFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "center", args, {"value", "width"}, 1);
  if (!context->ok()) return Value();
  CallArgs rest(context->meter());
  rest.positional.push_back(bound.Has(1) ? bound[1] : Value::Int(80));
  return CallStringMethod(context, SoftText(context, bound[0]), "center", rest);
}

Value StringFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "string", args, {"s"}, 1);
  return context->ok() ? SoftText(context, bound[0]) : Value();
}

Value SafeFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "safe", args, {"value"}, 1);
  if (!context->ok()) return Value();
  Text text(context->meter());
  AppendText(context, bound[0], &text);
  return context->String(std::move(text), true);
}

Value EscapeText(Context* context, const Value& value) {
  Text scratch(context->meter());
  Text out(context->meter());
  AppendEscaped(TextOf(context, value, &scratch), &out);
  return context->String(std::move(out), true);
}

Value EscapeFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "escape", args, {"s"}, 1);
  if (!context->ok()) return Value();
  return bound[0].IsMarkup() ? bound[0] : EscapeText(context, bound[0]);
}

Value ForceEscapeFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "forceescape", args, {"value"}, 1);
  return context->ok() ? EscapeText(context, bound[0]) : Value();
}

Value FormatFilter(Context* context, const CallArgs& args) {
  CallArgs rest = args;
  const Value format = SoftText(context, rest.positional[0]);
  rest.positional.erase(rest.positional.begin());
  if (!rest.positional.empty() && !rest.named.empty()) {
    return context->Fail("can't handle positional and keyword arguments at the same time");
  }
  if (rest.named.empty()) {
    return FormatPercent(context, format, context->Tuple(std::move(rest.positional)));
  }
  auto dict = MakeCounted<DictObject>(context->meter());
  for (const auto& [name, value] : rest.named) dict->Set(context->String(name), value);
  return FormatPercent(context, format, Value::Of(Kind::kDict, std::move(dict)));
}

// &lt; and its like back to characters: the five that escaping makes, and numbers.
void AppendUnescaped(std::string_view text, Text* out) {
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&amp;", "&"},  {"&lt;", "<"},  {"&gt;", ">"},  {"&quot;", "\""},
      {"&#34;", "\""}, {"&#39;", "'"}, {"&apos;", "'"}};
  out->reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto* entity =
        std::find_if(std::begin(kEntities), std::end(kEntities),
                     [&](const auto& e) { return text.substr(at, e.first.size()) == e.first; });
    if (entity != std::end(kEntities)) {
      *out += entity->second;
      at += entity->first.size();
    } else {
      out->push_back(text[at++]);
    }
  }
}

Value StripTagsFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "striptags", args, {"value"}, 1);
  if (!context->ok()) return Value();
  Text scratch(context->meter());
  const std::string_view text = TextOf(context, bound[0], &scratch);
  Text kept(context->meter());
  kept.reserve(text.size());
  size_t at = 0;
  while (true) {
    const size_t open = text.find('<', at);
    if (open == std::string_view::npos) break;
    const bool comment = text.substr(open, 4) == "<!--";
    const size_t close = comment ? text.find("-->", open + 4) : text.find('>', open);
    if (close == std::string_view::npos) break;
    kept += text.substr(at, open - at);
    at = close + (comment ? 3 : 1);
  }
  kept += text.substr(at);
  // One space between words, in place: what is written lies before what is read.
  size_t end = 0;
  bool between = false;
  for (size_t from = 0; from < kept.size();) {
    const size_t start = from;
    if (IsSpace(DecodeUtf8(kept, &from))) {
      between = true;
      continue;
    }
    if (between && end != 0) kept[end++] = ' ';
    between = false;
    for (size_t i = start; i < from; ++i) kept[end++] = kept[i];
  }
  kept.resize(end);
  Text out(context->meter());
  AppendUnescaped(kept, &out);
  return context->String(std::move(out));
}

void AppendUrlQuoted(std::string_view text, bool query, Text* out) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain) {
      out->push_back(c);
    } else if (c == ' ' && query) {
      out->push_back('+');
    } else {
      out->push_back('%');
      out->push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      out->push_back(kHex[static_cast<unsigned char>(c) & 15]);
    }
  }
}

Value UrlEncodeFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "urlencode", args, {"value"}, 1);
  if (!context->ok()) return Value();
  Text out(context->meter());
  Text scratch(context->meter());
  if (bound[0].IsString() || !IsIterable(bound[0])) {
    AppendUrlQuoted(TextOf(context, bound[0], &scratch), false, &out);
    return context->String(std::move(out));
  }
  const Value source =
      bound[0].Is(Kind::kDict)
          ? Value::Of(Kind::kView,
                      MakeCounted<ViewObject>(context->meter(), bound[0], ViewObject::Part::kItems))
          : bound[0];
  const Sequence pairs = Iterate(context, source);
  if (pairs == nullptr) return Value();
  for (const Value& pair : pairs->items) {
    const Sequence parts = Iterate(context, pair);
    if (parts == nullptr) return Value();
    if (parts->items.size() != 2) return context->Fail("urlencode: expected pairs");
    if (!out.empty()) out.push_back('&');
    AppendUrlQuoted(TextOf(context, parts->items[0], &scratch), true, &out);
    out.push_back('=');
    AppendUrlQuoted(TextOf(context, parts->items[1], &scratch), true, &out);
    if (!context->ok()) return Value();
  }
  return context->String(std::move(out));
}

Value XmlAttrFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "xmlattr", args, {"d", "autospace"}, 1);
  if (!context->ok()) return Value();
  if (!bound[0].Is(Kind::kDict)) return context->Fail("xmlattr: expected a mapping");
  const bool space = bound.Bool(1, true);
  Text out(context->meter());
  Text scratch(context->meter());
  for (const auto& [key, value] : bound[0].As<DictObject>()->entries) {
    if (value.IsNone() || value.IsUndefined()) continue;
    const std::string_view name = TextOf(context, key, &scratch);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      return context->Fail(StrCat("Invalid character in attribute name: '", Quoted(name), "'"));
    }
    if (space || !out.empty()) out.push_back(' ');
    AppendEscaped(name, &out);
    out += "=\"";
    if (value.IsMarkup()) {
      out += value.AsString();
    } else {
      AppendEscaped(TextOf(context, value, &scratch), &out);
    }
    out.push_back('"');
    if (!context->ok()) return Value();
  }
  return context->String(std::move(out));
}

Value FileSizeFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "filesizeformat", args, {"value", "binary"}, 1);
  if (!context->ok()) return Value();
  CallArgs number(context->meter());
  number.positional.push_back(bound[0]);
  const Value converted = ApplyFilter(context, "float", number);
  if (!context->ok()) return Value();
  const double bytes = converted.AsFloat();
  const bool binary = bound.Bool(1, false);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return context->String("1 Byte");
  if (bytes < base)
    return context->String(StrCat(FormatDouble(std::trunc(bytes), 'f', 0, false), " Bytes"));
  static constexpr std::string_view kLetters = "kMGTPEZY";
  static constexpr std::string_view kBinaryLetters = "KMGTPEZY";
  double unit = base;
  size_t i = 0;
  while (bytes >= unit * base && i + 1 < kLetters.size()) {
    unit *= base;
    ++i;
  }
  const std::string prefix =
      binary ? StrCat(std::string(1, kBinaryLetters[i]), "i") : std::string(1, kLetters[i]);
  return context->String(StrCat(FormatDouble(bytes / unit, 'f', 1, false), " ", prefix, "B"));
}

Value NotForTemplates(Context* context, const CallArgs& /*args*/) {
  return context->FailUnsupported(
      "the filters random, urlize, wordwrap and pprint are not supported");
}

constexpr NamedFunction kFilters[] = {
    {"capitalize", MapFilter<AppendCapitalized>},
    {"center", CenterFilter},
    {"e", EscapeFilter},
    {"escape", EscapeFilter},
    {"filesizeformat", FileSizeFilter},
    {"forceescape", ForceEscapeFilter},
    {"format", FormatFilter},
    {"indent", IndentFilter},
    {"lower", MapFilter<AppendLower>},
    {"pprint", NotForTemplates},
    {"random", NotForTemplates},
    {"replace", ReplaceFilter},
    {"safe", SafeFilter},
    {"string", StringFilter},
    {"striptags", StripTagsFilter},
    {"title", MapFilter<AppendTitleWords>},
    {"trim", TrimFilter},
    {"truncate", TruncateFilter},
    {"upper", MapFilter<AppendUpper>},
    {"urlencode", UrlEncodeFilter},
    {"urlize", NotForTemplates},
    {"wordcount", WordCountFilter},
    {"wordwrap", NotForTemplates},
    {"xmlattr", XmlAttrFilter},
};

}  // namespace

Function FindTextFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [name](const NamedFunction& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found->function;
}

}  // namespace qinfer::tokenizer::jinja
