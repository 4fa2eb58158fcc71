// Expressions.
#include <utility>

#include "tokenizer/jinja_interp.h"
#include "tokenizer/jinja_library.h"

namespace qinfer::tokenizer::jinja {

Value Interp::Eval(const Expr& expr) {
  const Nested nested(this);
  meter()->Step();
  try {
    Value value = ok() ? EvalOne(expr) : Value();
    if (ok()) return value;
  } catch (const MemoryLimit&) {  // which the meter knows
  }
  NoteLocation(expr.line, expr.column);
  return Value();
}

Value Interp::EvalOne(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.constant;
    case ExprKind::kName:
      return EvalName(expr);
    case ExprKind::kTuple:
    case ExprKind::kList:
      return EvalSequence(expr);
    case ExprKind::kDict:
      return EvalDict(expr);
    case ExprKind::kBinary:
      return EvalBinary(expr);
    case ExprKind::kLogic:
      return EvalLogic(expr);
    case ExprKind::kUnary: {
      const Value value = Eval(*expr.kids[0]);
      return ok() ? UnaryOp(this, expr.op, value) : Value();
    }
    case ExprKind::kCompare:
      return EvalCompare(expr);
    case ExprKind::kConcat:
      return EvalConcat(expr);
    case ExprKind::kCondition:
      return EvalCondition(expr);
    case ExprKind::kAttribute: {
      const Value value = Eval(*expr.kids[0]);
      return ok() ? GetAttribute(this, value, expr.text) : Value();
    }
    case ExprKind::kItem:
      return EvalItem(expr);
    case ExprKind::kCall:
      return EvalCall(expr);
    case ExprKind::kFilter:
      return EvalFilter(expr);
    case ExprKind::kTest:
      return EvalTest(expr);
    case ExprKind::kNsRef:
    case ExprKind::kSlice:
      break;
  }
  return Fail("this expression has no value");
}

Value Interp::EvalName(const Expr& expr) {
  const Value* value = Lookup(expr.name);
  if (value != nullptr) return *value;
  return Undefined({"'", ast_->names[expr.name], "' is undefined"});
}

Value Interp::EvalSequence(const Expr& expr) {
  Items items(meter());
  items.reserve(expr.kids.size());
  for (const ExprPtr& kid : expr.kids) {
    items.push_back(Eval(*kid));
    if (!ok()) return Value();
  }
  return expr.kind == ExprKind::kList ? List(std::move(items)) : Tuple(std::move(items));
}

Value Interp::EvalDict(const Expr& expr) {
  auto dict = MakeCounted<DictObject>(meter());
  for (size_t i = 0; i + 1 < expr.kids.size(); i += 2) {
    const Value key = Eval(*expr.kids[i]);
    Value value = Eval(*expr.kids[i + 1]);
    if (!ok()) return Value();
    if (!IsHashable(key)) {
      return Fail(StrCat("unhashable type: '", std::string(TypeName(key)), "'"));
    }
    dict->Set(key, std::move(value));
  }
  return Value::Of(Kind::kDict, std::move(dict));
}

// A chain of operators leans to the left: walked down here, so that its length is not nesting.
Value Interp::EvalBinary(const Expr& expr) {
  CountedVector<const Expr*> chain(meter());
  const Expr* first = &expr;
  while (first->kind == ExprKind::kBinary) {
    chain.push_back(first);
    first = first->kids[0].get();
  }
  Value value = Eval(*first);
  for (auto at = chain.rbegin(); at != chain.rend() && ok(); ++at) {
    meter()->Step();
    const Value right = Eval(*(*at)->kids[1]);
    if (!ok()) break;
    value = BinaryOp(this, (*at)->op, value, right);
    if (!ok()) NoteLocation((*at)->line, (*at)->column);
  }
  return value;
}

Value Interp::EvalLogic(const Expr& expr) {
  CountedVector<const Expr*> chain(meter());
  const Expr* first = &expr;
  while (first->kind == ExprKind::kLogic) {
    chain.push_back(first);
    first = first->kids[0].get();
  }
  Value value = Eval(*first);
  for (auto at = chain.rbegin(); at != chain.rend() && ok(); ++at) {
    if (Truth(value) == ((*at)->op == Op::kAnd)) value = Eval(*(*at)->kids[1]);
  }
  return value;
}

Value Interp::EvalCompare(const Expr& expr) {
  Value left = Eval(*expr.kids[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    if (!ok()) return Value();
    Value right = Eval(*expr.kids[i + 1]);
    if (!ok()) return Value();
    if (!CompareOp(this, expr.ops[i], left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interp::EvalConcat(const Expr& expr) {
  Text text(meter());
  for (const ExprPtr& kid : expr.kids) {
    const Value value = Eval(*kid);
    if (ok()) AppendText(this, value, &text);
    if (!ok()) return Value();
  }
  return String(std::move(text));
}

Value Interp::EvalCondition(const Expr& expr) {
  const Value test = Eval(*expr.kids[1]);
  if (!ok()) return Value();
  if (Truth(test)) return Eval(*expr.kids[0]);
  if (expr.kids[2] != nullptr) return Eval(*expr.kids[2]);
  return Undefined({"the inline if-expression on line ", std::to_string(expr.line),
                    " evaluated to false and no else section was defined."});
}

Value Interp::EvalItem(const Expr& expr) {
  const Value value = Eval(*expr.kids[0]);
  if (!ok()) return Value();
  const Expr& key = *expr.kids[1];
  if (key.kind != ExprKind::kSlice) {
    const Value index = Eval(key);
    return ok() ? GetItem(this, value, index) : Value();
  }
  Value parts[3] = {Value::None(), Value::None(), Value::None()};
  for (size_t i = 0; i < 3; ++i) {
    if (key.kids[i] != nullptr) parts[i] = Eval(*key.kids[i]);
    if (!ok()) return Value();
  }
  return GetSlice(this, value, parts[0], parts[1], parts[2]);
}

bool Interp::EvalArgs(const std::vector<Argument>& args, CallArgs* out) {
  for (const Argument& argument : args) {
    Value value = Eval(*argument.value);
    if (!ok()) return false;
    switch (argument.kind) {
      case Argument::Kind::kPositional:
        out->positional.push_back(std::move(value));
        break;
      case Argument::Kind::kNamed:
        out->named.emplace_back(Text(argument.name, meter()), std::move(value));
        break;
      case Argument::Kind::kStar: {
        const Sequence items = Iterate(this, value);
        if (items == nullptr) return false;
        out->positional.insert(out->positional.end(), items->items.begin(), items->items.end());
        break;
      }
      case Argument::Kind::kStarStar: {
        if (!value.Is(Kind::kDict)) {
          Fail(StrCat("argument after ** must be a mapping, not ", std::string(TypeName(value))));
          return false;
        }
        for (const auto& [key, item] : value.As<DictObject>()->entries) {
          if (!key.IsString()) {
            Fail("keywords must be strings");
            return false;
          }
          out->named.emplace_back(Text(key.AsString(), meter()), item);
        }
        break;
      }
    }
  }
  return ok();
}

Value Interp::EvalCall(const Expr& expr) {
  const Value callee = Eval(*expr.kids[0]);
  CallArgs args(meter());
  if (!ok() || !EvalArgs(expr.args, &args)) return Value();
  Value result = Call(callee, args);
  if (result.Is(Kind::kNamespace)) namespaces_.push_back(result);
  return result;
}

Value Interp::EvalFilter(const Expr& expr) {
  CallArgs args(meter());
  args.positional.push_back(expr.kids[0] == nullptr ? block_text_ : Eval(*expr.kids[0]));
  if (!ok() || !EvalArgs(expr.args, &args)) return Value();
  return ApplyFilter(this, expr.text, args);
}

Value Interp::EvalTest(const Expr& expr) {
  CallArgs args(meter());
  args.positional.push_back(Eval(*expr.kids[0]));
  if (!ok() || !EvalArgs(expr.args, &args)) return Value();
  return Value::Bool(ApplyTest(this, expr.text, args));
}

}  // namespace qinfer::tokenizer::jinja
