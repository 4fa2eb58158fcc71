// GGUF metadata (tokenizer.ggml.*) to a spec: byte-level vocabularies ("gpt2") with merges, and
// SentencePiece ones ("llama"), whose merges follow from the scores.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tokenizer/gguf_pre.h"
#include "tokenizer/runtime.h"
#include "tokenizer/spec.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

using format::Gguf;
using format::GgufValue;

constexpr std::string_view kMark = "\xe2\x96\x81";
constexpr std::string_view kSpace = " ";
constexpr uint64_t kMaxTokenBytes = 1 << 16;

enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

class GgufReader {
 public:
  GgufReader(const Gguf& gguf, TokenizerSpec* spec)
      : gguf_(gguf), spec_(spec), index_(*spec), types_(spec->memory) {}

  Status Run() {
    QINFER_ASSIGN_OR_RETURN(const std::string_view model, Text("model", ""));
    if (model.empty())
      return FormatError("it holds no tokenizer (tokenizer.ggml.model is missing)");
    if (model != "gpt2" && model != "llama")
      return UnsupportedError(StrCat("tokenizer.ggml.model \"", std::string(model),
                                     "\" is not supported; known are gpt2 (byte-level BPE) and "
                                     "llama (SentencePiece BPE)"));
    QINFER_RETURN_IF_ERROR(ReadTokens());
    QINFER_RETURN_IF_ERROR(index_.Build());
    bool adds_bos = false;
    if (model == "gpt2") {
      QINFER_ASSIGN_OR_RETURN(const std::string_view pre, Text("pre", "default"));
      QINFER_RETURN_IF_ERROR(ApplyGgufPre(pre, spec_, &adds_bos));
      QINFER_RETURN_IF_ERROR(ReadMerges());
      AddDecoder(DecodeKind::kByteLevel);
    } else {
      adds_bos = true;
      QINFER_RETURN_IF_ERROR(SentencePiece());
    }
    return Special(model == "llama", adds_bos);
  }

 private:
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

  Status ReadTokens() {
    const GgufValue* tokens = Find("tokens");
    if (tokens == nullptr || tokens->count == 0)
      return FormatError("tokenizer.ggml.tokens is missing or empty");
    if (tokens->count > kMaxVocabulary)
      return FormatError(StrCat("tokenizer.ggml.tokens: ", tokens->count, " tokens; the limit is ",
                                kMaxVocabulary));
    std::pmr::vector<std::string_view> texts(spec_->memory);
    if (const Status s = tokens->Strings(&texts); !s.ok()) return In(s, "tokens");
    const GgufValue* types = Find("token_type");
    if (types != nullptr && types->count != texts.size())
      return FormatError(StrCat("tokenizer.ggml.token_type has ", types->count, " entries for ",
                                texts.size(), " tokens"));
    spec_->tokens.reserve(texts.size());
    types_.assign(texts.size(), kNormal);
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].size() > kMaxTokenBytes)
        return FormatError(StrCat("tokenizer.ggml.tokens: token ", i, " has ", texts[i].size(),
                                  " bytes; the limit is ", kMaxTokenBytes));
      if (FindInvalidUtf8(texts[i]) != std::string_view::npos)
        return FormatError(StrCat("tokenizer.ggml.tokens: token ", i, " is not valid UTF-8"));
      SpecToken token;
      token.id = static_cast<uint32_t>(i);
      QINFER_RETURN_IF_ERROR(spec_->Store(texts[i], &token.text));
      spec_->tokens.push_back(token);
      if (types == nullptr) continue;
      auto type = types->IntAt(i);
      if (!type.ok()) return In(type.status(), "token_type");
      types_[i] = static_cast<int8_t>(*type >= 0 && *type <= kByte ? *type : kNormal);
    }
    return OkStatus();
  }

  Status ReadMerges() {
    const GgufValue* merges = Find("merges");
    if (merges == nullptr)
      return FormatError(
          "the merges are missing (tokenizer.ggml.merges); this vocabulary cannot "
          "encode without them");
    std::pmr::vector<std::string_view> lines(spec_->memory);
    if (const Status s = merges->Strings(&lines); !s.ok()) return In(s, "merges");
    spec_->merges.reserve(lines.size());
    std::string joined;
    for (size_t i = 0; i < lines.size(); ++i) {
      const size_t space = lines[i].find(' ', 1);
      if (space == std::string_view::npos)
        return FormatError(StrCat("tokenizer.ggml.merges: entry ", i,
                                  " is not two texts with a space between them"));
      const std::string_view left = lines[i].substr(0, space);
      const std::string_view right = lines[i].substr(space + 1);
      joined.assign(left);
      joined.append(right);
      const int64_t left_id = index_.Find(left);
      const int64_t right_id = index_.Find(right);
      const int64_t result = index_.Find(joined);
      if (left_id < 0 || right_id < 0 || result < 0)
        return FormatError(StrCat("tokenizer.ggml.merges: entry ", i,
                                  " names a token that is not in the vocabulary"));
      spec_->merges.push_back({static_cast<uint32_t>(left_id), static_cast<uint32_t>(right_id),
                               static_cast<uint32_t>(i), static_cast<uint32_t>(result)});
    }
    return OkStatus();
  }

  // SentencePiece merges any two neighbours that make a token together, best score first: the same
  // as a list of pairs ranked by the scores of what they make.
  Status SentencePiece() {
    const GgufValue* scores = Find("scores");
    if (scores == nullptr)
      return FormatError(
          "the scores are missing (tokenizer.ggml.scores); this vocabulary cannot "
          "encode without them");
    const size_t count = spec_->tokens.size();
    if (scores->count != count)
      return FormatError(
          StrCat("tokenizer.ggml.scores has ", scores->count, " entries for ", count, " tokens"));
    std::pmr::vector<double> values(count, spec_->memory);
    for (size_t i = 0; i < count; ++i) {
      auto score = scores->FloatAt(i);
      if (!score.ok()) return In(score.status(), "scores");
      if (std::isnan(*score))
        return FormatError(StrCat("tokenizer.ggml.scores: token ", i, " has no number"));
      values[i] = *score;
    }
    std::pmr::vector<double> ranks(values, spec_->memory);
    std::sort(ranks.begin(), ranks.end(), std::greater<>());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    uint64_t splits = 0;
    for (size_t i = 0; i < count; ++i) {
      if (types_[i] != kNormal && types_[i] != kUserDefined) continue;
      const std::string_view text = spec_->Text(spec_->tokens[i].text);
      // Hashing every beginning and end costs the square of a token's length.
      splits += text.size() * text.size();
      if (splits > (uint64_t{1} << 33))
        return FormatError("tokenizer.ggml.tokens: the tokens are absurdly long");
      const auto rank = static_cast<uint32_t>(
          std::lower_bound(ranks.begin(), ranks.end(), values[i], std::greater<>()) -
          ranks.begin());
      for (size_t cut = 1; cut < text.size(); ++cut) {
        if ((text[cut] & 0xc0) == 0x80) continue;
        const int64_t left = index_.Find(text.substr(0, cut));
        if (left < 0) continue;
        const int64_t right = index_.Find(text.substr(cut));
        if (right < 0) continue;
        spec_->merges.push_back({static_cast<uint32_t>(left), static_cast<uint32_t>(right), rank,
                                 static_cast<uint32_t>(i)});
      }
    }
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
    return OkStatus();
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

  Status Special(bool sentence_piece, bool adds_bos) {
    for (size_t i = 0; i < types_.size(); ++i) {
      const int64_t type = types_[i];
      if (type != kUnknown && type != kControl && type != kUserDefined) continue;
      const Piece content = spec_->tokens[i].text;
      if (content.size == 0 || content.size > kMaxAddedBytes) continue;
      SpecAdded added;
      added.content = content;
      added.flags = (type == kUserDefined ? 0u : kAddedSpecial) |
                    (StripsRight(spec_->Text(content)) ? kRstrip : 0u);
      spec_->added.push_back(added);
    }
    QINFER_RETURN_IF_ERROR(AssignAddedIds(index_, spec_));
    QINFER_ASSIGN_OR_RETURN(spec_->bos, Id("bos_token_id", sentence_piece ? 1 : -1));
    QINFER_ASSIGN_OR_RETURN(spec_->eos, Id("eos_token_id", sentence_piece ? 2 : -1));
    if (sentence_piece) {
      QINFER_ASSIGN_OR_RETURN(spec_->unk, Id("unknown_token_id", 0));
    }
    QINFER_ASSIGN_OR_RETURN(adds_bos, Bool("add_bos_token", adds_bos));
    QINFER_ASSIGN_OR_RETURN(const bool adds_eos, Bool("add_eos_token", false));
    if (adds_bos && spec_->bos >= 0) spec_->prefix.push_back(static_cast<uint32_t>(spec_->bos));
    if (adds_eos && spec_->eos >= 0) spec_->suffix.push_back(static_cast<uint32_t>(spec_->eos));
    return OkStatus();
  }

  const Gguf& gguf_;
  TokenizerSpec* spec_;
  TokenIndex index_;
  std::pmr::vector<int8_t> types_;
};

}  // namespace

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromGguf(const format::Gguf& gguf,
                                                               Memory* memory) {
  TokenizerSpec spec(memory);
  const Status status = GgufReader(gguf, &spec).Run();
  if (!status.ok()) return Annotate(status, gguf.name());
  return RuntimeTokenizer::FromSpec(spec, gguf.name(), memory);
}

}  // namespace qinfer::tokenizer
