// Regular expressions of tokenizer files, run by PCRE2 with limits on work and memory. Which
// matches mean what is for the pre-tokenizers and normalizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "core/status.h"

namespace qinfer::tokenizer {

// Tokenizer files write Oniguruma's dialect (Ruby syntax). Gives the same expression for PCRE2, or
// UnsupportedError that names the construct.
StatusOr<std::string> TranslatePattern(std::string_view pattern);

// What all searches over one text may do together, in steps: an item of an expression tried, or a
// character passed over. Proportional to the text, so that no expression makes a long text
// quadratic.
class MatchBudget {
 public:
  explicit MatchBudget(uint64_t text_bytes)
      : left_(text_bytes > (UINT64_MAX - kBase) / kPerByte ? UINT64_MAX
                                                           : kBase + kPerByte * text_bytes) {}
  // False once it is used up.
  bool Spend(uint64_t steps) {
    left_ = steps < left_ ? left_ - steps : 0;
    return left_ != 0;
  }
  uint64_t left() const { return left_; }

 private:
  // Expressions of real tokenizers take less than 20 steps for a byte, whatever the text.
  static constexpr uint64_t kPerByte = 128;
  static constexpr uint64_t kBase = 4'000'000;
  uint64_t left_;
};

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
    // Borrows all three.
    Matcher(const Pattern& pattern, std::string_view text, MatchBudget* budget);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;
    // The next match that does not overlap the last one; false at the end. An empty match directly
    // after the last match is passed over. An error where the limits are reached.
    StatusOr<bool> Next(size_t* begin, size_t* end);

   private:
    friend struct MatchWork;
    const Pattern& pattern_;
    std::string_view text_;
    MatchBudget* budget_;
    size_t seen_ = 0;  // where the last item was tried
    void* match_data_;
    void* match_context_;
    size_t position_ = 0;
    size_t last_end_ = static_cast<size_t>(-1);
  };

 private:
  friend struct MatchWork;
  Pattern() = default;
  void* general_ = nullptr;  // pcre2_general_context
  void* code_ = nullptr;     // pcre2_code
  // By the offset of an item in the expression: the characters that trying it may pass over before
  // it fails, or kByCapture.
  std::vector<uint32_t> costs_;
};

}  // namespace qinfer::tokenizer
