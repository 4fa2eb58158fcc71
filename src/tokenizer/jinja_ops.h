// Operators and conversions of values, with Python's rules. Each notes errors in the context.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_context.h"

namespace qinfer::tokenizer::jinja {

Value BinaryOp(Context* context, Op op, const Value& a, const Value& b);
Value UnaryOp(Context* context, Op op, const Value& a);
bool CompareOp(Context* context, Op op, const Value& a, const Value& b);
bool Contains(Context* context, const Value& container, const Value& item);
// a < b for sorting.
bool Less(Context* context, const Value& a, const Value& b);

// The items in order; null (and an error) if the value is not iterable. An iterator is used up.
using Sequence = std::shared_ptr<const ListObject>;
Sequence Iterate(Context* context, const Value& value);
bool IsIterable(const Value& value);
// len(); -1 (and an error) if the value has none.
int64_t Length(Context* context, const Value& value);

// str() and repr(), appended.
void AppendText(Context* context, const Value& value, Text* out);
void AppendRepr(Context* context, const Value& value, Text* out);
// str(), without a copy of what is text already: `scratch` holds what had to be made.
std::string_view TextOf(Context* context, const Value& value, Text* scratch);
// What a message says of a value.
std::string QuotedRepr(Context* context, const Value& value);
std::string FloatRepr(double value);
void AppendStringRepr(std::string_view text, Text* out);

}  // namespace qinfer::tokenizer::jinja
