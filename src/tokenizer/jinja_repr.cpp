// str() and repr() of values.
#include <charconv>
#include <cmath>

#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

class ReprWriter {
 public:
  ReprWriter(Context* context, Text* out) : context_(context), out_(out) {}

  void Write(const Value& value) {
    if (!context_->ok()) return;
    context_->meter()->Step();
    // Namespaces may hold themselves.
    if (++depth_ > 2 * kMaxValueDepth) {
      context_->Fail("maximum recursion depth exceeded while getting the repr of an object");
    } else {
      WriteOne(value);
    }
    --depth_;
  }

 private:
  void WriteOne(const Value& value);
  void WriteItems(const Items& items) {
    for (size_t i = 0; i < items.size() && context_->ok(); ++i) {
      if (i != 0) *out_ += ", ";
      Write(items[i]);
    }
  }
  void WriteDict(const DictObject& dict) {
    *out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (!context_->ok()) return;
      if (!first) *out_ += ", ";
      first = false;
      Write(key);
      *out_ += ": ";
      Write(value);
    }
    *out_ += '}';
  }
  void WriteView(const ViewObject& view) {
    const auto& entries = view.dict.As<DictObject>()->entries;
    *out_ += view.part == ViewObject::Part::kKeys     ? "dict_keys(["
             : view.part == ViewObject::Part::kValues ? "dict_values(["
                                                      : "dict_items([";
    for (size_t i = 0; i < entries.size() && context_->ok(); ++i) {
      if (i != 0) *out_ += ", ";
      if (view.part == ViewObject::Part::kItems) *out_ += '(';
      if (view.part != ViewObject::Part::kValues) Write(entries[i].first);
      if (view.part == ViewObject::Part::kItems) *out_ += ", ";
      if (view.part != ViewObject::Part::kKeys) Write(entries[i].second);
      if (view.part == ViewObject::Part::kItems) *out_ += ')';
    }
    *out_ += "])";
  }

  Context* context_;
  Text* out_;
  uint32_t depth_ = 0;
};

void ReprWriter::WriteOne(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      *out_ += "Undefined";
      break;
    case Kind::kNone:
      *out_ += "None";
      break;
    case Kind::kBool:
      *out_ += value.AsBool() ? "True" : "False";
      break;
    case Kind::kInt:
      *out_ += std::to_string(value.AsInt());
      break;
    case Kind::kBigInt:
      *out_ += value.AsString();
      break;
    case Kind::kFloat:
      *out_ += FloatRepr(value.AsFloat());
      break;
    case Kind::kString:
      if (value.IsMarkup()) *out_ += "Markup(";
      AppendStringRepr(value.AsString(), out_);
      if (value.IsMarkup()) *out_ += ')';
      break;
    case Kind::kList:
      *out_ += '[';
      WriteItems(value.As<ListObject>()->items);
      *out_ += ']';
      break;
    case Kind::kTuple: {
      const auto& items = value.As<ListObject>()->items;
      *out_ += '(';
      WriteItems(items);
      *out_ += items.size() == 1 ? ",)" : ")";
      break;
    }
    case Kind::kDict:
      WriteDict(*value.As<DictObject>());
      break;
    case Kind::kView:
      WriteView(*value.As<ViewObject>());
      break;
    case Kind::kRange: {
      const auto* range = value.As<RangeObject>();
      *out_ += StrCat("range(", range->start, ", ", range->stop);
      if (range->step != 1) *out_ += StrCat(", ", range->step);
      *out_ += ')';
      break;
    }
    case Kind::kNamespace: {
      *out_ += "<Namespace {";
      bool first = true;
      for (const auto& [name, item] : value.As<NamespaceObject>()->entries) {
        if (!first) *out_ += ", ";
        first = false;
        AppendStringRepr(name, out_);
        *out_ += ": ";
        Write(item);
      }
      *out_ += "}>";
      break;
    }
    case Kind::kIterator:
      // Python adds an address here, which no template can rely on.
      *out_ += StrCat("<generator object ", std::string(value.As<IteratorObject>()->name), ">");
      break;
    default:
      *out_ += StrCat("<", std::string(TypeName(value)), ">");
  }
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  // d.ddde±xx: the shortest digits, from which Python's layout follows.
  const size_t e = text.find('e');
  int exponent = 0;
  const char* exponent_text = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_text, text.data() + text.size(), exponent);
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  std::string out = text[0] == '-' ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += StrCat(".", digits.substr(1));
    out += exponent < 0 ? "e-" : "e+";
    const std::string magnitude = std::to_string(std::abs(exponent));
    return out + (magnitude.size() < 2 ? "0" : "") + magnitude;
  }
  if (exponent < 0)
    return StrCat(out, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole)
    return StrCat(out, digits, std::string(whole - digits.size(), '0'), ".0");
  return StrCat(out, digits.substr(0, whole), ".", digits.substr(whole));
}

void AppendStringRepr(std::string_view text, Text* out) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  const auto hex = [out](char32_t c, int digits) {
    for (int k = digits - 1; k >= 0; --k) out->push_back("0123456789abcdef"[(c >> (4 * k)) & 15]);
  };
  out->push_back(quote);
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = DecodeUtf8(text, &at);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '\r') {
      *out += "\\r";
    } else if (c == '\t') {
      *out += "\\t";
    } else if (IsPrintable(c)) {
      out->append(text.substr(start, at - start));
    } else if (c < 0x100) {
      *out += "\\x";
      hex(c, 2);
    } else if (c < 0x10000) {
      *out += "\\u";
      hex(c, 4);
    } else {
      *out += "\\U";
      hex(c, 8);
    }
  }
  out->push_back(quote);
}

void AppendRepr(Context* context, const Value& value, Text* out) {
  ReprWriter(context, out).Write(value);
}

void AppendText(Context* context, const Value& value, Text* out) {
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kString:
      *out += value.AsString();
      break;
    default:
      AppendRepr(context, value, out);
  }
}

std::string_view TextOf(Context* context, const Value& value, Text* scratch) {
  if (value.IsString()) return value.AsString();
  scratch->clear();
  AppendText(context, value, scratch);
  return *scratch;
}

std::string QuotedRepr(Context* context, const Value& value) {
  Text text(context->meter());
  AppendRepr(context, value, &text);
  return Quoted(text);
}

}  // namespace qinfer::tokenizer::jinja
