// The text of an operator, for messages.
#pragma once

#include <string_view>

#include "tokenizer/jinja_ast.h"

namespace qinfer::tokenizer::jinja {

std::string_view OpText(Op op);

}  // namespace qinfer::tokenizer::jinja
