// Filters over sequences that look at order, size and value of items: sort, unique, groupby, batch
// and their like.
#include <algorithm>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_select.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {

AttributePath::AttributePath(Context* context, const Value& attribute) : keys_(context->meter()) {
  if (attribute.IsNone()) return;
  if (!attribute.IsString()) {
    keys_.push_back(attribute);
    return;
  }
  CallArgs dot(context->meter());
  dot.positional.push_back(context->String("."));
  const Value parts = CallStringMethod(context, attribute, "split", dot);
  if (!context->ok()) return;
  for (const Value& part : parts.As<ListObject>()->items) {
    const std::string_view text = part.AsString();
    const bool digits =
        !text.empty() && text.size() < 18 &&
        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    int64_t index = 0;
    for (const char c : text) index = digits ? index * 10 + (c - '0') : 0;
    keys_.push_back(digits ? Value::Int(index) : part);
  }
}

Value AttributePath::Get(Context* context, const Value& item, const Value& otherwise) const {
  Value value = item;
  for (const Value& key : keys_) {
    if (!context->ok()) return Value();
    value = GetItem(context, value, key);
    if (value.IsUndefined() && !otherwise.IsNone()) value = otherwise;
  }
  return value;
}

Value SortKey(Context* context, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.IsString()) return value;
  Text lower(context->meter());
  AppendLower(value.AsString(), &lower);
  return context->String(std::move(lower));
}

CountedVector<size_t> SortedOrder(Context* context, const Items& keys, bool reverse) {
  return StableOrder(context, keys.size(), [&](size_t a, size_t b) {
    return reverse ? Less(context, keys[b], keys[a]) : Less(context, keys[a], keys[b]);
  });
}

namespace {

Value FirstFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "first", args, {"seq"}, 1);
  if (!context->ok()) return Value();
  if (bound[0].Is(Kind::kIterator)) {
    auto* iterator = bound[0].As<IteratorObject>();
    if (iterator->at < iterator->items.size()) return iterator->items[iterator->at++];
    return context->Undefined({"No first item, sequence was empty."});
  }
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  return items->items.empty() ? context->Undefined({"No first item, sequence was empty."})
                              : items->items.front();
}

Value LastFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "last", args, {"seq"}, 1);
  if (!context->ok()) return Value();
  if (bound[0].Is(Kind::kIterator)) return context->Fail("'generator' object is not reversible");
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  return items->items.empty() ? context->Undefined({"No last item, sequence was empty."})
                              : items->items.back();
}

Value LengthFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "length", args, {"obj"}, 1);
  return context->ok() ? Value::Int(Length(context, bound[0])) : Value();
}

Value ListFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "list", args, {"value"}, 1);
  const Sequence items = context->ok() ? Iterate(context, bound[0]) : nullptr;
  return items == nullptr ? Value() : context->List(items->items);
}

Value JoinFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "join", args, {"value", "d", "attribute"}, 1);
  if (!context->ok()) return Value();
  const AttributePath path(context, bound.Has(2) ? bound[2] : Value::None());
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  Text separator_scratch(context->meter());
  const std::string_view separator =
      bound.Has(1) ? TextOf(context, bound[1], &separator_scratch) : "";
  Text out(context->meter());
  if (!bound.Has(2)) {
    // What is text already and what stands between; of the rest the size is not known.
    uint64_t size = separator.size() * (std::max<size_t>(items->items.size(), 1) - 1);
    for (const Value& item : items->items) size += item.IsString() ? item.AsString().size() : 0;
    out.reserve(context->meter()->Require(size, 1));
  }
  for (size_t i = 0; i < items->items.size(); ++i) {
    if (i != 0) out += separator;
    AppendText(context, path.Get(context, items->items[i], Value::None()), &out);
    context->meter()->Step();
    if (!context->ok()) return Value();
  }
  return context->String(std::move(out));
}

Value SortFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "sort", args, {"value", "reverse", "case_sensitive", "attribute"},
                        1);
  if (!context->ok()) return Value();
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  const bool sensitive = bound.Bool(2, false);
  // Several attributes, separated by commas, make a list as the key.
  CountedVector<AttributePath> paths(context->meter());
  if (bound.Has(3) && bound[3].IsString()) {
    CallArgs comma(context->meter());
    comma.positional.push_back(context->String(","));
    const Value parts = CallStringMethod(context, bound[3], "split", comma);
    if (!context->ok()) return Value();
    for (const Value& part : parts.As<ListObject>()->items) paths.emplace_back(context, part);
  } else {
    paths.emplace_back(context, bound.Has(3) ? bound[3] : Value::None());
  }
  Items keys(context->meter());
  keys.reserve(items->items.size());
  for (const Value& item : items->items) {
    Items key(context->meter());
    key.reserve(paths.size());
    for (const AttributePath& path : paths) {
      key.push_back(SortKey(context, path.Get(context, item, Value::None()), sensitive));
    }
    if (!context->ok()) return Value();
    keys.push_back(key.size() == 1 ? std::move(key[0]) : context->List(std::move(key)));
  }
  Items sorted(context->meter());
  sorted.reserve(keys.size());
  for (const size_t i : SortedOrder(context, keys, bound.Bool(1, false))) {
    sorted.push_back(items->items[i]);
  }
  return context->ok() ? context->List(std::move(sorted)) : Value();
}

Value UniqueFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "unique", args, {"value", "case_sensitive", "attribute"}, 1);
  if (!context->ok()) return Value();
  const AttributePath path(context, bound.Has(2) ? bound[2] : Value::None());
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  DictObject seen(context->meter());
  Items kept(context->meter());
  for (const Value& item : items->items) {
    const Value key =
        SortKey(context, path.Get(context, item, Value::None()), bound.Bool(1, false));
    if (!context->ok()) return Value();
    if (!IsHashable(key)) {
      return context->Fail(StrCat("unhashable type: '", std::string(TypeName(key)), "'"));
    }
    if (seen.Get(key) != nullptr) continue;
    seen.Set(key, Value::None());
    kept.push_back(item);
  }
  return Value::Iterator("sync_do_unique", std::move(kept));
}

Value MinMax(Context* context, const CallArgs& args, bool want_max) {
  const BoundArgs bound(context, want_max ? "max" : "min", args,
                        {"value", "case_sensitive", "attribute"}, 1);
  if (!context->ok()) return Value();
  const AttributePath path(context, bound.Has(2) ? bound[2] : Value::None());
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  if (items->items.empty()) {
    return context->Undefined({"No aggregated item, sequence was empty."});
  }
  Value best, best_key;
  for (size_t i = 0; i < items->items.size(); ++i) {
    Value key =
        SortKey(context, path.Get(context, items->items[i], Value::None()), bound.Bool(1, false));
    if (!context->ok()) return Value();
    if (i != 0 && !(want_max ? Less(context, best_key, key) : Less(context, key, best_key))) {
      continue;
    }
    best = items->items[i];
    best_key = std::move(key);
  }
  return context->ok() ? best : Value();
}

Value MinFilter(Context* context, const CallArgs& args) { return MinMax(context, args, false); }
Value MaxFilter(Context* context, const CallArgs& args) { return MinMax(context, args, true); }

Value SumFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "sum", args, {"iterable", "attribute", "start"}, 1);
  if (!context->ok()) return Value();
  const AttributePath path(context, bound.Has(1) ? bound[1] : Value::None());
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  Value total = bound.Has(2) ? bound[2] : Value::Int(0);
  if (total.IsString()) return context->Fail("sum() can't sum strings");
  for (const Value& item : items->items) {
    const Value value = path.Get(context, item, Value::None());
    if (context->ok()) total = BinaryOp(context, Op::kAdd, total, value);
    if (!context->ok() || !context->meter()->Step()) return Value();
  }
  return total;
}

Value ReverseFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "reverse", args, {"value"}, 1);
  if (!context->ok()) return Value();
  if (bound[0].IsString()) {
    return GetSlice(context, bound[0], Value::None(), Value::None(), Value::Int(-1));
  }
  if (!IsIterable(bound[0])) return context->Fail("argument must be iterable");
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  Items reversed(items->items.rbegin(), items->items.rend(), context->meter());
  if (bound[0].Is(Kind::kIterator)) return context->List(std::move(reversed));
  return Value::Iterator("reversed", std::move(reversed));
}

Value BatchFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "batch", args, {"value", "linecount", "fill_with"}, 2);
  const int64_t size = bound.Int(1, 1);
  const Sequence items = context->ok() ? Iterate(context, bound[0]) : nullptr;
  if (items == nullptr) return Value();
  const Items& all = items->items;
  // A size below one never fills a batch, but nought is that of the empty one at the beginning.
  const size_t each = size > 0 ? static_cast<size_t>(size) : all.size();
  Items batches(context->meter());
  if (!all.empty()) batches.reserve((all.size() - 1) / each + 2);
  if (!all.empty() && size == 0) batches.push_back(context->List(Items(context->meter())));
  for (size_t at = 0; at < all.size() && context->ok();) {
    const size_t end = at + std::min(each, all.size() - at);
    Items batch(context->meter());
    // The last one is filled up.
    const bool filled = !bound.IsNone(2) && size > 0 && end - at < each;
    batch.reserve(filled ? context->meter()->Require(each, sizeof(Value)) / sizeof(Value)
                         : end - at);
    batch.assign(all.begin() + static_cast<ptrdiff_t>(at),
                 all.begin() + static_cast<ptrdiff_t>(end));
    if (filled) batch.resize(each, bound[2]);
    batches.push_back(context->List(std::move(batch)));
    at = end;
  }
  return Value::Iterator("do_batch", std::move(batches));
}

Value SliceFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "slice", args, {"value", "slices", "fill_with"}, 2);
  const int64_t slices = bound.Int(1, 1);
  const Sequence items = context->ok() ? Iterate(context, bound[0]) : nullptr;
  if (items == nullptr) return Value();
  if (slices == 0) return context->Fail("integer division or modulo by zero");
  const auto size = static_cast<int64_t>(items->items.size());
  const int64_t each = size / slices;
  const int64_t extra = size % slices;
  Items out(context->meter());
  if (slices > 0) {
    out.reserve(context->meter()->Require(static_cast<uint64_t>(slices), sizeof(Value)) /
                sizeof(Value));
  }
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t end = at + each + (i < extra ? 1 : 0);
    const bool filled = !bound.IsNone(2) && i >= extra;
    Items part(context->meter());
    part.reserve(static_cast<size_t>(end - at) + (filled ? 1 : 0));
    part.assign(items->items.begin() + at, items->items.begin() + end);
    if (filled) part.push_back(bound[2]);
    out.push_back(context->List(std::move(part)));
    at = end;
    if (!context->meter()->Step() || !context->ok()) return Value();
  }
  return Value::Iterator("sync_do_slice", std::move(out));
}

Value GroupByFilter(Context* context, const CallArgs& args) {
  const BoundArgs bound(context, "groupby", args,
                        {"value", "attribute", "default", "case_sensitive"}, 2);
  if (!context->ok()) return Value();
  const AttributePath path(context, bound[1]);
  const Value otherwise = bound.Has(2) ? bound[2] : Value::None();
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  Items keys(context->meter());
  keys.reserve(items->items.size());
  for (const Value& item : items->items) {
    keys.push_back(SortKey(context, path.Get(context, item, otherwise), bound.Bool(3, false)));
    if (!context->ok()) return Value();
  }
  const CountedVector<size_t> order = SortedOrder(context, keys, false);
  Items groups(context->meter());
  for (size_t i = 0; i < order.size() && context->ok();) {
    const size_t first = i;
    while (i < order.size() && Equals(keys[order[first]], keys[order[i]], context->meter())) ++i;
    if (i == first) break;
    Items members(context->meter());
    members.reserve(i - first);
    for (size_t k = first; k < i; ++k) members.push_back(items->items[order[k]]);
    const Value key = path.Get(context, members[0], otherwise);
    auto group = MakeCounted<ListObject>(
        context->meter(), Items({key, context->List(std::move(members))}, context->meter()));
    group->is_group = true;
    groups.push_back(Value::Of(Kind::kTuple, std::move(group)));
  }
  return context->ok() ? context->List(std::move(groups)) : Value();
}

constexpr NamedFunction kFilters[] = {
    {"batch", BatchFilter},     {"count", LengthFilter},    {"first", FirstFilter},
    {"groupby", GroupByFilter}, {"join", JoinFilter},       {"last", LastFilter},
    {"length", LengthFilter},   {"list", ListFilter},       {"max", MaxFilter},
    {"min", MinFilter},         {"reverse", ReverseFilter}, {"slice", SliceFilter},
    {"sort", SortFilter},       {"sum", SumFilter},         {"unique", UniqueFilter},
};

}  // namespace

Function FindSequenceFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [name](const NamedFunction& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found->function;
}

}  // namespace qinfer::tokenizer::jinja
