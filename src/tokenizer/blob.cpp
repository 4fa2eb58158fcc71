// Validation of a compiled tokenizer: after a BlobCheck every offset, id and index that the runtime
// follows is in bounds, whatever the bytes are. Nothing here interprets programs.
#include "tokenizer/blob.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tokenizer/pieces.h"
#include "tokenizer/scanners.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {

uint32_t HashText(std::string_view text) {
  return static_cast<uint32_t>(XXH3_64bits(text.data(), text.size()));
}

template <typename T>
Status BlobCheck::Take(Section section, absl::Span<const T>* out) const {
  const absl::Span<const uint8_t> bytes = view_.bytes_;
  const BlobSection& s = view_.header_->sections[section];
  if (s.offset % 64 != 0 || s.offset > bytes.size() || s.size > bytes.size() - s.offset)
    return FormatError(StrCat("section ", section, " lies outside the file"));
  if (s.size % sizeof(T) != 0)
    return FormatError(StrCat("section ", section, " has a partial element"));
  *out =
      absl::Span<const T>(reinterpret_cast<const T*>(bytes.data() + s.offset), s.size / sizeof(T));
  return OkStatus();
}

namespace {

constexpr size_t kPiece = 32 << 10;  // elements of a table

template <typename T>
bool IsPowerOfTwo(absl::Span<const T> s) {
  return !s.empty() && (s.size() & (s.size() - 1)) == 0 && s.size() <= (1u << 30);
}

}  // namespace

BlobCheck::BlobCheck(absl::Span<const uint8_t> bytes, const std::string& name)
    : where_(StrCat(name, ": compiled tokenizer")) {
  view_.bytes_ = bytes;
}

const BlobCheck::Stage BlobCheck::kStages[11] = {
    &BlobCheck::CheckHeader,         &BlobCheck::TakeTokens,      &BlobCheck::CheckOffsets,
    &BlobCheck::CheckTexts,          &BlobCheck::CheckTokenTable, &BlobCheck::CheckIds,
    &BlobCheck::CheckMerges,         &BlobCheck::CheckAdded,      &BlobCheck::CheckRawTrie,
    &BlobCheck::CheckNormalizedTrie, &BlobCheck::CheckPrograms};

StatusOr<bool> BlobCheck::Step() {
  StatusOr<bool> done = (this->*kStages[stage_])();
  if (!done.ok()) return Annotate(done.status(), where_);
  if (!*done) return false;
  at_ = 0;
  return ++stage_ == std::size(kStages);
}

StatusOr<bool> BlobCheck::CheckHeader() {
  const absl::Span<const uint8_t> bytes = view_.bytes_;
  if (bytes.size() < sizeof(BlobHeader))
    return FormatError(StrCat(bytes.size(), " bytes are too few for its header"));
  if (reinterpret_cast<uintptr_t>(bytes.data()) % 64 != 0)
    return MisuseError("its bytes are not 64-byte aligned");
  view_.header_ = reinterpret_cast<const BlobHeader*>(bytes.data());
  const BlobHeader& h = *view_.header_;
  if (std::memcmp(h.magic, kBlobMagic, sizeof kBlobMagic) != 0) return FormatError("wrong magic");
  if (h.version != kBlobVersion || h.header_bytes != sizeof(BlobHeader) ||
      (h.flags & ~kAllBlobFlags) != 0)
    return UnsupportedError(StrCat("version ", h.version, " with flags ", h.flags,
                                   "; this build reads version ", kBlobVersion,
                                   " (convert the model again)"));
  if (h.total_bytes != bytes.size())
    return FormatError(StrCat(bytes.size(), " bytes, its header says ", h.total_bytes));
  return true;
}

StatusOr<bool> BlobCheck::TakeTokens() {
  const uint32_t vocab = view_.vocab_size();
  absl::Span<const char> strings;
  absl::Span<const uint32_t> offsets, table;
  absl::Span<const uint8_t> flags;
  absl::Span<const int32_t> singles;
  QINFER_RETURN_IF_ERROR(Take(kStrings, &strings));
  QINFER_RETURN_IF_ERROR(Take(kTokenOffsets, &offsets));
  QINFER_RETURN_IF_ERROR(Take(kTokenFlags, &flags));
  QINFER_RETURN_IF_ERROR(Take(kTokenTable, &table));
  QINFER_RETURN_IF_ERROR(Take(kSingles, &singles));
  if (vocab == 0 || vocab > kMaxVocabulary)
    return FormatError(StrCat("a vocabulary of ", vocab, " tokens"));
  if (offsets.size() != vocab + size_t{1} || flags.size() != vocab || singles.size() != 512 ||
      !IsPowerOfTwo(table) || strings.size() > 0xffffffffu)
    return FormatError("sizes of the token sections disagree");
  view_.strings_ = strings.data();
  view_.strings_size_ = strings.size();
  view_.token_offsets_ = offsets.data();
  view_.token_flags_ = flags.data();
  view_.token_table_ = table.data();
  view_.token_mask_ = static_cast<uint32_t>(table.size() - 1);
  view_.singles_ = singles.data();
  return true;
}

// The large tables in loops of their own: a piece of them is a matter of microseconds.
StatusOr<bool> BlobCheck::CheckOffsets() {
  const uint32_t* const offsets = view_.token_offsets_;
  const size_t vocab = view_.vocab_size();
  for (const size_t end = std::min(vocab, at_ + kPiece); at_ < end; ++at_)
    if (offsets[at_] > offsets[at_ + 1]) return FormatError(StrCat("token ", at_, ": bad offset"));
  if (at_ < vocab) return false;
  if (offsets[vocab] > view_.strings_size_)
    return FormatError("token texts lie outside the strings");
  return true;
}

// Texts are UTF-8 together, and none begins inside a character.
StatusOr<bool> BlobCheck::CheckTexts() {
  const uint32_t* const offsets = view_.token_offsets_;
  const size_t vocab = view_.vocab_size();
  const size_t end = std::min(vocab, at_ + kPiece / 2);
  if (FindInvalidUtf8({view_.strings_ + offsets[at_], offsets[end] - offsets[at_]}) !=
      std::string_view::npos)
    return FormatError(StrCat("a text of tokens ", at_, " to ", end - 1, " is not UTF-8"));
  for (; at_ < end; ++at_)
    if (offsets[at_] < offsets[end] && (view_.strings_[offsets[at_]] & 0xc0) == 0x80)
      return FormatError(StrCat("token ", at_, " begins inside a character"));
  return at_ == vocab;
}

StatusOr<bool> BlobCheck::CheckTokenTable() {
  const uint32_t vocab = view_.vocab_size();
  const size_t slots = view_.token_mask_ + size_t{1};
  for (const size_t end = std::min(slots, at_ + kPiece); at_ < end; ++at_) {
    const uint32_t id = view_.token_table_[at_];
    if (id != kEmptySlot && id >= vocab) return FormatError("the token table names no token");
  }
  return at_ == slots;
}

StatusOr<bool> BlobCheck::CheckIds() {
  const BlobHeader& h = view_.header();
  for (size_t i = 0; i < 512; ++i)
    if (!IsToken(view_.singles_[i])) return FormatError("a single-byte token is no token");
  for (const int32_t id : {h.bos, h.eos, h.unk})
    if (!IsToken(id)) return FormatError("BOS, EOS or UNK is no token");
  if (h.token_probe > kMaxProbe || h.merge_probe > kMaxProbe)
    return FormatError("a hash table probes too far");
  const auto inside = [&](uint32_t offset, uint32_t size) {
    return offset <= view_.strings_size_ && size <= view_.strings_size_ - offset && size <= 4096;
  };
  if (!inside(h.affix_prefix_offset, h.affix_prefix_size) ||
      !inside(h.affix_suffix_offset, h.affix_suffix_size))
    return FormatError("a subword prefix or suffix lies outside the strings");
  return true;
}

StatusOr<bool> BlobCheck::CheckMerges() {
  absl::Span<const BlobMerge> merges;
  QINFER_RETURN_IF_ERROR(Take(kMerges, &merges));
  if (!IsPowerOfTwo(merges)) return FormatError("the merge table's size is not a power of two");
  const uint32_t vocab = view_.vocab_size();
  view_.merges_ = merges.data();
  view_.merge_mask_ = static_cast<uint32_t>(merges.size() - 1);
  for (const size_t end = std::min(merges.size(), at_ + kPiece); at_ < end; ++at_) {
    const BlobMerge& m = merges[at_];
    if (m.left != kEmptySlot && (m.left >= vocab || m.right >= vocab || m.result >= vocab))
      return FormatError("a merge names no token");
  }
  return at_ == merges.size();
}

StatusOr<bool> BlobCheck::CheckAdded() {
  QINFER_RETURN_IF_ERROR(Take(kAddedTokens, &view_.added_));
  QINFER_ASSIGN_OR_RETURN(
      const bool done, SomeOf(view_.added_.size(), kPiece / 8, &at_, [&](size_t i) -> Status {
        const BlobAdded& a = view_.added_[i];
        if (a.id >= view_.vocab_size() || (a.flags & ~kAllAddedFlags) != 0)
          return FormatError("an added token is no token");
        if (a.text_offset > view_.strings_size_ ||
            a.text_size > view_.strings_size_ - a.text_offset || a.text_size > kMaxAddedBytes ||
            FindInvalidUtf8({view_.strings_ + a.text_offset, a.text_size}) !=
                std::string_view::npos)
          return FormatError("an added token's text lies outside the strings or is not UTF-8");
        return OkStatus();
      }));
  if (!done) return false;
  QINFER_RETURN_IF_ERROR(Take(kPrefixIds, &view_.prefix_ids_));
  QINFER_RETURN_IF_ERROR(Take(kSuffixIds, &view_.suffix_ids_));
  if (view_.prefix_ids_.size() > kMaxTemplateIds || view_.suffix_ids_.size() > kMaxTemplateIds)
    return FormatError("a template of too many tokens");
  for (const auto ids : {view_.prefix_ids_, view_.suffix_ids_})
    for (const int32_t id : ids)
      if (id < 0 || !IsToken(id)) return FormatError("the template names no token");
  return true;
}

StatusOr<bool> BlobCheck::CheckTrie(bool normalized) {
  const int which = normalized ? 1 : 0;
  QINFER_RETURN_IF_ERROR(Take(normalized ? kNormNodes : kRawNodes, &view_.nodes_[which]));
  QINFER_RETURN_IF_ERROR(Take(normalized ? kNormEdges : kRawEdges, &view_.edges_[which]));
  return SomeOf(view_.nodes_[which].size(), kPiece / 4, &at_,
                [&](size_t i) { return CheckNode(normalized, i); });
}

Status BlobCheck::CheckNode(bool normalized, size_t index) const {
  const absl::Span<const BlobNode> nodes = view_.nodes(normalized);
  const absl::Span<const BlobEdge> edges = view_.edges(normalized);
  const BlobNode& n = nodes[index];
  if (n.first_edge > edges.size() || n.edge_count > edges.size() - n.first_edge ||
      n.edge_count > 256)
    return FormatError("the tree of added tokens has a bad node");
  if (n.added < -1 || (n.added >= 0 && static_cast<size_t>(n.added) >= view_.added_.size()))
    return FormatError("the tree of added tokens names no token");
  if (index == 0 && n.added != -1) return FormatError("an added token is empty");
  uint32_t previous = 0;
  for (uint32_t e = 0; e < n.edge_count; ++e) {
    const BlobEdge& edge = edges[n.first_edge + e];
    // Children come after their parents, so that every walk ends.
    if (edge.child <= index || edge.child >= nodes.size() || edge.byte > 255 ||
        (e > 0 && edge.byte <= previous))
      return FormatError("the tree of added tokens has a bad edge");
    previous = edge.byte;
  }
  return OkStatus();
}

Status BlobCheck::CheckOps(absl::Span<const BlobOp> ops, const char* what,
                           uint32_t last_kind) const {
  if (ops.size() > kMaxOps) return FormatError(StrCat(what, ": too many steps"));
  for (const BlobOp& op : ops) {
    if (op.kind == 0 || op.kind > last_kind)
      return FormatError(StrCat(what, ": unknown step ", op.kind));
    const auto inside = [&](uint32_t offset, uint32_t size) {
      return offset <= view_.strings_size_ && size <= view_.strings_size_ - offset &&
             size <= kMaxOpString &&
             FindInvalidUtf8({view_.strings_ + offset, size}) == std::string_view::npos;
    };
    if (!inside(op.text_offset, op.text_size) || !inside(op.text2_offset, op.text2_size))
      return FormatError(StrCat(what, ": a string lies outside the strings or is not UTF-8"));
  }
  return OkStatus();
}

StatusOr<bool> BlobCheck::CheckPrograms() {
  QINFER_RETURN_IF_ERROR(Take(kNormalizer, &view_.normalizer_));
  QINFER_RETURN_IF_ERROR(Take(kPretokenizer, &view_.pretokenizer_));
  QINFER_RETURN_IF_ERROR(Take(kDecoder, &view_.decoder_));
  QINFER_RETURN_IF_ERROR(
      CheckOps(view_.normalizer_, "normalizer", static_cast<uint32_t>(NormKind::kLast)));
  QINFER_RETURN_IF_ERROR(
      CheckOps(view_.pretokenizer_, "pre-tokenizer", static_cast<uint32_t>(PreKind::kLast)));
  QINFER_RETURN_IF_ERROR(
      CheckOps(view_.decoder_, "decoder", static_cast<uint32_t>(DecodeKind::kLast)));
  for (const BlobOp& op : view_.normalizer_) {
    const auto kind = static_cast<NormKind>(op.kind);
    if ((kind == NormKind::kReplace || kind == NormKind::kReplaceRegex) && op.text_size == 0)
      return FormatError("normalizer: Replace of nothing");
  }
  for (const BlobOp& op : view_.pretokenizer_) {
    const auto kind = static_cast<PreKind>(op.kind);
    const bool splits = kind == PreKind::kSplitString || kind == PreKind::kSplitRegex ||
                        kind == PreKind::kSplitScanner || kind == PreKind::kPunctuation;
    if (splits && op.a > static_cast<uint32_t>(Behavior::kLast))
      return FormatError("pre-tokenizer: unknown behavior");
    const bool needs_text = kind == PreKind::kSplitString || kind == PreKind::kSplitRegex ||
                            kind == PreKind::kMetaspace || kind == PreKind::kCharDelimiter;
    if (needs_text && op.text_size == 0) return FormatError("pre-tokenizer: an empty pattern");
    if (kind == PreKind::kSplitScanner &&
        (op.c == 0 || op.c > static_cast<uint32_t>(Scanner::kLast)))
      return FormatError("pre-tokenizer: unknown scanner");
    if (kind == PreKind::kMetaspace &&
        (op.a > static_cast<uint32_t>(PrependScheme::kLast) || op.text_size > 4))
      return FormatError("pre-tokenizer: a bad Metaspace step");
  }
  for (const BlobOp& op : view_.decoder_) {
    const auto kind = static_cast<DecodeKind>(op.kind);
    const bool needs_text = kind == DecodeKind::kMetaspace || kind == DecodeKind::kStrip ||
                            kind == DecodeKind::kReplace || kind == DecodeKind::kReplaceRegex;
    if (needs_text && op.text_size == 0) return FormatError("decoder: an empty pattern");
  }
  return true;
}

}  // namespace qinfer::tokenizer
