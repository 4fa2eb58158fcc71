// The compiled tokenizer: layout of its bytes (docs/tokenizer-format.md) and the view that the
// runtime reads them through. Building one is in blob_writer.cpp, validation in blob.cpp; what the
// programs do is for normalizer.h, pretokenizer.h and decoder.h.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "core/status.h"

namespace qinfer::tokenizer {

static_assert(std::endian::native == std::endian::little, "the compiled form is used in place");

constexpr char kBlobMagic[8] = {'Q', 'I', 'N', 'F', 'T', 'O', 'K', '\0'};
constexpr uint32_t kBlobVersion = 1;
constexpr uint32_t kEmptySlot = 0xffffffffu;
// Bounds that hold for every compiled tokenizer: they keep work on hostile bytes small.
constexpr uint32_t kMaxVocabulary = 1u << 24;
constexpr uint32_t kMaxProbe = 512;          // of a hash table
constexpr uint32_t kMaxOps = 64;             // of each program
constexpr uint32_t kMaxOpString = 1u << 16;  // bytes
constexpr uint32_t kMaxAddedBytes = 4096;    // of one added token's content
constexpr uint32_t kMaxTemplateIds = 256;

enum BlobFlags : uint32_t {
  kByteLevel = 1,     // the model reads bytes (spelled in GPT-2's alphabet), not characters
  kByteFallback = 2,  // characters that are no token become <0xXX> tokens
  kFuseUnk = 4,       // neighbouring unknown characters are one unknown token
  kIgnoreMerges = 8,  // a word that is a token is that token
  kCutAtSpace = 16,   // no merge crosses from another character to U+2581: words may be cut there
  kAllBlobFlags = 31,
};

enum TokenFlags : uint8_t {
  kInModel = 1,  // in the model's own vocabulary
  kAdded = 2,
  kSpecial = 4,
  kByteToken = 8,   // <0xXX>
  kOtherText = 16,  // decodes to BlobAdded's text and not to its own
};

enum AddedFlags : uint32_t {
  kSingleWord = 1,
  kLstrip = 2,
  kRstrip = 4,
  kNormalized = 8,
  kAddedSpecial = 16,
  kAllAddedFlags = 31,
};

enum class NormKind : uint32_t {
  kNfc = 1,
  kNfd,
  kNfkc,
  kNfkd,
  kReplace,       // text = literal pattern, text2 = content
  kReplaceRegex,  // text = pattern, text2 = content
  kPrepend,       // text
  kLowercase,
  kStrip,  // a = 1 left, 2 right
  kStripAccents,
  kByteLevel,
  kLast = kByteLevel,
};

enum class Behavior : uint32_t {
  kRemoved = 0,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
  kLast = kContiguous,
};

enum class PreKind : uint32_t {
  kSplitString = 1,  // text; a = Behavior, b = invert
  kSplitRegex,       // text; a = Behavior, b = invert
  kSplitScanner,     // text = the pattern, b = invert, c = Scanner; a = Behavior
  kBytePrefix,       // ByteLevel's add_prefix_space
  kByteAlphabet,     // spell bytes in GPT-2's alphabet (where more steps follow)
  kMetaspace,        // text = replacement; a = Prepend, b = split
  kDigits,           // a = individual
  kPunctuation,      // a = Behavior
  kWhitespace,       // words and runs of other characters
  kWhitespaceSplit,
  kBert,
  kCharDelimiter,  // text
  kLast = kCharDelimiter,
};

enum class PrependScheme : uint32_t { kNever = 0, kFirst, kAlways, kLast = kAlways };

enum class DecodeKind : uint32_t {
  kByteLevel = 1,
  kMetaspace,  // text = replacement; a = 1: drop it in the first token
  kByteFallback,
  kFuse,
  kStrip,         // text = character; a = start, b = stop
  kReplace,       // text, text2
  kReplaceRegex,  // text, text2
  kSuffix,        // BPEDecoder: text becomes a space, in the last token nothing
  kJoinSpace,     // no decoder: tokens joined by spaces
  kLast = kJoinSpace,
};

// All structs are little-endian and have no padding.
struct BlobSection {
  uint64_t offset;  // from the start of the blob; a multiple of 64
  uint64_t size;    // bytes
};

enum Section : uint32_t {
  kStrings,       // bytes
  kTokenOffsets,  // uint32[vocab + 1] into kStrings
  kTokenFlags,    // uint8[vocab]
  kTokenTable,    // uint32[2^n]: id or kEmptySlot
  kMerges,        // BlobMerge[2^n]
  kSingles,       // int32[512]: ids of bytes (byte level) or ASCII characters; ids of <0xXX>
  kAddedTokens,   // BlobAdded[]
  kRawNodes,      // BlobNode[]: trie of added tokens found in the text as given
  kRawEdges,      // BlobEdge[]
  kNormNodes,     // the same for those found in normalized text
  kNormEdges,
  kNormalizer,    // BlobOp[]
  kPretokenizer,  // BlobOp[]
  kDecoder,       // BlobOp[]
  kPrefixIds,     // int32[]: put before a text
  kSuffixIds,     // int32[]
  kSectionCount,
};

struct BlobHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint64_t total_bytes;
  uint32_t flags;
  uint32_t vocab_size;
  int32_t bos, eos, unk;
  uint32_t token_probe, merge_probe;  // longest probe sequences of the two hash tables
  uint32_t affix_prefix_offset, affix_prefix_size;  // continuing_subword_prefix in kStrings
  uint32_t affix_suffix_offset, affix_suffix_size;  // end_of_word_suffix
  uint32_t reserved[15];
  BlobSection sections[kSectionCount];
};
static_assert(sizeof(BlobHeader) == 128 + 16 * kSectionCount);

struct BlobMerge {
  uint32_t left, right;  // left = kEmptySlot: empty
  uint32_t rank, result;
};
struct BlobAdded {
  uint32_t id, flags;
  uint32_t text_offset, text_size;  // its content, normalized where kNormalized is set
};
struct BlobNode {
  uint32_t first_edge, edge_count;
  int32_t added;  // index in kAddedTokens, -1 = none ends here
};
struct BlobEdge {
  uint32_t byte, child;
};
struct BlobOp {
  uint32_t kind, a, b, c;
  uint32_t text_offset, text_size, text2_offset, text2_size;
};

// The hash of token texts: fixed, part of the format.
uint32_t HashText(std::string_view text);
inline uint32_t HashPair(uint32_t left, uint32_t right) {
  uint64_t h = (static_cast<uint64_t>(left) << 32 | right) * 0x9e3779b97f4a7c15u;
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93u;
  return static_cast<uint32_t>(h >> 32);
}

// A validated compiled tokenizer (by BlobCheck). Cheap to copy; borrows the bytes.
class BlobView {
 public:
  const BlobHeader& header() const { return *header_; }
  bool Has(BlobFlags flag) const { return (header_->flags & flag) != 0; }
  uint32_t vocab_size() const { return header_->vocab_size; }
  std::string_view Text(uint32_t id) const {
    return {strings_ + token_offsets_[id], token_offsets_[id + 1] - token_offsets_[id]};
  }
  uint8_t Flags(uint32_t id) const { return token_flags_[id]; }
  // What the token decodes to: an added token's content is normalized where it is matched so.
  std::string_view DecodeText(uint32_t id) const {
    if ((Flags(id) & kOtherText) == 0) return Text(id);
    for (const BlobAdded& a : added_)
      if (a.id == id) return String(a.text_offset, a.text_size);
    return Text(id);
  }
  std::string_view String(uint32_t offset, uint32_t size) const {
    return {strings_ + offset, size};
  }

  // The token of exactly this text, or -1.
  int32_t Find(std::string_view text) const {
    uint32_t slot = HashText(text) & token_mask_;
    for (uint32_t i = 0; i <= header_->token_probe; ++i, slot = (slot + 1) & token_mask_) {
      const uint32_t id = token_table_[slot];
      if (id == kEmptySlot) return -1;
      if (Text(id) == text) return static_cast<int32_t>(id);
    }
    return -1;
  }
  int32_t FindInModel(std::string_view text) const {
    const int32_t id = Find(text);
    return id >= 0 && (Flags(static_cast<uint32_t>(id)) & kInModel) != 0 ? id : -1;
  }
  // Null if the two do not merge.
  const BlobMerge* FindMerge(uint32_t left, uint32_t right) const {
    uint32_t slot = HashPair(left, right) & merge_mask_;
    for (uint32_t i = 0; i <= header_->merge_probe; ++i, slot = (slot + 1) & merge_mask_) {
      const BlobMerge& m = merges_[slot];
      if (m.left == left && m.right == right) return &m;
      if (m.left == kEmptySlot) return nullptr;
    }
    return nullptr;
  }
  // Of a byte (byte level) or an ASCII character; -1 = none.
  int32_t single(uint8_t byte) const { return singles_[byte]; }
  int32_t fallback(uint8_t byte) const { return singles_[256 + byte]; }

  absl::Span<const BlobAdded> added() const { return added_; }
  absl::Span<const BlobNode> nodes(bool normalized) const { return nodes_[normalized ? 1 : 0]; }
  absl::Span<const BlobEdge> edges(bool normalized) const { return edges_[normalized ? 1 : 0]; }
  absl::Span<const BlobOp> normalizer() const { return normalizer_; }
  absl::Span<const BlobOp> pretokenizer() const { return pretokenizer_; }
  absl::Span<const BlobOp> decoder() const { return decoder_; }
  absl::Span<const int32_t> prefix_ids() const { return prefix_ids_; }
  absl::Span<const int32_t> suffix_ids() const { return suffix_ids_; }
  std::string_view strings() const { return {strings_, strings_size_}; }
  absl::Span<const uint8_t> bytes() const { return bytes_; }

 private:
  friend class BlobCheck;

  absl::Span<const uint8_t> bytes_;
  const BlobHeader* header_ = nullptr;
  const char* strings_ = nullptr;
  size_t strings_size_ = 0;
  const uint32_t* token_offsets_ = nullptr;
  const uint8_t* token_flags_ = nullptr;
  const uint32_t* token_table_ = nullptr;
  const BlobMerge* merges_ = nullptr;
  const int32_t* singles_ = nullptr;
  uint32_t token_mask_ = 0, merge_mask_ = 0;
  absl::Span<const BlobAdded> added_;
  absl::Span<const BlobNode> nodes_[2];
  absl::Span<const BlobEdge> edges_[2];
  absl::Span<const BlobOp> normalizer_, pretokenizer_, decoder_;
  absl::Span<const int32_t> prefix_ids_, suffix_ids_;
};

// Validates compiled bytes, in pieces of about 0.2 ms.
class BlobCheck {
 public:
  // `bytes` outlives the view.
  BlobCheck(absl::Span<const uint8_t> bytes, const std::string& name);
  // True when all is in order; FormatError that says which section is wrong and how. Not called
  // again after either.
  StatusOr<bool> Step();
  const BlobView& view() const { return view_; }  // after that

 private:
  // Each does a piece from at_ on, and is called until it says true.
  using Stage = StatusOr<bool> (BlobCheck::*)();
  static const Stage kStages[11];

  StatusOr<bool> CheckHeader();
  StatusOr<bool> TakeTokens();
  StatusOr<bool> CheckOffsets();
  StatusOr<bool> CheckTexts();
  StatusOr<bool> CheckTokenTable();
  StatusOr<bool> CheckIds();
  StatusOr<bool> CheckMerges();
  StatusOr<bool> CheckAdded();
  StatusOr<bool> CheckRawTrie() { return CheckTrie(false); }
  StatusOr<bool> CheckNormalizedTrie() { return CheckTrie(true); }
  StatusOr<bool> CheckPrograms();
  StatusOr<bool> CheckTrie(bool normalized);
  Status CheckNode(bool normalized, size_t index) const;
  Status CheckOps(absl::Span<const BlobOp> ops, const char* what, uint32_t last_kind) const;
  template <typename T>
  Status Take(Section section, absl::Span<const T>* out) const;
  bool IsToken(int32_t id) const {
    return id >= -1 && (id < 0 || static_cast<uint32_t>(id) < view_.vocab_size());
  }

  const std::string where_;
  BlobView view_;
  size_t stage_ = 0;
  size_t at_ = 0;  // where the current stage goes on
};

}  // namespace qinfer::tokenizer
