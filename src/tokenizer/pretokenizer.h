// The pre-tokenizer program: cuts a stretch of normalized text into the words that the model then
// takes one by one.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "tokenizer/blob.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

namespace qinfer::tokenizer {

// A word: bytes of the text that PretokenizerState holds.
struct Word {
  uint32_t begin, end;
};

// Buffers of one call, used again from stretch to stretch.
struct PretokenizerState {
  // `budget` is for the regular expressions of the whole call.
  PretokenizerState(Memory* memory, MatchBudget* budget)
      : owned(memory), scratch(memory), words(memory), next(memory), match_budget(budget) {}
  std::string_view text;  // what `words` cuts: the given text, or `owned`
  String owned, scratch;
  std::pmr::vector<Word> words, next;
  MatchBudget* match_budget;
};

// Immutable and thread-safe; borrows the program and its strings.
class Pretokenizer {
 public:
  static StatusOr<Pretokenizer> Open(absl::Span<const BlobOp> ops, std::string_view strings,
                                     Memory* memory);
  // Words of `text` into state->words, in order, over state->text. `at_start`: the text's first
  // character is the first of the whole input. At most 4 GiB - 1.
  Status Run(std::string_view text, bool at_start, PretokenizerState* state) const;

 private:
  Status Step(size_t index, bool at_start, PretokenizerState* state) const;
  Status SplitWith(size_t index, PretokenizerState* state) const;
  void Metaspace(const BlobOp& op, bool at_start, PretokenizerState* state) const;
  std::string_view Text(const BlobOp& op) const {
    return strings_.substr(op.text_offset, op.text_size);
  }

  absl::Span<const BlobOp> ops_;
  std::string_view strings_;
  std::vector<std::unique_ptr<const Pattern>> patterns_;  // by step; null where none is needed
};

}  // namespace qinfer::tokenizer
