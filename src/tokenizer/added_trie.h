// The byte tree of added tokens, as the compiled form has it: built from their contents, a piece at
// a time.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "core/status.h"
#include "tokenizer/blob.h"
#include "tokenizer/pieces.h"
#include "tokenizer/spec.h"

namespace qinfer::tokenizer {

class AddedTrie {
 public:
  explicit AddedTrie(Memory* memory)
      : memory_(memory), words_(memory), ranges_(memory), nodes_(memory), edges_(memory) {}

  // `text` lies in what Step is given; `index` is the token's in kAddedTokens. Of equal texts the
  // one with the lowest index is found.
  void Add(Piece text, uint32_t index) { words_.push_back({text, index}); }
  // True when the tree is complete.
  StatusOr<bool> Step(std::string_view strings);

  const std::pmr::vector<BlobNode>& nodes() const { return nodes_; }
  const std::pmr::vector<BlobEdge>& edges() const { return edges_; }

 private:
  enum class Phase : uint8_t { kSort, kUnite, kGrow };
  struct Word {
    Piece text;
    uint32_t index;
  };
  struct Less {
    std::string_view strings;
    std::string_view Text(const Word& w) const {
      return strings.substr(w.text.offset, w.text.size);
    }
    bool operator()(const Word& a, const Word& b) const {
      const int c = Text(a).compare(Text(b));  // by unsigned bytes
      return c != 0 ? c < 0 : a.index < b.index;
    }
  };
  // Words [begin, end) with the first `depth` bytes in common: a node to be.
  struct Range {
    uint32_t begin, end, depth;
  };
  void Grow(const Less& less);

  Memory* memory_;
  Phase phase_ = Phase::kSort;
  std::pmr::vector<Word> words_;
  std::optional<PieceSort<Word, Less>> sort_;
  std::pmr::vector<Range> ranges_;  // breadth first, by node
  std::pmr::vector<BlobNode> nodes_;
  std::pmr::vector<BlobEdge> edges_;
};

}  // namespace qinfer::tokenizer
