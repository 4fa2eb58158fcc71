// The model: one word to token ids by byte-pair merges. How text becomes words is for
// pretokenizer.h.
#pragma once

#include <string_view>
#include <vector>

#include "core/memory.h"
#include "tokenizer/blob.h"
#include "tokenizer/unicode.h"

namespace qinfer::tokenizer {

// Encodes the words of one call: scratch buffers and a bounded cache of words seen. Not
// thread-safe; make one per call.
class BpeEncoder {
 public:
  // `text_bytes`: about how much text will follow; decides the size of the cache.
  BpeEncoder(const BlobView& blob, Memory* memory, size_t text_bytes);

  void Encode(std::string_view word, std::pmr::vector<int32_t>* ids);

 private:
  static constexpr size_t kInlineBytes = 28;
  static constexpr size_t kInlineIds = 8;
  // One cache line: a word and its ids. Longer ones are not kept.
  struct alignas(64) CacheEntry {
    uint8_t word_size;  // 0 = empty
    uint8_t id_count;
    uint8_t unused[2];
    char word[kInlineBytes];
    int32_t ids[kInlineIds];
  };
  static_assert(sizeof(CacheEntry) == 64);

  // 24 bytes a character of a long word, with its place in initial_.
  struct Symbol {
    uint32_t id;              // kNone once merged into its left neighbour
    uint32_t previous, next;  // kNone at the ends
  };
  struct Candidate {
    uint32_t rank, position;
  };

  void EncodeUncached(std::string_view word, std::pmr::vector<int32_t>* ids);
  void EncodeStretch(std::string_view word, std::pmr::vector<int32_t>* ids);
  void SplitCharacters(std::string_view word);
  void MergeShort(std::pmr::vector<int32_t>* ids);
  void MergeLong(std::pmr::vector<int32_t>* ids);
  void Push(uint32_t position);

  const BlobView& blob_;
  uint32_t cache_mask_ = 0;
  std::pmr::vector<CacheEntry> cache_;
  std::pmr::vector<uint32_t> initial_;  // ids of the characters of a word
  std::pmr::vector<Symbol> symbols_;
  std::pmr::vector<Candidate> heap_;
  String spelled_;
};

}  // namespace qinfer::tokenizer
