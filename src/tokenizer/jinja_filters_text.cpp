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
  return value.IsString() ? value : context->String(ToText(context, value));
}

template <std::string (*kMap)(std::string_view)>
Value MapFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "filter", args, {"s"}, 1);
  if (!context->ok()) return Value();
  const Value text = SoftText(context, bound[0]);
  if (!context->Room(3 * text.AsString().size())) return Value();
  return context->String(kMap(text.AsString()), text.IsMarkup());
}

// Upper case after spaces and opening brackets, lower case elsewhere.
std::string TitleWords(std::string_view text) {
  std::string out;
  std::string word;
  const auto flush = [&]() {
    size_t first = 0;
    if (word.empty()) return;
    DecodeUtf8(word, &first);
    out += Upper(std::string_view(word).substr(0, first));
    out += Lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = DecodeUtf8(text, &at);
    if (IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      flush();
      out += text.substr(start, at - start);
    } else {
      word += text.substr(start, at - start);
    }
  }
  flush();
  return out;
}

Value TrimFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "trim", args, {"value", "chars"}, 1);
  if (!context->ok()) return Value();
  CallArgs rest;
  if (bound.Has(1)) rest.positional.push_back(bound[1]);
  return CallStringMethod(context, SoftText(context, bound[0]), "strip", rest);
}

Value ReplaceFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "replace", args, {"s", "old", "new", "count"}, 3);
  const int64_t count = bound.IsNone(3) ? -1 : bound.Int(3, -1);
  if (!context->ok()) return Value();
  return context->String(ReplaceText(context, ToText(context, bound[0]), ToText(context, bound[1]),
                                     ToText(context, bound[2]), count));
}

Value IndentFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "indent", args, {"s", "width", "first", "blank"}, 1);
  if (!context->ok()) return Value();
  if (!bound[0].IsString()) {
    if (bound[0].IsUndefined()) return context->FailUndefined(bound[0]);
    return context->Fail(StrCat("indent: expected text, got ", std::string(TypeName(bound[0]))));
  }
  std::string indent = "    ";
  if (bound.Has(1) && bound[1].IsString()) {
    indent = std::string(bound[1].AsString());
    if (bound[0].IsMarkup() && !bound[1].IsMarkup()) indent = std::string(bound[1].AsString());
  } else {
    const int64_t width = std::max<int64_t>(bound.Int(1, 4), 0);
    if (!context->ok() || !context->Room(static_cast<uint64_t>(width))) return Value();
    indent = std::string(static_cast<size_t>(width), ' ');
  }
  const bool blank = bound.Bool(3, false);
  const std::string text = std::string(bound[0].AsString()) + "\n";
  std::string out = bound.Bool(2, false) ? indent : "";
  bool first = true;
  for (const std::string_view line : SplitLines(text, false)) {
    if (!first) {
      out.push_back('\n');
      if (blank || !line.empty()) out += indent;
    }
    first = false;
    out += line;
    if (!context->Room(out.size() + indent.size())) return Value();
  }
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
  return context->String(std::string(kept) + std::string(end), bound[0].IsMarkup());
}

Value WordCountFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "wordcount", args, {"s"}, 1);
  if (!context->ok()) return Value();
  const std::string text = ToText(context, bound[0]);
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
  CallArgs rest;
  rest.positional.push_back(bound.Has(1) ? bound[1] : Value::Int(80));
  return CallStringMethod(context, SoftText(context, bound[0]), "center", rest);
}

Value StringFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "string", args, {"s"}, 1);
  return context->ok() ? SoftText(context, bound[0]) : Value();
}

Value SafeFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "safe", args, {"value"}, 1);
  return context->ok() ? context->String(ToText(context, bound[0]), true) : Value();
}

Value EscapeText(Context* context, const Value& value) {
  const std::string text = ToText(context, value);
  if (!context->Room(6 * text.size())) return Value();
  return context->String(EscapeHtml(text), true);
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
  auto dict = std::make_shared<DictObject>(context->meter());
  for (const auto& [name, value] : rest.named) dict->Set(context->String(name), value);
  return FormatPercent(context, format, Value::Of(Kind::kDict, std::move(dict)));
}

// &lt; and its like back to characters: the five that escaping makes, and numbers.
std::string Unescape(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&amp;", "&"},  {"&lt;", "<"},  {"&gt;", ">"},  {"&quot;", "\""},
      {"&#34;", "\""}, {"&#39;", "'"}, {"&apos;", "'"}};
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto* entity =
        std::find_if(std::begin(kEntities), std::end(kEntities),
                     [&](const auto& e) { return text.substr(at, e.first.size()) == e.first; });
    if (entity != std::end(kEntities)) {
      out += entity->second;
      at += entity->first.size();
    } else {
      out.push_back(text[at++]);
    }
  }
  return out;
}

Value StripTagsFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "striptags", args, {"value"}, 1);
  if (!context->ok()) return Value();
  const std::string text = ToText(context, bound[0]);
  std::string kept;
  size_t at = 0;
  while (true) {
    const size_t open = text.find('<', at);
    if (open == std::string::npos) break;
    const bool comment = text.compare(open, 4, "<!--") == 0;
    const size_t close = comment ? text.find("-->", open + 4) : text.find('>', open);
    if (close == std::string::npos) break;
    kept.append(text, at, open - at);
    at = close + (comment ? 3 : 1);
  }
  kept.append(text, at);
  std::string out;
  const Value words = CallStringMethod(context, context->String(kept), "split", {});
  for (const Value& word : words.As<ListObject>()->items) {
    if (!out.empty()) out.push_back(' ');
    out += word.AsString();
  }
  return context->String(Unescape(out));
}

std::string UrlQuote(std::string_view text, bool query) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain) {
      out.push_back(c);
    } else if (c == ' ' && query) {
      out.push_back('+');
    } else {
      out.push_back('%');
      out.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      out.push_back(kHex[static_cast<unsigned char>(c) & 15]);
    }
  }
  return out;
}

Value UrlEncodeFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "urlencode", args, {"value"}, 1);
  if (!context->ok()) return Value();
  if (bound[0].IsString() || !IsIterable(bound[0])) {
    return context->String(UrlQuote(ToText(context, bound[0]), false));
  }
  const Value source =
      bound[0].Is(Kind::kDict)
          ? Value::Of(Kind::kView, std::make_shared<ViewObject>(context->meter(), bound[0],
                                                                ViewObject::Part::kItems))
          : bound[0];
  const Sequence pairs = Iterate(context, source);
  if (pairs == nullptr) return Value();
  std::string out;
  for (const Value& pair : pairs->items) {
    const Sequence parts = Iterate(context, pair);
    if (parts == nullptr) return Value();
    if (parts->items.size() != 2) return context->Fail("urlencode: expected pairs");
    if (!out.empty()) out.push_back('&');
    out += StrCat(UrlQuote(ToText(context, parts->items[0]), true), "=",
                  UrlQuote(ToText(context, parts->items[1]), true));
    if (!context->ok() || !context->Room(out.size())) return Value();
  }
  return context->String(std::move(out));
}

Value XmlAttrFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "xmlattr", args, {"d", "autospace"}, 1);
  if (!context->ok()) return Value();
  if (!bound[0].Is(Kind::kDict)) return context->Fail("xmlattr: expected a mapping");
  std::string out;
  for (const auto& [key, value] : bound[0].As<DictObject>()->entries) {
    if (value.IsNone() || value.IsUndefined()) continue;
    const std::string name = ToText(context, key);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      return context->Fail(StrCat("Invalid character in attribute name: '", name, "'"));
    }
    if (!out.empty()) out.push_back(' ');
    const std::string text = ToText(context, value);
    out += StrCat(EscapeHtml(name), "=\"", value.IsMarkup() ? text : EscapeHtml(text), "\"");
    if (!context->ok() || !context->Room(out.size())) return Value();
  }
  if (!out.empty() && bound.Bool(1, true)) out = StrCat(" ", out);
  return context->String(std::move(out));
}

Value FileSizeFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "filesizeformat", args, {"value", "binary"}, 1);
  if (!context->ok()) return Value();
  CallArgs number;
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
  double unit = base;
  size_t i = 0;
  while (bytes >= unit * base && i + 1 < kLetters.size()) {
    unit *= base;
    ++i;
  }
  const std::string prefix =
      binary ? StrCat(Upper(kLetters.substr(i, 1)), "i") : std::string(1, kLetters[i]);
  return context->String(StrCat(FormatDouble(bytes / unit, 'f', 1, false), " ", prefix, "B"));
}

Value NotForTemplates(Context* context, const CallArgs& /*args*/) {
  return context->FailUnsupported(
      "the filters random, urlize, wordwrap and pprint are not supported");
}

constexpr NamedFunction kFilters[] = {
    {"capitalize", MapFilter<Capitalize>},
    {"center", CenterFilter},
    {"e", EscapeFilter},
    {"escape", EscapeFilter},
    {"filesizeformat", FileSizeFilter},
    {"forceescape", ForceEscapeFilter},
    {"format", FormatFilter},
    {"indent", IndentFilter},
    {"lower", MapFilter<Lower>},
    {"pprint", NotForTemplates},
    {"random", NotForTemplates},
    {"replace", ReplaceFilter},
    {"safe", SafeFilter},
    {"string", StringFilter},
    {"striptags", StripTagsFilter},
    {"title", MapFilter<TitleWords>},
    {"trim", TrimFilter},
    {"truncate", TruncateFilter},
    {"upper", MapFilter<Upper>},
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
