// UTF-8 decoding, slicing and searching for the template interpreter. Character classes and case
// mappings are in jinja_unicode.cpp.
#include "tokenizer/jinja_text.h"

#include <algorithm>

namespace qinfer::tokenizer::jinja {
namespace {

// Below this a needle is found by the standard search, whose worst case is then still linear.
constexpr size_t kShortNeedle = 16;

size_t FindKmp(std::string_view text, std::string_view needle, size_t from) {
  std::vector<size_t> back(needle.size(), 0);
  for (size_t i = 1, k = 0; i < needle.size(); ++i) {
    while (k > 0 && needle[i] != needle[k]) k = back[k - 1];
    if (needle[i] == needle[k]) ++k;
    back[i] = k;
  }
  for (size_t i = from, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != needle[k]) k = back[k - 1];
    if (text[i] == needle[k]) ++k;
    if (k == needle.size()) return i + 1 - k;
  }
  return std::string_view::npos;
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool Contains(std::u32string_view set, char32_t c) {
  return set.find(c) != std::u32string_view::npos;
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

void AppendUtf8(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (c >> 6)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (c >> 12)));
    out->push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | (c >> 18)));
    out->push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
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

std::u32string ToCodePoints(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) out.push_back(DecodeUtf8(text, &at));
  return out;
}

std::string FromCodePoints(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) AppendUtf8(c, &out);
  return out;
}

std::string_view StripLeft(std::string_view text, std::string_view chars, bool whitespace) {
  const std::u32string set = ToCodePoints(chars);
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    const char32_t c = DecodeUtf8(text, &next);
    if (!(whitespace ? IsSpace(c) : Contains(set, c))) break;
    at = next;
  }
  return text.substr(at);
}

std::string_view StripRight(std::string_view text, std::string_view chars, bool whitespace) {
  const std::u32string set = ToCodePoints(chars);
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    size_t at = start;
    const char32_t c = DecodeUtf8(text, &at);
    if (!(whitespace ? IsSpace(c) : Contains(set, c))) break;
    end = start;
  }
  return text.substr(0, end);
}

size_t Find(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.size() <= kShortNeedle) return text.find(needle, from);
  return FindKmp(text, needle, from);
}

size_t FindLast(std::string_view text, std::string_view needle) {
  if (needle.size() <= kShortNeedle) return text.rfind(needle);
  const std::string text_back(text.rbegin(), text.rend());
  const std::string needle_back(needle.rbegin(), needle.rend());
  const size_t at = FindKmp(text_back, needle_back, 0);
  return at == std::string_view::npos ? at : text.size() - at - needle.size();
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = at;
    const char32_t c = DecodeUtf8(text, &at);
    if (!IsLineEnd(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace qinfer::tokenizer::jinja
