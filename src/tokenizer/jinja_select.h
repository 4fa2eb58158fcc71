// How filters reach into items: attribute paths and case folding of sort keys.
#pragma once

#include <algorithm>

#include "tokenizer/jinja_context.h"

namespace qinfer::tokenizer::jinja {

// "a.b.0" as a path of keys, applied to items as value["a"]["b"][0].
class AttributePath {
 public:
  // None stands for the item itself.
  AttributePath(Context* context, const Value& attribute);
  // `otherwise` (not none) replaces what is undefined on the way.
  Value Get(Context* context, const Value& item, const Value& otherwise) const;

 private:
  Items keys_;
};

// Text in lower case unless `case_sensitive`; other values as they are.
Value SortKey(Context* context, const Value& value, bool case_sensitive);

// Sorts the positions 0..count-1 stably by less(i, j). By merging, since std::stable_sort takes a
// buffer that is not counted.
template <typename Less>
CountedVector<size_t> StableOrder(Context* context, size_t count, Less less) {
  CountedVector<size_t> order(count, 0, context->meter());
  CountedVector<size_t> merged(count, 0, context->meter());
  for (size_t i = 0; i < count; ++i) order[i] = i;
  for (size_t width = 1; width < count && context->ok(); width *= 2) {
    const auto at = [&order, count](size_t i) { return order.data() + std::min(i, count); };
    for (size_t i = 0; i < count; i += 2 * width) {
      std::merge(at(i), at(i + width), at(i + width), at(i + 2 * width), merged.data() + i,
                 [&](size_t a, size_t b) { return context->ok() && less(a, b); });
    }
    order.swap(merged);
  }
  return order;
}
// Sorts the positions 0..keys.size()-1 by keys.
CountedVector<size_t> SortedOrder(Context* context, const Items& keys, bool reverse);

}  // namespace qinfer::tokenizer::jinja
