// Sorted words are cut into ranges with a common beginning, breadth first.
#include "tokenizer/added_trie.h"

#include <algorithm>

namespace qinfer::tokenizer {
namespace {

constexpr size_t kPiece = 2048;  // nodes

}  // namespace

StatusOr<bool> AddedTrie::Step(std::string_view strings) {
  const Less less{strings};
  switch (phase_) {
    case Phase::kSort:
      if (!sort_.has_value()) sort_.emplace(&words_, memory_, less);
      if (!sort_->Step()) return false;
      sort_.reset();
      phase_ = Phase::kUnite;
      return false;
    case Phase::kUnite:
      words_.erase(
          std::unique(words_.begin(), words_.end(),
                      [&](const Word& a, const Word& b) { return less.Text(a) == less.Text(b); }),
          words_.end());
      if (words_.empty()) return true;
      ranges_.push_back({0, static_cast<uint32_t>(words_.size()), 0});
      phase_ = Phase::kGrow;
      return false;
    case Phase::kGrow:
      for (size_t i = 0; i < kPiece && nodes_.size() < ranges_.size(); ++i) Grow(less);
      return nodes_.size() == ranges_.size();
  }
  return InternalError("a tree of added tokens in no phase");
}

void AddedTrie::Grow(const Less& less) {
  Range r = ranges_[nodes_.size()];
  BlobNode node{static_cast<uint32_t>(edges_.size()), 0, -1};
  if (words_[r.begin].text.size == r.depth) {
    node.added = static_cast<int32_t>(words_[r.begin++].index);
  }
  while (r.begin < r.end) {
    const char byte = less.Text(words_[r.begin])[r.depth];
    uint32_t end = r.begin;
    while (end < r.end && less.Text(words_[end])[r.depth] == byte) ++end;
    edges_.push_back({static_cast<uint8_t>(byte), static_cast<uint32_t>(ranges_.size())});
    ranges_.push_back({r.begin, end, r.depth + 1});
    ++node.edge_count;
    r.begin = end;
  }
  nodes_.push_back(node);
}

}  // namespace qinfer::tokenizer
