// The text side of a generation: bytes of tokens come in, complete UTF-8 goes out, and whatever may
// still become a stop string or the rest of a character is held back. Knows no tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qinfer::engine {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stop_strings);

  // Takes more bytes and appends to `out` what can be shown. True when a stop string was completed:
  // then `out` ends before it and nothing more comes.
  bool Push(std::string_view bytes, std::string* out);
  // The end: appends all that was held back (an unfinished character as U+FFFD).
  void Flush(std::string* out);

 private:
  std::vector<std::string> stop_strings_;  // none is empty
  std::string held_;
};

// The length of the longest end of `text` that is the start, and not all, of `wanted` (not empty).
size_t PartialMatch(std::string_view text, std::string_view wanted);

// Appends `bytes`, each ill-formed subsequence replaced by one U+FFFD (as Unicode recommends and
// Python and Rust do).
void AppendValidUtf8(std::string_view bytes, std::string* out);

}  // namespace qinfer::engine
