// UTF-8: decoding, validation and lossy repair. What code points mean is in unicode.cpp.
#include "tokenizer/utf8.h"

#include <cstring>

#include "tokenizer/tokenizer.h"

namespace qinfer::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// The range of the second byte and the length that a lead byte asks for; length 0 = no lead byte.
struct Lead {
  uint32_t length;
  uint8_t low, high;
};

Lead Classify(uint8_t c) {
  if (c >= 0xc2 && c <= 0xdf) return {2, 0x80, 0xbf};
  if (c == 0xe0) return {3, 0xa0, 0xbf};
  if (c == 0xed) return {3, 0x80, 0x9f};
  if (c >= 0xe1 && c <= 0xef) return {3, 0x80, 0xbf};
  if (c == 0xf0) return {4, 0x90, 0xbf};
  if (c >= 0xf1 && c <= 0xf3) return {4, 0x80, 0xbf};
  if (c == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

}  // namespace

uint32_t CheckSequence(std::string_view s, uint32_t* bad) {
  const auto* p = reinterpret_cast<const uint8_t*>(s.data());
  if (p[0] < 0x80) return 1;
  const Lead lead = Classify(p[0]);
  *bad = 1;
  if (lead.length == 0 || s.size() < 2 || p[1] < lead.low || p[1] > lead.high) return 0;
  for (uint32_t i = 2; i < lead.length; ++i) {
    *bad = i;
    if (s.size() <= i || (p[i] & 0xc0) != 0x80) return 0;
  }
  return lead.length;
}

size_t FindInvalidUtf8(std::string_view s) {
  size_t i = 0;
  uint32_t bad = 0;
  while (i < s.size()) {
    if (i + 8 <= s.size()) {
      uint64_t word;
      std::memcpy(&word, s.data() + i, 8);
      if ((word & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const uint32_t length = CheckSequence(s.substr(i), &bad);
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

uint32_t EncodeUtf8(uint32_t c, char* out) {
  if (c < 0x80) {
    out[0] = static_cast<char>(c);
    return 1;
  }
  if (c < 0x800) {
    out[0] = static_cast<char>(0xc0 | (c >> 6));
    out[1] = static_cast<char>(0x80 | (c & 0x3f));
    return 2;
  }
  if (c < 0x10000) {
    out[0] = static_cast<char>(0xe0 | (c >> 12));
    out[1] = static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out[2] = static_cast<char>(0x80 | (c & 0x3f));
    return 3;
  }
  out[0] = static_cast<char>(0xf0 | (c >> 18));
  out[1] = static_cast<char>(0x80 | ((c >> 12) & 0x3f));
  out[2] = static_cast<char>(0x80 | ((c >> 6) & 0x3f));
  out[3] = static_cast<char>(0x80 | (c & 0x3f));
  return 4;
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  char buffer[4];
  out->append(buffer, EncodeUtf8(code_point, buffer));
}

void AppendLossy(std::string_view bytes, std::string* out) {
  uint32_t bad = 0;
  while (!bytes.empty()) {
    const size_t invalid = FindInvalidUtf8(bytes);
    if (invalid == std::string_view::npos) {
      out->append(bytes);
      return;
    }
    out->append(bytes.substr(0, invalid));
    bytes.remove_prefix(invalid);
    CheckSequence(bytes, &bad);
    out->append(kReplacement);
    bytes.remove_prefix(bad);
  }
}

size_t IncompleteUtf8Tail(std::string_view text) {
  uint32_t bad = 0;
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    const auto lead = static_cast<uint8_t>(tail[0]);
    if ((lead & 0xc0) == 0x80) continue;
    if (lead < 0x80) return 0;
    // Unfinished: what is there is well-formed, and the end of the text is what cuts it.
    return CheckSequence(tail, &bad) == 0 && bad == back && Classify(lead).length > back ? back : 0;
  }
  return 0;
}

}  // namespace qinfer::tokenizer
