// Added tokens in a text: where they are, with their single-word and strip rules. What becomes of
// the text between them is for tokenizer.cpp.
#pragma once

#include <string_view>

#include "tokenizer/blob.h"

namespace qinfer::tokenizer {

struct AddedPiece {
  size_t begin, end;
  int32_t id;  // -1 = text between added tokens
};

// Walks over a text piece by piece. Valid UTF-8. Borrows everything.
class AddedTokenScan {
 public:
  AddedTokenScan(const BlobView& blob, bool normalized, std::string_view text, bool parse_special);
  bool Next(AddedPiece* piece);

 private:
  // The longest added token that starts at i: its index and end, or -1.
  int32_t Longest(size_t i, size_t* end) const;
  // Moves on to the next token that counts; false at the end.
  bool FindToken();

  const BlobView& blob_;
  absl::Span<const BlobNode> nodes_;
  absl::Span<const BlobEdge> edges_;
  std::string_view text_;
  bool parse_special_;
  bool starts_[256] = {};  // bytes that an added token starts with
  uint8_t only_start_ = 0;
  int start_count_ = 0;
  size_t search_ = 0;   // where the search goes on
  size_t emitted_ = 0;  // end of what was handed out
  bool pending_ = false;
  AddedPiece token_{};
};

}  // namespace qinfer::tokenizer
