// Filters over mappings, and those that apply a filter or test to each item.
#include <algorithm>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_select.h"

namespace qinfer::tokenizer::jinja {
namespace {

Value DefaultFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "default", args, {"value", "default_value", "boolean"}, 1);
  if (!context->ok()) return Value();
  const bool absent = bound[0].IsUndefined() || (bound.Bool(2, false) && !Truth(bound[0]));
  if (!absent) return bound[0];
  return bound.Has(1) ? bound[1] : context->String("");
}

Value ItemsFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "items", args, {"value"}, 1);
  if (!context->ok()) return Value();
  Items items(context->meter());
  if (!bound[0].IsUndefined()) {
    if (!bound[0].Is(Kind::kDict)) return context->Fail("Can only get item pairs from a mapping.");
    items.reserve(bound[0].As<DictObject>()->entries.size());
    for (const auto& [key, value] : bound[0].As<DictObject>()->entries) {
      items.push_back(context->Tuple({key, value}));
      if (!context->ok()) return Value();
    }
  }
  return Value::Iterator("do_items", std::move(items));
}

Value DictSortFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "dictsort", args, {"value", "case_sensitive", "by", "reverse"}, 1);
  const std::string_view by = bound.Text(2, "key");
  if (!context->ok()) return Value();
  if (by != "key" && by != "value") {
    return context->Fail("You can only sort by either \"key\" or \"value\"");
  }
  if (bound[0].IsUndefined()) return context->FailUndefined(bound[0]);
  if (!bound[0].Is(Kind::kDict)) {
    return context->Fail(
        StrCat("'", std::string(TypeName(bound[0])), "' object has no attribute 'items'"));
  }
  const auto& entries = bound[0].As<DictObject>()->entries;
  Items keys(context->meter());
  keys.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    keys.push_back(SortKey(context, by == "key" ? key : value, bound.Bool(1, false)));
  }
  Items sorted(context->meter());
  sorted.reserve(entries.size());
  for (const size_t i : SortedOrder(context, keys, bound.Bool(3, false))) {
    if (!context->ok()) return Value();
    sorted.push_back(context->Tuple({entries[i].first, entries[i].second}));
  }
  return context->List(std::move(sorted));
}

// The attribute alone, without looking at items.
Value AttrFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "attr", args, {"obj", "name"}, 2);
  const std::string_view name = bound.Text(1, "");
  if (!context->ok()) return Value();
  if (bound[0].Is(Kind::kDict) && FindMethod(bound[0], name) == AttributeKind::kAbsent) {
    return context->Undefined({"'dict object' has no attribute '", name, "'"});
  }
  return GetAttribute(context, bound[0], name);
}

Value MapFilter(Context* context, const CallArgs& args) {
  const Value& input = args.positional[0];
  if (!Truth(input)) return Value::Iterator("sync_do_map", Items(context->meter()));
  const bool by_attribute = args.positional.size() == 1 && !args.named.empty();
  Value attribute = Value::None();
  Value otherwise = Value::None();
  CallArgs call(context->meter());
  std::string_view filter;
  if (by_attribute) {
    for (const auto& [name, value] : args.named) {
      if (name == "attribute") {
        attribute = value;
      } else if (name == "default") {
        otherwise = value;
      } else {
        return context->Fail(StrCat("Unexpected keyword argument '", Quoted(name), "'"));
      }
    }
    if (attribute.IsNone()) return context->Fail("map requires a filter argument");
  } else {
    if (args.positional.size() < 2) return context->Fail("map requires a filter argument");
    if (!args.positional[1].IsString()) return context->Fail("map: a filter's name is text");
    filter = args.positional[1].AsString();
    call.positional.assign(args.positional.begin() + 1, args.positional.end());
    call.named = args.named;
  }
  const AttributePath path(context, attribute);
  const Sequence items = Iterate(context, input);
  if (items == nullptr) return Value();
  Items mapped(context->meter());
  mapped.reserve(items->items.size());
  for (const Value& item : items->items) {
    if (!context->meter()->Step() || !context->ok()) return Value();
    if (by_attribute) {
      mapped.push_back(path.Get(context, item, otherwise));
    } else {
      call.positional[0] = item;
      mapped.push_back(ApplyFilter(context, filter, call));
    }
  }
  return context->ok() ? Value::Iterator("sync_do_map", std::move(mapped)) : Value();
}

// select, reject, selectattr and rejectattr.
Value Select(Context* context, const CallArgs& args, bool want, bool by_attribute) {
  const Value& input = args.positional[0];
  if (!Truth(input)) return Value::Iterator("select_or_reject", Items(context->meter()));
  const size_t first = by_attribute ? 2 : 1;  // where the test's name is
  if (args.positional.size() < first) {
    return context->Fail("Missing parameter for attribute name");
  }
  const AttributePath path(context, by_attribute ? args.positional[1] : Value::None());
  std::string_view test;
  CallArgs call(context->meter());
  if (args.positional.size() > first) {
    if (!args.positional[first].IsString()) {
      return context->Fail("a test's name is text");
    }
    test = args.positional[first].AsString();
    call.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(first),
                           args.positional.end());
    call.named = args.named;
  }
  const Sequence items = Iterate(context, input);
  if (items == nullptr) return Value();
  Items kept(context->meter());
  for (const Value& item : items->items) {
    if (!context->meter()->Step() || !context->ok()) return Value();
    const Value subject = path.Get(context, item, Value::None());
    bool passes = false;
    if (test.empty()) {
      passes = Truth(subject);
    } else {
      call.positional[0] = subject;
      passes = context->ok() && ApplyTest(context, test, call);
    }
    if (passes == want) kept.push_back(item);
  }
  return context->ok() ? Value::Iterator("select_or_reject", std::move(kept)) : Value();
}

Value SelectFilter(Context* context, const CallArgs& args) {
  return Select(context, args, true, false);
}
Value RejectFilter(Context* context, const CallArgs& args) {
  return Select(context, args, false, false);
}
Value SelectAttrFilter(Context* context, const CallArgs& args) {
  return Select(context, args, true, true);
}
Value RejectAttrFilter(Context* context, const CallArgs& args) {
  return Select(context, args, false, true);
}

constexpr NamedFunction kFilters[] = {
    {"attr", AttrFilter},       {"d", DefaultFilter},
    {"default", DefaultFilter}, {"dictsort", DictSortFilter},
    {"items", ItemsFilter},     {"map", MapFilter},
    {"reject", RejectFilter},   {"rejectattr", RejectAttrFilter},
    {"select", SelectFilter},   {"selectattr", SelectAttrFilter},
    {"tojson", ToJson},
};

}  // namespace

Function FindMappingFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [name](const NamedFunction& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found->function;
}

}  // namespace qinfer::tokenizer::jinja
