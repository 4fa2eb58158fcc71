// Arithmetic, ordering, containment and iteration.
#include "tokenizer/jinja_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/checked.h"
#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

std::string_view OpText(Op op) {
  static constexpr std::string_view kText[] = {
      "+", "-", "*",  "/",  "//", "%",  "**", "and", "or", "not",
      "-", "+", "==", "!=", "<",  "<=", ">",  ">=",  "in", "not in"};
  return kText[static_cast<size_t>(op)];
}

Value TypeError(Context* context, Op op, const Value& a, const Value& b) {
  return context->Fail(StrCat("unsupported operand type(s) for ", std::string(OpText(op)), ": '",
                              std::string(TypeName(a)), "' and '", std::string(TypeName(b)), "'"));
}

Value BigIntError(Context* context) {
  return context->FailUnsupported("arithmetic on integers beyond 64 bits is not supported");
}

Value IntPower(Context* context, int64_t base, int64_t exponent) {
  int64_t result = 1;
  bool fits = true;
  while (exponent > 0) {
    if ((exponent & 1) != 0) fits = fits && CheckedMul(result, base, &result);
    exponent >>= 1;
    if (exponent > 0 && base != 0 && base != 1 && base != -1) {
      fits = fits && CheckedMul(base, base, &base);
    } else if (base == -1 && exponent > 0) {
      base = 1;
    }
    if (!fits) return BigIntError(context);
  }
  return Value::Int(result);
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

double FloatModulo(double a, double b) {
  double m = std::fmod(a, b);
  if (m != 0.0) {
    if ((b < 0) != (m < 0)) m += b;
  } else {
    m = std::copysign(0.0, b);
  }
  return m;
}

double FloatFloorDivide(double a, double b) {
  const double m = FloatModulo(a, b);
  const double q = (a - m) / b;
  if (q == 0.0) return std::copysign(0.0, a / b);
  const double floor = std::floor(q);
  return q - floor > 0.5 ? floor + 1.0 : floor;
}

Value IntegerOp(Context* context, Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      return CheckedAdd(a, b, &result) ? Value::Int(result) : BigIntError(context);
    case Op::kSub:
      return __builtin_sub_overflow(a, b, &result) ? BigIntError(context) : Value::Int(result);
    case Op::kMul:
      return CheckedMul(a, b, &result) ? Value::Int(result) : BigIntError(context);
    case Op::kDiv:
      if (b == 0) return context->Fail("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case Op::kFloorDiv:
    case Op::kMod:
      if (b == 0) return context->Fail("integer division or modulo by zero");
      if (b == -1) {
        // The one quotient that overflows: the smallest integer by -1.
        if (op == Op::kMod) return Value::Int(0);
        return __builtin_sub_overflow(int64_t{0}, a, &result) ? BigIntError(context)
                                                              : Value::Int(result);
      }
      return Value::Int(op == Op::kFloorDiv ? FloorDivide(a, b) : a - FloorDivide(a, b) * b);
    default:
      if (b >= 0) return IntPower(context, a, b);
      if (a == 0) return context->Fail("0.0 cannot be raised to a negative power");
      return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

Value FloatOp(Context* context, Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::Float(a + b);
    case Op::kSub:
      return Value::Float(a - b);
    case Op::kMul:
      return Value::Float(a * b);
    case Op::kDiv:
      if (b == 0) return context->Fail("float division by zero");
      return Value::Float(a / b);
    case Op::kFloorDiv:
      if (b == 0) return context->Fail("float floor division by zero");
      return Value::Float(FloatFloorDivide(a, b));
    case Op::kMod:
      if (b == 0) return context->Fail("float modulo");
      return Value::Float(FloatModulo(a, b));
    default: {
      if (a == 0 && b < 0) return context->Fail("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) {
        return context->FailUnsupported("complex numbers are not supported");
      }
      const double power = std::pow(a, b);
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
        return context->Fail("numerical result out of range");
      }
      return Value::Float(power);
    }
  }
}

Value NumberOp(Context* context, Op op, const Value& a, const Value& b) {
  if (a.IsInteger() && b.IsInteger()) return IntegerOp(context, op, a.AsInt(), b.AsInt());
  if (!a.Is(Kind::kFloat) && !b.Is(Kind::kFloat)) return BigIntError(context);
  return FloatOp(context, op, ToDouble(a), ToDouble(b));
}

Value AddStrings(Context* context, const Value& a, const Value& b) {
  Text text(context->meter());
  if (a.IsMarkup() == b.IsMarkup()) {
    text.reserve(a.AsString().size() + b.AsString().size());
    text += a.AsString();
    text += b.AsString();
    return context->String(std::move(text), a.IsMarkup());
  }
  for (const Value* part : {&a, &b}) {
    if (part->IsMarkup()) {
      text += part->AsString();
    } else {
      AppendEscaped(part->AsString(), &text);
    }
  }
  return context->String(std::move(text), true);
}

Value AddLists(Context* context, const Value& a, const Value& b) {
  const auto& x = a.As<ListObject>()->items;
  const auto& y = b.As<ListObject>()->items;
  Items items(context->meter());
  items.reserve(x.size() + y.size());
  items.insert(items.end(), x.begin(), x.end());
  items.insert(items.end(), y.begin(), y.end());
  return a.Is(Kind::kList) ? context->List(std::move(items)) : context->Tuple(std::move(items));
}

Value Repeat(Context* context, const Value& sequence, int64_t times) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  if (sequence.IsString()) {
    Text text(context->meter());
    AppendRepeated(sequence.AsString(), count, &text);
    return context->String(std::move(text), sequence.IsMarkup());
  }
  const auto& unit = sequence.As<ListObject>()->items;
  Items items(context->meter());
  if (!unit.empty()) {
    items.reserve(context->meter()->Require(count, unit.size() * sizeof(Value)) / sizeof(Value));
    for (uint64_t i = 0; i < count; ++i) items.insert(items.end(), unit.begin(), unit.end());
  }
  return sequence.Is(Kind::kList) ? context->List(std::move(items))
                                  : context->Tuple(std::move(items));
}

bool IsRepeatable(const Value& v) {
  return v.IsString() || v.Is(Kind::kList) || v.Is(Kind::kTuple);
}

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

Value BinaryOp(Context* context, Op op, const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) return NumberOp(context, op, a, b);
  if (op == Op::kMod && a.IsString()) return FormatPercent(context, a, b);
  if (a.IsUndefined()) return context->FailUndefined(a);
  if (b.IsUndefined()) return context->FailUndefined(b);
  if (op == Op::kAdd) {
    if (a.IsString() && b.IsString()) return AddStrings(context, a, b);
    if (a.kind() == b.kind() && (a.Is(Kind::kList) || a.Is(Kind::kTuple))) {
      return AddLists(context, a, b);
    }
    if (a.IsString()) {
      return context->Fail(
          StrCat("can only concatenate str (not \"", std::string(TypeName(b)), "\") to str"));
    }
  }
  if (op == Op::kMul) {
    if (IsRepeatable(a) && b.IsInteger()) return Repeat(context, a, b.AsInt());
    if (IsRepeatable(b) && a.IsInteger()) return Repeat(context, b, a.AsInt());
  }
  return TypeError(context, op, a, b);
}

Value UnaryOp(Context* context, Op op, const Value& a) {
  if (op == Op::kNot) return Value::Bool(!Truth(a));
  if (a.IsInteger()) {
    return op == Op::kPos ? Value::Int(a.AsInt()) : IntegerOp(context, Op::kSub, 0, a.AsInt());
  }
  if (a.Is(Kind::kFloat)) return Value::Float(op == Op::kPos ? a.AsFloat() : -a.AsFloat());
  if (a.Is(Kind::kBigInt)) {
    if (op == Op::kPos) return a;
    const std::string_view digits = a.AsString();
    if (digits[0] == '-') return Value::BigInt(Text(digits.substr(1), context->meter()));
    if (digits == "9223372036854775808") return Value::Int(std::numeric_limits<int64_t>::min());
    return Value::BigInt(Joined(context->meter(), {"-", digits}));
  }
  if (a.IsUndefined()) return context->FailUndefined(a);
  return context->Fail(StrCat("bad operand type for unary ", std::string(OpText(op)), ": '",
                              std::string(TypeName(a)), "'"));
}

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
