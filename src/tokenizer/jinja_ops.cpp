// Arithmetic.
#include "tokenizer/jinja_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/checked.h"
#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_op_text.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

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

}  // namespace

std::string_view OpText(Op op) {
  static constexpr std::string_view kText[] = {
      "+", "-", "*",  "/",  "//", "%",  "**", "and", "or", "not",
      "-", "+", "==", "!=", "<",  "<=", ">",  ">=",  "in", "not in"};
  return kText[static_cast<size_t>(op)];
}

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

}  // namespace qinfer::tokenizer::jinja
