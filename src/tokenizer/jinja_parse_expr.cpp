// Expressions of the template language, from the loosest binding (a if b else c) to primaries.
#include <algorithm>
#include <charconv>
#include <utility>

#include "tokenizer/jinja_literal.h"
#include "tokenizer/jinja_parser.h"

namespace qinfer::tokenizer::jinja {

ExprPtr Parser::MakeNode(ExprKind kind, const Token& at) {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = at.line;
  node->column = at.column;
  return node;
}

bool Parser::AddKid(Expr* parent, ExprPtr kid) {
  if (!ok()) return false;
  if (kid != nullptr) {
    parent->height = std::max(parent->height, kid->height + 1);
    if (parent->height > kMaxExprHeight) {
      return Fail("an expression is nested too deeply (over 200 operators within each other)");
    }
  }
  parent->kids.push_back(std::move(kid));
  return true;
}

ExprPtr Parser::MakeBinary(ExprKind kind, Op op, ExprPtr left, ExprPtr right, const Token& at) {
  if (!ok()) return nullptr;
  ExprPtr node = MakeNode(kind, at);
  node->op = op;
  if (!AddKid(node.get(), std::move(left)) || !AddKid(node.get(), std::move(right))) return nullptr;
  return node;
}

NameId Parser::Intern(const std::string& name) {
  const auto [at, added] = ast_->ids.emplace(name, static_cast<NameId>(ast_->names.size()));
  if (added) ast_->names.push_back(name);
  return at->second;
}

void Parser::NoteUse(const std::string& name) {
  for (MacroDef* macro : macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
  }
}

ExprPtr Parser::ParseTuple(const TupleRules& rules) {
  const Token& start = Peek();
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (ok()) {
    if (!items.empty() && !is_tuple) break;
    const Token& token = Peek();
    if (token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd || AtOp(")") ||
        (!rules.end_name.empty() && AtName(rules.end_name))) {
      break;
    }
    items.push_back(rules.simplified   ? ParsePrimary()
                    : rules.conditions ? ParseExpression()
                                       : ParseOr());
    if (!SkipOp(",")) break;
    is_tuple = true;
  }
  if (!ok()) return nullptr;
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!rules.parentheses) {
      Fail(StrCat("expected an expression, got ", Describe(Peek())));
      return nullptr;
    }
  }
  ExprPtr node = MakeNode(ExprKind::kTuple, start);
  for (ExprPtr& item : items) {
    if (!AddKid(node.get(), std::move(item))) return nullptr;
  }
  return node;
}

ExprPtr Parser::ParseCondition() {
  const Nested nested(this);
  if (!ok()) return nullptr;
  ExprPtr value = ParseOr();
  while (ok() && AtName("if")) {
    ExprPtr node = MakeNode(ExprKind::kCondition, Next());
    ++conditional_;
    ExprPtr test = ParseOr();
    ExprPtr otherwise;
    if (ok() && SkipName("else")) otherwise = ParseCondition();
    --conditional_;
    if (!AddKid(node.get(), std::move(value)) || !AddKid(node.get(), std::move(test)) ||
        !AddKid(node.get(), std::move(otherwise))) {
      return nullptr;
    }
    value = std::move(node);
  }
  return value;
}

ExprPtr Parser::ParseOr() {
  ExprPtr left = ParseAnd();
  while (ok() && AtName("or")) {
    const Token& at = Next();
    ExprPtr right = ParseAnd();
    left = MakeBinary(ExprKind::kLogic, Op::kOr, std::move(left), std::move(right), at);
  }
  return left;
}

ExprPtr Parser::ParseAnd() {
  ExprPtr left = ParseNot();
  while (ok() && AtName("and")) {
    const Token& at = Next();
    ExprPtr right = ParseNot();
    left = MakeBinary(ExprKind::kLogic, Op::kAnd, std::move(left), std::move(right), at);
  }
  return left;
}

ExprPtr Parser::ParseNot() {
  if (!AtName("not")) return ParseCompare();
  const Nested nested(this);
  if (!ok()) return nullptr;
  ExprPtr node = MakeNode(ExprKind::kUnary, Next());
  node->op = Op::kNot;
  return AddKid(node.get(), ParseNot()) ? std::move(node) : nullptr;
}

ExprPtr Parser::ParseCompare() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::kEq}, {"!=", Op::kNe},
                                                             {"<", Op::kLt},  {"<=", Op::kLe},
                                                             {">", Op::kGt},  {">=", Op::kGe}};
  const Token& at = Peek();
  ExprPtr left = ParseSum();
  ExprPtr node;
  while (ok()) {
    Op op = Op::kEq;
    if (SkipName("in")) {
      op = Op::kIn;
    } else if (AtName("not") && Peek(1).kind == TokenKind::kName && Peek(1).text == "in") {
      Next();
      Next();
      op = Op::kNotIn;
    } else {
      const auto* found = std::find_if(std::begin(kOps), std::end(kOps),
                                       [this](const auto& o) { return AtOp(o.first); });
      if (found == std::end(kOps)) break;
      Next();
      op = found->second;
    }
    if (node == nullptr) {
      node = MakeNode(ExprKind::kCompare, at);
      if (!AddKid(node.get(), std::move(left))) return nullptr;
    }
    node->ops.push_back(op);
    if (!AddKid(node.get(), ParseSum())) return nullptr;
  }
  return node != nullptr ? std::move(node) : std::move(left);
}

ExprPtr Parser::ParseSum() {
  ExprPtr left = ParseConcat();
  while (ok() && (AtOp("+") || AtOp("-"))) {
    const Token& at = Next();
    const Op op = at.text == "+" ? Op::kAdd : Op::kSub;
    ExprPtr right = ParseConcat();
    left = MakeBinary(ExprKind::kBinary, op, std::move(left), std::move(right), at);
  }
  return left;
}

ExprPtr Parser::ParseConcat() {
  const Token& at = Peek();
  ExprPtr first = ParseProduct();
  if (!ok() || !AtOp("~")) return first;
  ExprPtr node = MakeNode(ExprKind::kConcat, at);
  if (!AddKid(node.get(), std::move(first))) return nullptr;
  while (SkipOp("~")) {
    if (!AddKid(node.get(), ParseProduct())) return nullptr;
  }
  return node;
}

ExprPtr Parser::ParseProduct() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}};
  ExprPtr left = ParsePower();
  while (ok()) {
    const auto* found = std::find_if(std::begin(kOps), std::end(kOps),
                                     [this](const auto& o) { return AtOp(o.first); });
    if (found == std::end(kOps)) break;
    const Token& at = Next();
    ExprPtr right = ParsePower();
    left = MakeBinary(ExprKind::kBinary, found->second, std::move(left), std::move(right), at);
  }
  return left;
}

ExprPtr Parser::ParsePower() {
  ExprPtr left = ParseUnary(true);
  while (ok() && AtOp("**")) {
    const Token& at = Next();
    ExprPtr right = ParseUnary(true);
    left = MakeBinary(ExprKind::kBinary, Op::kPow, std::move(left), std::move(right), at);
  }
  return left;
}

ExprPtr Parser::ParseUnary(bool with_filter) {
  ExprPtr node;
  if (AtOp("-") || AtOp("+")) {
    const Nested nested(this);
    if (!ok()) return nullptr;
    const Op op = AtOp("-") ? Op::kNeg : Op::kPos;
    node = MakeNode(ExprKind::kUnary, Next());
    node->op = op;
    if (!AddKid(node.get(), ParseUnary(false))) return nullptr;
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilterExpr(std::move(node)) : std::move(node);
}

ExprPtr Parser::ParseName() {
  const Token& token = Next();
  const std::string& name = token.text;
  if (name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
      name == "None") {
    ExprPtr node = MakeNode(ExprKind::kConst, token);
    const char c = static_cast<char>(name[0] | 0x20);
    node->constant = c == 'n' ? Value::None() : Value::Bool(c == 't');
    return node;
  }
  ExprPtr node = MakeNode(ExprKind::kName, token);
  node->name = Intern(name);
  NoteUse(name);
  return node;
}

ExprPtr Parser::ParsePrimary() {
  const Token& token = Peek();
  switch (token.kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString: {
      ExprPtr node = MakeNode(ExprKind::kConst, token);
      Text text(Next().text, nullptr);
      while (Peek().kind == TokenKind::kString) text += Next().text;
      node->constant = Value::String(std::move(text));
      return node;
    }
    case TokenKind::kInteger: {
      ExprPtr node = MakeNode(ExprKind::kConst, Next());
      int64_t value = 0;
      const char* end = token.text.data() + token.text.size();
      const auto result = std::from_chars(token.text.data(), end, value);
      node->constant =
          result.ec == std::errc() ? Value::Int(value) : Value::BigInt(Text(token.text, nullptr));
      return node;
    }
    case TokenKind::kFloat: {
      ExprPtr node = MakeNode(ExprKind::kConst, Next());
      double value = 0;
      ParseFloat(token.text, &value, nullptr);
      node->constant = Value::Float(value);
      return node;
    }
    default:
      break;
  }
  const Nested nested(this);
  if (!ok()) return nullptr;
  if (SkipOp("(")) {
    TupleRules rules;
    rules.parentheses = true;
    ExprPtr node = ParseTuple(rules);
    if (!ok() || !ExpectOp(")")) return nullptr;
    return node;
  }
  if (AtOp("[")) return ParseList();
  if (AtOp("{")) return ParseDict();
  Fail(StrCat("unexpected ", Describe(token)));
  return nullptr;
}

ExprPtr Parser::ParseList() {
  ExprPtr node = MakeNode(ExprKind::kList, Next());
  while (ok() && !AtOp("]")) {
    if (!node->kids.empty()) {
      if (!ExpectOp(",")) return nullptr;
      if (AtOp("]")) break;
    }
    if (!AddKid(node.get(), ParseExpression())) return nullptr;
  }
  return ok() && ExpectOp("]") ? std::move(node) : nullptr;
}

ExprPtr Parser::ParseDict() {
  ExprPtr node = MakeNode(ExprKind::kDict, Next());
  while (ok() && !AtOp("}")) {
    if (!node->kids.empty()) {
      if (!ExpectOp(",")) return nullptr;
      if (AtOp("}")) break;
    }
    if (!AddKid(node.get(), ParseExpression()) || !ExpectOp(":") ||
        !AddKid(node.get(), ParseExpression())) {
      return nullptr;
    }
  }
  return ok() && ExpectOp("}") ? std::move(node) : nullptr;
}

}  // namespace qinfer::tokenizer::jinja
