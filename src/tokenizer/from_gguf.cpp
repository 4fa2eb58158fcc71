// GGUF metadata (tokenizer.ggml.*) to a spec: byte-level vocabularies ("gpt2") with merges, and
// SentencePiece ones ("llama"), whose merges follow from the scores.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "tokenizer/gguf_pre.h"
#include "tokenizer/pieces.h"
#include "tokenizer/spec_reader.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace qinfer::tokenizer {
namespace {

using format::Gguf;
using format::GgufStrings;
using format::GgufValue;

constexpr std::string_view kMark = "\xe2\x96\x81";
constexpr std::string_view kSpace = " ";
constexpr uint64_t kMaxTokenBytes = 1 << 16;
constexpr size_t kPiece = 2048;                     // tokens or merges
constexpr size_t kBatch = 64, kBatches = 32;        // of ways to cut a token
constexpr uint64_t kMaxSplits = uint64_t{1} << 33;  // of all tokens, squared lengths

enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

class GgufReader final : public SpecReader {
 public:
  GgufReader(const Gguf& gguf, TokenizerSpec* spec)
      : gguf_(gguf),
        spec_(spec),
        vocabulary_(spec),
        types_(spec->memory),
        scores_(spec->memory),
        ranks_(spec->memory),
        cuts_(spec->memory) {}

  StatusOr<bool> Step() override {
    const absl::Span<const Stage> stages =
        sentence_piece_ ? absl::MakeConstSpan(kSentencePiece) : absl::MakeConstSpan(kByteLevel);
    const StatusOr<bool> done = (this->*stages[stage_])();
    if (!done.ok()) return Annotate(done.status(), gguf_.name());
    if (!*done) return false;
    at_ = 0;
    return ++stage_ == stages.size();
  }

 private:
  // Each does a piece from at_ on, and is called until it says true.
  using Stage = StatusOr<bool> (GgufReader::*)();
  static const Stage kByteLevel[8], kSentencePiece[12];

  struct Score {
    double score;
    uint32_t token;
  };
  struct BetterScore {
    bool operator()(const Score& a, const Score& b) const {
      return a.score != b.score ? a.score > b.score : a.token < b.token;
    }
  };

  const GgufValue* Find(std::string_view key) const {
    return gguf_.Find(StrCat("tokenizer.ggml.", std::string(key)));
  }
  static Status In(const Status& status, std::string_view key) {
    return Annotate(status, StrCat("tokenizer.ggml.", std::string(key)));
  }
  StatusOr<std::string_view> Text(std::string_view key, std::string_view fallback) const {
    const GgufValue* value = Find(key);
    if (value == nullptr) return fallback;
    auto text = value->AsString();
    if (!text.ok()) return In(text.status(), key);
    return *text;
  }
  StatusOr<bool> Bool(std::string_view key, bool fallback) const {
    const GgufValue* value = Find(key);
    if (value == nullptr) return fallback;
    auto flag = value->AsBool();
    if (!flag.ok()) return In(flag.status(), key);
    return *flag;
  }
  // A token id; -1 if absent.
  StatusOr<int64_t> Id(std::string_view key, int64_t fallback) const {
    const GgufValue* value = Find(key);
    if (value == nullptr)
      return fallback < static_cast<int64_t>(spec_->tokens.size()) ? fallback : int64_t{-1};
    auto id = value->AsUint();
    if (!id.ok()) return In(id.status(), key);
    // Files say "none" by all ones.
    if (*id == 0xffffffffu) return int64_t{-1};
    if (*id >= spec_->tokens.size())
      return In(FormatError(StrCat("id ", *id, " in a vocabulary of ", spec_->tokens.size())), key);
    return static_cast<int64_t>(*id);
  }

  StatusOr<bool> Begin() {
    QINFER_ASSIGN_OR_RETURN(const std::string_view model, Text("model", ""));
    if (model.empty())
      return FormatError("it holds no tokenizer (tokenizer.ggml.model is missing)");
    if (model != "gpt2" && model != "llama")
      return UnsupportedError(StrCat("tokenizer.ggml.model \"", std::string(model),
                                     "\" is not supported; known are gpt2 (byte-level BPE) and "
                                     "llama (SentencePiece BPE)"));
    sentence_piece_ = model == "llama";
    const GgufValue* tokens = Find("tokens");
    if (tokens == nullptr || tokens->count == 0)
      return FormatError("tokenizer.ggml.tokens is missing or empty");
    if (tokens->count > kMaxVocabulary)
      return FormatError(StrCat("tokenizer.ggml.tokens: ", tokens->count, " tokens; the limit is ",
                                kMaxVocabulary));
    StatusOr<GgufStrings> texts = GgufStrings::Of(*tokens);
    if (!texts.ok()) return In(texts.status(), "tokens");
    strings_ = *texts;
    token_types_ = Find("token_type");
    if (token_types_ != nullptr && token_types_->count != strings_.count())
      return FormatError(StrCat("tokenizer.ggml.token_type has ", token_types_->count,
                                " entries for ", strings_.count(), " tokens"));
    spec_->tokens.reserve(strings_.count());
    spec_->arena.reserve(tokens->size - strings_.count() * sizeof(uint64_t));
    types_.reserve(strings_.count());
    return true;
  }

  StatusOr<bool> ReadTokens() {
    return SomeOf(strings_.count(), kPiece, &at_, [&](size_t i) -> Status {
      std::string_view text;
      if (const Status s = strings_.Next(&text); !s.ok()) return In(s, "tokens");
      if (text.size() > kMaxTokenBytes)
        return FormatError(StrCat("tokenizer.ggml.tokens: token ", i, " has ", text.size(),
                                  " bytes; the limit is ", kMaxTokenBytes));
      if (FindInvalidUtf8(text) != std::string_view::npos)
        return FormatError(StrCat("tokenizer.ggml.tokens: token ", i, " is not valid UTF-8"));
      SpecToken token;
      token.id = static_cast<uint32_t>(i);
      QINFER_RETURN_IF_ERROR(spec_->Store(text, &token.text));
      spec_->tokens.push_back(token);
      int64_t type = kNormal;
      if (token_types_ != nullptr) {
        const StatusOr<int64_t> given = token_types_->IntAt(i);
        if (!given.ok()) return In(given.status(), "token_type");
        if (*given >= 0 && *given <= kByte) type = *given;
      }
      types_.push_back(static_cast<int8_t>(type));
      return OkStatus();
    });
  }

  StatusOr<bool> IndexTokens() { return vocabulary_.IndexTokens(); }

  StatusOr<bool> BeginMerges() {
    QINFER_ASSIGN_OR_RETURN(const std::string_view pre, Text("pre", "default"));
    QINFER_RETURN_IF_ERROR(ApplyGgufPre(pre, spec_, &adds_bos_));
    const GgufValue* merges = Find("merges");
    if (merges == nullptr)
      return FormatError(
          "the merges are missing (tokenizer.ggml.merges); this vocabulary cannot "
          "encode without them");
    StatusOr<GgufStrings> lines = GgufStrings::Of(*merges);
    if (!lines.ok()) return In(lines.status(), "merges");
    strings_ = *lines;
    spec_->merges.reserve(strings_.count());
    AddDecoder(DecodeKind::kByteLevel);
    return true;
  }

  StatusOr<bool> ReadMerges() {
    const size_t end = std::min<size_t>(strings_.count(), at_ + kPiece);
    QINFER_RETURN_IF_ERROR(vocabulary_.AddMerges(
        at_, end, [&](size_t i, TextTable::Merge* merge) { return ReadMerge(i, merge); },
        [](size_t i, const TextTable::Merge&) {
          return FormatError(StrCat("tokenizer.ggml.merges: entry ", i,
                                    " names a token that is not in the vocabulary"));
        }));
    at_ = end;
    return at_ == strings_.count();
  }

  Status ReadMerge(size_t index, TextTable::Merge* merge) {
    std::string_view line;
    if (const Status s = strings_.Next(&line); !s.ok()) return In(s, "merges");
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos)
      return FormatError(StrCat("tokenizer.ggml.merges: entry ", index,
                                " is not two texts with a space between them"));
    merge->left = line.substr(0, space);
    merge->right = merge->rest = line.substr(space + 1);
    return OkStatus();
  }

  StatusOr<bool> BeginScores() {
    adds_bos_ = true;
    token_scores_ = Find("scores");
    if (token_scores_ == nullptr)
      return FormatError(
          "the scores are missing (tokenizer.ggml.scores); this vocabulary cannot "
          "encode without them");
    const size_t count = spec_->tokens.size();
    if (token_scores_->count != count)
      return FormatError(StrCat("tokenizer.ggml.scores has ", token_scores_->count, " entries for ",
                                count, " tokens"));
    scores_.reserve(count);
    return true;
  }

  StatusOr<bool> ReadScores() {
    return SomeOf(spec_->tokens.size(), kPiece, &at_, [&](size_t i) -> Status {
      const StatusOr<double> score = token_scores_->FloatAt(i);
      if (!score.ok()) return In(score.status(), "scores");
      if (std::isnan(*score))
        return FormatError(StrCat("tokenizer.ggml.scores: token ", i, " has no number"));
      scores_.push_back({*score, static_cast<uint32_t>(i)});
      return OkStatus();
    });
  }

  StatusOr<bool> SortScores() {
    if (!sort_.has_value()) sort_.emplace(&scores_, spec_->memory, BetterScore());
    if (!sort_->Step()) return false;
    sort_.reset();
    return true;
  }

  // Equal scores are one rank.
  StatusOr<bool> RankTokens() {
    if (at_ == 0) ranks_.resize(scores_.size());
    QINFER_ASSIGN_OR_RETURN(const bool done,
                            SomeOf(scores_.size(), 4 * kPiece, &at_, [&](size_t i) {
                              if (i > 0 && scores_[i].score != scores_[i - 1].score) ++rank_;
                              ranks_[scores_[i].token] = rank_;
                              return OkStatus();
                            }));
    if (!done) return false;
    std::pmr::vector<Score>(spec_->memory).swap(scores_);
    spec_->merges.reserve(2 * spec_->tokens.size());
    return true;
  }

  // SentencePiece merges any two neighbours that make a token together, best score first: the same
  // as a list of pairs ranked by the scores of what they make.
  StatusOr<bool> SplitTokens() {
    const size_t count = spec_->tokens.size();
    for (size_t batch = 0; batch < kBatches && at_ < count; ++batch) {
      cuts_.clear();
      for (size_t tokens = 0; tokens < kBatch && at_ < count && cuts_.size() < kBatch; ++tokens) {
        const size_t i = at_++;
        if (types_[i] != kNormal && types_[i] != kUserDefined) continue;
        const std::string_view text = spec_->Text(spec_->tokens[i].text);
        splits_ += text.size() * text.size();
        if (splits_ > kMaxSplits)
          return FormatError("tokenizer.ggml.tokens: the tokens are absurdly long");
        vocabulary_.model().AddSplits(text, static_cast<uint32_t>(i), &cuts_);
      }
      for (const TextTable::Split& cut : cuts_) {
        uint32_t left = 0, right = 0;
        if (!vocabulary_.model().FindParts(cut, spec_->Text(spec_->tokens[cut.owner].text), &left,
                                           &right))
          continue;
        spec_->merges.push_back({left, right, ranks_[cut.owner], cut.owner});
      }
    }
    return at_ == count;
  }

  StatusOr<bool> ApplySentencePiece() {
    QINFER_ASSIGN_OR_RETURN(const bool prefix, Bool("add_space_prefix", true));
    if (prefix) AddNormalizer(NormKind::kPrepend, kMark, {});
    AddNormalizer(NormKind::kReplace, kSpace, kMark);
    AddDecoder(DecodeKind::kReplace, kMark, kSpace);
    AddDecoder(DecodeKind::kByteFallback);
    AddDecoder(DecodeKind::kFuse);
    if (prefix) {
      AddDecoder(DecodeKind::kStrip, kSpace);
      spec_->decoder.back().a = 1;
    }
    spec_->byte_fallback = true;
    spec_->fuse_unk = true;
    return true;
  }

  void AddNormalizer(NormKind kind, std::string_view text, std::string_view text2) {
    SpecOp op;
    op.kind = static_cast<uint32_t>(kind);
    op.text = text;
    op.text2 = text2;
    spec_->normalizer.push_back(op);
  }
  void AddDecoder(DecodeKind kind, std::string_view text = {}, std::string_view text2 = {}) {
    SpecOp op;
    op.kind = static_cast<uint32_t>(kind);
    op.text = text;
    op.text2 = text2;
    spec_->decoder.push_back(op);
  }

  // Phi-3's own configuration strips what follows its control tokens, except these; GGUF has no
  // place to say so.
  bool StripsRight(std::string_view text) const {
    const GgufValue* value = gguf_.Find("general.architecture");
    if (value == nullptr) return false;
    const auto architecture = value->AsString();
    return architecture.ok() && *architecture == "phi3" && text != "<unk>" && text != "<s>" &&
           text != "<|endoftext|>";
  }

  StatusOr<bool> CollectAdded() {
    return SomeOf(types_.size(), 4 * kPiece, &at_, [&](size_t i) {
      const auto type = static_cast<TokenType>(types_[i]);
      if (type != kUnknown && type != kControl && type != kUserDefined) return OkStatus();
      const Piece content = spec_->tokens[i].text;
      if (content.size == 0 || content.size > kMaxAddedBytes) return OkStatus();
      SpecAdded added;
      added.content = content;
      added.flags = (type == kUserDefined ? 0u : kAddedSpecial) |
                    (StripsRight(spec_->Text(content)) ? kRstrip : 0u);
      spec_->added.push_back(added);
      return OkStatus();
    });
  }

  StatusOr<bool> AssignAddedIds() { return vocabulary_.AssignAddedIds(); }

  StatusOr<bool> ReadSpecial() {
    QINFER_ASSIGN_OR_RETURN(spec_->bos, Id("bos_token_id", sentence_piece_ ? 1 : -1));
    QINFER_ASSIGN_OR_RETURN(spec_->eos, Id("eos_token_id", sentence_piece_ ? 2 : -1));
    if (sentence_piece_) {
      QINFER_ASSIGN_OR_RETURN(spec_->unk, Id("unknown_token_id", 0));
    }
    QINFER_ASSIGN_OR_RETURN(const bool adds_bos, Bool("add_bos_token", adds_bos_));
    QINFER_ASSIGN_OR_RETURN(const bool adds_eos, Bool("add_eos_token", false));
    if (adds_bos && spec_->bos >= 0) spec_->prefix.push_back(static_cast<uint32_t>(spec_->bos));
    if (adds_eos && spec_->eos >= 0) spec_->suffix.push_back(static_cast<uint32_t>(spec_->eos));
    return true;
  }

  const Gguf& gguf_;
  TokenizerSpec* spec_;
  Vocabulary vocabulary_;
  bool sentence_piece_ = false, adds_bos_ = false;
  size_t stage_ = 0;
  size_t at_ = 0;        // where the current stage goes on
  GgufStrings strings_;  // tokens, then merges
  const GgufValue* token_types_ = nullptr;
  const GgufValue* token_scores_ = nullptr;
  std::pmr::vector<int8_t> types_;
  std::pmr::vector<Score> scores_;
  std::optional<PieceSort<Score, BetterScore>> sort_;
  std::pmr::vector<uint32_t> ranks_;  // by token
  uint32_t rank_ = 0;
  std::pmr::vector<TextTable::Split> cuts_;
  uint64_t splits_ = 0;
};

const GgufReader::Stage GgufReader::kByteLevel[8] = {
    &GgufReader::Begin,          &GgufReader::ReadTokens, &GgufReader::IndexTokens,
    &GgufReader::BeginMerges,    &GgufReader::ReadMerges, &GgufReader::CollectAdded,
    &GgufReader::AssignAddedIds, &GgufReader::ReadSpecial};
const GgufReader::Stage GgufReader::kSentencePiece[12] = {
    &GgufReader::Begin,        &GgufReader::ReadTokens,     &GgufReader::IndexTokens,
    &GgufReader::BeginScores,  &GgufReader::ReadScores,     &GgufReader::SortScores,
    &GgufReader::RankTokens,   &GgufReader::SplitTokens,    &GgufReader::ApplySentencePiece,
    &GgufReader::CollectAdded, &GgufReader::AssignAddedIds, &GgufReader::ReadSpecial};

}  // namespace

std::unique_ptr<SpecReader> ReadGguf(const format::Gguf& gguf, TokenizerSpec* spec) {
  return std::make_unique<GgufReader>(gguf, spec);
}

}  // namespace qinfer::tokenizer
