// JSON in by SAX events with bounded depth, and json.dumps out.
#include "tokenizer/jinja_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

using Json = nlohmann::json;

class JsonReader final : public nlohmann::json_sax<Json> {
 public:
  explicit JsonReader(Context* context) : context_(context) {}

  bool null() override { return Put(Value::None()); }
  bool boolean(bool value) override { return Put(Value::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Put(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Put(Value::Int(static_cast<int64_t>(value)));
    }
    return Put(Value::BigInt(context_->meter(), std::to_string(value)));
  }
  // Also integers that are beyond 64 bits.
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos && text.size() > 15) {
      return Put(Value::BigInt(context_->meter(), text));
    }
    double parsed = value;
    std::from_chars(text.data(), text.data() + text.size(), parsed);
    return Put(Value::Float(parsed));
  }
  bool string(string_t& value) override { return Put(context_->String(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return Open(true); }
  bool key(string_t& value) override {
    open_.back().key = context_->String(std::move(value));
    return context_->ok();
  }
  bool end_object() override {
    Value dict = Value::Of(Kind::kDict, std::move(open_.back().dict));
    open_.pop_back();
    return Put(std::move(dict));
  }
  bool start_array(std::size_t /*size*/) override { return Open(false); }
  bool end_array() override {
    Value list = context_->List(std::move(open_.back().items));
    open_.pop_back();
    return Put(std::move(list));
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception...] parse error at line 1, column 2: reason"
    const std::string_view what = error.what();
    const size_t reason = what.find("parse error");
    error_ = StrCat("byte ", position, ": ",
                    std::string(reason == std::string_view::npos ? what : what.substr(reason)));
    return false;
  }

  std::string error() const { return error_; }
  const std::optional<Value>& result() const { return result_; }

 private:
  struct Container {
    std::shared_ptr<DictObject> dict;  // null: an array
    std::vector<Value> items;
    Value key;
  };

  bool Open(bool object) {
    if (open_.size() >= kMaxValueDepth - 1) {
      error_ = StrCat("nested too deeply (over ", kMaxValueDepth - 1, " levels)");
      return false;
    }
    open_.emplace_back();
    if (object) open_.back().dict = std::make_shared<DictObject>(context_->meter());
    return true;
  }

  bool Put(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().dict != nullptr) {
      open_.back().dict->Set(open_.back().key, std::move(value));
    } else {
      auto& items = open_.back().items;
      if (items.size() == items.capacity()) {
        if (!context_->Room(2 * items.size() * sizeof(Value))) return false;
      }
      items.push_back(std::move(value));
    }
    return context_->ok();
  }

  Context* context_;
  std::vector<Container> open_;
  std::optional<Value> result_;
  std::string error_;
};

struct DumpOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator, key_separator;
};

class JsonWriter {
 public:
  JsonWriter(Context* context, const DumpOptions& options) : context_(context), options_(options) {}

  void Write(const Value& value, uint32_t level) {
    context_->meter()->Step();
    if (!context_->ok() || !context_->Room(out_.size())) return;
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
        out_ += Number(value);
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

  std::string Take() { return std::move(out_); }

 private:
  std::string Number(const Value& value) {
    if (!value.Is(Kind::kFloat)) return ToText(context_, value);
    if (std::isnan(value.AsFloat())) return "NaN";
    if (std::isinf(value.AsFloat())) return value.AsFloat() < 0 ? "-Infinity" : "Infinity";
    return FloatRepr(value.AsFloat());
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
    if (!options_.indent.has_value()) return;
    if (!context_->Room(out_.size() + level * options_.indent->size())) return;
    out_.push_back('\n');
    for (uint32_t i = 0; i < level; ++i) out_ += *options_.indent;
  }

  void WriteList(const std::vector<Value>& items, uint32_t level) {
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
        out_ += StrCat("\"", Number(key), "\"");
        break;
      default:
        context_->Fail(
            StrCat("keys must be str, int, float, bool or None, not ", std::string(TypeName(key))));
    }
  }

  void WriteDict(const DictObject& dict, uint32_t level) {
    std::vector<size_t> order(dict.entries.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (options_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return context_->ok() && Less(context_, dict.entries[a].first, dict.entries[b].first);
      });
    }
    out_.push_back('{');
    for (size_t i = 0; i < order.size() && context_->ok(); ++i) {
      if (i != 0) out_ += options_.item_separator;
      NewLine(level + 1);
      WriteKey(dict.entries[order[i]].first);
      out_ += options_.key_separator;
      Write(dict.entries[order[i]].second, level + 1);
    }
    if (!order.empty()) NewLine(level);
    out_.push_back('}');
  }

  Context* context_;
  const DumpOptions& options_;
  std::string out_;
};

}  // namespace

StatusOr<Value> ParseJson(Context* context, std::string_view text, const std::string& what) {
  JsonReader reader(context);
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &reader);
  if (const char* limit = context->meter()->over()) {
    return BudgetError(StrCat(what, ": larger than the limit ", limit, " allows"));
  }
  if (!parsed || !reader.result().has_value()) {
    return MisuseError(
        StrCat(what, ": not valid JSON: ", reader.error().empty() ? "no value" : reader.error()));
  }
  return *reader.result();
}

Value ToJson(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "tojson", args,
                        {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  if (!context->ok()) return Value();
  DumpOptions options;
  options.ensure_ascii = bound.Bool(1, false);
  options.sort_keys = bound.Bool(4, false);
  if (!bound.IsNone(2)) {
    if (bound[2].IsString()) {
      options.indent = std::string(bound[2].AsString());
    } else {
      const int64_t count = std::max<int64_t>(bound.Int(2, 0), 0);
      if (!context->ok() || !context->Room(static_cast<uint64_t>(count))) return Value();
      options.indent = std::string(static_cast<size_t>(count), ' ');
    }
  }
  options.item_separator = options.indent.has_value() ? "," : ", ";
  options.key_separator = ": ";
  if (!bound.IsNone(3)) {
    const Sequence parts = Iterate(context, bound[3]);
    if (parts == nullptr) return Value();
    if (parts->items.size() != 2 || !parts->items[0].IsString() || !parts->items[1].IsString()) {
      return context->Fail("tojson(): separators must be two strings");
    }
    options.item_separator = std::string(parts->items[0].AsString());
    options.key_separator = std::string(parts->items[1].AsString());
  }
  JsonWriter writer(context, options);
  writer.Write(bound[0], 0);
  return context->ok() ? context->String(writer.Take()) : Value();
}

}  // namespace qinfer::tokenizer::jinja
