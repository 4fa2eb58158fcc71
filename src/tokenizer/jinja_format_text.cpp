// text % args and text.format(args): finding the fields and their values.
#include <algorithm>
#include <charconv>

#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

// Text that is put into `format`, escaped where that is markup and the value was not. `scratch` is
// for the escaped one.
std::string_view Inserted(const Value& format, std::string_view text, bool is_markup,
                          Text* scratch) {
  if (!format.IsMarkup() || is_markup) return text;
  AppendEscaped(text, scratch);
  return *scratch;
}

class PercentFormatter {
 public:
  PercentFormatter(Context* context, const Value& format, const Value& args)
      : context_(context), format_(format), text_(format.AsString()), args_(args) {}

  Value Run() {
    Text out(context_->meter());
    out.reserve(text_.size());
    while (at_ < text_.size()) {
      const size_t percent = text_.find('%', at_);
      out += text_.substr(at_, percent - at_);
      if (percent == std::string_view::npos) break;
      at_ = percent + 1;
      AppendNext(&out);
      context_->meter()->Step();
      if (!context_->ok()) return Value();
    }
    const bool unused = args_.Is(Kind::kTuple)
                            ? used_ < args_.As<ListObject>()->items.size()
                            : used_ == 0 && !args_.Is(Kind::kDict) && !args_.Is(Kind::kList);
    if (unused && !by_name_) {
      return context_->Fail("not all arguments converted during string formatting");
    }
    return context_->String(std::move(out), format_.IsMarkup());
  }

 private:
  Value NextArg() {
    if (args_.Is(Kind::kTuple)) {
      const auto& items = args_.As<ListObject>()->items;
      if (used_ < items.size()) return items[used_++];
    } else if (used_++ == 0) {
      return args_;
    }
    return context_->Fail("not enough arguments for format string");
  }
  int64_t Count() {
    if (at_ < text_.size() && text_[at_] == '*') {
      ++at_;
      const Value value = NextArg();
      if (context_->ok() && !value.IsInteger()) context_->Fail("* wants int");
      return context_->ok() ? value.AsInt() : 0;
    }
    int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = std::min<int64_t>(value * 10 + (text_[at_++] - '0'), int64_t{1} << 40);
    }
    return value;
  }
  void AppendNext(Text* out);
  void Convert(char type, Value value, FieldSpec spec, bool zero, Text* out);

  Context* context_;
  const Value& format_;
  std::string_view text_;
  const Value& args_;
  size_t at_ = 0, used_ = 0;
  bool by_name_ = false;
};

void PercentFormatter::AppendNext(Text* out) {
  Value value;
  bool named = false;
  if (at_ < text_.size() && text_[at_] == '(') {
    size_t depth = 1;
    size_t end = at_ + 1;
    while (end < text_.size() && depth > 0) {
      depth += text_[end] == '(' ? 1 : text_[end] == ')' ? size_t(-1) : 0;
      ++end;
    }
    if (depth != 0) {
      context_->Fail("incomplete format key");
      return;
    }
    const std::string_view key = text_.substr(at_ + 1, end - at_ - 2);
    at_ = end;
    if (!args_.Is(Kind::kDict)) {
      context_->Fail("format requires a mapping");
      return;
    }
    const Value* found = args_.As<DictObject>()->Get(key);
    if (found == nullptr) {
      context_->Fail(StrCat("KeyError: '", Quoted(key), "'"));
      return;
    }
    value = *found;
    named = by_name_ = true;
  }
  FieldSpec spec;
  spec.align = '>';
  bool zero = false;
  for (bool flags = true; flags && at_ < text_.size();) {
    switch (text_[at_]) {
      case '-':
        spec.align = '<';
        break;
      case '+':
        spec.sign = '+';
        break;
      case ' ':
        if (spec.sign != '+') spec.sign = ' ';
        break;
      case '#':
        spec.alternate = true;
        break;
      case '0':
        zero = true;
        break;
      default:
        flags = false;
    }
    if (flags) ++at_;
  }
  spec.width = Count();
  if (spec.width < 0) {
    spec.align = '<';
    spec.width = spec.width < -(int64_t{1} << 40) ? int64_t{1} << 40 : -spec.width;
  }
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    spec.precision = std::max<int64_t>(Count(), 0);
  }
  if (!context_->ok()) return;
  while (at_ < text_.size() && std::string_view("hlL").find(text_[at_]) != std::string_view::npos) {
    ++at_;
  }
  if (at_ >= text_.size()) {
    context_->Fail("incomplete format");
    return;
  }
  const char type = text_[at_++];
  if (type == '%') {
    out->push_back('%');
    return;
  }
  if (!named) value = NextArg();
  if (context_->ok()) Convert(type, std::move(value), spec, zero, out);
}

void PercentFormatter::Convert(char type, Value value, FieldSpec spec, bool zero, Text* out) {
  const bool left = spec.align == '<';
  switch (type) {
    case 's':
    case 'r':
    case 'a': {
      Text scratch(context_->meter());
      Text escaped(context_->meter());
      std::string_view text;
      if (type == 's') {
        text = TextOf(context_, value, &scratch);
      } else {
        AppendRepr(context_, value, &scratch);
        text = scratch;
      }
      text = Inserted(format_, text, type == 's' && value.IsMarkup(), &escaped);
      if (spec.precision >= 0) {
        text = text.substr(0, ByteOffset(text, static_cast<size_t>(spec.precision)));
      }
      AppendPadded(text, spec, false, out);
      return;
    }
    case 'c':
      if (value.IsString() && CountCodePoints(value.AsString()) == 1) {
        AppendPadded(value.AsString(), spec, false, out);
        return;
      }
      if (!value.IsInteger()) {
        context_->Fail("%c requires int or char");
        return;
      }
      spec.type = 'c';
      AppendField(context_, value, spec, out);
      return;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      const bool whole = type == 'd' || type == 'i' || type == 'u';
      if (value.Is(Kind::kFloat) && whole) {
        CallArgs args(context_->meter());
        args.positional.push_back(value);
        value = ApplyFilter(context_, "int", args);
      }
      if (!value.IsNumber() || value.Is(Kind::kFloat)) {
        if (value.IsUndefined()) {
          context_->FailUndefined(value);
        } else {
          context_->Fail(StrCat("%", std::string(1, type),
                                " format: a real number is required, not ",
                                std::string(TypeName(value))));
        }
        return;
      }
      spec.type = whole ? 'd' : type;
      const int64_t precision = std::exchange(spec.precision, -1);
      if (precision > 0) {
        // Leading zeros up to the precision.
        FieldSpec digits = spec;
        digits.width = precision;
        digits.fill.assign(1, '0');
        digits.align = '=';
        const bool sign = value.AsInt() < 0 || spec.sign != '-';
        digits.width += sign && value.IsInteger() ? 1 : 0;
        Text text(context_->meter());
        AppendField(context_, value, digits, &text);
        if (context_->ok()) AppendPadded(text, spec, true, out);
        return;
      }
      break;
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (!value.IsNumber()) {
        if (value.IsUndefined()) {
          context_->FailUndefined(value);
        } else {
          context_->Fail(StrCat("must be real number, not ", std::string(TypeName(value))));
        }
        return;
      }
      spec.type = type;
      break;
    default:
      context_->Fail(StrCat("unsupported format character '", std::string(1, type), "'"));
      return;
  }
  if (zero && !left) {
    spec.fill.assign(1, '0');
    spec.align = '=';
  }
  AppendField(context_, value, spec, out);
}

class BraceFormatter {
 public:
  BraceFormatter(Context* context, const Value& format, const CallArgs& args)
      : context_(context), format_(format), args_(args) {}

  // `depth` counts fields within specifications: two levels, as in Python.
  void Run(std::string_view text, int depth, Text* out) {
    for (size_t at = 0; at < text.size() && context_->ok();) {
      const char c = text[at];
      if (c != '{' && c != '}') {
        const size_t next = std::min(text.find_first_of("{}", at), text.size());
        *out += text.substr(at, next - at);
        at = next;
      } else if (at + 1 < text.size() && text[at + 1] == c) {
        out->push_back(c);
        at += 2;
      } else if (c == '}') {
        context_->Fail("Single '}' encountered in format string");
      } else {
        size_t end = at + 1;
        int open = 1;
        while (end < text.size() && open > 0) {
          open += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
          ++end;
        }
        if (open != 0) {
          context_->Fail(end == at + 1 ? "Single '{' encountered in format string"
                                       : "expected '}' before end of string");
          break;
        }
        AppendNext(text.substr(at + 1, end - at - 2), depth, out);
        at = end;
      }
      context_->meter()->Step();
    }
  }

 private:
  void AppendNext(std::string_view field, int depth, Text* out) {
    if (depth > 1) {
      context_->Fail("Max string recursion exceeded");
      return;
    }
    // name [!conversion] [:spec]; brackets may hold either mark.
    size_t end = 0;
    bool bracket = false;
    while (end < field.size() && (bracket || (field[end] != '!' && field[end] != ':'))) {
      if (field[end] == '[') bracket = true;
      if (field[end] == ']') bracket = false;
      ++end;
    }
    char conversion = '\0';
    std::string_view spec_text;
    size_t at = end;
    if (at < field.size() && field[at] == '!') {
      if (at + 1 >= field.size() || (at + 2 < field.size() && field[at + 2] != ':')) {
        context_->Fail("expected ':' after conversion specifier");
        return;
      }
      conversion = field[at + 1];
      at += 2;
    }
    if (at < field.size()) spec_text = field.substr(at + 1);
    Value value = Lookup(field.substr(0, end));
    if (!context_->ok()) return;
    if (conversion != '\0') {
      if (conversion != 's' && conversion != 'r' && conversion != 'a') {
        context_->Fail("unknown conversion specifier");
        return;
      }
      Text text(context_->meter());
      if (conversion == 's') {
        AppendText(context_, value, &text);
      } else {
        AppendRepr(context_, value, &text);
      }
      value = context_->String(std::move(text));
    }
    FieldSpec spec;
    Text expanded(context_->meter());
    Run(spec_text, depth + 1, &expanded);
    if (!context_->ok()) return;
    if (!ParseFieldSpec(expanded, &spec)) {
      context_->Fail("Invalid format specifier");
      return;
    }
    if (!format_.IsMarkup() || value.IsMarkup()) {
      AppendField(context_, value, spec, out);
      return;
    }
    Text plain(context_->meter());
    AppendField(context_, value, spec, &plain);
    AppendEscaped(plain, out);
  }

  Value Argument(std::string_view name) {
    size_t index = 0;
    const bool digits = !name.empty() && std::all_of(name.begin(), name.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    if (name.empty()) {
      index = next_++;
    } else if (digits) {
      std::from_chars(name.data(), name.data() + name.size(), index);
    } else {
      for (const auto& [key, value] : args_.named) {
        if (key == name) return value;
      }
      return context_->Fail(StrCat("KeyError: '", Quoted(name), "'"));
    }
    if (index < args_.positional.size()) return args_.positional[index];
    return context_->Fail(
        StrCat("Replacement index ", index, " out of range for positional args tuple"));
  }

  Value Lookup(std::string_view path) {
    size_t at = std::min(path.find_first_of(".["), path.size());
    Value value = Argument(path.substr(0, at));
    while (at < path.size() && context_->ok()) {
      if (path[at] == '.') {
        const size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
        value = GetAttribute(context_, value, path.substr(at + 1, end - at - 1));
        at = end;
        continue;
      }
      const size_t end = path[at] == '[' ? path.find(']', at) : std::string_view::npos;
      if (end == std::string_view::npos) {
        return context_->Fail("Missing ']' in format string");
      }
      const std::string_view key = path.substr(at + 1, end - at - 1);
      int64_t index = 0;
      const auto result = std::from_chars(key.data(), key.data() + key.size(), index);
      const bool number = result.ec == std::errc() && result.ptr == key.data() + key.size();
      value = GetItem(context_, value, number ? Value::Int(index) : context_->String(key));
      at = end + 1;
    }
    return value;
  }

  Context* context_;
  const Value& format_;
  const CallArgs& args_;
  size_t next_ = 0;
};

}  // namespace

Value FormatPercent(Context* context, const Value& format, const Value& args) {
  return PercentFormatter(context, format, args).Run();
}

Value FormatBraces(Context* context, const Value& format, const CallArgs& args) {
  Text out(context->meter());
  BraceFormatter(context, format, args).Run(format.AsString(), 0, &out);
  return context->ok() ? context->String(std::move(out), format.IsMarkup()) : Value();
}

}  // namespace qinfer::tokenizer::jinja
