// The normalizer program of a tokenizer: text in, normalized text out. Added tokens are cut out
// before it runs (added_tokens.h).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "tokenizer/blob.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

namespace qinfer::tokenizer {

// Immutable and thread-safe; borrows the program and its strings.
class Normalizer {
 public:
  static StatusOr<Normalizer> Open(absl::Span<const BlobOp> ops, std::string_view strings,
                                   Memory* memory);
  bool empty() const { return ops_.empty(); }
  // `*head_kept` tells whether the first character of `text` still stands at the beginning: some
  // pre-tokenizers treat the beginning of the input in a special way. `out` and `scratch` are
  // overwritten; the result is in `out`.
  Status Apply(std::string_view text, MatchBudget* budget, String* out, String* scratch,
               bool* head_kept) const;

 private:
  Status Step(size_t index, std::string_view in, MatchBudget* budget, String* out,
              bool* head_kept) const;

  absl::Span<const BlobOp> ops_;
  std::string_view strings_;
  std::vector<std::unique_ptr<const Pattern>> patterns_;  // by step; null where none is needed
};

}  // namespace qinfer::tokenizer
