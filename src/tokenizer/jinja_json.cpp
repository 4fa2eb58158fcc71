// json.dumps. Reading is in jinja_json_reader.cpp.
#include <cmath>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_select.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

// The texts belong to the arguments.
struct DumpOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool lines = false;         // each item on a line of its own
  std::string_view indent;    // a level's is this,
  uint64_t indent_count = 1;  // so many times
  std::string_view item_separator, key_separator;
};

class JsonWriter {
 public:
  JsonWriter(Context* context, const DumpOptions& options)
      : context_(context), options_(options), out_(context->meter()) {}

  void Write(const Value& value, uint32_t level) {
    context_->meter()->Step();
    if (!context_->ok()) return;
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += value.AsBool() ? "true" : "false";
        break;
      case Kind::kInt:
      case Kind::kBigInt:
      case Kind::kFloat:
        AppendNumber(value);
        break;
      case Kind::kString:
        WriteString(value.AsString());
        break;
      case Kind::kList:
      case Kind::kTuple:
        WriteList(value.As<ListObject>()->items, level);
        break;
      case Kind::kDict:
        WriteDict(*value.As<DictObject>(), level);
        break;
      default:
        context_->Fail(
            StrCat("Object of type ", std::string(TypeName(value)), " is not JSON serializable"));
    }
  }

  Text Take() { return std::move(out_); }

 private:
  void AppendNumber(const Value& value) {
    if (!value.Is(Kind::kFloat) || std::isfinite(value.AsFloat())) {
      AppendText(context_, value, &out_);
    } else {
      out_ += std::isnan(value.AsFloat()) ? "NaN" : value.AsFloat() < 0 ? "-Infinity" : "Infinity";
    }
  }

  void WriteHex(uint32_t unit) {
    out_ += "\\u";
    for (int k = 3; k >= 0; --k) out_.push_back("0123456789abcdef"[(unit >> (4 * k)) & 15]);
  }

  void WriteString(std::string_view text) {
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kLetters = "\"\\nrtbf";
    out_.push_back('"');
    for (size_t at = 0; at < text.size();) {
      const size_t start = at;
      const char32_t c = DecodeUtf8(text, &at);
      const size_t escape = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
      if (escape != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kLetters[escape]);
      } else if (c < 0x20 || (options_.ensure_ascii && c > 0x7E)) {
        if (c > 0xFFFF) {
          WriteHex(0xD800 + ((static_cast<uint32_t>(c) - 0x10000) >> 10));
          WriteHex(0xDC00 + ((static_cast<uint32_t>(c) - 0x10000) & 0x3FF));
        } else {
          WriteHex(static_cast<uint32_t>(c));
        }
      } else {
        out_ += text.substr(start, at - start);
      }
    }
    out_.push_back('"');
    context_->meter()->StepBytes(text.size());
  }

  void NewLine(uint32_t level) {
    if (!options_.lines) return;
    out_.push_back('\n');
    AppendRepeated(options_.indent, context_->meter()->Require(options_.indent_count, level),
                   &out_);
  }

  void WriteList(const Items& items, uint32_t level) {
    out_.push_back('[');
    for (size_t i = 0; i < items.size() && context_->ok(); ++i) {
      if (i != 0) out_ += options_.item_separator;
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    if (!items.empty()) NewLine(level);
    out_.push_back(']');
  }

  void WriteKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        WriteString(key.AsString());
        break;
      case Kind::kNone:
        out_ += "\"null\"";
        break;
      case Kind::kBool:
        out_ += key.AsBool() ? "\"true\"" : "\"false\"";
        break;
      case Kind::kInt:
      case Kind::kBigInt:
      case Kind::kFloat:
        out_.push_back('"');
        AppendNumber(key);
        out_.push_back('"');
        break;
      default:
        context_->Fail(
            StrCat("keys must be str, int, float, bool or None, not ", std::string(TypeName(key))));
    }
  }

  void WriteDict(const DictObject& dict, uint32_t level) {
    const auto& entries = dict.entries;
    const CountedVector<size_t> order = StableOrder(
        context_, options_.sort_keys ? entries.size() : 0,
        [&](size_t a, size_t b) { return Less(context_, entries[a].first, entries[b].first); });
    out_.push_back('{');
    for (size_t i = 0; i < entries.size() && context_->ok(); ++i) {
      const auto& [key, value] = entries[options_.sort_keys ? order[i] : i];
      if (i != 0) out_ += options_.item_separator;
      NewLine(level + 1);
      WriteKey(key);
      out_ += options_.key_separator;
      Write(value, level + 1);
    }
    if (!entries.empty()) NewLine(level);
    out_.push_back('}');
  }

  Context* context_;
  const DumpOptions& options_;
  Text out_;
};

}  // namespace

Value ToJson(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "tojson", args,
                        {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  if (!context->ok()) return Value();
  DumpOptions options;
  options.ensure_ascii = bound.Bool(1, false);
  options.sort_keys = bound.Bool(4, false);
  options.lines = !bound.IsNone(2);
  if (options.lines && bound[2].IsString()) {
    options.indent = bound[2].AsString();
  } else if (options.lines) {
    options.indent = " ";
    options.indent_count = static_cast<uint64_t>(std::max<int64_t>(bound.Int(2, 0), 0));
  }
  options.item_separator = options.lines ? "," : ", ";
  options.key_separator = ": ";
  Sequence parts;
  if (!bound.IsNone(3)) {
    parts = Iterate(context, bound[3]);
    if (parts == nullptr) return Value();
    if (parts->items.size() != 2 || !parts->items[0].IsString() || !parts->items[1].IsString()) {
      return context->Fail("tojson(): separators must be two strings");
    }
    options.item_separator = parts->items[0].AsString();
    options.key_separator = parts->items[1].AsString();
  }
  if (!context->ok()) return Value();
  JsonWriter writer(context, options);
  writer.Write(bound[0], 0);
  return context->ok() ? context->String(writer.Take()) : Value();
}

}  // namespace qinfer::tokenizer::jinja
