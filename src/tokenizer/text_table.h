// Texts of a spec's arena to numbers, while a tokenizer is being read. The hash is one that can be
// put together from parts, so that joining two texts, or cutting one everywhere, hashes no byte
// twice. Nothing of it is in the compiled form, which has a table of its own.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "core/status.h"
#include "tokenizer/spec.h"

namespace qinfer::tokenizer {

class TextTable {
 public:
  explicit TextTable(const TokenizerSpec& spec) : spec_(spec), powers_(spec.memory) {}

  // Room for so many texts; then Clear until it says true, before the first Insert.
  Status Reserve(size_t texts);
  bool Clear();

  // Has the cache fetch what an Insert of this text will need.
  void Expect(Piece text) const { Prefetch(Hash(spec_.Text(text))); }
  // Adds a text under `value`. *found is the value of the same text that is there already, or -1.
  // FormatError for texts that defeat the hash.
  Status Insert(Piece text, uint32_t value, int64_t* found);
  // -1 = none.
  int64_t Find(std::string_view text) const { return Find(Hash(text), text, {}); }

  // The texts of a merge: two sides, and what the right one adds to the left one in the result.
  struct Merge {
    std::string_view left, right, rest;
    uint64_t left_hash, right_hash, result_hash;  // by ExpectMerge
  };
  // Has the cache fetch what FindMerge will need: so some dozens, and then look them up.
  void ExpectMerge(Merge* merge) const;
  // False unless all three are there.
  bool FindMerge(const Merge& merge, uint32_t* left, uint32_t* right, uint32_t* result) const;

  // A way to cut a text in two.
  struct Split {
    uint64_t left, right;  // hashes
    uint32_t owner, cut;   // whatever stands for the text; bytes of the left part
  };
  // Appends all ways to cut `text` between two characters, the shortest left parts first, and has
  // the cache fetch what looking them up will need: so look up some dozens at a time.
  void AddSplits(std::string_view text, uint32_t owner, std::pmr::vector<Split>* out);
  // False unless both parts are there.
  bool FindParts(const Split& split, std::string_view text, uint32_t* left, uint32_t* right) const;

 private:
  struct Slot {
    uint32_t value;  // kEmptySlot = empty
    uint32_t tag;    // other bits of the hash than those that choose the slot
    Piece text;
  };

  static uint64_t Hash(std::string_view text);
  static uint64_t Power(size_t exponent);
  static uint64_t Mix(uint64_t hash) {
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93u;
    return hash ^ (hash >> 32);
  }
  void Prefetch(uint64_t hash) const {
    __builtin_prefetch(slots() + (static_cast<uint32_t>(Mix(hash)) & mask_));
  }
  const Slot* slots() const { return slots_.as<Slot>(); }
  // The text is `left` and `right` together.
  int64_t Find(uint64_t hash, std::string_view left, std::string_view right) const;

  const TokenizerSpec& spec_;
  Buffer slots_;
  uint32_t mask_ = 0;
  size_t cleared_ = 0;
  std::pmr::vector<uint64_t> powers_;  // of the base
};

}  // namespace qinfer::tokenizer
