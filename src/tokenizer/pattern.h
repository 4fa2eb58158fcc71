// Regular expressions of tokenizer files, run by PCRE2 with limits on work and memory. Which
// matches mean what is for the pre-tokenizers and normalizers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/memory.h"
#include "core/status.h"

namespace qinfer::tokenizer {

// Tokenizer files write Oniguruma's dialect (Ruby syntax). Gives the same expression for PCRE2, or
// UnsupportedError that names the construct.
StatusOr<std::string> TranslatePattern(std::string_view pattern);

// A compiled pattern; immutable and thread-safe.
class Pattern {
 public:
  static StatusOr<std::unique_ptr<const Pattern>> Compile(std::string_view pattern, Memory* memory);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // One search after another over one text. Not thread-safe; make one per text.
  class Matcher {
   public:
    Matcher(const Pattern& pattern, std::string_view text);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;
    // The next match that does not overlap the last one; false at the end. An empty match directly
    // after the last match is passed over. An error where the limits are reached.
    StatusOr<bool> Next(size_t* begin, size_t* end);

   private:
    const Pattern& pattern_;
    std::string_view text_;
    void* match_data_;
    void* match_context_;
    size_t position_ = 0;
    size_t last_end_ = static_cast<size_t>(-1);
  };

 private:
  Pattern() = default;
  void* general_ = nullptr;  // pcre2_general_context
  void* code_ = nullptr;     // pcre2_code
};

}  // namespace qinfer::tokenizer
