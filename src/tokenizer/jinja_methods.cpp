// Methods of lists, tuples, dicts, numbers, loops and cyclers, and the global functions. Methods of
// strings are in jinja_string_methods.cpp.
#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_interp.h"
#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"

namespace qinfer::tokenizer::jinja {
namespace {

// The sandbox's bound on range().
constexpr int64_t kMaxRange = 100'000;

Value CallDictMethod(Context* context, const Value& self, std::string_view name,
                     const CallArgs& args) {
  if (name == "get") {
    const BoundArgs bound(context, "get", args, {"key", "default"}, 1);
    if (!context->ok()) return Value();
    if (!IsHashable(bound[0])) {
      return context->Fail(StrCat("unhashable type: '", std::string(TypeName(bound[0])), "'"));
    }
    const Value* found = self.As<DictObject>()->Get(bound[0]);
    if (found != nullptr) return *found;
    return bound.Has(1) ? bound[1] : Value::None();
  }
  const BoundArgs none(context, name, args, {}, 0);
  if (!context->ok()) return Value();
  // A dict never changes, so a copy is the dict itself.
  if (name == "copy") return self;
  const ViewObject::Part part = name == "keys"     ? ViewObject::Part::kKeys
                                : name == "values" ? ViewObject::Part::kValues
                                                   : ViewObject::Part::kItems;
  return Value::Of(Kind::kView, MakeCounted<ViewObject>(context->meter(), self, part));
}

Value CallListMethod(Context* context, const Value& self, std::string_view name,
                     const CallArgs& args) {
  if (name == "copy") return self;
  const BoundArgs bound(context, name, args, {"value", "start", "stop"}, 1);
  const Sequence items = Iterate(context, self);
  if (!context->ok()) return Value();
  const auto size = static_cast<int64_t>(items->items.size());
  const auto clamp = [size](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
  };
  const bool counting = name == "count";
  const int64_t start = counting ? 0 : clamp(bound.Int(1, 0));
  const int64_t stop = counting ? size : clamp(bound.Int(2, size));
  int64_t count = 0;
  for (int64_t i = start; i < stop && context->ok(); ++i) {
    if (!Equals(items->items[static_cast<size_t>(i)], bound[0], context->meter())) continue;
    if (!counting) return Value::Int(i);
    ++count;
  }
  if (counting) return Value::Int(count);
  return context->Fail(
      StrCat(QuotedRepr(context, bound[0]), " is not in ", std::string(TypeName(self))));
}

Value CallLoopMethod(Context* context, const Value& self, std::string_view name,
                     const CallArgs& args) {
  auto* loop = self.As<LoopObject>();
  if (name == "cycle") {
    if (args.positional.empty()) return context->Fail("no items for cycling given");
    return args.positional[loop->index % args.positional.size()];
  }
  Value now = context->Tuple(args.positional);
  const bool changed = !loop->has_changed || !Equals(loop->last_changed, now, context->meter());
  loop->has_changed = true;
  // A loop that keeps itself here would never be freed.
  if (now.depth() < kMaxValueDepth) loop->last_changed = std::move(now);
  return Value::Bool(changed);
}

Value CallCyclerMethod(Context* context, const Value& self, std::string_view name,
                       const CallArgs& args) {
  const BoundArgs none(context, name, args, {}, 0);
  if (!context->ok()) return Value();
  auto* cycler = self.As<CyclerObject>();
  const Value current = cycler->items[cycler->at];
  cycler->at = name == "reset" ? 0 : (cycler->at + 1) % cycler->items.size();
  return name == "reset" ? Value::None() : current;
}

Value MakeRange(Context* context, const CallArgs& args) {
  if (!args.named.empty()) return context->Fail("range() takes no keyword arguments");
  const BoundArgs bound(context, "range", args, {"start", "stop", "step"}, 1);
  const int64_t first = bound.Int(0, 0);
  const bool one = !bound.Has(1);
  const int64_t start = one ? 0 : first;
  const int64_t stop = one ? first : bound.Int(1, 0);
  const int64_t step = bound.Int(2, 1);
  if (!context->ok()) return Value();
  if (step == 0) return context->Fail("range() arg 3 must not be zero");
  auto range = MakeCounted<RangeObject>(context->meter(), start, stop, step);
  if (range->size() > kMaxRange) {
    return context->Fail(StrCat("Range too big. The sandbox blocks ranges larger than MAX_RANGE (",
                                kMaxRange, ")."));
  }
  return Value::Of(Kind::kRange, std::move(range));
}

// dict(mapping or pairs, **more): also what namespace() takes.
std::shared_ptr<DictObject> MakeDict(Context* context, std::string_view name,
                                     const CallArgs& args) {
  auto dict = MakeCounted<DictObject>(context->meter());
  if (args.positional.size() > 1) {
    context->Fail(
        StrCat(std::string(name), " expected at most 1 argument, got ", args.positional.size()));
    return dict;
  }
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.Is(Kind::kDict)) {
      for (const auto& [key, value] : source.As<DictObject>()->entries) dict->Set(key, value);
    } else {
      const Sequence pairs = Iterate(context, source);
      if (pairs == nullptr) return dict;
      for (const Value& pair : pairs->items) {
        const Sequence parts = Iterate(context, pair);
        if (parts == nullptr) return dict;
        if (parts->items.size() != 2 || !IsHashable(parts->items[0])) {
          context->Fail("dictionary update sequence elements must be pairs with a hashable key");
          return dict;
        }
        dict->Set(parts->items[0], parts->items[1]);
      }
    }
  }
  for (const auto& [key, value] : args.named) dict->Set(context->String(key), value);
  return dict;
}

Value MakeNamespace(Context* context, const CallArgs& args) {
  const auto dict = MakeDict(context, "namespace", args);
  auto result = MakeCounted<NamespaceObject>(context->meter());
  for (const auto& [key, value] : dict->entries) {
    if (!context->ok()) break;
    if (!key.IsString() || !result->Set(key.AsString(), value)) {
      return context->Fail("namespace() needs names as keys");
    }
  }
  return Value::Of(Kind::kNamespace, std::move(result));
}

Value MakeCycler(Context* context, const CallArgs& args) {
  if (args.positional.empty()) return context->Fail("at least one item has to be provided");
  return Value::Of(Kind::kCycler, MakeCounted<CyclerObject>(context->meter(), args.positional));
}

Value MakeJoiner(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "joiner", args, {"sep"}, 0);
  return Value::Of(
      Kind::kJoiner,
      MakeCounted<JoinerObject>(context->meter(), bound.Has(0) ? bound[0] : context->String(", ")));
}

Value RaiseException(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "raise_exception", args, {"message"}, 1);
  if (!context->ok()) return Value();
  Text scratch(context->meter());
  return context->Fail(Quoted(TextOf(context, bound[0], &scratch)));
}

Value StrftimeNow(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "strftime_now", args, {"format"}, 1);
  const std::string_view format = bound.Text(0, "");
  return context->ok() ? FormatTime(context, format, context->now_unix_seconds()) : Value();
}

Value DictGlobal(Context* context, const CallArgs& args) {
  return Value::Of(Kind::kDict, MakeDict(context, "dict", args));
}

constexpr NamedFunction kGlobals[] = {
    {"range", MakeRange},          {"dict", DictGlobal},   {"namespace", MakeNamespace},
    {"cycler", MakeCycler},        {"joiner", MakeJoiner}, {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
};

}  // namespace

Value CallMethod(Context* context, const MethodObject& method, const CallArgs& args) {
  const Value& self = method.self;
  switch (self.kind()) {
    case Kind::kString:
      return CallStringMethod(context, self, method.name, args);
    case Kind::kDict:
      return CallDictMethod(context, self, method.name, args);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return CallListMethod(context, self, method.name, args);
    case Kind::kLoop:
      return CallLoopMethod(context, self, method.name, args);
    case Kind::kCycler:
      return CallCyclerMethod(context, self, method.name, args);
    case Kind::kFloat:
      return Value::Bool(std::isfinite(self.AsFloat()) &&
                         self.AsFloat() == std::floor(self.AsFloat()));
    case Kind::kBool:
    case Kind::kInt: {
      const int64_t i = self.AsInt();
      auto magnitude = i < 0 ? ~static_cast<uint64_t>(i) + 1 : static_cast<uint64_t>(i);
      int64_t bits = 0;
      for (; magnitude != 0; magnitude >>= 1) ++bits;
      return Value::Int(bits);
    }
    default:
      return context->Fail(StrCat("'", method.name, "' cannot be called"));
  }
}

std::vector<std::string_view> GlobalNames() {
  std::vector<std::string_view> names;
  for (const NamedFunction& global : kGlobals) names.push_back(global.name);
  return names;
}

Value CallGlobal(Context* context, std::string_view name, const CallArgs& args) {
  const auto* found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                   [name](const NamedFunction& f) { return f.name == name; });
  if (found == std::end(kGlobals)) {
    return context->Fail(StrCat("'", std::string(name), "' cannot be called"));
  }
  return found->function(context, args);
}

}  // namespace qinfer::tokenizer::jinja
