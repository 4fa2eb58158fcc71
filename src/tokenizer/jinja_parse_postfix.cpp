// What may follow a primary: attributes, subscripts, calls, filters and tests.
#include <algorithm>
#include <charconv>
#include <utility>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_parser.h"

namespace qinfer::tokenizer::jinja {

ExprPtr Parser::ParsePostfix(ExprPtr node) {
  while (ok()) {
    if (AtOp(".") || AtOp("[")) {
      node = ParseSubscript(std::move(node));
    } else if (AtOp("(")) {
      ExprPtr call = MakeNode(ExprKind::kCall, Peek());
      if (!AddKid(call.get(), std::move(node)) || !ParseArguments(call.get())) return nullptr;
      node = std::move(call);
    } else {
      break;
    }
  }
  return node;
}

ExprPtr Parser::ParseFilterExpr(ExprPtr node) {
  while (ok()) {
    if (AtOp("|")) {
      node = ParseFilters(std::move(node));
    } else if (AtName("is")) {
      node = ParseTest(std::move(node));
    } else if (AtOp("(")) {
      ExprPtr call = MakeNode(ExprKind::kCall, Peek());
      if (!AddKid(call.get(), std::move(node)) || !ParseArguments(call.get())) return nullptr;
      node = std::move(call);
    } else {
      break;
    }
  }
  return node;
}

bool Parser::ParseDottedName(std::string* name) {
  *name = Peek().text;
  if (!Expect(TokenKind::kName, "a name")) return false;
  while (SkipOp(".")) {
    *name += StrCat(".", Peek().text);
    if (!Expect(TokenKind::kName, "a name")) return false;
  }
  return true;
}

// An unknown name is an error at once, but under a condition only when it runs.
void Parser::CheckFilterName(const Expr& node) {
  const bool is_test = node.kind == ExprKind::kTest;
  if (conditional_ != 0 || (is_test ? IsTestName(node.text) : IsFilterName(node.text))) return;
  Fail(StrCat("no ", is_test ? "test" : "filter", " named '", node.text, "'"));
}

ExprPtr Parser::ParseFilters(ExprPtr node) {
  while (ok() && AtOp("|")) {
    Next();
    ExprPtr filter = MakeNode(ExprKind::kFilter, Peek());
    if (!ParseDottedName(&filter->text) || !AddKid(filter.get(), std::move(node))) return nullptr;
    if (AtOp("(") && !ParseArguments(filter.get())) return nullptr;
    CheckFilterName(*filter);
    node = std::move(filter);
  }
  return node;
}

ExprPtr Parser::ParseTest(ExprPtr node) {
  ExprPtr test = MakeNode(ExprKind::kTest, Next());
  const bool negated = SkipName("not");
  if (!ParseDottedName(&test->text) || !AddKid(test.get(), std::move(node))) return nullptr;
  const Token& token = Peek();
  const bool starts_argument = token.kind == TokenKind::kName || token.kind == TokenKind::kString ||
                               token.kind == TokenKind::kInteger ||
                               token.kind == TokenKind::kFloat || AtOp("[") || AtOp("{");
  if (AtOp("(")) {
    if (!ParseArguments(test.get())) return nullptr;
  } else if (starts_argument && !AtName("else") && !AtName("or") && !AtName("and")) {
    if (AtName("is")) {
      Fail("you cannot chain multiple tests with is");
      return nullptr;
    }
    Argument argument;
    argument.value = ParsePostfix(ParsePrimary());
    if (!ok()) return nullptr;
    test->height = std::max(test->height, argument.value->height + 1);
    test->args.push_back(std::move(argument));
  }
  CheckFilterName(*test);
  if (!ok() || !negated) return test;
  ExprPtr negation = MakeNode(ExprKind::kUnary, token);
  negation->op = Op::kNot;
  return AddKid(negation.get(), std::move(test)) ? std::move(negation) : nullptr;
}

ExprPtr Parser::ParseSubscript(ExprPtr node) {
  if (AtOp(".")) {
    Next();
    const Token& token = Next();
    if (token.kind == TokenKind::kName) {
      ExprPtr attribute = MakeNode(ExprKind::kAttribute, token);
      attribute->text = token.text;
      return AddKid(attribute.get(), std::move(node)) ? std::move(attribute) : nullptr;
    }
    int64_t index = 0;
    const char* end = token.text.data() + token.text.size();
    if (token.kind != TokenKind::kInteger ||
        std::from_chars(token.text.data(), end, index).ec != std::errc()) {
      FailAt(token, "expected name or number");
      return nullptr;
    }
    ExprPtr item = MakeNode(ExprKind::kItem, token);
    ExprPtr argument = MakeNode(ExprKind::kConst, token);
    argument->constant = Value::Int(index);
    return AddKid(item.get(), std::move(node)) && AddKid(item.get(), std::move(argument))
               ? std::move(item)
               : nullptr;
  }
  const Nested nested(this);
  if (!ok()) return nullptr;
  const Token& at = Next();
  std::vector<ExprPtr> parts;
  while (ok() && !AtOp("]")) {
    if (!parts.empty() && !ExpectOp(",")) return nullptr;
    parts.push_back(ParseSubscribed());
  }
  if (!ok() || !ExpectOp("]")) return nullptr;
  ExprPtr item = MakeNode(ExprKind::kItem, at);
  if (!AddKid(item.get(), std::move(node))) return nullptr;
  if (parts.size() == 1) return AddKid(item.get(), std::move(parts[0])) ? std::move(item) : nullptr;
  ExprPtr tuple = MakeNode(ExprKind::kTuple, at);
  for (ExprPtr& part : parts) {
    if (part->kind == ExprKind::kSlice) {
      Fail("a slice cannot be part of a tuple of indices");
      return nullptr;
    }
    if (!AddKid(tuple.get(), std::move(part))) return nullptr;
  }
  return AddKid(item.get(), std::move(tuple)) ? std::move(item) : nullptr;
}

// One part of a slice; absent before a colon, a comma or the end.
bool Parser::ParseSlicePart(ExprPtr* part) {
  if (!AtOp(":") && !AtOp("]") && !AtOp(",")) *part = ParseExpression();
  return ok();
}

ExprPtr Parser::ParseSubscribed() {
  const Token& at = Peek();
  ExprPtr start, stop, step;
  if (!ParseSlicePart(&start)) return nullptr;
  if (!AtOp(":")) {
    if (start == nullptr) Fail(StrCat("unexpected ", Describe(Peek())));
    return start;
  }
  Next();
  if (!ParseSlicePart(&stop)) return nullptr;
  if (SkipOp(":") && !ParseSlicePart(&step)) return nullptr;
  ExprPtr node = MakeNode(ExprKind::kSlice, at);
  return AddKid(node.get(), std::move(start)) && AddKid(node.get(), std::move(stop)) &&
                 AddKid(node.get(), std::move(step))
             ? std::move(node)
             : nullptr;
}

// The arguments' heights count for the node's, so that no tree is deeper than the bound.
bool Parser::ParseArguments(Expr* node) {
  const Nested nested(this);
  if (!ok() || !ExpectOp("(")) return false;
  bool seen[4] = {};
  while (ok() && !AtOp(")")) {
    if (!node->args.empty()) {
      if (!ExpectOp(",")) return false;
      if (AtOp(")")) break;
    }
    using Kind = Argument::Kind;
    Argument argument;
    const Token& token = Peek();
    const auto has = [&seen](Kind kind) { return seen[static_cast<size_t>(kind)]; };
    bool valid = !has(Kind::kStarStar);
    if (SkipOp("**")) {
      argument.kind = Kind::kStarStar;
    } else if (SkipOp("*")) {
      argument.kind = Kind::kStar;
      valid = valid && !has(Kind::kStar);
    } else if (token.kind == TokenKind::kName && Peek(1).kind == TokenKind::kOperator &&
               Peek(1).text == "=") {
      argument.kind = Kind::kNamed;
      argument.name = token.text;
      Next();
      Next();
    } else {
      valid = valid && !has(Kind::kStar) && !has(Kind::kNamed);
    }
    if (!valid) return FailAt(token, "invalid syntax for function call expression");
    seen[static_cast<size_t>(argument.kind)] = true;
    argument.value = ParseExpression();
    if (!ok()) return false;
    node->height = std::max(node->height, argument.value->height + 1);
    if (node->height > kMaxExprHeight) {
      return Fail("an expression is nested too deeply (over 200 operators within each other)");
    }
    node->args.push_back(std::move(argument));
  }
  return ok() && ExpectOp(")");
}

}  // namespace qinfer::tokenizer::jinja
