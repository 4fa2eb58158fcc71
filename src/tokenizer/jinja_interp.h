// The evaluator: walks an Ast over a chain of scopes and writes text, within RenderLimits.
// Statements are in jinja_exec.cpp, expressions in jinja_eval.cpp, macros, loops and calls in
// jinja_call.cpp. One object renders once, on one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tokenizer/chat_template.h"
#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_context.h"
#include "tokenizer/jinja_ops.h"

namespace qinfer::tokenizer::jinja {

// Variables of one scope; a name that is not here is looked up in the parent.
struct Frame {
  Frame(Meter* meter, std::shared_ptr<Frame> p)
      : parent(std::move(p)), vars(meter), depth(parent == nullptr ? 0 : parent->depth + 1) {}
  std::shared_ptr<Frame> parent;
  CountedVector<std::pair<NameId, Value>> vars;
  const uint32_t depth;
  std::shared_ptr<Frame> next_kept;
};
using FramePtr = std::shared_ptr<Frame>;

struct MacroObject final : Object {
  MacroObject(Meter* m, const MacroDef* d, FramePtr f) : Object(m), def(d), frame(std::move(f)) {}
  const MacroDef* def;
  FramePtr frame;  // where it was defined
};

struct LoopObject final : Object {
  LoopObject(Meter* m, const Stmt* s, Sequence i, uint32_t d)
      : Object(m), stmt(s), items(std::move(i)), depth0(d) {}
  const Stmt* stmt;
  Sequence items;
  uint32_t depth0;
  size_t index = 0;
  FramePtr frame;  // of the loop itself, while a recursive one runs
  bool has_changed = false;
  Value last_changed;
};

bool LoopAttribute(Context* context, const Value& loop, std::string_view name, Value* out);
// Attributes of macros and of `self`.
bool InternalAttribute(Context* context, const Value& value, std::string_view name, Value* out);

class Interp final : public Context {
 public:
  // `memory` may be null: the process's.
  Interp(const Ast* ast, const RenderLimits& limits, Memory* memory, int64_t now);
  ~Interp() override;

  void SetVariable(std::string_view name, Value value);
  StatusOr<std::string_view> Run();  // the text lives as long as this

  Value Call(const Value& callee, const CallArgs& args) override;
  int64_t now_unix_seconds() const override { return now_; }
  const Ast& ast() const { return *ast_; }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue, kStop };

  // Statements.
  Flow ExecBody(const Body& body);
  Flow Exec(const Stmt& stmt);
  Flow ExecOne(const Stmt& stmt);
  Flow ExecIf(const Stmt& stmt);
  Flow ExecFor(const Stmt& stmt);
  Flow RunLoop(const Stmt& stmt, const FramePtr& parent, const Value& iterable, uint32_t depth0);
  Sequence FilterItems(const Stmt& stmt, const FramePtr& parent, const Sequence& items);
  Flow ExecWith(const Stmt& stmt);
  Flow ExecCall(const Stmt& stmt);
  void ExecSetBlock(const Stmt& stmt);
  void ExecFilterBlock(const Stmt& stmt);
  Flow ExecScope(const Body& body);
  void ExecBlock(const Stmt& stmt);
  void Assign(const Expr& target, const Value& value);
  void Emit(std::string_view text);
  void EmitValue(const Value& value);
  // The body's output as a value.
  Value Capture(const Body& body);
  Value CaptureInScope(const Body& body);

  // Expressions.
  Value Eval(const Expr& expr);
  Value EvalOne(const Expr& expr);
  Value EvalName(const Expr& expr);
  Value EvalSequence(const Expr& expr);
  Value EvalDict(const Expr& expr);
  Value EvalBinary(const Expr& expr);
  Value EvalLogic(const Expr& expr);
  Value EvalCompare(const Expr& expr);
  Value EvalConcat(const Expr& expr);
  Value EvalCondition(const Expr& expr);
  Value EvalItem(const Expr& expr);
  Value EvalCall(const Expr& expr);
  Value EvalFilter(const Expr& expr);
  Value EvalTest(const Expr& expr);
  bool EvalArgs(const std::vector<Argument>& args, CallArgs* out);

  // Calls.
  Value CallMacro(const MacroObject& macro, const CallArgs& args);
  bool BindMacro(const MacroObject& macro, const CallArgs& args, Frame* frame);
  Value CallLoop(const Value& loop, const CallArgs& args);
  Value CallBlock(std::string_view name);

  // A scope of its own while it lives. One that a macro still refers to at its end is kept until
  // that of the rendering.
  class Scope {
   public:
    Scope(Interp* interp, const FramePtr& parent);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    Frame* frame() const { return frame_.get(); }
    const FramePtr& shared() const { return frame_; }

   private:
    Interp* interp_;
    FramePtr outer_, frame_;
  };
  void SetIn(Frame* frame, NameId id, Value value);
  const Value* Lookup(NameId id);

  // What is written while it lives goes into a text of its own.
  class Captured {
   public:
    explicit Captured(Interp* interp)
        : interp_(interp), text_(interp->meter()), outer_(std::exchange(interp->out_, &text_)) {}
    ~Captured() {
      interp_->out_ = outer_;
      interp_->buffered_bytes_ -= text_.size();
    }
    Captured(const Captured&) = delete;
    Captured& operator=(const Captured&) = delete;
    // The text as a value; undefined after an error.
    Value Take() {
      if (!interp_->ok()) return Value();
      interp_->buffered_bytes_ -= text_.size();
      return interp_->String(std::exchange(text_, Text(interp_->meter())));
    }

   private:
    Interp* interp_;
    Text text_;
    Text* outer_;
  };

  // Counts one level of nesting while it lives.
  class Nested {
   public:
    explicit Nested(Interp* interp) : interp_(interp) {
      if (++interp->depth_ > interp->max_nested_) interp->meter()->Exceed("max_depth");
    }
    ~Nested() { --interp_->depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Interp* interp_;
  };

  Status LimitStatus() const;
  void NoteLocation(uint32_t line, uint32_t column) {
    if (line_ != 0) return;
    line_ = line;
    column_ = column;
  }

  const Ast* ast_;
  RenderLimits limits_;
  int64_t now_;
  uint32_t max_nested_;
  uint32_t depth_ = 0, macro_depth_ = 0;
  uint32_t line_ = 0, column_ = 0;  // of the first error
  Text output_;
  Text* out_ = &output_;
  uint64_t buffered_bytes_ = 0;  // in all texts that are being written
  FramePtr root_, frame_;
  FramePtr kept_frames_;  // linked by next_kept
  Items namespaces_;      // emptied at the end: they may refer to themselves
  Value block_text_;      // what a filter block or a filtered set block applies to
};

}  // namespace qinfer::tokenizer::jinja
