// Added tokens in a text: leftmost-longest search in a byte tree, then the rules of each token as
// the `tokenizers` package applies them (a match that its rules reject still uses up its text).
#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

const uint8_t* Bytes(std::string_view s) { return reinterpret_cast<const uint8_t*>(s.data()); }

size_t CharBefore(std::string_view text, size_t end) {
  size_t i = end - 1;
  while (i > 0 && (text[i] & 0xc0) == 0x80) --i;
  return i;
}

bool WordBefore(std::string_view text, size_t at) {
  if (at == 0) return false;
  uint32_t c;
  DecodeValid(Bytes(text) + CharBefore(text, at), &c);
  return IsWord(c);
}

bool WordAfter(std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  uint32_t c;
  DecodeValid(Bytes(text) + at, &c);
  return IsWord(c);
}

}  // namespace

AddedTokenScan::AddedTokenScan(const BlobView& blob, bool normalized, std::string_view text,
                               bool parse_special)
    : blob_(blob),
      nodes_(blob.nodes(normalized)),
      edges_(blob.edges(normalized)),
      text_(text),
      parse_special_(parse_special) {
  if (nodes_.empty()) return;
  for (uint32_t e = 0; e < nodes_[0].edge_count; ++e) {
    only_start_ = static_cast<uint8_t>(edges_[nodes_[0].first_edge + e].byte);
    starts_[only_start_] = true;
    ++start_count_;
  }
}

int32_t AddedTokenScan::Longest(size_t i, size_t* end) const {
  int32_t best = -1;
  uint32_t node = 0;
  const size_t stop = std::min(text_.size(), i + kMaxAddedBytes);
  for (size_t at = i; at < stop; ++at) {
    const auto byte = static_cast<uint8_t>(text_[at]);
    const BlobNode& n = nodes_[node];
    const BlobEdge* first = edges_.data() + n.first_edge;
    const BlobEdge* last = first + n.edge_count;
    const BlobEdge* edge = std::lower_bound(
        first, last, byte, [](const BlobEdge& e, uint8_t value) { return e.byte < value; });
    if (edge == last || edge->byte != byte) break;
    node = edge->child;
    if (nodes_[node].added >= 0) {
      best = nodes_[node].added;
      *end = at + 1;
    }
  }
  return best;
}

bool AddedTokenScan::FindToken() {
  if (start_count_ == 0) return false;
  while (search_ < text_.size()) {
    if (start_count_ == 1) {
      const void* hit = std::memchr(text_.data() + search_, only_start_, text_.size() - search_);
      if (hit == nullptr) break;
      search_ = static_cast<size_t>(static_cast<const char*>(hit) - text_.data());
    } else {
      while (search_ < text_.size() && !starts_[static_cast<uint8_t>(text_[search_])]) ++search_;
      if (search_ == text_.size()) break;
    }
    size_t end = 0;
    const int32_t index = Longest(search_, &end);
    if (index < 0) {
      ++search_;
      continue;
    }
    size_t begin = search_;
    search_ = end;
    const BlobAdded& added = blob_.added()[static_cast<size_t>(index)];
    if (!parse_special_ && (added.flags & kAddedSpecial) != 0) continue;
    if ((added.flags & kSingleWord) != 0 && (WordBefore(text_, begin) || WordAfter(text_, end)))
      continue;
    if ((added.flags & kLstrip) != 0) {
      while (begin > emitted_) {
        const size_t previous = CharBefore(text_, begin);
        uint32_t c;
        DecodeValid(Bytes(text_) + previous, &c);
        if (!IsSpace(c) || previous < emitted_) break;
        begin = previous;
      }
    }
    if ((added.flags & kRstrip) != 0) {
      while (end < text_.size()) {
        uint32_t c;
        const uint32_t length = DecodeValid(Bytes(text_) + end, &c);
        if (!IsSpace(c)) break;
        end += length;
      }
    }
    token_ = {begin, end, static_cast<int32_t>(added.id)};
    return true;
  }
  search_ = text_.size();
  return false;
}

bool AddedTokenScan::Next(AddedPiece* piece) {
  if (pending_) {
    pending_ = false;
    *piece = token_;
    emitted_ = token_.end;
    return true;
  }
  if (FindToken()) {
    if (emitted_ >= token_.begin) {
      *piece = token_;
      emitted_ = token_.end;
      return true;
    }
    *piece = {emitted_, token_.begin, -1};
    pending_ = true;
    return true;
  }
  // A token may have stripped past this point, or end exactly here: then nothing is left.
  if (emitted_ >= text_.size()) return false;
  *piece = {emitted_, text_.size(), -1};
  emitted_ = text_.size();
  return true;
}

}  // namespace qinfer::tokenizer
