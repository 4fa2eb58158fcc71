// The parsed template: plain data, written by the parser, read by the evaluator, never changed
// afterwards and so shared between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace qinfer::tokenizer::jinja {

// Names of variables as small numbers.
using NameId = uint32_t;

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kAnd,
  kOr,
  kNot,
  kNeg,
  kPos,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
};

enum class ExprKind : uint8_t {
  kConst,      // constant
  kName,       // name
  kNsRef,      // name, text: name.text as the target of set
  kTuple,      // kids
  kList,       // kids
  kDict,       // kids: key, value, key, value
  kBinary,     // op, kids[0], kids[1]
  kLogic,      // op (and, or), kids[0], kids[1]
  kUnary,      // op, kids[0]
  kCompare,    // kids[0], then ops[i] kids[i + 1]
  kConcat,     // kids
  kCondition,  // kids[0] if kids[1] else kids[2] (may be absent)
  kAttribute,  // kids[0].text
  kItem,       // kids[0][kids[1]]
  kSlice,      // kids: start, stop, step, each may be null
  kCall,       // kids[0] called with args
  kFilter,     // kids[0] (null: the block's text) through text with args
  kTest,       // kids[0] is text with args
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Argument {
  enum class Kind : uint8_t { kPositional, kNamed, kStar, kStarStar };
  Kind kind = Kind::kPositional;
  std::string name;
  ExprPtr value;
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  Op op = Op::kAdd;
  uint32_t line = 0, column = 0;
  NameId name = 0;
  uint32_t height = 1;  // of the tree below
  std::string text;
  Value constant;
  std::vector<ExprPtr> kids;
  std::vector<Op> ops;
  std::vector<Argument> args;
};

enum class StmtKind : uint8_t {
  kText,      // text
  kOutput,    // value
  kIf,        // branches; body of the else in `otherwise`
  kFor,       // target, value (iterable), test, body, otherwise
  kSet,       // target, value
  kSetBlock,  // target, value (filters over a null, or null), body
  kMacro,     // macro
  kCall,      // value (a call), macro (the caller)
  kFilter,    // value (filters over a null), body
  kWith,      // targets, values, body
  kScope,     // body in a scope of its own (generation)
  kBlock,     // name, body; scoped
  kBreak,
  kContinue,
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Branch {
  ExprPtr test;
  Body body;
};

struct MacroDef {
  std::string name;
  NameId id = 0;
  std::vector<NameId> params;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  bool explicit_caller = false;  // caller is one of the parameters
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  uint32_t line = 0, column = 0;
  bool recursive = false, scoped = false;
  NameId name = 0;
  std::string text;
  ExprPtr target, value, test;
  std::vector<ExprPtr> targets, values;
  std::vector<Branch> branches;
  std::unique_ptr<MacroDef> macro;
  Body body, otherwise;
};

// Ids that the evaluator itself needs.
enum WellKnownName : NameId { kNameLoop, kNameCaller, kNameVarargs, kNameKwargs, kNameSelf };

// Names are looked up without a copy of them.
struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
};

struct Ast {
  std::string template_name;
  std::vector<std::string> names;
  // Not Abseil's table: that one does not survive an allocation that fails while it grows.
  std::unordered_map<std::string, NameId, NameHash, std::equal_to<>> ids;
  Body body;
  std::vector<std::pair<NameId, const Stmt*>> blocks;
};

}  // namespace qinfer::tokenizer::jinja
