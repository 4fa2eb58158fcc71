// The decoder program: the texts of tokens in, running text out; whole sequences as the
// `tokenizers` package decodes them, and single tokens for streaming.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "tokenizer/blob.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

namespace qinfer::tokenizer {

// A list of texts in one buffer.
struct TextList {
  explicit TextList(std::pmr::memory_resource* memory) : bytes(memory), ends(memory) {}
  size_t size() const { return ends.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(bytes).substr(begin, ends[i] - begin);
  }
  void Add(std::string_view text) {
    bytes.append(text);
    Close();
  }
  void Close() { ends.push_back(bytes.size()); }
  void Clear() {
    bytes.clear();
    ends.clear();
  }

  String bytes;
  std::pmr::vector<size_t> ends;
};

// Immutable and thread-safe; borrows the program and its strings.
class Decoder {
 public:
  static StatusOr<Decoder> Open(absl::Span<const BlobOp> ops, std::string_view strings,
                                Memory* memory);
  // Decodes a list of token texts; `tokens` and `scratch` are used up. Ill-formed bytes become
  // U+FFFD: one for each maximal part after ByteLevel, one for each byte after ByteFallback.
  Status DecodeAll(TextList* tokens, TextList* scratch, std::string* out) const;
  // The bytes of one token in running text. What needs the neighbours is left out: stripping at the
  // end of the text, and byte tokens stay bytes.
  void AppendOne(std::string_view token, bool first, std::string* out) const;

 private:
  Status Step(size_t index, const TextList& in, MatchBudget* budget, TextList* out) const;
  Status Replace(size_t index, std::string_view in, MatchBudget* budget, String* out) const;
  std::string_view Text(const BlobOp& op) const {
    return strings_.substr(op.text_offset, op.text_size);
  }
  std::string_view Text2(const BlobOp& op) const {
    return strings_.substr(op.text2_offset, op.text2_size);
  }

  absl::Span<const BlobOp> ops_;
  std::string_view strings_;
  std::vector<std::unique_ptr<const Pattern>> patterns_;
};

// The byte that <0xXX> stands for, or -1.
int ByteTokenValue(std::string_view token);

}  // namespace qinfer::tokenizer
