// Stop strings across token borders, and UTF-8 that arrives in pieces.
#include "engine/text_stream.h"

#include <algorithm>
#include <cstdint>

#include "tokenizer/tokenizer.h"

namespace qinfer::engine {
namespace {

// How many bytes at the front of `text` (not empty) are one well-formed character; or, with *valid
// false, the longest start of one, at least 1.
size_t CharacterLength(std::string_view text, bool* valid) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  *valid = true;
  if (lead < 0x80) return 1;
  *valid = false;
  size_t length = 0;
  uint8_t low = 0x80, high = 0xbf;  // of the second byte: no overlong forms, no surrogates
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return 1;
  }
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) return i;
    low = 0x80;
    high = 0xbf;
  }
  *valid = true;
  return length;
}

}  // namespace

size_t PartialMatch(std::string_view text, std::string_view wanted) {
  for (size_t n = std::min(text.size(), wanted.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == wanted.substr(0, n)) return n;
  }
  return 0;
}

void AppendValidUtf8(std::string_view bytes, std::string* out) {
  size_t begin = 0;  // of what is well-formed and not yet appended
  for (size_t i = 0; i < bytes.size();) {
    bool valid = true;
    const size_t length = CharacterLength(bytes.substr(i), &valid);
    if (!valid) {
      out->append(bytes.substr(begin, i - begin));
      out->append("\xef\xbf\xbd");
      begin = i + length;
    }
    i += length;
  }
  out->append(bytes.substr(begin));
}

TextStream::TextStream(std::vector<std::string> stop_strings)
    : stop_strings_(std::move(stop_strings)) {
  std::erase_if(stop_strings_, [](const std::string& stop) { return stop.empty(); });
}

bool TextStream::Push(std::string_view bytes, std::string* out) {
  held_.append(bytes);
  const std::string_view held(held_);
  size_t match = std::string_view::npos, match_end = match, keep = 0;
  for (const std::string& stop : stop_strings_) {
    keep = std::max(keep, PartialMatch(held, stop));
    const size_t begin = held.find(stop);
    if (begin == std::string_view::npos) continue;
    // The one that is complete first, however the text was cut; of equals the longest.
    const size_t end = begin + stop.size();
    if (end > match_end || (end == match_end && begin > match)) continue;
    match = begin;
    match_end = end;
  }
  if (match != std::string_view::npos) {
    AppendValidUtf8(held.substr(0, match), out);
    held_.clear();
    return true;
  }
  size_t ready = held_.size() - keep;
  ready -= tokenizer::IncompleteUtf8Tail(held.substr(0, ready));
  AppendValidUtf8(held.substr(0, ready), out);
  held_.erase(0, ready);
  return false;
}

void TextStream::Flush(std::string* out) {
  AppendValidUtf8(held_, out);
  held_.clear();
}

}  // namespace qinfer::engine
