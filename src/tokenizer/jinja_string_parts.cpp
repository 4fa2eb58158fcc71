// str's methods that take texts apart and put them together: split, join, replace and their like.
// A method of Markup keeps the markup and escapes what it brings in.
#include <algorithm>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

Value Like(Context* context, const Value& self, std::string_view text) {
  return context->String(text, self.IsMarkup());
}

// Text that goes into `self`: escaped, in `scratch`, if self is markup and it is not.
std::string_view Escaped(const Value& self, const Value& text, Text* scratch) {
  if (!self.IsMarkup() || text.IsMarkup()) return text.AsString();
  scratch->clear();
  AppendEscaped(text.AsString(), scratch);
  return *scratch;
}

// The walks of split() and its like call visit(part) for each part, from the front or from the
// back, after at most `limit` cuts (negative: any number). They run twice: to count, then to make.

template <typename Visit>
void EachWord(std::string_view text, int64_t limit, Visit visit) {
  text = StripLeft(text, "", true);
  for (int64_t cuts = 0; !text.empty(); ++cuts) {
    if (cuts == limit) {
      visit(text);  // with the white space that ends it
      return;
    }
    size_t end = 0;
    for (size_t at = 0; end < text.size(); end = at) {
      if (IsSpace(DecodeUtf8(text, &at))) break;
    }
    visit(text.substr(0, end));
    text = StripLeft(text.substr(end), "", true);
  }
}

template <typename Visit>
void EachWordBack(std::string_view text, int64_t limit, Visit visit) {
  text = StripRight(text, "", true);
  for (int64_t cuts = 0; !text.empty(); ++cuts) {
    if (cuts == limit) {
      visit(text);
      return;
    }
    size_t start = text.size();
    for (size_t at = start; start > 0; start = at) {
      if (IsSpace(DecodeUtf8Back(text, &at))) break;
    }
    visit(text.substr(start));
    text = StripRight(text.substr(0, start), "", true);
  }
}

template <typename Visit>
void EachPart(std::string_view text, std::string_view separator, int64_t limit, Meter* meter,
              Visit visit) {
  for (int64_t cuts = 0; cuts != limit; ++cuts) {
    const size_t at = Find(text, separator, 0, meter);
    if (at == std::string_view::npos) break;
    visit(text.substr(0, at));
    text = text.substr(at + separator.size());
  }
  visit(text);
}

template <typename Visit>
void EachPartBack(std::string_view text, std::string_view separator, int64_t limit, Meter* meter,
                  Visit visit) {
  for (int64_t cuts = 0; cuts != limit; ++cuts) {
    const size_t at = FindLast(text, separator, meter);
    if (at == std::string_view::npos) break;
    visit(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  visit(text);
}

template <typename Visit>
void EachLine(std::string_view text, bool keep_ends, Visit visit) {
  while (!text.empty()) visit(CutLine(&text, keep_ends));
}

// A list of the parts that `walk` visits.
template <typename Walk>
Value ListOfParts(Context* context, const Value& self, bool backwards, Walk walk) {
  size_t count = 0;
  walk([&count](std::string_view) { ++count; });
  Items parts(context->meter());
  parts.reserve(count);
  walk([&](std::string_view part) {
    if (context->ok()) parts.push_back(Like(context, self, part));
  });
  if (backwards) std::reverse(parts.begin(), parts.end());
  return context->List(std::move(parts));
}

template <bool kBack>
Value SplitMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "split", args, {"sep", "maxsplit"}, 0);
  const bool space = bound.IsNone(0);
  const std::string_view separator = space ? "" : bound.Text(0, "");
  const int64_t limit = std::max<int64_t>(bound.Int(1, -1), -1);
  if (!context->ok()) return Value();
  if (!space && separator.empty()) return context->Fail("empty separator");
  const std::string_view text = self.AsString();
  Meter* meter = context->meter();
  meter->StepBytes(4 * text.size());
  return ListOfParts(context, self, kBack, [&](auto visit) {
    if (space) {
      kBack ? EachWordBack(text, limit, visit) : EachWord(text, limit, visit);
    } else if (kBack) {
      EachPartBack(text, separator, limit, meter, visit);
    } else {
      EachPart(text, separator, limit, meter, visit);
    }
  });
}

Value SplitLinesMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "splitlines", args, {"keepends"}, 0);
  if (!context->ok()) return Value();
  const bool keep_ends = bound.Bool(0, false);
  return ListOfParts(context, self, false,
                     [&](auto visit) { EachLine(self.AsString(), keep_ends, visit); });
}

template <bool kBack>
Value PartitionMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "partition", args, {"sep"}, 1);
  const std::string_view separator = bound.Text(0, "");
  if (!context->ok()) return Value();
  if (separator.empty()) return context->Fail("empty separator");
  const std::string_view text = self.AsString();
  context->meter()->StepBytes(4 * text.size());
  const size_t at = kBack ? FindLast(text, separator, context->meter())
                          : Find(text, separator, 0, context->meter());
  std::string_view parts[3] = {"", "", ""};
  if (at == std::string_view::npos) {
    parts[kBack ? 2 : 0] = text;
  } else {
    parts[0] = text.substr(0, at);
    parts[1] = separator;
    parts[2] = text.substr(at + separator.size());
  }
  return context->Tuple({Like(context, self, parts[0]), Like(context, self, parts[1]),
                         Like(context, self, parts[2])});
}

Value ReplaceMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "replace", args, {"old", "new", "count"}, 2);
  bound.Text(0, "");
  bound.Text(1, "");
  const int64_t count = bound.Int(2, -1);
  if (!context->ok()) return Value();
  Text scratch(context->meter());
  return context->String(ReplaceText(context, self.AsString(), bound[0].AsString(),
                                     Escaped(self, bound[1], &scratch), count),
                         self.IsMarkup());
}

Value JoinMethod(Context* context, const Value& self, const CallArgs& args) {
  const BoundArgs bound(context, "join", args, {"iterable"}, 1);
  if (!context->ok()) return Value();
  const Sequence items = Iterate(context, bound[0]);
  if (items == nullptr) return Value();
  const auto& parts = items->items;
  Text out(context->meter());
  uint64_t size = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].IsString() && !self.IsMarkup()) {
      return context->Fail(StrCat("sequence item ", i, ": expected str instance, ",
                                  std::string(TypeName(parts[i])), " found"));
    }
    size += (i == 0 ? 0 : self.AsString().size()) +
            (parts[i].IsString() ? parts[i].AsString().size() : 0);
  }
  out.reserve(context->meter()->Require(size, 1));
  Text scratch(context->meter());
  for (size_t i = 0; i < parts.size() && context->ok(); ++i) {
    if (i != 0) out += self.AsString();
    if (!self.IsMarkup() || parts[i].IsMarkup()) {
      out += parts[i].AsString();
    } else {
      AppendEscaped(TextOf(context, parts[i], &scratch), &out);
    }
  }
  return context->String(std::move(out), self.IsMarkup());
}

constexpr NamedStringMethod kMethods[] = {
    {"join", JoinMethod},
    {"partition", PartitionMethod<false>},
    {"replace", ReplaceMethod},
    {"rpartition", PartitionMethod<true>},
    {"rsplit", SplitMethod<true>},
    {"split", SplitMethod<false>},
    {"splitlines", SplitLinesMethod},
};

}  // namespace

Text ReplaceText(Context* context, std::string_view text, std::string_view from,
                 std::string_view to, int64_t count) {
  Meter* meter = context->meter();
  Text out(meter);
  if (!meter->StepBytes(4 * text.size())) return out;
  // Calls visit(kept) for what stands before each place that is replaced; returns what is left.
  const auto each = [&](auto visit) {
    std::string_view rest = text;
    for (int64_t done = 0; done != count && context->ok(); ++done) {
      size_t kept = 0;
      if (!from.empty()) {
        kept = Find(rest, from, 0, meter);
        if (kept == std::string_view::npos) break;
      } else if (done != 0) {
        // Before every character, and at the end.
        if (rest.empty()) break;
        DecodeUtf8(rest, &kept);
      }
      visit(rest.substr(0, kept));
      rest.remove_prefix(kept + from.size());
    }
    return rest;
  };
  uint64_t places = 0;
  each([&places](std::string_view) { ++places; });
  out.reserve(text.size() - places * from.size() + meter->Require(places, to.size()));
  const std::string_view rest = each([&](std::string_view kept) {
    meter->Step();
    out += kept;
    out += to;
  });
  out += rest;
  return out;
}

StringMethod FindPartsMethod(std::string_view name) {
  const auto* found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                   [name](const NamedStringMethod& m) { return m.name == name; });
  return found == std::end(kMethods) ? nullptr : found->method;
}

}  // namespace qinfer::tokenizer::jinja
