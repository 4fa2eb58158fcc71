// Tests (value is name), and the look-up of tests and filters by name.
#include <algorithm>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"

namespace qinfer::tokenizer::jinja {
namespace {

using Test = bool (*)(Context* context, const Value& value, const CallArgs& args);
struct NamedTest {
  std::string_view name;
  size_t arguments;  // beside the value
  Test test;
};

const Value& Argument(const CallArgs& args) { return args.positional[1]; }

bool Modulo(Context* context, const Value& value, int64_t divisor, int64_t rest) {
  const Value result = BinaryOp(context, Op::kMod, value, Value::Int(divisor));
  return context->ok() && Equals(result, Value::Int(rest), nullptr);
}

bool IsOdd(Context* context, const Value& value, const CallArgs& /*args*/) {
  return Modulo(context, value, 2, 1);
}
bool IsEven(Context* context, const Value& value, const CallArgs& /*args*/) {
  return Modulo(context, value, 2, 0);
}
bool IsDivisibleBy(Context* context, const Value& value, const CallArgs& args) {
  const Value result = BinaryOp(context, Op::kMod, value, Argument(args));
  return context->ok() && Equals(result, Value::Int(0), nullptr);
}
bool IsDefined(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return !value.IsUndefined();
}
bool IsUndefined(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.IsUndefined();
}
bool IsFilter(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.IsString() && IsFilterName(value.AsString());
}
bool IsTest(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.IsString() && IsTestName(value.AsString());
}
bool IsNone(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.IsNone();
}
bool IsBoolean(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.Is(Kind::kBool);
}
bool IsFalse(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.Is(Kind::kBool) && !value.AsBool();
}
bool IsTrue(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.Is(Kind::kBool) && value.AsBool();
}
bool IsInteger(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.Is(Kind::kInt) || value.Is(Kind::kBigInt);
}
bool IsFloat(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.Is(Kind::kFloat);
}
bool IsLower(Context* context, const Value& value, const CallArgs& /*args*/) {
  Text scratch(context->meter());
  return HasCase(TextOf(context, value, &scratch), false);
}
bool IsUpper(Context* context, const Value& value, const CallArgs& /*args*/) {
  Text scratch(context->meter());
  return HasCase(TextOf(context, value, &scratch), true);
}
bool IsString(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.IsString();
}
bool IsMapping(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.Is(Kind::kDict);
}
bool IsNumber(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.IsNumber();
}
// Has a length and items by index or key; an undefined value has neither error nor items.
bool IsSequence(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  switch (value.kind()) {
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kUndefined:
      return true;
    default:
      return false;
  }
}
bool IsIterableTest(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return IsIterable(value) || value.Is(Kind::kLoop);
}
bool IsCallable(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  switch (value.kind()) {
    case Kind::kMacro:
    case Kind::kBuiltin:
    case Kind::kMethod:
    case Kind::kJoiner:
    case Kind::kLoop:
    case Kind::kUndefined:  // has a __call__, which fails
      return true;
    default:
      return false;
  }
}
bool IsSameAs(Context* /*context*/, const Value& value, const CallArgs& args) {
  return value.SameAs(Argument(args));
}
bool IsEscaped(Context* /*context*/, const Value& value, const CallArgs& /*args*/) {
  return value.IsMarkup();
}
bool IsIn(Context* context, const Value& value, const CallArgs& args) {
  return Contains(context, Argument(args), value);
}
template <Op kOp>
bool Compare(Context* context, const Value& value, const CallArgs& args) {
  return CompareOp(context, kOp, value, Argument(args));
}

constexpr NamedTest kTests[] = {
    {"odd", 0, IsOdd},
    {"even", 0, IsEven},
    {"divisibleby", 1, IsDivisibleBy},
    {"defined", 0, IsDefined},
    {"undefined", 0, IsUndefined},
    {"filter", 0, IsFilter},
    {"test", 0, IsTest},
    {"none", 0, IsNone},
    {"boolean", 0, IsBoolean},
    {"false", 0, IsFalse},
    {"true", 0, IsTrue},
    {"integer", 0, IsInteger},
    {"float", 0, IsFloat},
    {"lower", 0, IsLower},
    {"upper", 0, IsUpper},
    {"string", 0, IsString},
    {"mapping", 0, IsMapping},
    {"number", 0, IsNumber},
    {"sequence", 0, IsSequence},
    {"iterable", 0, IsIterableTest},
    {"callable", 0, IsCallable},
    {"sameas", 1, IsSameAs},
    {"escaped", 0, IsEscaped},
    {"in", 1, IsIn},
    {"==", 1, Compare<Op::kEq>},
    {"eq", 1, Compare<Op::kEq>},
    {"equalto", 1, Compare<Op::kEq>},
    {"!=", 1, Compare<Op::kNe>},
    {"ne", 1, Compare<Op::kNe>},
    {">", 1, Compare<Op::kGt>},
    {"gt", 1, Compare<Op::kGt>},
    {"greaterthan", 1, Compare<Op::kGt>},
    {">=", 1, Compare<Op::kGe>},
    {"ge", 1, Compare<Op::kGe>},
    {"<", 1, Compare<Op::kLt>},
    {"lt", 1, Compare<Op::kLt>},
    {"lessthan", 1, Compare<Op::kLt>},
    {"<=", 1, Compare<Op::kLe>},
    {"le", 1, Compare<Op::kLe>},
};

const NamedTest* FindTest(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [name](const NamedTest& t) { return t.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

Function FindFilter(std::string_view name) {
  for (const auto find :
       {FindTextFilter, FindSequenceFilter, FindMappingFilter, FindNumberFilter}) {
    if (const Function function = find(name)) return function;
  }
  return nullptr;
}

}  // namespace

bool IsFilterName(std::string_view name) { return FindFilter(name) != nullptr; }
bool IsTestName(std::string_view name) { return FindTest(name) != nullptr; }

Value ApplyFilter(Context* context, std::string_view name, const CallArgs& args) {
  const Function filter = FindFilter(name);
  if (filter == nullptr) {
    return context->Fail(StrCat("no filter named '", Quoted(name), "'"));
  }
  return filter(context, args);
}

bool ApplyTest(Context* context, std::string_view name, const CallArgs& args) {
  const NamedTest* test = FindTest(name);
  if (test == nullptr) {
    context->Fail(StrCat("no test named '", Quoted(name), "'"));
    return false;
  }
  // One argument may also come by its name, whatever that is.
  CallArgs bound = args;
  for (const auto& [key, value] : args.named) bound.positional.push_back(value);
  if (bound.positional.size() != test->arguments + 1) {
    context->Fail(StrCat("the test '", std::string(name), "' takes ", test->arguments,
                         " argument(s), got ", bound.positional.size() - 1));
    return false;
  }
  return test->test(context, bound.positional[0], bound);
}

}  // namespace qinfer::tokenizer::jinja
