// Byte-pair merging: the pair of lowest rank first, leftmost among equals. Short words by scanning
// an array, long ones with a linked list and a heap, so that a word of n characters costs
// O(n log n).
#include "tokenizer/bpe.h"

#include <algorithm>
#include <cstring>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

constexpr uint32_t kNone = 0xffffffffu;
constexpr size_t kShort = 32;  // symbols
constexpr std::string_view kMetaspaceMark = "\xe2\x96\x81";

// Fast and good enough for a direct-mapped cache: it decides about speed alone.
uint32_t CacheHash(const char* data, size_t size) {
  uint64_t h = size * 0x9e3779b97f4a7c15u;
  uint64_t part = 0;
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    std::memcpy(&part, data + i, 8);
    h = (h ^ part) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
  }
  if (i < size) {
    part = 0;
    std::memcpy(&part, data + i, size - i);
    h = (h ^ part) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
  }
  return static_cast<uint32_t>(h ^ (h >> 17));
}

}  // namespace

BpeEncoder::BpeEncoder(const BlobView& blob, Memory* memory, size_t text_bytes)
    : blob_(blob),
      cache_(memory),
      initial_(memory),
      symbols_(memory),
      heap_(memory),
      spelled_(memory) {
  // No bigger than the text is worth: clearing it costs too. 8192 entries are 512 KiB.
  size_t entries = 0;
  if (text_bytes >= 256) {
    entries = 16;
    while (entries < 8192 && entries * 32 < text_bytes) entries *= 2;
  }
  cache_.resize(entries);
  cache_mask_ = static_cast<uint32_t>(entries - 1);
}

void BpeEncoder::Encode(std::string_view word, std::pmr::vector<int32_t>* ids) {
  if (!blob_.Has(kCutAtSpace)) {
    EncodeStretch(word, ids);
    return;
  }
  // Merges never cross from another character to the mark, so the parts are independent.
  size_t begin = 0;
  size_t at = 0;
  while (begin < word.size()) {
    while (word.substr(at, 3) == kMetaspaceMark) at += 3;
    const size_t end = std::min(word.find(kMetaspaceMark, at), word.size());
    EncodeStretch(word.substr(begin, end - begin), ids);
    begin = at = end;
  }
}

void BpeEncoder::EncodeStretch(std::string_view word, std::pmr::vector<int32_t>* ids) {
  if (word.empty()) return;
  if (cache_.empty() || word.size() > kInlineBytes) {
    EncodeUncached(word, ids);
    return;
  }
  CacheEntry& entry = cache_[CacheHash(word.data(), word.size()) & cache_mask_];
  if (entry.word_size == word.size() && std::memcmp(entry.word, word.data(), word.size()) == 0) {
    ids->insert(ids->end(), entry.ids, entry.ids + entry.id_count);
    return;
  }
  const size_t before = ids->size();
  EncodeUncached(word, ids);
  const size_t count = ids->size() - before;
  if (count > kInlineIds) return;
  entry.word_size = static_cast<uint8_t>(word.size());
  entry.id_count = static_cast<uint8_t>(count);
  std::memcpy(entry.word, word.data(), word.size());
  std::copy(ids->begin() + static_cast<ptrdiff_t>(before), ids->end(), entry.ids);
}

void BpeEncoder::EncodeUncached(std::string_view word, std::pmr::vector<int32_t>* ids) {
  if (blob_.Has(kIgnoreMerges)) {
    std::string_view text = word;
    if (blob_.Has(kByteLevel)) {
      spelled_.clear();
      AppendByteAlphabet(word, &spelled_);
      text = spelled_;
    }
    const int32_t id = blob_.FindInModel(text);
    if (id >= 0) {
      ids->push_back(id);
      return;
    }
  }
  SplitCharacters(word);
  if (initial_.size() <= kShort) {
    MergeShort(ids);
  } else {
    MergeLong(ids);
  }
}

void BpeEncoder::SplitCharacters(std::string_view word) {
  initial_.clear();
  const BlobHeader& h = blob_.header();
  const bool byte_level = blob_.Has(kByteLevel);
  const bool affixes = h.affix_prefix_size != 0 || h.affix_suffix_size != 0;
  uint32_t unknown = 0;  // unknown tokens that wait for their place
  const auto flush = [&] {
    if (unknown != 0) initial_.push_back(static_cast<uint32_t>(h.unk));
    unknown = 0;
  };
  for (size_t i = 0; i < word.size();) {
    const auto lead = static_cast<uint8_t>(word[i]);
    const size_t length = byte_level ? 1 : SequenceLength(lead);
    std::string_view character = word.substr(i, length);
    int32_t id;
    if (affixes) {
      char buffer[4];
      spelled_.clear();
      if (i != 0) spelled_.append(blob_.String(h.affix_prefix_offset, h.affix_prefix_size));
      if (byte_level) character = {buffer, EncodeUtf8(ByteToAlphabet(lead), buffer)};
      spelled_.append(character);
      if (i + length == word.size())
        spelled_.append(blob_.String(h.affix_suffix_offset, h.affix_suffix_size));
      id = blob_.FindInModel(spelled_);
      character = spelled_;
    } else if (length == 1) {
      id = blob_.single(lead);
    } else {
      id = blob_.FindInModel(character);
    }
    i += length;
    if (id >= 0) {
      flush();
      initial_.push_back(static_cast<uint32_t>(id));
      continue;
    }
    if (blob_.Has(kByteFallback)) {
      if (byte_level && !affixes) {
        spelled_.clear();
        AppendByteAlphabet(character, &spelled_);
        character = spelled_;
      }
      bool all = true;
      for (const char c : character) all = all && blob_.fallback(static_cast<uint8_t>(c)) >= 0;
      if (all) {
        for (const char c : character)
          initial_.push_back(static_cast<uint32_t>(blob_.fallback(static_cast<uint8_t>(c))));
        continue;
      }
    }
    if (h.unk < 0) continue;  // no such token: the character is dropped
    if (unknown != 0 && !blob_.Has(kFuseUnk)) flush();
    unknown = 1;
  }
  flush();
}

void BpeEncoder::MergeShort(std::pmr::vector<int32_t>* ids) {
  uint32_t symbols[kShort];
  uint32_t ranks[kShort];  // of the pair that starts here
  uint32_t results[kShort];
  size_t count = initial_.size();
  if (count == 0) return;
  std::copy(initial_.begin(), initial_.end(), symbols);
  const auto look_up = [&](size_t i) {
    const BlobMerge* merge = blob_.FindMerge(symbols[i], symbols[i + 1]);
    ranks[i] = merge == nullptr ? kNone : merge->rank;
    results[i] = merge == nullptr ? 0 : merge->result;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNone) break;
    symbols[best] = results[best];
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    if (best + 1 < count) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  for (size_t i = 0; i < count; ++i) ids->push_back(static_cast<int32_t>(symbols[i]));
}

void BpeEncoder::Push(uint32_t position) {
  const Symbol& symbol = symbols_[position];
  if (symbol.next == kNone) return;
  const BlobMerge* merge = blob_.FindMerge(symbol.id, symbols_[symbol.next].id);
  if (merge == nullptr || merge->rank == kNone) return;
  heap_.push_back({merge->rank, position});
}

void BpeEncoder::MergeLong(std::pmr::vector<int32_t>* ids) {
  const auto count = static_cast<uint32_t>(initial_.size());
  symbols_.resize(count);
  for (uint32_t i = 0; i < count; ++i)
    symbols_[i] = {initial_[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
  heap_.clear();
  heap_.reserve(count);
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  for (uint32_t i = 0; i + 1 < count; ++i) Push(i);
  std::make_heap(heap_.begin(), heap_.end(), later);
  const auto push = [&](uint32_t position) {
    const size_t before = heap_.size();
    Push(position);
    if (heap_.size() != before) std::push_heap(heap_.begin(), heap_.end(), later);
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate top = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[top.position];
    if (left.id == kNone || left.next == kNone) continue;
    Symbol& right = symbols_[left.next];
    const BlobMerge* merge = blob_.FindMerge(left.id, right.id);
    // Entries whose pair has changed since are stale.
    if (merge == nullptr || merge->rank != top.rank) continue;
    left.id = merge->result;
    right.id = kNone;
    left.next = right.next;
    if (left.next != kNone) symbols_[left.next].previous = top.position;
    if (left.previous != kNone) push(left.previous);
    push(top.position);
  }
  for (uint32_t i = 0; i != kNone; i = symbols_[i].next)
    ids->push_back(static_cast<int32_t>(symbols_[i].id));
}

}  // namespace qinfer::tokenizer
