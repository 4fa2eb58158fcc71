// UTF-8 decoding, slicing and searching for the template interpreter. Character classes and case
// mappings are in jinja_unicode.cpp.
#include "tokenizer/jinja_text.h"

#include <algorithm>

namespace qinfer::tokenizer::jinja {
namespace {

// Below this a needle is found by the standard search, whose worst case is then still linear.
constexpr size_t kShortNeedle = 16;

// The search of Knuth, Morris and Pratt, from the front or from the back.
template <bool kBack>
size_t FindKmp(std::string_view text, std::string_view needle, Meter* meter) {
  const auto at = [](std::string_view t, size_t i) { return kBack ? t[t.size() - 1 - i] : t[i]; };
  CountedVector<size_t> back(needle.size(), 0, meter);
  for (size_t i = 1, k = 0; i < needle.size(); ++i) {
    while (k > 0 && at(needle, i) != at(needle, k)) k = back[k - 1];
    if (at(needle, i) == at(needle, k)) ++k;
    back[i] = k;
  }
  for (size_t i = 0, k = 0; i < text.size(); ++i) {
    while (k > 0 && at(text, i) != at(needle, k)) k = back[k - 1];
    if (at(text, i) == at(needle, k)) ++k;
    if (k == needle.size()) return kBack ? text.size() - 1 - i : i + 1 - k;
  }
  return std::string_view::npos;
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// Whether str.strip(chars) takes the character text[start, end) away.
bool IsStripped(std::string_view text, size_t start, size_t end, std::string_view chars,
                bool whitespace, Meter* meter) {
  if (whitespace) return IsSpace(DecodeUtf8(text, &start));
  if (meter != nullptr && !meter->StepBytes(chars.size())) return false;
  return chars.find(text.substr(start, end - start)) != std::string_view::npos;
}

}  // namespace

size_t FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || text.size() - i < length) return i;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return i;
    }
    const auto second = static_cast<unsigned char>(text[i + 1]);
    // Overlong forms, surrogates, and what lies beyond U+10FFFF.
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
      return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

char32_t DecodeUtf8(std::string_view text, size_t* at) {
  const auto byte = [&](size_t k) -> char32_t {
    return k < text.size() ? static_cast<unsigned char>(text[k]) & 0x3FU : 0U;
  };
  const size_t i = *at;
  const auto lead = static_cast<unsigned char>(text[i]);
  if (lead < 0x80) {
    *at = i + 1;
    return lead;
  }
  if (lead < 0xE0) {
    *at = std::min(i + 2, text.size());
    return ((lead & 0x1FU) << 6) | byte(i + 1);
  }
  if (lead < 0xF0) {
    *at = std::min(i + 3, text.size());
    return ((lead & 0x0FU) << 12) | (byte(i + 1) << 6) | byte(i + 2);
  }
  *at = std::min(i + 4, text.size());
  return ((lead & 0x07U) << 18) | (byte(i + 1) << 12) | (byte(i + 2) << 6) | byte(i + 3);
}

char32_t DecodeUtf8Back(std::string_view text, size_t* at) {
  do {
    --*at;
  } while (*at > 0 && (static_cast<unsigned char>(text[*at]) & 0xC0) == 0x80);
  size_t start = *at;
  return DecodeUtf8(text, &start);
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t at = 0;
  while (at < text.size()) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) {
      if (index == 0) return at;
      --index;
    }
    ++at;
  }
  return text.size();
}

Text Joined(Meter* meter, std::initializer_list<std::string_view> parts) {
  Text text(meter);
  size_t size = 0;
  for (const std::string_view part : parts) size += part.size();
  text.reserve(size);
  for (const std::string_view part : parts) text += part;
  return text;
}

void MakeRoom(Text* out, size_t more) {
  if (out->capacity() - out->size() >= more) return;
  out->reserve(std::max(out->size() + more, out->empty() ? 0 : 2 * out->capacity()));
}

void AppendRepeated(std::string_view unit, uint64_t count, Text* out) {
  if (unit.empty() || count == 0) return;
  const uint64_t bytes = out->get_allocator().meter()->Require(count, unit.size());
  if (unit.size() == 1) {
    out->append(count, unit[0]);
    return;
  }
  MakeRoom(out, bytes);
  for (uint64_t i = 0; i < count; ++i) *out += unit;
}

std::string_view StripLeft(std::string_view text, std::string_view chars, bool whitespace,
                           Meter* meter) {
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    DecodeUtf8(text, &next);
    if (!IsStripped(text, at, next, chars, whitespace, meter)) break;
    at = next;
  }
  return text.substr(at);
}

std::string_view StripRight(std::string_view text, std::string_view chars, bool whitespace,
                            Meter* meter) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end;
    DecodeUtf8Back(text, &start);
    if (!IsStripped(text, start, end, chars, whitespace, meter)) break;
    end = start;
  }
  return text.substr(0, end);
}

size_t Find(std::string_view text, std::string_view needle, size_t from, Meter* meter) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.size() <= kShortNeedle) return text.find(needle, from);
  if (needle.size() > text.size() - from) return std::string_view::npos;
  const size_t at = FindKmp<false>(text.substr(from), needle, meter);
  return at == std::string_view::npos ? at : from + at;
}

size_t FindLast(std::string_view text, std::string_view needle, Meter* meter) {
  if (needle.size() <= kShortNeedle) return text.rfind(needle);
  if (needle.size() > text.size()) return std::string_view::npos;
  return FindKmp<true>(text, needle, meter);
}

std::string_view CutLine(std::string_view* rest, bool keep_end) {
  const std::string_view text = *rest;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = DecodeUtf8(text, &at);
    if (!IsLineEnd(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    rest->remove_prefix(at);
    return text.substr(0, keep_end ? at : end);
  }
  *rest = std::string_view();
  return text;
}

void AppendEscaped(std::string_view text, Text* out) {
  static constexpr std::string_view kSpecial = "&<>'\"";
  static constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  size_t more = 0;
  for (const char c : text) {
    const size_t special = kSpecial.find(c);
    if (special != std::string_view::npos) more += kEscapes[special].size() - 1;
  }
  MakeRoom(out, text.size() + more);
  for (const char c : text) {
    const size_t special = kSpecial.find(c);
    if (special == std::string_view::npos) {
      out->push_back(c);
    } else {
      *out += kEscapes[special];
    }
  }
}

}  // namespace qinfer::tokenizer::jinja
