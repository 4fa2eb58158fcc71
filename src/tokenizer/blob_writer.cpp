// Texts and programs first, so that all sizes are known; then the bytes are laid out, and the large
// tables are filled in place.
#include "tokenizer/blob_writer.h"

#include <algorithm>
#include <cstring>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pieces.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

constexpr std::string_view kMetaspaceMark = "\xe2\x96\x81";
constexpr size_t kPiece = 4096;  // tokens or merges
constexpr size_t kCopiedAtOnce = 256 << 10;
constexpr size_t kClearedAtOnce = 16 << 10;  // entries of a table
constexpr size_t kAhead = 16;  // entries that the cache is asked for before their turn

Status Append(std::string_view text, String* strings, uint32_t* offset, uint32_t* size) {
  if (text.size() > 0xffffffffu - strings->size())
    return FormatError("the texts of the tokenizer are longer than 4 GiB");
  *offset = static_cast<uint32_t>(strings->size());
  *size = static_cast<uint32_t>(text.size());
  strings->append(text);
  return OkStatus();
}

Status AppendProgram(const std::vector<SpecOp>& steps, String* strings, std::vector<BlobOp>* out) {
  if (steps.size() > kMaxOps)
    return UnsupportedError(
        StrCat("a sequence of ", steps.size(), " steps; the limit is ", kMaxOps));
  for (const SpecOp& step : steps) {
    BlobOp op{step.kind, step.a, step.b, step.c, 0, 0, 0, 0};
    if (step.text.size() > kMaxOpString || step.text2.size() > kMaxOpString)
      return UnsupportedError(StrCat("a pattern or content of more than ", kMaxOpString, " bytes"));
    QINFER_RETURN_IF_ERROR(Append(step.text, strings, &op.text_offset, &op.text_size));
    QINFER_RETURN_IF_ERROR(Append(step.text2, strings, &op.text2_offset, &op.text2_size));
    out->push_back(op);
  }
  return OkStatus();
}

}  // namespace

BlobWriter::BlobWriter(TokenizerSpec* spec)
    : spec_(spec),
      strings_(spec->memory),
      texts_(spec->memory),
      offsets_(spec->memory),
      flags_(spec->memory),
      added_(spec->memory),
      program_strings_(spec->memory),
      tries_{AddedTrie(spec->memory), AddedTrie(spec->memory)} {
  std::memcpy(header_.magic, kBlobMagic, sizeof kBlobMagic);
  header_.version = kBlobVersion;
  header_.header_bytes = sizeof(BlobHeader);
}

const BlobWriter::Stage BlobWriter::kStages[16] = {
    &BlobWriter::CountIds,       &BlobWriter::PlaceTokens,         &BlobWriter::PlaceAdded,
    &BlobWriter::JoinTexts,      &BlobWriter::AddPrograms,         &BlobWriter::AddContents,
    &BlobWriter::BuildRawTrie,   &BlobWriter::BuildNormalizedTrie, &BlobWriter::Layout,
    &BlobWriter::CopySections,   &BlobWriter::ClearTables,         &BlobWriter::FillTokenTable,
    &BlobWriter::FillMergeTable, &BlobWriter::FillSingles,         &BlobWriter::FindCuts,
    &BlobWriter::WriteHeader};
constexpr size_t kLayoutStage = 8;

StatusOr<bool> BlobWriter::Step() {
  const size_t stage = stage_;
  QINFER_ASSIGN_OR_RETURN(const bool done, (this->*kStages[stage])());
  if (stage_ != stage) return false;  // it has gone back
  if (!done) return false;
  at_ = 0;
  return ++stage_ == std::size(kStages);
}

StatusOr<bool> BlobWriter::CountIds() {
  const size_t tokens = spec_->tokens.size();
  uint32_t& size = header_.vocab_size;
  QINFER_ASSIGN_OR_RETURN(
      const bool done, SomeOf(tokens + spec_->added.size(), 16 * kPiece, &at_, [&](size_t i) {
        const uint32_t id = i < tokens ? spec_->tokens[i].id : spec_->added[i - tokens].id;
        size = std::max(size, id + 1);
        return OkStatus();
      }));
  if (!done) return false;
  if (size == 0) return FormatError("the vocabulary is empty");
  if (size > kMaxVocabulary)
    return FormatError(StrCat("a vocabulary of ", size, " ids; the limit is ", kMaxVocabulary));
  texts_.resize(size);
  flags_.assign(size, 0);
  return true;
}

StatusOr<bool> BlobWriter::PlaceTokens() {
  return SomeOf(spec_->tokens.size(), 4 * kPiece, &at_, [&](size_t i) {
    const SpecToken& t = spec_->tokens[i];
    texts_[t.id] = t.text;
    flags_[t.id] = static_cast<uint8_t>(t.flags | kInModel);
    text_bytes_ += t.text.size;
    return OkStatus();
  });
}

StatusOr<bool> BlobWriter::PlaceAdded() {
  QINFER_ASSIGN_OR_RETURN(const bool done,
                          SomeOf(spec_->added.size(), 4 * kPiece, &at_, [&](size_t i) {
                            const SpecAdded& a = spec_->added[i];
                            if (flags_[a.id] == 0) {
                              texts_[a.id] = a.content;
                              text_bytes_ += a.content.size;
                            }
                            text_bytes_ += a.content.size;  // once more as it is matched
                            flags_[a.id] |= kAdded;
                            if ((a.flags & kAddedSpecial) != 0) flags_[a.id] |= kSpecial;
                            return OkStatus();
                          }));
  if (!done) return false;
  std::pmr::vector<SpecToken>(spec_->memory).swap(spec_->tokens);
  offsets_.reserve(texts_.size() + 1);
  strings_.reserve(static_cast<size_t>(std::min<uint64_t>(text_bytes_, UINT32_MAX)) + kPiece);
  return true;
}

StatusOr<bool> BlobWriter::JoinTexts() {
  QINFER_ASSIGN_OR_RETURN(
      const bool done, SomeOf(texts_.size(), 4 * kPiece, &at_, [&](size_t id) {
        uint32_t offset = 0, bytes = 0;
        QINFER_RETURN_IF_ERROR(Append(spec_->Text(texts_[id]), &strings_, &offset, &bytes));
        offsets_.push_back(offset);
        if (flags_[id] != 0) ++token_count_;
        return OkStatus();
      }));
  if (!done) return false;
  offsets_.push_back(static_cast<uint32_t>(strings_.size()));
  std::pmr::vector<Piece>(spec_->memory).swap(texts_);
  return true;
}

StatusOr<bool> BlobWriter::AddPrograms() {
  QINFER_RETURN_IF_ERROR(Append(spec_->affix_prefix, &strings_, &header_.affix_prefix_offset,
                                &header_.affix_prefix_size));
  QINFER_RETURN_IF_ERROR(Append(spec_->affix_suffix, &strings_, &header_.affix_suffix_offset,
                                &header_.affix_suffix_size));
  QINFER_RETURN_IF_ERROR(AppendProgram(spec_->normalizer, &strings_, &normalizer_));
  QINFER_RETURN_IF_ERROR(AppendProgram(spec_->pretokenizer, &strings_, &pretokenizer_));
  QINFER_RETURN_IF_ERROR(AppendProgram(spec_->decoder, &strings_, &decoder_));
  // Apart from the strings that contents are added to.
  QINFER_RETURN_IF_ERROR(AppendProgram(spec_->normalizer, &program_strings_, &program_));
  QINFER_ASSIGN_OR_RETURN(normalize_, Normalizer::Open(program_, program_strings_, spec_->memory));
  budget_.emplace(strings_.size());
  added_.reserve(spec_->added.size());
  return true;
}

// Special tokens come first where two have the same (normalized) content.
StatusOr<bool> BlobWriter::AddContents() {
  const size_t count = spec_->added.size();
  QINFER_ASSIGN_OR_RETURN(const bool done,
                          SomeOf(2 * count, kPiece / 8, &at_, [&](size_t i) -> Status {
                            const SpecAdded& added = spec_->added[i < count ? i : i - count];
                            const bool special = (added.flags & kAddedSpecial) != 0;
                            return special == (i < count) ? AddContent(added) : OkStatus();
                          }));
  if (!done) return false;
  std::pmr::vector<char>(spec_->memory).swap(spec_->arena);
  return true;
}

Status BlobWriter::AddContent(const SpecAdded& added) {
  const auto index = static_cast<uint32_t>(added_.size());
  String content(spec_->Text(added.content), spec_->memory);
  const bool normalized = (added.flags & kNormalized) != 0;
  if (normalized && !normalize_->empty()) {
    String result(spec_->memory);
    String scratch(spec_->memory);
    bool head_kept;
    QINFER_RETURN_IF_ERROR(normalize_->Apply(content, &*budget_, &result, &scratch, &head_kept));
    content = result;
  }
  if (content.size() > kMaxAddedBytes)
    return FormatError("an added token that normalizes to more than 4096 bytes");
  BlobAdded entry{added.id, added.flags, 0, 0};
  QINFER_RETURN_IF_ERROR(Append(content, &strings_, &entry.text_offset, &entry.text_size));
  if (std::string_view(content) != TokenText(added.id)) flags_[added.id] |= kOtherText;
  added_.push_back(entry);
  if (!content.empty()) {
    tries_[normalized ? 1 : 0].Add({entry.text_offset, entry.text_size}, index);
  }
  return OkStatus();
}

void BlobWriter::Place(Section section, const void* source, uint64_t bytes) {
  BlobSection& s = header_.sections[section];
  s.offset = (header_.total_bytes + 63) / 64 * 64;
  s.size = bytes;
  header_.total_bytes = s.offset + s.size;
  sources_[section] = source;
}

StatusOr<bool> BlobWriter::Layout() {
  while (token_slots_ < token_count_ * 2) token_slots_ *= 2;
  const size_t merges = spec_->merges.size();
  while (merge_slots_ < merges + merges / 2) merge_slots_ *= 2;
  header_.total_bytes = sizeof(BlobHeader);
  const auto place = [&](Section section, const auto& data) {
    Place(section, data.data(), data.size() * sizeof(data[0]));
  };
  place(kStrings, strings_);
  place(kTokenOffsets, offsets_);
  place(kTokenFlags, flags_);
  Place(kTokenTable, nullptr, token_slots_ * sizeof(uint32_t));
  Place(kMerges, nullptr, merge_slots_ * sizeof(BlobMerge));
  Place(kSingles, nullptr, sizeof(int32_t) * 512);
  place(kAddedTokens, added_);
  place(kRawNodes, tries_[0].nodes());
  place(kRawEdges, tries_[0].edges());
  place(kNormNodes, tries_[1].nodes());
  place(kNormEdges, tries_[1].edges());
  place(kNormalizer, normalizer_);
  place(kPretokenizer, pretokenizer_);
  place(kDecoder, decoder_);
  place(kPrefixIds, spec_->prefix);
  place(kSuffixIds, spec_->suffix);
  header_.total_bytes = (header_.total_bytes + 63) / 64 * 64;
  blob_ = Buffer();
  QINFER_ASSIGN_OR_RETURN(blob_,
                          Buffer::Create(spec_->memory, header_.total_bytes, "the tokenizer"));
  for (const BlobSection& s : header_.sections) {
    const uint64_t end = s.offset + s.size;
    std::memset(blob_.as<uint8_t>() + end, 0, (end + 63) / 64 * 64 - end);
  }
  return true;
}

StatusOr<bool> BlobWriter::CopySections() {
  size_t left = kCopiedAtOnce;
  size_t before = 0;  // bytes of earlier sections
  for (uint32_t i = 0; i < kSectionCount && left > 0; ++i) {
    const BlobSection& s = header_.sections[i];
    if (sources_[i] == nullptr || s.size == 0) continue;
    if (at_ < before + s.size) {
      const size_t from = at_ - before;
      const size_t n = std::min<size_t>(left, s.size - from);
      std::memcpy(blob_.as<uint8_t>() + s.offset + from,
                  static_cast<const uint8_t*>(sources_[i]) + from, n);
      at_ += n;
      left -= n;
    }
    before += s.size;
  }
  return left > 0;
}

StatusOr<bool> BlobWriter::ClearTables() {
  const size_t end = std::min(at_ + kClearedAtOnce, token_slots_ + merge_slots_);
  if (at_ < token_slots_) {
    const size_t last = std::min(end, token_slots_);
    std::fill(At<uint32_t>(kTokenTable) + at_, At<uint32_t>(kTokenTable) + last, kEmptySlot);
    at_ = last;
  } else {
    std::fill(At<BlobMerge>(kMerges) + (at_ - token_slots_),
              At<BlobMerge>(kMerges) + (end - token_slots_), BlobMerge{kEmptySlot, 0, 0, 0});
    at_ = end;
  }
  return at_ == token_slots_ + merge_slots_;
}

Status BlobWriter::Enlarge(size_t* slots, size_t entries, const char* why) {
  if (*slots > entries * 64 + 4096) return FormatError(why);
  *slots *= 2;
  header_.token_probe = header_.merge_probe = 0;
  stage_ = kLayoutStage;
  at_ = 0;
  return OkStatus();
}

StatusOr<bool> BlobWriter::FillTokenTable() {
  auto* const table = At<uint32_t>(kTokenTable);
  const auto mask = static_cast<uint32_t>(token_slots_ - 1);
  bool too_long = false;
  QINFER_ASSIGN_OR_RETURN(const bool done, SomeOf(header_.vocab_size, kPiece, &at_, [&](size_t i) {
                            if (flags_[i] == 0 || too_long) return OkStatus();
                            const auto id = static_cast<uint32_t>(i);
                            uint32_t slot = HashText(TokenText(id)) & mask;
                            uint32_t probe = 0;
                            for (; table[slot] != kEmptySlot && probe <= kMaxProbe;
                                 slot = (slot + 1) & mask)
                              ++probe;
                            if (probe > kMaxProbe) {
                              too_long = true;
                              return OkStatus();
                            }
                            table[slot] = id;
                            header_.token_probe = std::max(header_.token_probe, probe);
                            return OkStatus();
                          }));
  if (too_long) {
    QINFER_RETURN_IF_ERROR(
        Enlarge(&token_slots_, token_count_, "token texts that defeat the hash table"));
  }
  return done;
}

StatusOr<bool> BlobWriter::FillMergeTable() {
  auto* const table = At<BlobMerge>(kMerges);
  const std::pmr::vector<SpecMerge>& merges = spec_->merges;
  const auto mask = static_cast<uint32_t>(merge_slots_ - 1);
  bool too_long = false;
  QINFER_ASSIGN_OR_RETURN(
      const bool done, SomeOf(merges.size(), kPiece, &at_, [&](size_t i) {
        if (too_long) return OkStatus();
        if (i + kAhead < merges.size()) {
          const SpecMerge& later = merges[i + kAhead];
          __builtin_prefetch(&table[HashPair(later.left, later.right) & mask], 1);
        }
        const SpecMerge& m = merges[i];
        uint32_t slot = HashPair(m.left, m.right) & mask;
        uint32_t probe = 0;
        for (; table[slot].left != kEmptySlot &&
               (table[slot].left != m.left || table[slot].right != m.right) && probe <= kMaxProbe;
             slot = (slot + 1) & mask)
          ++probe;
        if (probe > kMaxProbe) {
          too_long = true;
          return OkStatus();
        }
        table[slot] = {m.left, m.right, m.rank, m.result};
        header_.merge_probe = std::max(header_.merge_probe, probe);
        return OkStatus();
      }));
  if (too_long) {
    QINFER_RETURN_IF_ERROR(
        Enlarge(&merge_slots_, merges.size(), "merges that defeat the hash table"));
  }
  return done;
}

int32_t BlobWriter::FindInModel(std::string_view text) {
  const auto* const table = At<uint32_t>(kTokenTable);
  const auto mask = static_cast<uint32_t>(token_slots_ - 1);
  for (uint32_t slot = HashText(text) & mask; table[slot] != kEmptySlot; slot = (slot + 1) & mask) {
    const uint32_t id = table[slot];
    if (TokenText(id) == text) return (flags_[id] & kInModel) != 0 ? static_cast<int32_t>(id) : -1;
  }
  return -1;
}

StatusOr<bool> BlobWriter::FillSingles() {
  auto* const singles = At<int32_t>(kSingles);
  std::fill(singles, singles + 512, -1);
  for (uint32_t b = 0; b < 256; ++b) {
    char buffer[4];
    if (spec_->byte_level) {
      const uint32_t length = EncodeUtf8(ByteToAlphabet(static_cast<uint8_t>(b)), buffer);
      singles[b] = FindInModel({buffer, length});
    } else if (b < 128) {
      buffer[0] = static_cast<char>(b);
      singles[b] = FindInModel({buffer, 1});
    }
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const char code[6] = {'<', '0', 'x', kDigits[b >> 4], kDigits[b & 15], '>'};
    const int32_t id = FindInModel({code, 6});
    singles[256 + b] = id;
    if (id >= 0 && spec_->byte_fallback) At<uint8_t>(kTokenFlags)[id] |= kByteToken;
  }
  return true;
}

// Merges make words of this vocabulary only from such neighbours, so that a word may be cut in
// front of every mark that follows another character.
StatusOr<bool> BlobWriter::FindCuts() {
  if (at_ == 0) {
    header_.flags = (spec_->byte_level ? kByteLevel : 0u) |
                    (spec_->byte_fallback ? kByteFallback : 0u) |
                    (spec_->fuse_unk ? kFuseUnk : 0u) | (spec_->ignore_merges ? kIgnoreMerges : 0u);
    if (spec_->byte_level || spec_->ignore_merges || !spec_->affix_prefix.empty() ||
        !spec_->affix_suffix.empty() || FindInModel(kMetaspaceMark) < 0)
      return true;
  }
  const std::pmr::vector<SpecMerge>& merges = spec_->merges;
  bool can = true;
  QINFER_ASSIGN_OR_RETURN(const bool done, SomeOf(merges.size(), kPiece, &at_, [&](size_t i) {
                            const SpecMerge& m = merges[i];
                            can = can && m.left != spec_->unk && m.right != spec_->unk;
                            if (i > 0 && m.result == merges[i - 1].result)
                              return OkStatus();  // looked at already
                            const std::string_view text = TokenText(m.result);
                            for (size_t at = text.find(kMetaspaceMark);
                                 at != std::string_view::npos;
                                 at = text.find(kMetaspaceMark, at + 3))
                              if (at != 0 && (at < 3 || text.substr(at - 3, 3) != kMetaspaceMark))
                                can = false;
                            return OkStatus();
                          }));
  if (!can) return true;
  if (done) header_.flags |= kCutAtSpace;
  return done;
}

StatusOr<bool> BlobWriter::WriteHeader() {
  header_.bos = static_cast<int32_t>(spec_->bos);
  header_.eos = static_cast<int32_t>(spec_->eos);
  header_.unk = static_cast<int32_t>(spec_->unk);
  std::memcpy(blob_.data(), &header_, sizeof header_);
  return true;
}

}  // namespace qinfer::tokenizer
