// Ordering, containment, iteration and length.
#include "tokenizer/jinja_ops.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_op_text.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

// -1, 0, 1; 2 if not comparable (nan).
int CompareNumbers(const Value& a, const Value& b) {
  if (a.IsInteger() && b.IsInteger()) {
    return a.AsInt() < b.AsInt() ? -1 : a.AsInt() > b.AsInt() ? 1 : 0;
  }
  if (Equals(a, b, nullptr)) return 0;
  if (a.Is(Kind::kBigInt) && b.Is(Kind::kBigInt)) {
    const std::string_view x = a.AsString();
    const std::string_view y = b.AsString();
    const bool negative = x[0] == '-';
    if (negative != (y[0] == '-')) return negative ? -1 : 1;
    const bool less = x.size() != y.size() ? x.size() < y.size() : x < y;
    return less != negative ? -1 : 1;
  }
  const double x = ToDouble(a);
  const double y = ToDouble(b);
  if (std::isnan(x) || std::isnan(y)) return 2;
  if (x != y) return x < y ? -1 : 1;
  // Equal after rounding but not equal: the integer side decides.
  const Value& i = a.Is(Kind::kFloat) ? b : a;
  const double f = a.Is(Kind::kFloat) ? x : y;
  if (!i.IsInteger()) return 2;
  const bool int_less = f >= 9223372036854775808.0 || i.AsInt() < static_cast<int64_t>(f);
  return int_less == (&i == &a) ? -1 : 1;
}

int CompareValues(Context* context, Op op, const Value& a, const Value& b);

int CompareItems(Context* context, Op op, const Items& x, const Items& y) {
  const size_t common = std::min(x.size(), y.size());
  for (size_t i = 0; i < common; ++i) {
    if (Equals(x[i], y[i], context->meter())) continue;
    return CompareValues(context, op, x[i], y[i]);
  }
  return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
}

int CompareValues(Context* context, Op op, const Value& a, const Value& b) {
  if (!context->meter()->Step()) return 2;
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b);
  if (a.IsString() && b.IsString()) {
    // The order of UTF-8 bytes is the order of code points.
    context->meter()->StepBytes(std::min(a.AsString().size(), b.AsString().size()));
    const int order = a.AsString().compare(b.AsString());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.kind() == b.kind() && (a.Is(Kind::kList) || a.Is(Kind::kTuple))) {
    return CompareItems(context, op, a.As<ListObject>()->items, b.As<ListObject>()->items);
  }
  if (a.IsUndefined()) {
    context->FailUndefined(a);
  } else if (b.IsUndefined()) {
    context->FailUndefined(b);
  } else {
    context->Fail(StrCat("'", std::string(OpText(op)), "' not supported between instances of '",
                         std::string(TypeName(a)), "' and '", std::string(TypeName(b)), "'"));
  }
  return 2;
}

}  // namespace

bool CompareOp(Context* context, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEq:
      return Equals(a, b, context->meter());
    case Op::kNe:
      return !Equals(a, b, context->meter());
    case Op::kIn:
      return Contains(context, b, a);
    case Op::kNotIn:
      return !Contains(context, b, a);
    default:
      break;
  }
  const int order = CompareValues(context, op, a, b);
  if (order == 2) return false;
  switch (op) {
    case Op::kLt:
      return order < 0;
    case Op::kLe:
      return order <= 0;
    case Op::kGt:
      return order > 0;
    default:
      return order >= 0;
  }
}

bool Less(Context* context, const Value& a, const Value& b) {
  return CompareOp(context, Op::kLt, a, b);
}

bool Contains(Context* context, const Value& container, const Value& item) {
  if (container.IsString()) {
    if (!item.IsString()) {
      context->Fail(StrCat("'in <string>' requires string as left operand, not ",
                           std::string(TypeName(item))));
      return false;
    }
    context->meter()->StepBytes(container.AsString().size() * 4);
    return Find(container.AsString(), item.AsString(), 0, context->meter()) !=
           std::string_view::npos;
  }
  const bool keys =
      container.Is(Kind::kView) && container.As<ViewObject>()->part == ViewObject::Part::kKeys;
  if (container.Is(Kind::kDict) || keys) {
    if (!IsHashable(item)) {
      context->Fail(StrCat("unhashable type: '", std::string(TypeName(item)), "'"));
      return false;
    }
    const Value& dict = keys ? container.As<ViewObject>()->dict : container;
    return dict.As<DictObject>()->Get(item) != nullptr;
  }
  if (!IsIterable(container)) {
    context->Fail(
        StrCat("argument of type '", std::string(TypeName(container)), "' is not iterable"));
    return false;
  }
  const Sequence items = Iterate(context, container);
  return items != nullptr &&
         std::any_of(items->items.begin(), items->items.end(), [&](const Value& other) {
           return other.SameAs(item) || Equals(other, item, context->meter());
         });
}

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kIterator:
      return true;
    default:
      return false;
  }
}

Sequence Iterate(Context* context, const Value& value) {
  Items items(context->meter());
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kList:
    case Kind::kTuple:
      return std::static_pointer_cast<const ListObject>(value.shared());
    case Kind::kString: {
      const std::string_view text = value.AsString();
      items.reserve(CountCodePoints(text));
      for (size_t at = 0; at < text.size() && context->ok();) {
        const size_t start = at;
        DecodeUtf8(text, &at);
        context->meter()->Step();
        items.push_back(context->String(text.substr(start, at - start)));
      }
      break;
    }
    case Kind::kDict: {
      const auto& entries = value.As<DictObject>()->entries;
      items.reserve(entries.size());
      for (const auto& [key, item] : entries) items.push_back(key);
      break;
    }
    case Kind::kView: {
      const auto* view = value.As<ViewObject>();
      const auto& entries = view->dict.As<DictObject>()->entries;
      items.reserve(entries.size());
      for (const auto& [key, item] : entries) {
        if (!context->ok()) break;
        if (view->part == ViewObject::Part::kKeys) {
          items.push_back(key);
        } else if (view->part == ViewObject::Part::kValues) {
          items.push_back(item);
        } else {
          items.push_back(context->Tuple({key, item}));
        }
      }
      break;
    }
    case Kind::kRange: {
      const auto* range = value.As<RangeObject>();
      const int64_t size = range->size();
      items.reserve(static_cast<size_t>(size));
      for (int64_t i = 0; i < size; ++i)
        items.push_back(Value::Int(range->start + i * range->step));
      break;
    }
    case Kind::kIterator: {
      // Used up, so what is left of it moves out.
      auto* iterator = value.As<IteratorObject>();
      items.swap(iterator->items);
      items.erase(items.begin(), items.begin() + static_cast<ptrdiff_t>(iterator->at));
      iterator->at = 0;
      break;
    }
    default:
      context->Fail(StrCat("'", std::string(TypeName(value)), "' object is not iterable"));
      return nullptr;
  }
  return MakeCounted<ListObject>(context->meter(), std::move(items));
}

int64_t Length(Context* context, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      context->meter()->StepBytes(value.AsString().size());
      return static_cast<int64_t>(CountCodePoints(value.AsString()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.As<ListObject>()->items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.As<DictObject>()->entries.size());
    case Kind::kView:
      return Length(context, value.As<ViewObject>()->dict);
    case Kind::kRange:
      return value.As<RangeObject>()->size();
    default:
      context->Fail(StrCat("object of type '", std::string(TypeName(value)), "' has no len()"));
      return -1;
  }
}

}  // namespace qinfer::tokenizer::jinja
