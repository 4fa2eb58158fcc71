// Attributes, items and slices of values, by the rules of the immutable sandbox: methods that would
// change a list or dict, and names that begin with an underscore, are not reachable.
#include <algorithm>
#include <array>

#include "tokenizer/jinja_interp.h"
#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

template <size_t N>
bool IsOneOf(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 5> kDictMethods = {"get", "items", "keys", "values", "copy"};
constexpr std::array<std::string_view, 6> kDictUnsafe = {"clear",      "pop",    "popitem",
                                                         "setdefault", "update", "fromkeys"};
constexpr std::array<std::string_view, 3> kListMethods = {"copy", "count", "index"};
constexpr std::array<std::string_view, 8> kListUnsafe = {"append", "clear",  "pop",    "reverse",
                                                         "insert", "extend", "remove", "sort"};

std::string ObjectName(const Value& value) {
  if (value.IsNone()) return "None";
  switch (value.kind()) {
    case Kind::kNamespace:
      return "jinja2.utils.Namespace object";
    case Kind::kMacro:
      return "jinja2.runtime.Macro object";
    case Kind::kLoop:
      return "jinja2.runtime.LoopContext object";
    case Kind::kCycler:
      return "jinja2.utils.Cycler object";
    default:
      return StrCat(std::string(TypeName(value)), " object");
  }
}

Value NoAttribute(Context* context, const Value& value, std::string_view name) {
  return context->Undefined({"'", ObjectName(value), "' has no attribute '", name, "'"});
}

Value NoItem(Context* context, const Value& value, const Value& key) {
  if (key.IsString()) return NoAttribute(context, value, key.AsString());
  return context->Undefined({ObjectName(value), " has no element ", QuotedRepr(context, key)});
}

// What is no method: properties of loops, namespaces, groups, cyclers, numbers. False if there is
// none of that name.
bool FindProperty(Context* context, const Value& value, std::string_view name, Value* out) {
  switch (value.kind()) {
    case Kind::kNamespace: {
      const Value* found = value.As<NamespaceObject>()->Get(name);
      if (found != nullptr) *out = *found;
      return found != nullptr;
    }
    case Kind::kLoop:
      return LoopAttribute(context, value, name, out);
    case Kind::kSelf:
    case Kind::kMacro:
      return InternalAttribute(context, value, name, out);
    case Kind::kTuple: {
      const auto* tuple = value.As<ListObject>();
      if (!tuple->is_group || (name != "grouper" && name != "list")) return false;
      *out = tuple->items[name == "list" ? 1 : 0];
      return true;
    }
    case Kind::kCycler: {
      const auto* cycler = value.As<CyclerObject>();
      if (name == "current") *out = cycler->items[cycler->at];
      if (name == "items") *out = context->Tuple(cycler->items);
      if (name == "pos") *out = Value::Int(static_cast<int64_t>(cycler->at));
      return name == "current" || name == "items" || name == "pos";
    }
    case Kind::kRange: {
      const auto* range = value.As<RangeObject>();
      if (name == "start") *out = Value::Int(range->start);
      if (name == "stop") *out = Value::Int(range->stop);
      if (name == "step") *out = Value::Int(range->step);
      return name == "start" || name == "stop" || name == "step";
    }
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      if (name == "real") *out = value.Is(Kind::kBool) ? Value::Int(value.AsInt()) : value;
      if (name == "imag") *out = value.Is(Kind::kFloat) ? Value::Float(0) : Value::Int(0);
      return name == "real" || name == "imag";
    default:
      return false;
  }
}

// obj[key]; false if there is no such item.
bool FindItem(Context* context, const Value& value, const Value& key, Value* out) {
  switch (value.kind()) {
    case Kind::kDict: {
      if (!IsHashable(key)) return false;
      const Value* found = value.As<DictObject>()->Get(key);
      if (found != nullptr) *out = *found;
      return found != nullptr;
    }
    case Kind::kList:
    case Kind::kTuple: {
      if (!key.IsInteger()) return false;
      const auto& items = value.As<ListObject>()->items;
      const auto size = static_cast<int64_t>(items.size());
      const int64_t index = key.AsInt() < 0 ? key.AsInt() + size : key.AsInt();
      if (index < 0 || index >= size) return false;
      *out = items[static_cast<size_t>(index)];
      return true;
    }
    case Kind::kRange: {
      if (!key.IsInteger()) return false;
      const auto* range = value.As<RangeObject>();
      const int64_t size = range->size();
      const int64_t index = key.AsInt() < 0 ? key.AsInt() + size : key.AsInt();
      if (index < 0 || index >= size) return false;
      *out = Value::Int(range->start + index * range->step);
      return true;
    }
    case Kind::kString: {
      if (!key.IsInteger()) return false;
      const std::string_view text = value.AsString();
      context->meter()->StepBytes(text.size());
      const auto size = static_cast<int64_t>(CountCodePoints(text));
      const int64_t index = key.AsInt() < 0 ? key.AsInt() + size : key.AsInt();
      if (index < 0 || index >= size) return false;
      const size_t start = ByteOffset(text, static_cast<size_t>(index));
      size_t end = start;
      DecodeUtf8(text, &end);
      *out = context->String(text.substr(start, end - start), value.IsMarkup());
      return true;
    }
    default:
      return false;
  }
}

// The attribute as Python's getattr sees it; false if there is none.
bool FindAttribute(Context* context, const Value& value, std::string_view name, Value* out) {
  if (FindProperty(context, value, name, out)) return true;
  switch (FindMethod(value, name)) {
    case AttributeKind::kMethod:
      *out = Value::Of(Kind::kMethod, MakeCounted<MethodObject>(context->meter(), value, name));
      return true;
    case AttributeKind::kUnsafe:
      *out = context->Undefined(
          {"access to attribute '", name, "' of '", TypeName(value), "' object is unsafe."});
      return true;
    default:
      return false;
  }
}

struct SliceRange {
  int64_t start, stop, step;
};

// slice.indices(size); false on a bad part.
bool SliceIndices(Context* context, const Value parts[3], int64_t size, SliceRange* out) {
  for (int i = 0; i < 3; ++i) {
    if (parts[i].IsNone() || parts[i].IsInteger()) continue;
    if (parts[i].IsUndefined()) {
      context->Fail("slice indices must be integers or None or have an __index__ method");
      return false;
    }
    context->Fail("slice indices must be integers or None or have an __index__ method");
    return false;
  }
  out->step = parts[2].IsNone() ? 1 : parts[2].AsInt();
  if (out->step == 0) {
    context->Fail("slice step cannot be zero");
    return false;
  }
  const bool back = out->step < 0;
  const int64_t low = back ? -1 : 0;
  const int64_t high = back ? size - 1 : size;
  const auto clamp = [&](const Value& part, int64_t otherwise) {
    if (part.IsNone()) return otherwise;
    const int64_t i = part.AsInt();
    return i < 0 ? std::max(i + size, low) : std::min(i, high);
  };
  out->start = clamp(parts[0], back ? high : low);
  out->stop = clamp(parts[1], back ? low : high);
  // Steps beyond the size change nothing but could overflow.
  out->step = std::clamp(out->step, -(size + 1), size + 1);
  return true;
}

size_t SliceLength(const SliceRange& range) {
  const int64_t span = range.step > 0 ? range.stop - range.start : range.start - range.stop;
  const int64_t step = range.step > 0 ? range.step : -range.step;
  return span <= 0 ? 0 : static_cast<size_t>((span - 1) / step + 1);
}

template <typename Take>
void WalkSlice(const SliceRange& range, Take take) {
  if (range.step > 0) {
    for (int64_t i = range.start; i < range.stop; i += range.step) take(static_cast<size_t>(i));
  } else {
    for (int64_t i = range.start; i > range.stop; i += range.step) take(static_cast<size_t>(i));
  }
}

Value SliceString(Context* context, const Value& value, const Value parts[3]) {
  const std::string_view text = value.AsString();
  context->meter()->StepBytes(2 * text.size());
  SliceRange range{};
  if (!SliceIndices(context, parts, static_cast<int64_t>(CountCodePoints(text)), &range)) {
    return Value();
  }
  const size_t count = SliceLength(range);
  if (count == 0) return context->String("", value.IsMarkup());
  const size_t start = ByteOffset(text, static_cast<size_t>(range.start));
  if (range.step == 1) {
    const std::string_view rest = text.substr(start);
    return context->String(rest.substr(0, ByteOffset(rest, count)), value.IsMarkup());
  }
  // A walk over the characters between, so that no table of them is needed.
  Text out(context->meter());
  out.reserve(std::min(text.size(), 4 * count));
  size_t at = start;
  int64_t position = range.start;
  WalkSlice(range, [&](size_t i) {
    const auto target = static_cast<int64_t>(i);
    for (; position < target; ++position) DecodeUtf8(text, &at);
    for (; position > target; --position) DecodeUtf8Back(text, &at);
    size_t end = at;
    DecodeUtf8(text, &end);
    out += text.substr(at, end - at);
  });
  return context->String(std::move(out), value.IsMarkup());
}

}  // namespace

AttributeKind FindMethod(const Value& value, std::string_view name) {
  if (name.substr(0, 2) == "__" && name.size() > 4 && name.substr(name.size() - 2) == "__") {
    static constexpr std::array<std::string_view, 12> kCommon = {
        "__class__", "__doc__", "__init__",         "__eq__",  "__hash__",   "__repr__",
        "__str__",   "__dir__", "__getattribute__", "__new__", "__reduce__", "__sizeof__"};
    return IsOneOf(kCommon, name) ? AttributeKind::kUnsafe : AttributeKind::kAbsent;
  }
  switch (value.kind()) {
    case Kind::kString:
      return IsStringMethod(name) ? AttributeKind::kMethod : AttributeKind::kAbsent;
    case Kind::kDict:
      if (IsOneOf(kDictUnsafe, name)) return AttributeKind::kUnsafe;
      return IsOneOf(kDictMethods, name) ? AttributeKind::kMethod : AttributeKind::kAbsent;
    case Kind::kList:
      if (IsOneOf(kListUnsafe, name)) return AttributeKind::kUnsafe;
      return IsOneOf(kListMethods, name) ? AttributeKind::kMethod : AttributeKind::kAbsent;
    case Kind::kTuple:
    case Kind::kRange:
      return name == "count" || name == "index" ? AttributeKind::kMethod : AttributeKind::kAbsent;
    case Kind::kFloat:
      return name == "is_integer" ? AttributeKind::kMethod : AttributeKind::kAbsent;
    case Kind::kBool:
    case Kind::kInt:
      return name == "bit_length" ? AttributeKind::kMethod : AttributeKind::kAbsent;
    case Kind::kLoop:
      return name == "cycle" || name == "changed" ? AttributeKind::kMethod : AttributeKind::kAbsent;
    case Kind::kCycler:
      return name == "next" || name == "reset" ? AttributeKind::kMethod : AttributeKind::kAbsent;
    default:
      return AttributeKind::kAbsent;
  }
}

Value GetAttribute(Context* context, const Value& value, std::string_view name) {
  if (value.IsUndefined()) return context->FailUndefined(value);
  Value out;
  if (FindAttribute(context, value, name, &out)) return out;
  if (value.Is(Kind::kDict)) {
    const Value* item = value.As<DictObject>()->Get(name);
    if (item != nullptr) return *item;
  }
  return NoAttribute(context, value, name);
}

Value GetItem(Context* context, const Value& value, const Value& key) {
  if (value.IsUndefined()) return context->FailUndefined(value);
  Value out;
  if (FindItem(context, value, key, &out)) return out;
  if (key.IsString() && FindAttribute(context, value, key.AsString(), &out)) return out;
  return NoItem(context, value, key);
}

Value GetSlice(Context* context, const Value& value, const Value& start, const Value& stop,
               const Value& step) {
  const Value parts[3] = {start, stop, step};
  SliceRange range{};
  switch (value.kind()) {
    case Kind::kUndefined:
      return context->FailUndefined(value);
    case Kind::kString:
      return SliceString(context, value, parts);
    case Kind::kList:
    case Kind::kTuple: {
      const auto& items = value.As<ListObject>()->items;
      if (!SliceIndices(context, parts, static_cast<int64_t>(items.size()), &range)) {
        return Value();
      }
      Items taken(context->meter());
      taken.reserve(SliceLength(range));
      WalkSlice(range, [&](size_t i) { taken.push_back(items[i]); });
      return value.Is(Kind::kList) ? context->List(std::move(taken))
                                   : context->Tuple(std::move(taken));
    }
    case Kind::kRange: {
      const auto* r = value.As<RangeObject>();
      if (!SliceIndices(context, parts, r->size(), &range)) return Value();
      return Value::Of(Kind::kRange, MakeCounted<RangeObject>(
                                         context->meter(), r->start + range.start * r->step,
                                         r->start + range.stop * r->step, r->step * range.step));
    }
    default:
      return context->Fail(StrCat("'", std::string(TypeName(value)), "' object cannot be sliced"));
  }
}

}  // namespace qinfer::tokenizer::jinja
