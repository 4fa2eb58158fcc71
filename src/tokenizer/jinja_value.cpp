// Construction, truth, equality and keys of template values.
#include "tokenizer/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace qinfer::tokenizer::jinja {
namespace {

constexpr size_t kNotFound = std::numeric_limits<size_t>::max();

uint32_t DepthOf(const Items& items) {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

// Nesting beyond the bound is reported through the meter: the value exists for a moment only.
void CheckDepth(const Object& object) {
  if (object.depth > kMaxValueDepth && object.meter != nullptr) {
    object.meter->Exceed("the nesting of values (100)");
  }
}

bool ItemsEqual(const Items& a, const Items& b, Meter* meter) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equals(a[i], b[i], meter)) return false;
  }
  return true;
}

bool DictsEqual(const DictObject& a, const DictObject& b, Meter* meter) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Get(key);
    if (other == nullptr || !Equals(value, *other, meter)) return false;
  }
  return true;
}

bool IntEqualsFloat(int64_t i, double f) {
  // Exact: a float equals an int only if it is one.
  if (!(f >= -9223372036854775808.0 && f < 9223372036854775808.0)) return false;
  return static_cast<double>(static_cast<int64_t>(f)) == f && static_cast<int64_t>(f) == i;
}

bool NumbersEqual(const Value& a, const Value& b) {
  if (a.IsInteger() && b.IsInteger()) return a.AsInt() == b.AsInt();
  if (a.Is(Kind::kBigInt) && b.Is(Kind::kBigInt)) return a.AsString() == b.AsString();
  if (a.IsInteger() && b.Is(Kind::kFloat)) return IntEqualsFloat(a.AsInt(), b.AsFloat());
  if (b.IsInteger() && a.Is(Kind::kFloat)) return IntEqualsFloat(b.AsInt(), a.AsFloat());
  if (a.IsInteger() || b.IsInteger()) return false;
  return ToDouble(a) == ToDouble(b);
}

}  // namespace

Value Value::String(Text text, bool markup) {
  Meter* meter = text.get_allocator().meter();
  if (meter != nullptr) meter->StepBytes(text.size());
  Value v = Of(Kind::kString, MakeCounted<StringObject>(meter, std::move(text)));
  v.markup_ = markup;
  return v;
}

Value Value::BigInt(Text digits) {
  Meter* meter = digits.get_allocator().meter();
  return Of(Kind::kBigInt, MakeCounted<StringObject>(meter, std::move(digits)));
}

Value Value::Undefined(Text message) {
  Meter* meter = message.get_allocator().meter();
  return Of(Kind::kUndefined, MakeCounted<UndefinedObject>(meter, std::move(message)));
}

Value Value::List(Items items) {
  Meter* meter = items.get_allocator().meter();
  return Of(Kind::kList, MakeCounted<ListObject>(meter, std::move(items)));
}

Value Value::Tuple(Items items) {
  Meter* meter = items.get_allocator().meter();
  return Of(Kind::kTuple, MakeCounted<ListObject>(meter, std::move(items)));
}

Value Value::Iterator(std::string_view name, Items items) {
  Meter* meter = items.get_allocator().meter();
  return Of(Kind::kIterator, MakeCounted<IteratorObject>(meter, name, std::move(items)));
}

std::string_view Value::AsString() const { return As<StringObject>()->text; }

bool Value::SameAs(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
      return int_ == other.int_;
    case Kind::kFloat:
      return false;
    case Kind::kString:
      return object_ == other.object_ ||
             (markup_ == other.markup_ && !markup_ && AsString() == other.AsString());
    default:
      return object_ == other.object_;
  }
}

ListObject::ListObject(Meter* m, Items v) : Object(m), items(std::move(v)) {
  depth = DepthOf(items);
  hashable = std::all_of(items.begin(), items.end(), IsHashable);
  CheckDepth(*this);
  if (m != nullptr) m->Step(items.size() / 8);
}

IteratorObject::IteratorObject(Meter* m, std::string_view n, Items v)
    : Object(m), name(n), items(std::move(v)) {
  depth = DepthOf(items);
  CheckDepth(*this);
}

CyclerObject::CyclerObject(Meter* m, Items v) : Object(m), items(std::move(v)) {
  depth = DepthOf(items);
  CheckDepth(*this);
}

int64_t RangeObject::size() const {
  // Bounded by the caller that made it, so plain arithmetic in 128 bits is enough.
  const __int128 span = static_cast<__int128>(stop) - start;
  if (step > 0) return span <= 0 ? 0 : static_cast<int64_t>((span + step - 1) / step);
  const __int128 back = -static_cast<__int128>(step);
  return span >= 0 ? 0 : static_cast<int64_t>((-span + back - 1) / back);
}

size_t DictObject::IndexOf(const Value& key) const {
  if (key.IsString()) {
    const auto at = by_string_.find(key.AsString());
    return at == by_string_.end() ? kNotFound : at->second;
  }
  if (only_strings_) return kNotFound;
  if (meter != nullptr) meter->Step(entries.size() / 4);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].first.IsString() && Equals(entries[i].first, key, meter)) return i;
  }
  return kNotFound;
}

void DictObject::Set(const Value& key, Value value) {
  depth = std::max({depth, key.depth() + 1, value.depth() + 1});
  CheckDepth(*this);
  const size_t at = IndexOf(key);
  if (at != kNotFound) {
    entries[at].second = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
  if (key.IsString()) {
    by_string_.emplace(entries.back().first.AsString(), entries.size() - 1);
  } else {
    only_strings_ = false;
  }
}

const Value* DictObject::Get(const Value& key) const {
  const size_t at = IndexOf(key);
  return at == kNotFound ? nullptr : &entries[at].second;
}

const Value* DictObject::Get(std::string_view key) const {
  const auto at = by_string_.find(key);
  return at == by_string_.end() ? nullptr : &entries[at->second].second;
}

bool NamespaceObject::Set(std::string_view name, Value value) {
  if (value.depth() + 1 > kMaxValueDepth) return false;
  depth = std::max(depth, value.depth() + 1);
  if (meter != nullptr) meter->Step(entries.size() / 8);
  for (auto& [key, old] : entries) {
    if (key == name) {
      old = std::move(value);
      return true;
    }
  }
  entries.emplace_back(Text(name, meter), std::move(value));
  return true;
}

const Value* NamespaceObject::Get(std::string_view name) const {
  if (meter != nullptr) meter->Step(entries.size() / 8);
  for (const auto& [key, value] : entries) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.AsInt() != 0;
    case Kind::kFloat:
      return value.AsFloat() != 0.0;
    case Kind::kString:
      return !value.AsString().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.As<ListObject>()->items.empty();
    case Kind::kDict:
      return !value.As<DictObject>()->entries.empty();
    case Kind::kView:
      return Truth(value.As<ViewObject>()->dict);
    case Kind::kRange:
      return value.As<RangeObject>()->size() != 0;
    default:
      return true;
  }
}

bool Equals(const Value& a, const Value& b, Meter* meter) {
  if (meter != nullptr && !meter->Step()) return false;
  if (a.IsNumber() && b.IsNumber()) return NumbersEqual(a, b);
  if (a.kind() != b.kind()) return false;
  if (a.object() != nullptr && a.object() == b.object()) return true;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (meter != nullptr) meter->StepBytes(a.AsString().size());
      return a.AsString() == b.AsString();
    case Kind::kList:
    case Kind::kTuple:
      return ItemsEqual(a.As<ListObject>()->items, b.As<ListObject>()->items, meter);
    case Kind::kDict:
      return DictsEqual(*a.As<DictObject>(), *b.As<DictObject>(), meter);
    case Kind::kRange: {
      const auto* x = a.As<RangeObject>();
      const auto* y = b.As<RangeObject>();
      const int64_t size = x->size();
      return size == y->size() &&
             (size == 0 || (x->start == y->start && (size == 1 || x->step == y->step)));
    }
    case Kind::kMethod: {
      const auto* x = a.As<MethodObject>();
      const auto* y = b.As<MethodObject>();
      return x->name == y->name && x->self.SameAs(y->self);
    }
    case Kind::kBuiltin:
      return a.As<BuiltinObject>()->name == b.As<BuiltinObject>()->name;
    default:
      return false;
  }
}

bool IsHashable(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
      return false;
    case Kind::kTuple:
      return value.As<ListObject>()->hashable;
    default:
      return true;
  }
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.IsMarkup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      switch (value.As<ViewObject>()->part) {
        case ViewObject::Part::kKeys:
          return "dict_keys";
        case ViewObject::Part::kValues:
          return "dict_values";
        default:
          return "dict_items";
      }
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kBuiltin:
      return "function";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kSelf:
      return "TemplateReference";
  }
  return "object";
}

double ToDouble(const Value& number) {
  if (number.IsInteger()) return static_cast<double>(number.AsInt());
  if (number.Is(Kind::kFloat)) return number.AsFloat();
  double result = 0;
  const std::string_view digits = number.AsString();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result);
  if (error == std::errc::result_out_of_range) {
    result = std::numeric_limits<double>::infinity() * (digits.front() == '-' ? -1 : 1);
  }
  return result;
}

}  // namespace qinfer::tokenizer::jinja
