// Statements of the template language: tags and their bodies.
#include "tokenizer/jinja_parser.h"

#include <algorithm>
#include <array>
#include <utility>

namespace qinfer::tokenizer::jinja {
namespace {

// Every block of the template; false at a name that is there twice. Depth is the parser's.
bool CollectBlocks(const Body& body, std::vector<std::pair<NameId, const Stmt*>>* blocks) {
  for (const Stmt& stmt : body) {
    if (stmt.kind == StmtKind::kBlock) {
      for (const auto& [name, other] : *blocks) {
        if (name == stmt.name) return false;
      }
      blocks->emplace_back(stmt.name, &stmt);
    }
    if (!CollectBlocks(stmt.body, blocks) || !CollectBlocks(stmt.otherwise, blocks)) return false;
    if (stmt.macro != nullptr && !CollectBlocks(stmt.macro->body, blocks)) return false;
    for (const Branch& branch : stmt.branches) {
      if (!CollectBlocks(branch.body, blocks)) return false;
    }
  }
  return true;
}

}  // namespace

Parser::Parser(std::vector<Token> tokens, std::string name)
    : tokens_(std::move(tokens)), name_(std::move(name)), ast_(std::make_unique<Ast>()) {
  ast_->template_name = name_;
  for (const char* known : {"loop", "caller", "varargs", "kwargs", "self"}) Intern(known);
}

StatusOr<std::unique_ptr<Ast>> Parser::Run() {
  ParseBody({}, &ast_->body);
  if (!ok()) return status_;
  if (!CollectBlocks(ast_->body, &ast_->blocks)) {
    return FormatError(StrCat(name_, ": a block is defined twice"));
  }
  return std::move(ast_);
}

const Token& Parser::Peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

const Token& Parser::Next() {
  const Token& token = Peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::AtOp(std::string_view op) const {
  return Peek().kind == TokenKind::kOperator && Peek().text == op;
}
bool Parser::AtName(std::string_view name) const {
  return Peek().kind == TokenKind::kName && Peek().text == name;
}
bool Parser::SkipOp(std::string_view op) {
  if (!AtOp(op)) return false;
  Next();
  return true;
}
bool Parser::SkipName(std::string_view name) {
  if (!AtName(name)) return false;
  Next();
  return true;
}
bool Parser::ExpectOp(std::string_view op) {
  return SkipOp(op) || Fail(StrCat("expected '", std::string(op), "', got ", Describe(Peek())));
}
bool Parser::ExpectName(std::string_view name) {
  return SkipName(name) ||
         Fail(StrCat("expected '", std::string(name), "', got ", Describe(Peek())));
}
bool Parser::Expect(TokenKind kind, std::string_view what) {
  if (Peek().kind != kind) {
    return Fail(StrCat("expected ", std::string(what), ", got ", Describe(Peek())));
  }
  Next();
  return true;
}

std::string Parser::Describe(const Token& token) const {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "the end of print statement";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "the end of statement block";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return StrCat("'", token.text, "'");
  }
}

bool Parser::Fail(const std::string& what) { return FailAt(Peek(), what); }

bool Parser::FailAt(const Token& token, const std::string& what) {
  if (status_.ok()) {
    status_ = FormatError(StrCat(name_, ":", token.line, ":", token.column, ": ", what));
  }
  return false;
}

bool Parser::ParseBody(std::initializer_list<std::string_view> ends, Body* body) {
  while (ok()) {
    const Token& token = Peek();
    switch (token.kind) {
      case TokenKind::kData: {
        Stmt stmt;
        stmt.kind = StmtKind::kText;
        stmt.line = token.line;
        stmt.column = token.column;
        stmt.text = Next().text;
        body->push_back(std::move(stmt));
        break;
      }
      case TokenKind::kVariableBegin: {
        Stmt stmt;
        stmt.kind = StmtKind::kOutput;
        stmt.line = token.line;
        stmt.column = token.column;
        Next();
        stmt.value = ParseTuple({});
        if (!ok() || !Expect(TokenKind::kVariableEnd, "'}}'")) return false;
        body->push_back(std::move(stmt));
        break;
      }
      case TokenKind::kBlockBegin: {
        const Token& tag = Peek(1);
        if (tag.kind == TokenKind::kName &&
            std::find(ends.begin(), ends.end(), tag.text) != ends.end()) {
          Next();
          return true;
        }
        Next();
        if (!ParseTag(body)) return false;
        break;
      }
      default:
        if (ends.size() == 0) return true;
        return Fail(StrCat("unexpected end of template: looking for '", std::string(*ends.begin()),
                           "'; the innermost block to be closed is '",
                           open_tags_.empty() ? "" : open_tags_.back(), "'"));
    }
  }
  return false;
}

bool Parser::ParseTag(Body* body) {
  const Nested nested(this);
  if (!ok()) return false;
  if (Peek().kind != TokenKind::kName) {
    return Fail(StrCat("tag name expected, got ", Describe(Peek())));
  }
  Stmt stmt;
  stmt.line = Peek().line;
  stmt.column = Peek().column;
  const std::string tag = Peek().text;
  open_tags_.push_back(tag);
  if (!ParseTagOf(tag, &stmt)) return false;
  open_tags_.pop_back();
  if (!Expect(TokenKind::kBlockEnd, "'%}'")) return false;
  body->push_back(std::move(stmt));
  if (body->back().kind == StmtKind::kBlock) {
    body->back().name = Intern(body->back().text);
  }
  return true;
}

bool Parser::ParseTagOf(const std::string& tag, Stmt* stmt) {
  using Method = bool (Parser::*)(Stmt*);
  static constexpr std::array<std::pair<std::string_view, Method>, 8> kTags = {{
      {"if", &Parser::ParseIf},
      {"for", &Parser::ParseFor},
      {"set", &Parser::ParseSet},
      {"with", &Parser::ParseWith},
      {"macro", &Parser::ParseMacro},
      {"call", &Parser::ParseCall},
      {"filter", &Parser::ParseFilterBlock},
      {"block", &Parser::ParseBlock},
  }};
  for (const auto& [name, method] : kTags) {
    if (name == tag) {
      Next();
      return (this->*method)(stmt);
    }
  }
  if (tag == "break") return ParseLoopControl(StmtKind::kBreak, stmt);
  if (tag == "continue") return ParseLoopControl(StmtKind::kContinue, stmt);
  if (tag == "generation") {
    Next();
    stmt->kind = StmtKind::kScope;
    const uint32_t loops = std::exchange(loops_, 0);
    const bool done = ParseBlockBody({"endgeneration"}, &stmt->body);
    loops_ = loops;
    if (done) Next();
    return done;
  }
  return UnknownTag(tag);
}

bool Parser::UnknownTag(const std::string& tag) {
  for (const std::string_view other : {"include", "import", "from", "extends", "autoescape"}) {
    if (tag != other) continue;
    status_ = UnsupportedError(
        StrCat(name_, ":", Peek().line, ":", Peek().column, ": the tag '", tag,
               "' is not supported: a chat template is one self-contained text without escaping"));
    return false;
  }
  open_tags_.pop_back();
  std::string what = StrCat("unknown tag '", tag, "'");
  if (!open_tags_.empty()) {
    what += StrCat("; the innermost block to be closed is '", open_tags_.back(), "'");
  }
  return Fail(what);
}

bool Parser::ParseBlockBody(std::initializer_list<std::string_view> ends, Body* body) {
  SkipOp(":");  // allowed, as in Python
  return Expect(TokenKind::kBlockEnd, "'%}'") && ParseBody(ends, body);
}

bool Parser::ParseIf(Stmt* stmt) {
  stmt->kind = StmtKind::kIf;
  ++conditional_;
  TupleRules rules;
  rules.conditions = false;
  while (true) {
    Branch branch;
    branch.test = ParseTuple(rules);
    if (!ok() || !ParseBlockBody({"elif", "else", "endif"}, &branch.body)) return false;
    stmt->branches.push_back(std::move(branch));
    if (SkipName("elif")) continue;
    if (SkipName("else") && !ParseBlockBody({"endif"}, &stmt->otherwise)) return false;
    break;
  }
  --conditional_;
  return ExpectName("endif");
}

bool Parser::ParseFor(Stmt* stmt) {
  stmt->kind = StmtKind::kFor;
  TupleRules target;
  target.simplified = true;
  target.end_name = "in";
  stmt->target = ParseTuple(target);
  if (!ok() || !CheckTarget(stmt->target.get()) || !ExpectName("in")) return false;
  TupleRules rules;
  rules.conditions = false;
  rules.end_name = "recursive";
  stmt->value = ParseTuple(rules);
  if (!ok()) return false;
  if (SkipName("if")) {
    stmt->test = ParseExpression();
    if (!ok()) return false;
  }
  stmt->recursive = SkipName("recursive");
  ++loops_;
  const bool done = ParseBlockBody({"endfor", "else"}, &stmt->body);
  --loops_;
  if (!done) return false;
  if (SkipName("else") && !ParseBlockBody({"endfor"}, &stmt->otherwise)) return false;
  return ExpectName("endfor");
}

bool Parser::ParseLoopControl(StmtKind kind, Stmt* stmt) {
  if (loops_ == 0) return Fail(StrCat("'", Peek().text, "' outside of a loop"));
  Next();
  stmt->kind = kind;
  return true;
}

ExprPtr Parser::ParseTarget(bool with_namespace, bool allow_tuple) {
  if (with_namespace && Peek().kind == TokenKind::kName && Peek(1).kind == TokenKind::kOperator &&
      Peek(1).text == ".") {
    ExprPtr node = MakeNode(ExprKind::kNsRef, Peek());
    node->name = Intern(Peek().text);
    Next();
    Next();
    node->text = Peek().text;
    if (!Expect(TokenKind::kName, "a name")) return nullptr;
    return node;
  }
  ExprPtr target;
  if (allow_tuple) {
    TupleRules rules;
    rules.simplified = true;
    target = ParseTuple(rules);
  } else {
    target = ParsePrimary();
  }
  if (!ok() || !CheckTarget(target.get())) return nullptr;
  return target;
}

bool Parser::CheckTarget(Expr* target) {
  if (target->kind == ExprKind::kName || target->kind == ExprKind::kNsRef) return true;
  if (target->kind == ExprKind::kTuple || target->kind == ExprKind::kList) {
    return std::all_of(target->kids.begin(), target->kids.end(),
                       [this](const ExprPtr& kid) { return CheckTarget(kid.get()); });
  }
  return Fail("cannot assign to this expression");
}

bool Parser::ParseSet(Stmt* stmt) {
  stmt->target = ParseTarget(true, true);
  if (!ok()) return false;
  if (SkipOp("=")) {
    stmt->kind = StmtKind::kSet;
    stmt->value = ParseTuple({});
    return ok();
  }
  stmt->kind = StmtKind::kSetBlock;
  if (AtOp("|")) stmt->value = ParseFilters(nullptr);
  return ok() && ParseBlockBody({"endset"}, &stmt->body) && ExpectName("endset");
}

bool Parser::ParseWith(Stmt* stmt) {
  stmt->kind = StmtKind::kWith;
  while (Peek().kind != TokenKind::kBlockEnd && ok()) {
    if (!stmt->targets.empty() && !ExpectOp(",")) return false;
    ExprPtr target = ParseTarget(false, true);
    if (!ok() || !ExpectOp("=")) return false;
    ExprPtr value = ParseExpression();
    if (!ok()) return false;
    stmt->targets.push_back(std::move(target));
    stmt->values.push_back(std::move(value));
  }
  return ParseBlockBody({"endwith"}, &stmt->body) && ExpectName("endwith");
}

bool Parser::ParseSignature(MacroDef* macro) {
  if (!ExpectOp("(")) return false;
  while (!AtOp(")")) {
    if (!macro->params.empty() && !ExpectOp(",")) return false;
    const Token& token = Peek();
    if (!Expect(TokenKind::kName, "a parameter's name")) return false;
    const NameId id = Intern(token.text);
    if (std::find(macro->params.begin(), macro->params.end(), id) != macro->params.end()) {
      return FailAt(token, StrCat("duplicate parameter '", token.text, "'"));
    }
    macro->params.push_back(id);
    macro->explicit_caller |= token.text == "caller";
    if (SkipOp("=")) {
      macro->defaults.push_back(ParseExpression());
      if (!ok()) return false;
    } else if (!macro->defaults.empty()) {
      return Fail("non-default argument follows default argument");
    }
  }
  return ExpectOp(")");
}

bool Parser::ParseMacroBody(std::string_view end, MacroDef* macro) {
  macros_.push_back(macro);
  const uint32_t loops = std::exchange(loops_, 0);
  const bool done = ParseBlockBody({end}, &macro->body);
  loops_ = loops;
  macros_.pop_back();
  return done && ExpectName(end);
}

bool Parser::ParseMacro(Stmt* stmt) {
  stmt->kind = StmtKind::kMacro;
  stmt->macro = std::make_unique<MacroDef>();
  stmt->macro->name = Peek().text;
  stmt->macro->id = Intern(Peek().text);
  return Expect(TokenKind::kName, "the macro's name") && ParseSignature(stmt->macro.get()) &&
         ParseMacroBody("endmacro", stmt->macro.get());
}

bool Parser::ParseCall(Stmt* stmt) {
  stmt->kind = StmtKind::kCall;
  stmt->macro = std::make_unique<MacroDef>();
  stmt->macro->name = "caller";
  stmt->macro->id = kNameCaller;
  if (AtOp("(") && !ParseSignature(stmt->macro.get())) return false;
  stmt->value = ParseExpression();
  if (!ok()) return false;
  if (stmt->value->kind != ExprKind::kCall) return Fail("expected call");
  return ParseMacroBody("endcall", stmt->macro.get());
}

bool Parser::ParseFilterBlock(Stmt* stmt) {
  stmt->kind = StmtKind::kFilter;
  // As if a pipe stood before the first name.
  ExprPtr node = MakeNode(ExprKind::kFilter, Peek());
  if (!ParseDottedName(&node->text)) return false;
  node->kids.push_back(nullptr);
  if (AtOp("(") && !ParseArguments(node.get())) return false;
  CheckFilterName(*node);
  stmt->value = ParseFilters(std::move(node));
  return ok() && ParseBlockBody({"endfilter"}, &stmt->body) && ExpectName("endfilter");
}

bool Parser::ParseBlock(Stmt* stmt) {
  stmt->kind = StmtKind::kBlock;
  stmt->text = Peek().text;
  if (!Expect(TokenKind::kName, "the block's name")) return false;
  stmt->scoped = SkipName("scoped");
  if (SkipName("required")) return Fail("a required block needs a template that extends this one");
  const uint32_t loops = std::exchange(loops_, 0);
  const bool done = ParseBlockBody({"endblock"}, &stmt->body);
  loops_ = loops;
  if (!done || !ExpectName("endblock")) return false;
  SkipName(stmt->text);
  return true;
}

}  // namespace qinfer::tokenizer::jinja
