// From a spec to the compiled form, in pieces of about 0.2 ms. Deterministic: sections are built in
// the order of ids and of the spec's lists alone, so that the same spec gives the same bytes.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "core/status.h"
#include "tokenizer/added_trie.h"
#include "tokenizer/blob.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/spec.h"

namespace qinfer::tokenizer {

class BlobWriter {
 public:
  // The spec outlives it, and gives up its texts and tokens on the way.
  explicit BlobWriter(TokenizerSpec* spec);

  // True when the bytes are complete. Not called again after that, or after an error.
  StatusOr<bool> Step();
  Buffer Take() { return std::move(blob_); }

 private:
  // Each does a piece from at_ on, and is called until it says true.
  using Stage = StatusOr<bool> (BlobWriter::*)();
  static const Stage kStages[16];

  StatusOr<bool> CountIds();
  StatusOr<bool> PlaceTokens();
  StatusOr<bool> PlaceAdded();
  StatusOr<bool> JoinTexts();
  StatusOr<bool> AddPrograms();
  StatusOr<bool> AddContents();
  StatusOr<bool> BuildRawTrie() { return tries_[0].Step(strings_); }
  StatusOr<bool> BuildNormalizedTrie() { return tries_[1].Step(strings_); }
  StatusOr<bool> Layout();
  StatusOr<bool> CopySections();
  StatusOr<bool> ClearTables();
  StatusOr<bool> FillTokenTable();
  StatusOr<bool> FillMergeTable();
  StatusOr<bool> FillSingles();
  StatusOr<bool> FindCuts();
  StatusOr<bool> WriteHeader();

  Status AddContent(const SpecAdded& added);
  void Place(Section section, const void* source, uint64_t bytes);
  template <typename T>
  T* At(Section section) {
    return reinterpret_cast<T*>(blob_.as<uint8_t>() + header_.sections[section].offset);
  }
  // Lays everything out anew, with a larger table; FormatError(why) where that would be absurd.
  Status Enlarge(size_t* slots, size_t entries, const char* why);
  std::string_view TokenText(uint32_t id) const {
    return std::string_view(strings_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  int32_t FindInModel(std::string_view text);

  TokenizerSpec* spec_;
  size_t stage_ = 0;
  size_t at_ = 0;  // where the current stage goes on
  BlobHeader header_{};
  const void* sources_[kSectionCount] = {};  // of sections that are copied; null: made in place
  Buffer blob_;
  String strings_;
  std::pmr::vector<Piece> texts_;  // by id
  uint64_t text_bytes_ = 0;
  std::pmr::vector<uint32_t> offsets_;
  std::pmr::vector<uint8_t> flags_;
  std::pmr::vector<BlobAdded> added_;
  std::vector<BlobOp> normalizer_, pretokenizer_, decoder_;
  // Of added tokens that are matched in normalized text: the normalizer of this very tokenizer.
  String program_strings_;
  std::vector<BlobOp> program_;
  std::optional<Normalizer> normalize_;
  std::optional<MatchBudget> budget_;
  AddedTrie tries_[2];  // of what is matched in the text as given, and in normalized text
  size_t token_count_ = 0, token_slots_ = 16, merge_slots_ = 16;
};

}  // namespace qinfer::tokenizer
