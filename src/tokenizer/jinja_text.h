// Text primitives of the template interpreter: UTF-8 as code points, Python's character classes and
// case mappings, linear-time search. Knows nothing of templates or values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qinfer::tokenizer::jinja {

// Offset of the first byte that is not well-formed UTF-8; npos if all is.
size_t FindInvalidUtf8(std::string_view text);

// Decodes the code point at `*at` and moves past it. The text is well-formed.
char32_t DecodeUtf8(std::string_view text, size_t* at);
void AppendUtf8(char32_t c, std::string* out);

size_t CountCodePoints(std::string_view text);
// Byte offset of code point `index` (text.size() if there are fewer).
size_t ByteOffset(std::string_view text, size_t index);
std::u32string ToCodePoints(std::string_view text);
std::string FromCodePoints(std::u32string_view text);

// str's predicates for one character.
bool IsSpace(char32_t c);
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsAlnum(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);
bool IsPrintable(char32_t c);
bool IsIdentifierStart(char32_t c);
bool IsIdentifierPart(char32_t c);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string Title(std::string_view text);
std::string SwapCase(std::string_view text);
std::string CaseFold(std::string_view text);

// str.strip(): `chars` empty means white space.
std::string_view StripLeft(std::string_view text, std::string_view chars, bool whitespace);
std::string_view StripRight(std::string_view text, std::string_view chars, bool whitespace);

// Searches in time linear in both lengths, whatever they hold. npos if absent.
size_t Find(std::string_view text, std::string_view needle, size_t from = 0);
size_t FindLast(std::string_view text, std::string_view needle);

// str.splitlines().
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// markupsafe.escape() of a plain string.
std::string EscapeHtml(std::string_view text);

}  // namespace qinfer::tokenizer::jinja
