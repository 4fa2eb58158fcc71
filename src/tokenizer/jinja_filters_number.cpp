// Filters to and over numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_literal.h"
#include "tokenizer/jinja_ops.h"

namespace qinfer::tokenizer::jinja {
namespace {

// An integer from canonical decimal digits, whatever their number.
Value FromDigits(Context* context, std::string_view digits) {
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  if (std::from_chars(digits.data(), end, value).ec == std::errc()) return Value::Int(value);
  return Value::BigInt(Text(digits, context->meter()));
}

// int(f) of Python; the caller has excluded what is not finite.
Value Truncate(Context* context, double f) {
  if (std::fabs(f) < 9.2e18) return Value::Int(static_cast<int64_t>(f));
  return FromDigits(context, FormatDouble(std::trunc(f), 'f', 0, false));
}

Value IntFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "int", args, {"value", "default", "base"}, 1);
  const int64_t base = bound.Int(2, 10);
  if (!context->ok()) return Value();
  const Value& value = bound[0];
  Value otherwise = bound.Has(1) ? bound[1] : Value::Int(0);
  if (value.IsUndefined()) return context->FailUndefined(value);
  if (value.IsInteger()) return Value::Int(value.AsInt());
  if (value.Is(Kind::kBigInt)) return value;
  double number = 0;
  if (value.Is(Kind::kFloat)) {
    number = value.AsFloat();
    if (std::isinf(number)) return context->Fail("cannot convert float infinity to integer");
  } else if (value.IsString()) {
    std::string digits;
    context->meter()->StepBytes(value.AsString().size() * 4);
    if (ParseInteger(value.AsString(), static_cast<int>(std::clamp<int64_t>(base, -1, 99)),
                     &digits)) {
      return FromDigits(context, digits);
    }
    if (!ParseFloat(value.AsString(), &number, context->meter())) return otherwise;
  } else {
    return otherwise;
  }
  return std::isfinite(number) ? Truncate(context, number) : otherwise;
}

Value FloatFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "float", args, {"value", "default"}, 1);
  if (!context->ok()) return Value();
  const Value& value = bound[0];
  if (value.IsUndefined()) return context->FailUndefined(value);
  if (value.IsNumber()) return Value::Float(ToDouble(value));
  double number = 0;
  if (value.IsString() && ParseFloat(value.AsString(), &number, context->meter()))
    return Value::Float(number);
  return bound.Has(1) ? bound[1] : Value::Float(0);
}

Value AbsFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "abs", args, {"x"}, 1);
  if (!context->ok()) return Value();
  const Value& value = bound[0];
  if (value.IsUndefined()) return context->FailUndefined(value);
  if (value.Is(Kind::kFloat)) return Value::Float(std::fabs(value.AsFloat()));
  if (value.IsInteger()) {
    return UnaryOp(context, value.AsInt() < 0 ? Op::kNeg : Op::kPos, value);
  }
  if (value.Is(Kind::kBigInt)) {
    return value.AsString()[0] == '-' ? UnaryOp(context, Op::kNeg, value) : value;
  }
  return context->Fail(StrCat("bad operand type for abs(): '", std::string(TypeName(value)), "'"));
}

// round(integer, -n): to a multiple of 10**n, halves to even.
Value RoundInteger(Context* context, int64_t value, int64_t places) {
  if (places >= 19) return Value::Int(0);
  int64_t unit = 1;
  for (int64_t i = 0; i < places; ++i) unit *= 10;
  const int64_t rest = ((value % unit) + unit) % unit;
  const int64_t down = value - rest;
  const int64_t half = unit / 2;
  const bool up = rest > half || (rest == half && unit % 2 == 0 && (down / unit) % 2 != 0);
  return BinaryOp(context, Op::kAdd, Value::Int(down), Value::Int(up ? unit : 0));
}

Value RoundFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "round", args, {"value", "precision", "method"}, 1);
  const int64_t precision = bound.Int(1, 0);
  const std::string_view method = bound.Text(2, "common");
  if (!context->ok()) return Value();
  const Value& value = bound[0];
  if (method != "common" && method != "ceil" && method != "floor") {
    return context->Fail("method must be common, ceil or floor");
  }
  if (value.IsUndefined()) return context->FailUndefined(value);
  if (!value.IsNumber()) {
    return context->Fail(
        StrCat("type ", std::string(TypeName(value)), " doesn't define __round__ method"));
  }
  if (method != "common") {
    const Value power = BinaryOp(context, Op::kPow, Value::Int(10), Value::Int(precision));
    if (!context->ok()) return Value();
    const Value scaled = BinaryOp(context, Op::kMul, value, power);
    if (!context->ok()) return Value();
    const double number = ToDouble(scaled);
    if (!std::isfinite(number)) return context->Fail("cannot convert float infinity to integer");
    const Value whole =
        Truncate(context, method == "ceil" ? std::ceil(number) : std::floor(number));
    return Value::Float(ToDouble(whole) / ToDouble(power));
  }
  if (!value.Is(Kind::kFloat)) {
    if (precision >= 0 || value.Is(Kind::kBigInt)) {
      return value.Is(Kind::kBool) ? Value::Int(value.AsInt()) : value;
    }
    return RoundInteger(context, value.AsInt(), -std::max<int64_t>(precision, -100));
  }
  const double number = value.AsFloat();
  if (!std::isfinite(number) || precision > 323) return value;
  if (precision < -308) return Value::Float(std::copysign(0.0, number));
  if (precision < 0) {
    // To a power of ten: the decimal digits rounded to even, at scientific precision.
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return Value::Float(std::nearbyint(number / unit) * unit);
  }
  double rounded = 0;
  ParseFloat(FormatDouble(number, 'f', precision, false), &rounded, context->meter());
  return Value::Float(rounded);
}

constexpr NamedFunction kFilters[] = {
    {"abs", AbsFilter}, {"float", FloatFilter}, {"int", IntFilter}, {"round", RoundFilter}};

}  // namespace

Function FindNumberFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [name](const NamedFunction& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found->function;
}

}  // namespace qinfer::tokenizer::jinja
