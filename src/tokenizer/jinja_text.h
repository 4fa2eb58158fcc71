// Text primitives of the template interpreter: UTF-8 as code points, Python's character classes and
// case mappings, linear-time search. Knows nothing of templates or values. What makes text appends
// to one that is counted, and needs no memory beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "tokenizer/jinja_meter.h"

namespace qinfer::tokenizer::jinja {

// Offset of the first byte that is not well-formed UTF-8; npos if all is.
size_t FindInvalidUtf8(std::string_view text);

// Decodes the code point at `*at` and moves past it. The text is well-formed.
char32_t DecodeUtf8(std::string_view text, size_t* at);
// The same for the one that ends before `*at`, which is not 0.
char32_t DecodeUtf8Back(std::string_view text, size_t* at);
// To a Text or a std::string.
template <typename String>
void AppendUtf8(char32_t c, String* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
    return;
  }
  if (c < 0x800) {
    put(0xC0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      put(0xE0 | (c >> 12));
    } else {
      put(0xF0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3F));
    }
    put(0x80 | ((c >> 6) & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

size_t CountCodePoints(std::string_view text);
// Byte offset of code point `index` (text.size() if there are fewer).
size_t ByteOffset(std::string_view text, size_t index);

// The parts in one text.
Text Joined(Meter* meter, std::initializer_list<std::string_view> parts);
// Room for so many bytes more: exactly that where there is no text yet.
void MakeRoom(Text* out, size_t more);
// `unit` so many times; room for all is made first.
void AppendRepeated(std::string_view unit, uint64_t count, Text* out);

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

void AppendUpper(std::string_view text, Text* out);
void AppendLower(std::string_view text, Text* out);
void AppendCapitalized(std::string_view text, Text* out);
void AppendTitle(std::string_view text, Text* out);
void AppendSwappedCase(std::string_view text, Text* out);
void AppendCaseFolded(std::string_view text, Text* out);

// str.strip(): `chars` empty means white space. Counts its steps.
std::string_view StripLeft(std::string_view text, std::string_view chars, bool whitespace,
                           Meter* meter = nullptr);
std::string_view StripRight(std::string_view text, std::string_view chars, bool whitespace,
                            Meter* meter = nullptr);

// Searches in time linear in both lengths, whatever they hold. npos if absent. A long needle takes
// a table of eight times its size from the meter.
size_t Find(std::string_view text, std::string_view needle, size_t from, Meter* meter);
size_t FindLast(std::string_view text, std::string_view needle, Meter* meter);

// str.splitlines(), line by line: the first one, cut off the front of `*rest`, which is not empty.
std::string_view CutLine(std::string_view* rest, bool keep_end);

// markupsafe.escape() of a plain string.
void AppendEscaped(std::string_view text, Text* out);

}  // namespace qinfer::tokenizer::jinja
