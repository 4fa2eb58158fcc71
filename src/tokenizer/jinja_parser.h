// Tokens to Ast by recursive descent, bounded in nesting. Statements are in jinja_parser.cpp,
// expressions in jinja_parse_expr.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_lexer.h"

namespace qinfer::tokenizer::jinja {

// Tags and brackets within each other (a bracket counts twice); the height of an expression's tree.
inline constexpr uint32_t kMaxParseDepth = 200;
inline constexpr uint32_t kMaxExprHeight = 200;

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string name);
  // FormatError, or UnsupportedError for tags that need other templates.
  StatusOr<std::unique_ptr<Ast>> Run();

 private:
  // Statements. The methods return false once there is an error.
  bool ParseBody(std::initializer_list<std::string_view> ends, Body* body);
  bool ParseTag(Body* body);
  bool ParseTagOf(const std::string& tag, Stmt* stmt);
  bool ParseIf(Stmt* stmt);
  bool ParseFor(Stmt* stmt);
  bool ParseSet(Stmt* stmt);
  bool ParseWith(Stmt* stmt);
  bool ParseMacro(Stmt* stmt);
  bool ParseCall(Stmt* stmt);
  bool ParseFilterBlock(Stmt* stmt);
  bool ParseBlock(Stmt* stmt);
  bool ParseSignature(MacroDef* macro);
  bool ParseMacroBody(std::string_view end, MacroDef* macro);
  bool ParseLoopControl(StmtKind kind, Stmt* stmt);
  // From after the tag's content to the end tag, whose name is consumed.
  bool ParseBlockBody(std::initializer_list<std::string_view> ends, Body* body);
  ExprPtr ParseTarget(bool with_namespace, bool allow_tuple);
  bool CheckTarget(Expr* target);
  bool UnknownTag(const std::string& tag);

  // Expressions. Null once there is an error.
  struct TupleRules {
    bool simplified = false;    // primaries only
    bool conditions = true;     // a if b else c
    bool parentheses = false;   // () is a tuple
    std::string_view end_name;  // a name that ends it too
  };
  ExprPtr ParseTuple(const TupleRules& rules);
  ExprPtr ParseExpression() { return ParseCondition(); }
  ExprPtr ParseCondition();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter);
  ExprPtr ParsePrimary();
  ExprPtr ParseName();
  ExprPtr ParseList();
  ExprPtr ParseDict();
  ExprPtr ParsePostfix(ExprPtr node);
  ExprPtr ParseFilterExpr(ExprPtr node);
  ExprPtr ParseFilters(ExprPtr node);
  ExprPtr ParseTest(ExprPtr node);
  ExprPtr ParseSubscript(ExprPtr node);
  ExprPtr ParseSubscribed();
  bool ParseSlicePart(ExprPtr* part);
  bool ParseArguments(Expr* node);
  bool ParseDottedName(std::string* name);
  ExprPtr MakeNode(ExprKind kind, const Token& at);
  // Adds a child and keeps the height bounded.
  bool AddKid(Expr* parent, ExprPtr kid);
  ExprPtr MakeBinary(ExprKind kind, Op op, ExprPtr left, ExprPtr right, const Token& at);
  NameId Intern(const std::string& name);
  void NoteUse(const std::string& name);
  void CheckFilterName(const Expr& node);

  // Tokens.
  const Token& Peek(size_t ahead = 0) const;
  const Token& Next();
  bool AtOp(std::string_view op) const;
  bool AtName(std::string_view name) const;
  bool SkipOp(std::string_view op);
  bool SkipName(std::string_view name);
  bool ExpectOp(std::string_view op);
  bool ExpectName(std::string_view name);
  bool Expect(TokenKind kind, std::string_view what);
  std::string Describe(const Token& token) const;
  bool Fail(const std::string& what);
  bool FailAt(const Token& token, const std::string& what);
  bool ok() const { return status_.ok(); }

  // One level of nesting; false (and an error) beyond the bound.
  class Nested {
   public:
    explicit Nested(Parser* parser) : parser_(parser) {
      if (++parser->depth_ > kMaxParseDepth)
        parser->Fail("nested too deeply (over 200 tags, or 100 brackets)");
    }
    ~Nested() { --parser_->depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser* parser_;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::string name_;
  Status status_;
  uint32_t depth_ = 0;
  uint32_t loops_ = 0;        // enclosing loops of the current macro, call or template
  uint32_t conditional_ = 0;  // inside if: an unknown filter is an error only when it runs
  std::vector<MacroDef*> macros_;
  std::vector<std::string> open_tags_;
  std::unique_ptr<Ast> ast_;
};

}  // namespace qinfer::tokenizer::jinja
