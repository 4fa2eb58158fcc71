// How filters reach into items: attribute paths and case folding of sort keys.
#pragma once

#include <vector>

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
  std::vector<Value> keys_;
};

// Text in lower case unless `case_sensitive`; other values as they are.
Value SortKey(Context* context, const Value& value, bool case_sensitive);

// Sorts the positions 0..keys.size()-1 by keys, stably.
std::vector<size_t> SortedOrder(Context* context, const std::vector<Value>& keys, bool reverse);

}  // namespace qinfer::tokenizer::jinja
