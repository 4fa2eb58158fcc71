// JSON text to values, for what the caller of a rendering hands in.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/jinja_context.h"

namespace qinfer::tokenizer::jinja {

// Keeps the order of keys, and tells integers of any size from floats. MisuseError that begins with
// `what`. Values are counted by the context's meter.
StatusOr<Value> ParseJson(Context* context, std::string_view text, const std::string& what);

}  // namespace qinfer::tokenizer::jinja
