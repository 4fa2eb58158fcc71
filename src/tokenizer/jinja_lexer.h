// Template text to tokens, with white-space control already applied: trim_blocks and lstrip_blocks
// are on, one trailing newline is dropped. Knows no grammar.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace qinfer::tokenizer::jinja {

enum class TokenKind : uint8_t {
  kData,  // text between tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,   // unescaped
  kInteger,  // decimal digits in canonical form
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  uint32_t line = 1, column = 1;  // from 1; columns in bytes
};

// Bounds on a template, and so on what its tokens and its tree take: the largest that models come
// with have a tenth of either. Together with the tree that the parser makes of them (at most one
// node for a token) a template of any size takes less than 48 MiB.
inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;
inline constexpr size_t kMaxTokens = 100'000;

// FormatError with line and column. `name` is the template's, for messages.
StatusOr<std::vector<Token>> Tokenize(std::string_view text, const std::string& name);

}  // namespace qinfer::tokenizer::jinja
