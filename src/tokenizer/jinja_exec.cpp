// Statements, scopes and output.
#include <algorithm>
#include <utility>

#include "tokenizer/jinja_interp.h"
#include "tokenizer/jinja_library.h"

namespace qinfer::tokenizer::jinja {
namespace {

// Scopes within scopes, counted along the chain that look-ups walk.
constexpr uint32_t kMaxFrameDepth = 1000;

}  // namespace

Interp::Interp(const Ast* ast, const RenderLimits& limits, Memory* memory, int64_t now)
    : Context(limits.max_steps, limits.max_memory_bytes, memory),
      ast_(ast),
      limits_(limits),
      now_(now),
      max_nested_(4 * std::min<uint32_t>(limits.max_depth, 1024)),
      output_(meter()),
      root_(MakeCounted<Frame>(meter(), nullptr)),
      frame_(root_),
      namespaces_(meter()) {
  for (const std::string_view name : GlobalNames()) {
    SetVariable(name, Value::Of(Kind::kBuiltin, MakeCounted<BuiltinObject>(meter(), name)));
  }
  if (!ast->blocks.empty() || ast->ids.contains("self")) {
    SetIn(root_.get(), kNameSelf,
          Value::Of(Kind::kSelf, MakeCounted<BuiltinObject>(meter(), "self")));
  }
}

// Whatever may refer to itself is taken apart here, link by link, so that nothing stays behind and
// no chain is freed by recursion.
Interp::~Interp() {
  for (const Value& value : namespaces_) value.As<NamespaceObject>()->entries.clear();
  while (kept_frames_ != nullptr) {
    const FramePtr frame = std::move(kept_frames_);
    kept_frames_ = std::move(frame->next_kept);
    frame->vars.clear();
    frame->parent.reset();
  }
  root_->vars.clear();
}

void Interp::SetVariable(std::string_view name, Value value) {
  // A name that the template never mentions needs no place.
  const auto id = ast_->ids.find(name);
  if (id != ast_->ids.end()) SetIn(root_.get(), id->second, std::move(value));
}

StatusOr<std::string_view> Interp::Run() {
  try {
    const Scope top(this, root_);
    ExecBody(ast_->body);
    // A copy may be made of it.
    if (ok()) meter()->Require(output_.size());
  } catch (const MemoryLimit&) {  // which the meter knows
  }
  if (ok()) return std::string_view(output_);
  const Status status =
      meter()->over() != nullptr && this->status().ok() ? LimitStatus() : this->status();
  if (line_ == 0) return Annotate(status, ast_->template_name);
  return Annotate(status, StrCat(ast_->template_name, ":", line_, ":", column_));
}

Status Interp::LimitStatus() const {
  const std::string_view limit = const_cast<Interp*>(this)->meter()->over();
  const uint64_t value = limit == "max_steps"          ? limits_.max_steps
                         : limit == "max_depth"        ? limits_.max_depth
                         : limit == "max_output_bytes" ? limits_.max_output_bytes
                         : limit == "max_memory_bytes" ? limits_.max_memory_bytes
                                                       : 0;
  std::string message = StrCat("rendering was stopped by the limit ", std::string(limit));
  if (value != 0) message += StrCat(" = ", value);
  return BudgetError(message);
}

Interp::Scope::Scope(Interp* interp, const FramePtr& parent)
    : interp_(interp), frame_(MakeCounted<Frame>(interp->meter(), parent)) {
  if (frame_->depth > kMaxFrameDepth) interp->meter()->Exceed("max_depth");
  outer_ = std::exchange(interp->frame_, frame_);
}

Interp::Scope::~Scope() {
  interp_->frame_ = std::move(outer_);
  if (frame_.use_count() == 1) return;
  frame_->next_kept = std::move(interp_->kept_frames_);
  interp_->kept_frames_ = std::move(frame_);
}

void Interp::SetIn(Frame* frame, NameId id, Value value) {
  meter()->Step(frame->vars.size() / 16);
  for (auto& [name, old] : frame->vars) {
    if (name == id) {
      old = std::move(value);
      return;
    }
  }
  frame->vars.emplace_back(id, std::move(value));
}

const Value* Interp::Lookup(NameId id) {
  for (const Frame* frame = frame_.get(); frame != nullptr; frame = frame->parent.get()) {
    meter()->Step(frame->vars.size() / 16);
    for (const auto& [name, value] : frame->vars) {
      if (name == id) return &value;
    }
  }
  return nullptr;
}

void Interp::Emit(std::string_view text) {
  if (text.size() > limits_.max_output_bytes ||
      buffered_bytes_ > limits_.max_output_bytes - text.size()) {
    meter()->Exceed("max_output_bytes");
    return;
  }
  meter()->StepBytes(text.size());
  buffered_bytes_ += text.size();
  out_->append(text);
}

void Interp::EmitValue(const Value& value) {
  Text scratch(meter());
  Emit(TextOf(this, value, &scratch));
}

Value Interp::Capture(const Body& body) {
  Captured text(this);
  ExecBody(body);
  return text.Take();
}

Value Interp::CaptureInScope(const Body& body) {
  const Scope inner(this, frame_);
  return Capture(body);
}

Interp::Flow Interp::ExecBody(const Body& body) {
  for (const Stmt& stmt : body) {
    const Flow flow = Exec(stmt);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interp::Flow Interp::Exec(const Stmt& stmt) {
  meter()->Step();
  try {
    const Flow flow = ok() ? ExecOne(stmt) : Flow::kStop;
    if (ok()) return flow;
  } catch (const MemoryLimit&) {  // which the meter knows
  }
  NoteLocation(stmt.line, stmt.column);
  return Flow::kStop;
}

Interp::Flow Interp::ExecOne(const Stmt& stmt) {
  if (stmt.kind == StmtKind::kText) {
    Emit(stmt.text);
    return Flow::kNext;
  }
  const Nested nested(this);
  if (!ok()) return Flow::kStop;
  switch (stmt.kind) {
    case StmtKind::kText:
      break;
    case StmtKind::kOutput: {
      const Value value = Eval(*stmt.value);
      if (!ok()) return Flow::kStop;
      EmitValue(value);
      break;
    }
    case StmtKind::kIf:
      return ExecIf(stmt);
    case StmtKind::kFor:
      return ExecFor(stmt);
    case StmtKind::kSet: {
      const Value value = Eval(*stmt.value);
      if (ok()) Assign(*stmt.target, value);
      break;
    }
    case StmtKind::kSetBlock:
      ExecSetBlock(stmt);
      break;
    case StmtKind::kMacro:
      SetIn(frame_.get(), stmt.macro->id,
            Value::Of(Kind::kMacro, MakeCounted<MacroObject>(meter(), stmt.macro.get(), frame_)));
      break;
    case StmtKind::kCall:
      return ExecCall(stmt);
    case StmtKind::kFilter:
      ExecFilterBlock(stmt);
      break;
    case StmtKind::kWith:
      return ExecWith(stmt);
    case StmtKind::kScope:
      return ExecScope(stmt.body);
    case StmtKind::kBlock:
      ExecBlock(stmt);
      break;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interp::Flow Interp::ExecIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    const Value test = Eval(*branch.test);
    if (!ok()) return Flow::kStop;
    if (Truth(test)) return ExecBody(branch.body);
  }
  return ExecBody(stmt.otherwise);
}

Interp::Flow Interp::ExecScope(const Body& body) {
  const Scope inner(this, frame_);
  return ExecBody(body);
}

Interp::Flow Interp::ExecWith(const Stmt& stmt) {
  const FramePtr outer = frame_;
  const Scope inner(this, outer);
  for (size_t i = 0; i < stmt.targets.size() && ok(); ++i) {
    frame_ = outer;
    const Value value = Eval(*stmt.values[i]);
    frame_ = inner.shared();
    if (ok()) Assign(*stmt.targets[i], value);
  }
  return ok() ? ExecBody(stmt.body) : Flow::kStop;
}

void Interp::ExecSetBlock(const Stmt& stmt) {
  Value text = CaptureInScope(stmt.body);
  if (ok() && stmt.value != nullptr) {
    Value saved = std::exchange(block_text_, text);
    text = Eval(*stmt.value);
    block_text_ = std::move(saved);
  }
  if (ok()) Assign(*stmt.target, text);
}

void Interp::ExecFilterBlock(const Stmt& stmt) {
  const Value text = CaptureInScope(stmt.body);
  if (!ok()) return;
  Value saved = std::exchange(block_text_, text);
  const Value result = Eval(*stmt.value);
  block_text_ = std::move(saved);
  if (ok()) EmitValue(result);
}

void Interp::ExecBlock(const Stmt& stmt) {
  // A block sees the template's own variables, and those around it only if it says so.
  FramePtr base = frame_;
  while (!stmt.scoped && base->depth > 1) base = base->parent;
  const Scope inner(this, base);
  ExecBody(stmt.body);
}

void Interp::Assign(const Expr& target, const Value& value) {
  switch (target.kind) {
    case ExprKind::kName:
      SetIn(frame_.get(), target.name, value);
      return;
    case ExprKind::kNsRef: {
      const Value* holder = Lookup(target.name);
      if (holder == nullptr || !holder->Is(Kind::kNamespace)) {
        Fail("cannot assign attribute on non-namespace object");
        return;
      }
      if (!holder->As<NamespaceObject>()->Set(target.text, value)) {
        meter()->Exceed("the nesting of values (100)");
      }
      return;
    }
    default:
      break;
  }
  const Sequence items = Iterate(this, value);
  if (items == nullptr) return;
  const size_t want = target.kids.size();
  if (items->items.size() < want) {
    Fail(
        StrCat("not enough values to unpack (expected ", want, ", got ", items->items.size(), ")"));
  } else if (items->items.size() > want) {
    Fail(StrCat("too many values to unpack (expected ", want, ")"));
  }
  for (size_t i = 0; i < want && ok(); ++i) Assign(*target.kids[i], items->items[i]);
}

}  // namespace qinfer::tokenizer::jinja
