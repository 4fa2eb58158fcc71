// From a spec to the compiled form. Deterministic: sections are built in the order of ids and of
// the spec's lists alone.
#include <algorithm>
#include <cstring>

#include "tokenizer/blob.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/spec.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

constexpr std::string_view kMetaspaceMark = "\xe2\x96\x81";

class Writer {
 public:
  explicit Writer(const TokenizerSpec& spec)
      : spec_(spec),
        strings_(spec.memory),
        offsets_(spec.memory),
        flags_(spec.memory),
        table_(spec.memory),
        merges_(spec.memory),
        singles_(spec.memory),
        added_(spec.memory) {}

  StatusOr<Buffer> Run() {
    std::memcpy(header_.magic, kBlobMagic, sizeof kBlobMagic);
    header_.version = kBlobVersion;
    header_.header_bytes = sizeof(BlobHeader);
    header_.bos = static_cast<int32_t>(spec_.bos);
    header_.eos = static_cast<int32_t>(spec_.eos);
    header_.unk = static_cast<int32_t>(spec_.unk);
    QINFER_RETURN_IF_ERROR(Tokens());
    QINFER_RETURN_IF_ERROR(TokenTable());
    QINFER_RETURN_IF_ERROR(Merges());
    Singles();
    QINFER_RETURN_IF_ERROR(
        AddString(spec_.affix_prefix, &header_.affix_prefix_offset, &header_.affix_prefix_size));
    QINFER_RETURN_IF_ERROR(
        AddString(spec_.affix_suffix, &header_.affix_suffix_offset, &header_.affix_suffix_size));
    QINFER_RETURN_IF_ERROR(Program(spec_.normalizer, &normalizer_));
    QINFER_RETURN_IF_ERROR(Program(spec_.pretokenizer, &pretokenizer_));
    QINFER_RETURN_IF_ERROR(Program(spec_.decoder, &decoder_));
    QINFER_RETURN_IF_ERROR(Added());
    header_.flags = (spec_.byte_level ? kByteLevel : 0u) |
                    (spec_.byte_fallback ? kByteFallback : 0u) | (spec_.fuse_unk ? kFuseUnk : 0u) |
                    (spec_.ignore_merges ? kIgnoreMerges : 0u) |
                    (CanCutAtSpace() ? kCutAtSpace : 0u);
    return Assemble();
  }

 private:
  Status AddString(std::string_view text, uint32_t* offset, uint32_t* size) {
    if (text.size() > 0xffffffffu - strings_.size())
      return FormatError("the texts of the tokenizer are longer than 4 GiB");
    *offset = static_cast<uint32_t>(strings_.size());
    *size = static_cast<uint32_t>(text.size());
    strings_.append(text);
    return OkStatus();
  }

  std::string_view TokenText(uint32_t id) const {
    return std::string_view(strings_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }

  Status Tokens() {
    uint32_t size = 0;
    for (const SpecToken& t : spec_.tokens) size = std::max(size, t.id + 1);
    for (const SpecAdded& a : spec_.added) size = std::max(size, a.id + 1);
    if (size == 0) return FormatError("the vocabulary is empty");
    if (size > kMaxVocabulary)
      return FormatError(StrCat("a vocabulary of ", size, " ids; the limit is ", kMaxVocabulary));
    header_.vocab_size = size;
    std::pmr::vector<Piece> texts(size, spec_.memory);
    flags_.assign(size, 0);
    for (const SpecToken& t : spec_.tokens) {
      texts[t.id] = t.text;
      flags_[t.id] = static_cast<uint8_t>(t.flags | kInModel);
    }
    for (const SpecAdded& a : spec_.added) {
      if (flags_[a.id] == 0) texts[a.id] = a.content;
      flags_[a.id] |= kAdded;
      if ((a.flags & kAddedSpecial) != 0) flags_[a.id] |= kSpecial;
    }
    offsets_.reserve(size + size_t{1});
    for (const Piece& p : texts) {
      uint32_t offset = 0;
      uint32_t bytes = 0;
      QINFER_RETURN_IF_ERROR(AddString(spec_.Text(p), &offset, &bytes));
      offsets_.push_back(offset);
    }
    offsets_.push_back(static_cast<uint32_t>(strings_.size()));
    return OkStatus();
  }

  Status TokenTable() {
    size_t count = 0;
    for (const uint8_t f : flags_) count += f != 0 ? 1 : 0;
    for (size_t slots = 16;; slots *= 2) {
      if (slots < count * 2) continue;
      table_.assign(slots, kEmptySlot);
      const auto mask = static_cast<uint32_t>(slots - 1);
      uint32_t longest = 0;
      for (uint32_t id = 0; id < header_.vocab_size; ++id) {
        if (flags_[id] == 0) continue;
        uint32_t slot = HashText(TokenText(id)) & mask;
        uint32_t probe = 0;
        for (; table_[slot] != kEmptySlot; slot = (slot + 1) & mask) ++probe;
        table_[slot] = id;
        longest = std::max(longest, probe);
      }
      header_.token_probe = longest;
      if (longest <= kMaxProbe) return OkStatus();
      if (slots > count * 64 + 4096) return FormatError("token texts that defeat the hash table");
    }
  }

  Status Merges() {
    for (size_t slots = 16;; slots *= 2) {
      if (slots < spec_.merges.size() + spec_.merges.size() / 2) continue;
      merges_.assign(slots, BlobMerge{kEmptySlot, 0, 0, 0});
      const auto mask = static_cast<uint32_t>(slots - 1);
      uint32_t longest = 0;
      for (const SpecMerge& m : spec_.merges) {
        uint32_t slot = HashPair(m.left, m.right) & mask;
        uint32_t probe = 0;
        for (; merges_[slot].left != kEmptySlot &&
               (merges_[slot].left != m.left || merges_[slot].right != m.right);
             slot = (slot + 1) & mask)
          ++probe;
        merges_[slot] = {m.left, m.right, m.rank, m.result};
        longest = std::max(longest, probe);
      }
      header_.merge_probe = longest;
      if (longest <= kMaxProbe) return OkStatus();
      if (slots > spec_.merges.size() * 64 + 4096)
        return FormatError("merges that defeat the hash table");
    }
  }

  int32_t FindModel(std::string_view text) const {
    const auto mask = static_cast<uint32_t>(table_.size() - 1);
    for (uint32_t slot = HashText(text) & mask; table_[slot] != kEmptySlot;
         slot = (slot + 1) & mask) {
      const uint32_t id = table_[slot];
      if (TokenText(id) == text)
        return (flags_[id] & kInModel) != 0 ? static_cast<int32_t>(id) : -1;
    }
    return -1;
  }

  void Singles() {
    singles_.assign(512, -1);
    for (uint32_t b = 0; b < 256; ++b) {
      char buffer[4];
      if (spec_.byte_level) {
        const uint32_t length = EncodeUtf8(ByteToAlphabet(static_cast<uint8_t>(b)), buffer);
        singles_[b] = FindModel({buffer, length});
      } else if (b < 128) {
        buffer[0] = static_cast<char>(b);
        singles_[b] = FindModel({buffer, 1});
      }
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      const char code[6] = {'<', '0', 'x', kDigits[b >> 4], kDigits[b & 15], '>'};
      const int32_t id = FindModel({code, 6});
      singles_[256 + b] = id;
      if (id >= 0 && spec_.byte_fallback) flags_[static_cast<size_t>(id)] |= kByteToken;
    }
  }

  Status Program(const std::vector<SpecOp>& steps, std::vector<BlobOp>* out) {
    if (steps.size() > kMaxOps)
      return UnsupportedError(
          StrCat("a sequence of ", steps.size(), " steps; the limit is ", kMaxOps));
    for (const SpecOp& step : steps) {
      BlobOp op{step.kind, step.a, step.b, step.c, 0, 0, 0, 0};
      if (step.text.size() > kMaxOpString || step.text2.size() > kMaxOpString)
        return UnsupportedError(
            StrCat("a pattern or content of more than ", kMaxOpString, " bytes"));
      QINFER_RETURN_IF_ERROR(AddString(step.text, &op.text_offset, &op.text_size));
      QINFER_RETURN_IF_ERROR(AddString(step.text2, &op.text2_offset, &op.text2_size));
      out->push_back(op);
    }
    return OkStatus();
  }

  // Merges make words of this vocabulary only from such neighbours, so that a word may be cut in
  // front of every mark that follows another character.
  bool CanCutAtSpace() const {
    if (spec_.byte_level || spec_.ignore_merges || !spec_.affix_prefix.empty() ||
        !spec_.affix_suffix.empty() || FindModel(kMetaspaceMark) < 0)
      return false;
    for (const SpecMerge& m : spec_.merges) {
      if (m.left == spec_.unk || m.right == spec_.unk) return false;
      const std::string_view text = TokenText(m.result);
      for (size_t at = text.find(kMetaspaceMark); at != std::string_view::npos;
           at = text.find(kMetaspaceMark, at + 3))
        if (at != 0 && (at < 3 || text.substr(at - 3, 3) != kMetaspaceMark)) return false;
    }
    return true;
  }

  Status Added() {
    const String strings(strings_, spec_.memory);  // the program's, while contents are added
    QINFER_ASSIGN_OR_RETURN(const Normalizer normalizer,
                            Normalizer::Open(normalizer_, strings, spec_.memory));
    MatchBudget budget(strings_.size());
    // Special tokens come first where two have the same (normalized) content.
    std::vector<std::pair<std::string, int32_t>> tries[2];
    for (const bool special : {true, false}) {
      for (const SpecAdded& a : spec_.added) {
        if (((a.flags & kAddedSpecial) != 0) != special) continue;
        const auto index = static_cast<int32_t>(added_.size());
        String content(spec_.Text(a.content), spec_.memory);
        const bool normalized = (a.flags & kNormalized) != 0;
        if (normalized && !normalizer.empty()) {
          String result(spec_.memory);
          String scratch(spec_.memory);
          bool head_kept;
          QINFER_RETURN_IF_ERROR(normalizer.Apply(content, &budget, &result, &scratch, &head_kept));
          content = result;
        }
        if (content.size() > kMaxAddedBytes)
          return FormatError("an added token that normalizes to more than 4096 bytes");
        BlobAdded entry{a.id, a.flags, 0, 0};
        QINFER_RETURN_IF_ERROR(AddString(content, &entry.text_offset, &entry.text_size));
        if (std::string_view(content) != TokenText(a.id)) flags_[a.id] |= kOtherText;
        added_.push_back(entry);
        if (content.empty()) continue;
        tries[normalized ? 1 : 0].emplace_back(std::string(content), index);
      }
    }
    for (int i = 0; i < 2; ++i) Trie(std::move(tries[i]), &nodes_[i], &edges_[i]);
    return OkStatus();
  }

  static void Trie(std::vector<std::pair<std::string, int32_t>> words, std::vector<BlobNode>* nodes,
                   std::vector<BlobEdge>* edges) {
    if (words.empty()) return;
    std::sort(words.begin(),
              words.end());  // by unsigned bytes; of equal contents the lower index first
    words.erase(std::unique(words.begin(), words.end(),
                            [](const auto& a, const auto& b) { return a.first == b.first; }),
                words.end());
    // Breadth first: each node is a range of words with a common beginning.
    struct Range {
      size_t begin, end, depth;
    };
    std::vector<Range> ranges = {{0, words.size(), 0}};
    for (size_t n = 0; n < ranges.size(); ++n) {
      Range r = ranges[n];
      BlobNode node{static_cast<uint32_t>(edges->size()), 0, -1};
      if (words[r.begin].first.size() == r.depth) node.added = words[r.begin++].second;
      while (r.begin < r.end) {
        const char byte = words[r.begin].first[r.depth];
        size_t end = r.begin;
        while (end < r.end && words[end].first[r.depth] == byte) ++end;
        edges->push_back({static_cast<uint8_t>(byte), static_cast<uint32_t>(ranges.size())});
        ranges.push_back({r.begin, end, r.depth + 1});
        ++node.edge_count;
        r.begin = end;
      }
      nodes->push_back(node);
    }
  }

  template <typename T>
  void Section(tokenizer::Section which, const T& data) {
    BlobSection& s = header_.sections[which];
    s.offset = (header_.total_bytes + 63) / 64 * 64;
    s.size = data.size() * sizeof(data[0]);
    header_.total_bytes = s.offset + s.size;
    sources_[which] = data.data();
  }

  StatusOr<Buffer> Assemble() {
    header_.total_bytes = sizeof(BlobHeader);
    Section(kStrings, strings_);
    Section(kTokenOffsets, offsets_);
    Section(kTokenFlags, flags_);
    Section(kTokenTable, table_);
    Section(kMerges, merges_);
    Section(kSingles, singles_);
    Section(kAddedTokens, added_);
    Section(kRawNodes, nodes_[0]);
    Section(kRawEdges, edges_[0]);
    Section(kNormNodes, nodes_[1]);
    Section(kNormEdges, edges_[1]);
    Section(kNormalizer, normalizer_);
    Section(kPretokenizer, pretokenizer_);
    Section(kDecoder, decoder_);
    Section(kPrefixIds, spec_.prefix);
    Section(kSuffixIds, spec_.suffix);
    header_.total_bytes = (header_.total_bytes + 63) / 64 * 64;
    QINFER_ASSIGN_OR_RETURN(Buffer out,
                            Buffer::Create(spec_.memory, header_.total_bytes, "the tokenizer"));
    auto* bytes = out.as<uint8_t>();
    std::memset(bytes, 0, out.size());
    std::memcpy(bytes, &header_, sizeof header_);
    for (uint32_t i = 0; i < kSectionCount; ++i)
      if (header_.sections[i].size != 0)
        std::memcpy(bytes + header_.sections[i].offset, sources_[i], header_.sections[i].size);
    return out;
  }

  const TokenizerSpec& spec_;
  BlobHeader header_{};
  const void* sources_[kSectionCount] = {};
  String strings_;
  std::pmr::vector<uint32_t> offsets_;
  std::pmr::vector<uint8_t> flags_;
  std::pmr::vector<uint32_t> table_;
  std::pmr::vector<BlobMerge> merges_;
  std::pmr::vector<int32_t> singles_;
  std::pmr::vector<BlobAdded> added_;
  std::vector<BlobNode> nodes_[2];
  std::vector<BlobEdge> edges_[2];
  std::vector<BlobOp> normalizer_, pretokenizer_, decoder_;
};

}  // namespace

StatusOr<Buffer> WriteBlob(const TokenizerSpec& spec) { return Writer(spec).Run(); }

}  // namespace qinfer::tokenizer
