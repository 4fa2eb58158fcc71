// Loops, macros and calls.
#include <algorithm>
#include <utility>

#include "tokenizer/jinja_interp.h"
#include "tokenizer/jinja_library.h"

namespace qinfer::tokenizer::jinja {

Interp::Flow Interp::ExecFor(const Stmt& stmt) {
  const Value iterable = Eval(*stmt.value);
  return ok() ? RunLoop(stmt, frame_, iterable, 0) : Flow::kStop;
}

Sequence Interp::FilterItems(const Stmt& stmt, const FramePtr& parent, const Sequence& items) {
  Items kept(meter());
  for (const Value& item : items->items) {
    const Scope inner(this, parent);
    Assign(*stmt.target, item);
    const bool keep = ok() && Truth(Eval(*stmt.test));
    if (!ok()) return nullptr;
    if (keep) kept.push_back(item);
  }
  return MakeCounted<ListObject>(meter(), std::move(kept));
}

Interp::Flow Interp::RunLoop(const Stmt& stmt, const FramePtr& parent, const Value& iterable,
                             uint32_t depth0) {
  Sequence items = Iterate(this, iterable);
  if (items != nullptr && stmt.test != nullptr) items = FilterItems(stmt, parent, items);
  if (items == nullptr || !ok()) return Flow::kStop;

  auto loop = MakeCounted<LoopObject>(meter(), &stmt, items, depth0);
  const Value loop_value = Value::Of(Kind::kLoop, loop);
  if (stmt.recursive) loop->frame = parent;
  Flow flow = Flow::kNext;
  for (size_t i = 0; i < items->items.size(); ++i) {
    loop->index = i;
    const Scope inner(this, parent);
    inner.frame()->vars.emplace_back(kNameLoop, loop_value);
    Assign(*stmt.target, items->items[i]);
    meter()->Step();
    flow = ok() ? ExecBody(stmt.body) : Flow::kStop;
    if (flow == Flow::kBreak || flow == Flow::kStop) break;
  }
  loop->frame.reset();
  if (flow == Flow::kStop) return flow;
  if (!items->items.empty() || stmt.otherwise.empty()) return Flow::kNext;
  const Scope inner(this, parent);
  return ExecBody(stmt.otherwise);
}

bool LoopAttribute(Context* context, const Value& value, std::string_view name, Value* out) {
  const auto* loop = value.As<LoopObject>();
  const auto& items = loop->items->items;
  const auto index = static_cast<int64_t>(loop->index);
  const auto length = static_cast<int64_t>(items.size());
  if (name == "index") {
    *out = Value::Int(index + 1);
  } else if (name == "index0") {
    *out = Value::Int(index);
  } else if (name == "revindex") {
    *out = Value::Int(length - index);
  } else if (name == "revindex0") {
    *out = Value::Int(length - index - 1);
  } else if (name == "first") {
    *out = Value::Bool(index == 0);
  } else if (name == "last") {
    *out = Value::Bool(index + 1 == length);
  } else if (name == "length") {
    *out = Value::Int(length);
  } else if (name == "depth") {
    *out = Value::Int(loop->depth0 + 1);
  } else if (name == "depth0") {
    *out = Value::Int(loop->depth0);
  } else if (name == "previtem") {
    *out = index == 0 ? context->Undefined({"there is no previous item"}) : items[loop->index - 1];
  } else if (name == "nextitem") {
    *out = index + 1 == length ? context->Undefined({"there is no next item"})
                               : items[loop->index + 1];
  } else {
    return false;
  }
  return true;
}

bool InternalAttribute(Context* context, const Value& value, std::string_view name, Value* out) {
  const auto* interp = static_cast<const Interp*>(context);
  if (value.Is(Kind::kSelf)) {
    const auto& blocks = interp->ast().blocks;
    const bool known = std::any_of(blocks.begin(), blocks.end(), [&](const auto& block) {
      return interp->ast().names[block.first] == name;
    });
    if (known) {
      *out = Value::Of(Kind::kMethod, MakeCounted<MethodObject>(context->meter(), value, name));
    }
    return known;
  }
  const MacroDef& def = *value.As<MacroObject>()->def;
  if (name == "name") {
    *out = context->String(def.name);
  } else if (name == "arguments") {
    Items names(context->meter());
    for (const NameId id : def.params) names.push_back(context->String(interp->ast().names[id]));
    *out = context->Tuple(std::move(names));
  } else if (name == "catch_kwargs") {
    *out = Value::Bool(def.uses_kwargs);
  } else if (name == "catch_varargs") {
    *out = Value::Bool(def.uses_varargs);
  } else if (name == "caller") {
    *out = Value::Bool(def.uses_caller);
  } else {
    return false;
  }
  return true;
}

Interp::Flow Interp::ExecCall(const Stmt& stmt) {
  const Expr& call = *stmt.value;
  const Value callee = Eval(*call.kids[0]);
  CallArgs args(meter());
  if (!ok() || !EvalArgs(call.args, &args)) return Flow::kStop;
  args.named.emplace_back(
      Text("caller", meter()),
      Value::Of(Kind::kMacro, MakeCounted<MacroObject>(meter(), stmt.macro.get(), frame_)));
  const Value result = Call(callee, args);
  if (ok()) EmitValue(result);
  return ok() ? Flow::kNext : Flow::kStop;
}

Value Interp::Call(const Value& callee, const CallArgs& args) {
  if (!ok()) return Value();
  meter()->Step();
  switch (callee.kind()) {
    case Kind::kMacro:
      return CallMacro(*callee.As<MacroObject>(), args);
    case Kind::kBuiltin:
      return CallGlobal(this, callee.As<BuiltinObject>()->name, args);
    case Kind::kMethod: {
      const auto* method = callee.As<MethodObject>();
      if (method->self.Is(Kind::kSelf)) return CallBlock(method->name);
      return CallMethod(this, *method, args);
    }
    case Kind::kLoop:
      return CallLoop(callee, args);
    case Kind::kJoiner: {
      auto* joiner = callee.As<JoinerObject>();
      if (std::exchange(joiner->used, true)) return joiner->separator;
      return String("");
    }
    case Kind::kUndefined:
      return FailUndefined(callee);
    default:
      return Fail(StrCat("'", std::string(TypeName(callee)), "' object is not callable"));
  }
}

Value Interp::CallLoop(const Value& value, const CallArgs& args) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): keeps the loop while it runs
  const std::shared_ptr<Object> hold = value.shared();
  auto* loop = static_cast<LoopObject*>(hold.get());
  if (!loop->stmt->recursive || loop->frame == nullptr) {
    return Fail("the loop must have the 'recursive' marker to be called recursively");
  }
  const BoundArgs bound(this, "loop", args, {"iterable"}, 1);
  if (!ok()) return Value();
  if (macro_depth_ >= limits_.max_depth) {
    meter()->Exceed("max_depth");
    return Value();
  }
  ++macro_depth_;
  Captured text(this);
  const FramePtr parent = loop->frame;
  RunLoop(*loop->stmt, parent, bound[0], loop->depth0 + 1);
  --macro_depth_;
  return text.Take();
}

Value Interp::CallBlock(std::string_view name) {
  for (const auto& [id, stmt] : ast_->blocks) {
    if (ast_->names[id] != name) continue;
    if (macro_depth_ >= limits_.max_depth) {
      meter()->Exceed("max_depth");
      return Value();
    }
    ++macro_depth_;
    Captured text(this);
    ExecBlock(*stmt);
    --macro_depth_;
    return text.Take();
  }
  return Fail(StrCat("there is no block '", std::string(name), "'"));
}

bool Interp::BindMacro(const MacroObject& macro, const CallArgs& args, Frame* frame) {
  const MacroDef& def = *macro.def;
  const size_t positional = std::min(args.positional.size(), def.params.size());
  CountedVector<bool> used(args.named.size(), false, meter());
  const auto take = [&](std::string_view name) -> const Value* {
    for (size_t i = 0; i < args.named.size(); ++i) {
      if (used[i] || args.named[i].first != name) continue;
      used[i] = true;
      return &args.named[i].second;
    }
    return nullptr;
  };
  for (size_t i = 0; i < positional; ++i) {
    frame->vars.emplace_back(def.params[i], args.positional[i]);
  }
  bool found_caller = positional == def.params.size() && def.explicit_caller;
  for (size_t i = positional; i < def.params.size(); ++i) {
    const std::string& name = ast_->names[def.params[i]];
    const Value* given = take(name);
    found_caller |= name == "caller";
    const size_t first_default = def.params.size() - def.defaults.size();
    Value value;
    if (given != nullptr) {
      value = *given;
    } else if (i >= first_default) {
      value = Eval(*def.defaults[i - first_default]);
      if (!ok()) return false;
    } else {
      value = Undefined({"parameter '", name, "' was not provided"});
    }
    frame->vars.emplace_back(def.params[i], std::move(value));
  }
  if (def.uses_caller && !found_caller) {
    const Value* caller = take("caller");
    frame->vars.emplace_back(kNameCaller, caller != nullptr && !caller->IsNone()
                                              ? *caller
                                              : Undefined({"No caller defined"}));
  }
  auto rest = MakeCounted<DictObject>(meter());
  for (size_t i = 0; i < args.named.size(); ++i) {
    const std::string_view name = args.named[i].first;
    if (used[i]) continue;
    if (!def.uses_kwargs) {
      Fail(name == "caller"
               ? StrCat("macro '", def.name,
                        "' was invoked with two values for the special caller argument")
               : StrCat("macro '", def.name, "' takes no keyword argument '", Quoted(name), "'"));
      return false;
    }
    rest->Set(String(name), args.named[i].second);
  }
  if (def.uses_kwargs) frame->vars.emplace_back(kNameKwargs, Value::Of(Kind::kDict, rest));
  if (def.uses_varargs) {
    frame->vars.emplace_back(
        kNameVarargs, Tuple(Items(args.positional.begin() + static_cast<ptrdiff_t>(positional),
                                  args.positional.end(), meter())));
  } else if (args.positional.size() > positional) {
    Fail(StrCat("macro '", def.name, "' takes not more than ", def.params.size(), " argument(s)"));
  }
  return ok();
}

Value Interp::CallMacro(const MacroObject& macro, const CallArgs& args) {
  if (macro_depth_ >= limits_.max_depth) {
    meter()->Exceed("max_depth");
    return Value();
  }
  ++macro_depth_;
  // The definition's scope stays while the macro runs, whatever becomes of the macro's name.
  const FramePtr definition = macro.frame;
  const MacroDef& def = *macro.def;
  Value result;
  {
    const Scope inner(this, definition);
    if (ok() && BindMacro(macro, args, inner.frame())) result = Capture(def.body);
  }
  --macro_depth_;
  return result;
}

}  // namespace qinfer::tokenizer::jinja
