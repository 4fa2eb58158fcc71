// A tokenizer on its way from a file to its compiled form: what the readers fill in (spec_reader.h)
// and BlobWriter turns into bytes. The runtime never sees it.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/memory.h"
#include "core/status.h"
#include "tokenizer/blob.h"

namespace qinfer::tokenizer {

// A piece of TokenizerSpec::arena.
struct Piece {
  uint32_t offset = 0, size = 0;
};

struct SpecToken {
  Piece text;
  uint32_t id = 0;
  uint8_t flags = 0;  // TokenFlags
};
struct SpecMerge {
  uint32_t left, right, rank, result;
};
struct SpecAdded {
  Piece content;
  uint32_t flags = 0;  // AddedFlags
  uint32_t id = 0;     // by Vocabulary::AssignAddedIds
};
struct SpecOp {
  uint32_t kind = 0, a = 0, b = 0, c = 0;
  std::string text, text2;
};

struct TokenizerSpec {
  explicit TokenizerSpec(Memory* m) : memory(m), arena(m), tokens(m), merges(m), added(m) {}

  std::string_view Text(Piece p) const { return {arena.data() + p.offset, p.size}; }
  // FormatError past 4 GiB of texts.
  Status Store(std::string_view text, Piece* piece);

  Memory* memory;
  std::pmr::vector<char> arena;
  std::pmr::vector<SpecToken> tokens;  // the model's own, in any order; ids and texts are unique
  std::pmr::vector<SpecMerge> merges;  // in order of priority: a later entry for a pair wins
  std::pmr::vector<SpecAdded> added;   // in the file's order
  std::vector<SpecOp> normalizer, pretokenizer, decoder;
  std::vector<uint32_t> prefix, suffix;  // ids around every text
  int64_t bos = -1, eos = -1, unk = -1;
  std::string affix_prefix, affix_suffix;
  bool byte_level = false, byte_fallback = false, fuse_unk = false, ignore_merges = false;
};

}  // namespace qinfer::tokenizer
