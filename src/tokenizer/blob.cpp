// Validation of a compiled tokenizer: after Open every offset, id and index that the runtime
// follows is in bounds, whatever the bytes are. Nothing here interprets programs.
#include "tokenizer/blob.h"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tokenizer/scanners.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {

uint32_t HashText(std::string_view text) {
  return static_cast<uint32_t>(XXH3_64bits(text.data(), text.size()));
}

template <typename T>
Status BlobView::Take(Section section, absl::Span<const T>* out) const {
  const BlobSection& s = header_->sections[section];
  if (s.offset % 64 != 0 || s.offset > bytes_.size() || s.size > bytes_.size() - s.offset)
    return FormatError(StrCat("section ", section, " lies outside the file"));
  if (s.size % sizeof(T) != 0)
    return FormatError(StrCat("section ", section, " has a partial element"));
  *out =
      absl::Span<const T>(reinterpret_cast<const T*>(bytes_.data() + s.offset), s.size / sizeof(T));
  return OkStatus();
}

namespace {

template <typename T>
bool IsPowerOfTwo(absl::Span<const T> s) {
  return !s.empty() && (s.size() & (s.size() - 1)) == 0 && s.size() <= (1u << 30);
}

}  // namespace

Status BlobView::CheckTokens() {
  const uint32_t vocab = header_->vocab_size;
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
  for (uint32_t i = 0; i < vocab; ++i)
    if (offsets[i] > offsets[i + 1]) return FormatError(StrCat("token ", i, ": bad offset"));
  if (offsets[vocab] > strings.size()) return FormatError("token texts lie outside the strings");
  const std::string_view texts(strings.data() + offsets[0], offsets[vocab] - offsets[0]);
  if (FindInvalidUtf8(texts) != std::string_view::npos)
    return FormatError("a token's text is not UTF-8");
  for (uint32_t i = 0; i < vocab; ++i)
    if (offsets[i] < offsets[vocab] && (strings[offsets[i]] & 0xc0) == 0x80)
      return FormatError(StrCat("token ", i, " begins inside a character"));
  for (const uint32_t id : table)
    if (id != kEmptySlot && id >= vocab) return FormatError("the token table names no token");
  for (const int32_t id : singles)
    if (id < -1 || (id >= 0 && static_cast<uint32_t>(id) >= vocab))
      return FormatError("a single-byte token is no token");
  for (const int32_t id : {header_->bos, header_->eos, header_->unk})
    if (id < -1 || (id >= 0 && static_cast<uint32_t>(id) >= vocab))
      return FormatError("BOS, EOS or UNK is no token");
  if (header_->token_probe > kMaxProbe || header_->merge_probe > kMaxProbe)
    return FormatError("a hash table probes too far");
  const auto inside = [&](uint32_t offset, uint32_t size) {
    return offset <= strings.size() && size <= strings.size() - offset && size <= 4096;
  };
  if (!inside(header_->affix_prefix_offset, header_->affix_prefix_size) ||
      !inside(header_->affix_suffix_offset, header_->affix_suffix_size))
    return FormatError("a subword prefix or suffix lies outside the strings");
  strings_ = strings.data();
  strings_size_ = strings.size();
  token_offsets_ = offsets.data();
  token_flags_ = flags.data();
  token_table_ = table.data();
  token_mask_ = static_cast<uint32_t>(table.size() - 1);
  singles_ = singles.data();
  return OkStatus();
}

Status BlobView::CheckMerges() {
  absl::Span<const BlobMerge> merges;
  QINFER_RETURN_IF_ERROR(Take(kMerges, &merges));
  if (!IsPowerOfTwo(merges)) return FormatError("the merge table's size is not a power of two");
  const uint32_t vocab = header_->vocab_size;
  for (const BlobMerge& m : merges)
    if (m.left != kEmptySlot && (m.left >= vocab || m.right >= vocab || m.result >= vocab))
      return FormatError("a merge names no token");
  merges_ = merges.data();
  merge_mask_ = static_cast<uint32_t>(merges.size() - 1);
  return OkStatus();
}

Status BlobView::CheckAdded() {
  QINFER_RETURN_IF_ERROR(Take(kAddedTokens, &added_));
  for (const BlobAdded& a : added_) {
    if (a.id >= header_->vocab_size || (a.flags & ~kAllAddedFlags) != 0)
      return FormatError("an added token is no token");
    if (a.text_offset > strings_size_ || a.text_size > strings_size_ - a.text_offset ||
        a.text_size > kMaxAddedBytes ||
        FindInvalidUtf8({strings_ + a.text_offset, a.text_size}) != std::string_view::npos)
      return FormatError("an added token's text lies outside the strings or is not UTF-8");
  }
  QINFER_RETURN_IF_ERROR(CheckTrie(false));
  QINFER_RETURN_IF_ERROR(CheckTrie(true));
  QINFER_RETURN_IF_ERROR(Take(kPrefixIds, &prefix_ids_));
  QINFER_RETURN_IF_ERROR(Take(kSuffixIds, &suffix_ids_));
  if (prefix_ids_.size() > kMaxTemplateIds || suffix_ids_.size() > kMaxTemplateIds)
    return FormatError("a template of too many tokens");
  for (const auto ids : {prefix_ids_, suffix_ids_})
    for (const int32_t id : ids)
      if (id < 0 || static_cast<uint32_t>(id) >= header_->vocab_size)
        return FormatError("the template names no token");
  return OkStatus();
}

Status BlobView::CheckTrie(bool normalized) {
  absl::Span<const BlobNode>& nodes = nodes_[normalized ? 1 : 0];
  absl::Span<const BlobEdge>& edges = edges_[normalized ? 1 : 0];
  QINFER_RETURN_IF_ERROR(Take(normalized ? kNormNodes : kRawNodes, &nodes));
  QINFER_RETURN_IF_ERROR(Take(normalized ? kNormEdges : kRawEdges, &edges));
  for (size_t i = 0; i < nodes.size(); ++i) {
    const BlobNode& n = nodes[i];
    if (n.first_edge > edges.size() || n.edge_count > edges.size() - n.first_edge ||
        n.edge_count > 256)
      return FormatError("the tree of added tokens has a bad node");
    if (n.added < -1 || (n.added >= 0 && static_cast<size_t>(n.added) >= added_.size()))
      return FormatError("the tree of added tokens names no token");
    if (i == 0 && n.added != -1) return FormatError("an added token is empty");
    uint32_t previous = 0;
    for (uint32_t e = 0; e < n.edge_count; ++e) {
      const BlobEdge& edge = edges[n.first_edge + e];
      // Children come after their parents, so that every walk ends.
      if (edge.child <= i || edge.child >= nodes.size() || edge.byte > 255 ||
          (e > 0 && edge.byte <= previous))
        return FormatError("the tree of added tokens has a bad edge");
      previous = edge.byte;
    }
  }
  return OkStatus();
}

Status BlobView::CheckOps(absl::Span<const BlobOp> ops, const char* what, uint32_t last_kind) {
  if (ops.size() > kMaxOps) return FormatError(StrCat(what, ": too many steps"));
  for (const BlobOp& op : ops) {
    if (op.kind == 0 || op.kind > last_kind)
      return FormatError(StrCat(what, ": unknown step ", op.kind));
    const auto inside = [&](uint32_t offset, uint32_t size) {
      return offset <= strings_size_ && size <= strings_size_ - offset && size <= kMaxOpString &&
             FindInvalidUtf8({strings_ + offset, size}) == std::string_view::npos;
    };
    if (!inside(op.text_offset, op.text_size) || !inside(op.text2_offset, op.text2_size))
      return FormatError(StrCat(what, ": a string lies outside the strings or is not UTF-8"));
  }
  return OkStatus();
}

Status BlobView::CheckPrograms() {
  QINFER_RETURN_IF_ERROR(Take(kNormalizer, &normalizer_));
  QINFER_RETURN_IF_ERROR(Take(kPretokenizer, &pretokenizer_));
  QINFER_RETURN_IF_ERROR(Take(kDecoder, &decoder_));
  QINFER_RETURN_IF_ERROR(
      CheckOps(normalizer_, "normalizer", static_cast<uint32_t>(NormKind::kLast)));
  QINFER_RETURN_IF_ERROR(
      CheckOps(pretokenizer_, "pre-tokenizer", static_cast<uint32_t>(PreKind::kLast)));
  QINFER_RETURN_IF_ERROR(CheckOps(decoder_, "decoder", static_cast<uint32_t>(DecodeKind::kLast)));
  for (const BlobOp& op : normalizer_) {
    const auto kind = static_cast<NormKind>(op.kind);
    if ((kind == NormKind::kReplace || kind == NormKind::kReplaceRegex) && op.text_size == 0)
      return FormatError("normalizer: Replace of nothing");
  }
  for (const BlobOp& op : pretokenizer_) {
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
  for (const BlobOp& op : decoder_) {
    const auto kind = static_cast<DecodeKind>(op.kind);
    const bool needs_text = kind == DecodeKind::kMetaspace || kind == DecodeKind::kStrip ||
                            kind == DecodeKind::kReplace || kind == DecodeKind::kReplaceRegex;
    if (needs_text && op.text_size == 0) return FormatError("decoder: an empty pattern");
  }
  return OkStatus();
}

StatusOr<BlobView> BlobView::Open(absl::Span<const uint8_t> bytes, const std::string& name) {
  const std::string where = StrCat(name, ": compiled tokenizer");
  BlobView view;
  view.bytes_ = bytes;
  if (bytes.size() < sizeof(BlobHeader))
    return FormatError(StrCat(where, ": ", bytes.size(), " bytes are too few for its header"));
  if (reinterpret_cast<uintptr_t>(bytes.data()) % 64 != 0)
    return MisuseError(StrCat(where, ": its bytes are not 64-byte aligned"));
  view.header_ = reinterpret_cast<const BlobHeader*>(bytes.data());
  const BlobHeader& h = *view.header_;
  if (std::memcmp(h.magic, kBlobMagic, sizeof kBlobMagic) != 0)
    return FormatError(StrCat(where, ": wrong magic"));
  if (h.version != kBlobVersion || h.header_bytes != sizeof(BlobHeader) ||
      (h.flags & ~kAllBlobFlags) != 0)
    return UnsupportedError(StrCat(where, ": version ", h.version, " with flags ", h.flags,
                                   "; this build reads version ", kBlobVersion,
                                   " (convert the model again)"));
  if (h.total_bytes != bytes.size())
    return FormatError(
        StrCat(where, ": ", bytes.size(), " bytes, its header says ", h.total_bytes));
  Status status = view.CheckTokens();
  if (status.ok()) status = view.CheckMerges();
  if (status.ok()) status = view.CheckAdded();
  if (status.ok()) status = view.CheckPrograms();
  if (!status.ok()) return Annotate(status, where);
  return view;
}

}  // namespace qinfer::tokenizer
