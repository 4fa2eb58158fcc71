// tokenizer.json (and tokenizer_config.json) to a spec. The configured steps are read in
// json_program.cpp.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "tokenizer/json_program.h"
#include "tokenizer/pieces.h"
#include "tokenizer/spec_reader.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/vocabulary.h"

namespace qinfer::tokenizer {
namespace {

constexpr size_t kPiece = 2048;  // tokens or merges

Status ReadModelFlags(const JsonNode& model, const TokenizerJson& json,
                      const Vocabulary& vocabulary, TokenizerSpec* spec) {
  const JsonNode* dropout = model.Get("dropout");
  if (dropout != nullptr && dropout->IsNumber() && dropout->number > 0)
    return UnsupportedError("model.dropout is set: encoding would be random; set it to null");
  spec->fuse_unk = model.GetBool("fuse_unk", false);
  spec->byte_fallback = model.GetBool("byte_fallback", false);
  spec->ignore_merges = model.GetBool("ignore_merges", false);
  spec->affix_prefix = model.GetText("continuing_subword_prefix");
  spec->affix_suffix = model.GetText("end_of_word_suffix");
  if (spec->affix_prefix.size() > 256 || spec->affix_suffix.size() > 256)
    return UnsupportedError("a subword prefix or suffix of more than 256 bytes");
  const JsonNode* unk = model.Get("unk_token");
  if (unk != nullptr && unk->type == JsonNode::kString) {
    spec->unk = vocabulary.model().Find(unk->text);
    if (spec->unk < 0)
      return FormatError(
          StrCat("unk_token \"", std::string(unk->text), "\" is not in the vocabulary"));
  }
  if (!json.has_merges) return FormatError("the merges are missing (model.merges)");
  return OkStatus();
}

// add_bos_token and add_eos_token of the configuration override the template, as in transformers.
void OverrideTemplate(const TokenizerConfig& config, TokenizerSpec* spec) {
  const std::optional<bool> bos = config.adds_bos();
  if (bos.has_value() && spec->bos >= 0) {
    const auto id = static_cast<uint32_t>(spec->bos);
    const bool there = !spec->prefix.empty() && spec->prefix.front() == id;
    if (*bos && !there) spec->prefix.insert(spec->prefix.begin(), id);
    if (!*bos && there) spec->prefix.erase(spec->prefix.begin());
  }
  const std::optional<bool> eos = config.adds_eos();
  if (eos.has_value() && spec->eos >= 0) {
    const auto id = static_cast<uint32_t>(spec->eos);
    const bool there = !spec->suffix.empty() && spec->suffix.back() == id;
    if (*eos && !there) spec->suffix.push_back(id);
    if (!*eos && there) spec->suffix.pop_back();
  }
}

class JsonReader final : public SpecReader {
 public:
  JsonReader(NamedText text, NamedText config, TokenizerSpec* spec)
      : name_(std::move(text.name)),
        text_bytes_(text.text.size()),
        spec_(spec),
        json_(spec->memory),
        parse_(text.text, &json_, spec),
        vocabulary_(spec),
        seen_(spec->memory) {
    if (!config.text.empty()) config_.emplace(config.text, std::move(config.name));
  }

  StatusOr<bool> Step() override {
    const StatusOr<bool> done = (this->*kStages[stage_])();
    // The configuration is another file, which its reader names.
    const bool named = kStages[stage_] == &JsonReader::ReadConfig;
    if (!done.ok()) return named ? done.status() : Annotate(done.status(), name_);
    if (!*done) return false;
    at_ = 0;
    return ++stage_ == std::size(kStages);
  }

 private:
  // Each does a piece from at_ on, and is called until it says true.
  using Stage = StatusOr<bool> (JsonReader::*)();
  static const Stage kStages[10];

  StatusOr<bool> Parse() {
    // Texts of tokens and merges make up about so much of a document; to grow moves them all.
    if (at_++ == 0) spec_->arena.reserve(text_bytes_ / 4);
    return parse_.Step();
  }

  StatusOr<bool> CheckModel() {
    model_ = json_.tree.root().Get("model");
    if (model_ == nullptr || !model_->IsObject())
      return FormatError("not a tokenizer.json: it has no object \"model\"");
    const std::string_view type = model_->GetText("type", json_.has_merges ? "BPE" : "");
    if (type.empty() && json_.has_vocab_object)
      return FormatError(
          "the merges are missing (model.merges), and model.type does not name a type");
    if (type != "BPE")
      return UnsupportedError(StrCat("tokenizer model type \"", std::string(type),
                                     "\" is not supported; known is BPE (byte-level, and "
                                     "SentencePiece-style with byte fallback)"));
    if (spec_->tokens.empty())
      return FormatError("the vocabulary is empty or missing (model.vocab)");
    return true;
  }

  // A vocabulary may have holes, but not be mostly holes: memory follows the largest id.
  StatusOr<bool> CheckIds() {
    const uint64_t limit = std::min<uint64_t>(spec_->tokens.size() * 8 + 4096, kMaxVocabulary);
    return SomeOf(spec_->tokens.size(), 4 * kPiece, &at_, [&](size_t i) -> Status {
      const SpecToken& t = spec_->tokens[i];
      if (t.id >= limit)
        return FormatError(StrCat("token \"", std::string(spec_->Text(t.text)), "\" has the id ",
                                  t.id, " in a vocabulary of ", spec_->tokens.size(), " tokens"));
      if (seen_.size() <= t.id) seen_.resize(t.id + size_t{1}, 0);
      if (seen_[t.id]++ != 0) return FormatError(StrCat("two tokens have the id ", t.id));
      return OkStatus();
    });
  }

  StatusOr<bool> IndexTokens() { return vocabulary_.IndexTokens(); }

  StatusOr<bool> ReadFlags() {
    QINFER_RETURN_IF_ERROR(ReadModelFlags(*model_, json_, vocabulary_, spec_));
    spec_->merges.reserve(json_.merges.size());
    return true;
  }

  StatusOr<bool> ResolveMerges() {
    const size_t end = std::min(json_.merges.size(), at_ + kPiece);
    QINFER_RETURN_IF_ERROR(vocabulary_.AddMerges(
        at_, end, [&](size_t i, TextTable::Merge* merge) { return ReadMerge(i, merge); },
        [](size_t i, const TextTable::Merge& merge) {
          return FormatError(StrCat("merge ", i, " (\"", std::string(merge.left), "\", \"",
                                    std::string(merge.right),
                                    "\") names a token that is not in the vocabulary"));
        }));
    at_ = end;
    if (at_ < json_.merges.size()) return false;
    json_.merges.clear();
    return true;
  }

  Status ReadMerge(size_t index, TextTable::Merge* merge) const {
    const TokenizerJson::Merge& m = json_.merges[index];
    std::string_view left = spec_->Text(m.left);
    std::string_view right;
    if (m.pair) {
      right = spec_->Text(m.right);
    } else {
      const size_t space = left.find(' ');
      if (space == std::string_view::npos || left.find(' ', space + 1) != std::string_view::npos)
        return FormatError(StrCat("merge ", index,
                                  " is not two texts with a space between them: \"",
                                  std::string(left), "\""));
      right = left.substr(space + 1);
      left = left.substr(0, space);
    }
    merge->left = left;
    merge->right = right;
    merge->rest = right.substr(std::min(right.size(), spec_->affix_prefix.size()));
    return OkStatus();
  }

  StatusOr<bool> AssignAddedIds() { return vocabulary_.AssignAddedIds(); }

  StatusOr<bool> ReadPrograms() {
    const JsonNode& root = json_.tree.root();
    QINFER_RETURN_IF_ERROR(ReadNormalizer(root.Get("normalizer"), spec_));
    QINFER_RETURN_IF_ERROR(ReadPretokenizer(root.Get("pre_tokenizer"), spec_));
    QINFER_RETURN_IF_ERROR(ReadPostProcessor(root.Get("post_processor"), spec_));
    QINFER_RETURN_IF_ERROR(ReadDecoder(root.Get("decoder"), spec_));
    return true;
  }

  StatusOr<bool> ReadConfig() {
    if (!config_.has_value()) return true;
    return config_->Step();
  }

  StatusOr<bool> ApplyConfig() {
    if (config_.has_value()) {
      spec_->bos = vocabulary_.Find(config_->bos_token());
      spec_->eos = vocabulary_.Find(config_->eos_token());
      OverrideTemplate(*config_, spec_);
      return true;
    }
    // What the template puts first is the beginning of a text, and what it puts last its end.
    if (!spec_->prefix.empty()) spec_->bos = spec_->prefix.front();
    if (!spec_->suffix.empty()) spec_->eos = spec_->suffix.back();
    return true;
  }

  const std::string name_;
  const size_t text_bytes_;
  TokenizerSpec* spec_;
  TokenizerJson json_;
  TokenizerJsonParse parse_;
  const JsonNode* model_ = nullptr;
  Vocabulary vocabulary_;
  std::optional<TokenizerConfig> config_;
  std::pmr::vector<uint8_t> seen_;  // ids
  size_t stage_ = 0;
  size_t at_ = 0;  // where the current stage goes on
};

const JsonReader::Stage JsonReader::kStages[10] = {
    &JsonReader::Parse,          &JsonReader::CheckModel,   &JsonReader::CheckIds,
    &JsonReader::IndexTokens,    &JsonReader::ReadFlags,    &JsonReader::ResolveMerges,
    &JsonReader::AssignAddedIds, &JsonReader::ReadPrograms, &JsonReader::ReadConfig,
    &JsonReader::ApplyConfig};

}  // namespace

std::unique_ptr<SpecReader> ReadTokenizerJson(NamedText text, NamedText config,
                                              TokenizerSpec* spec) {
  return std::make_unique<JsonReader>(std::move(text), std::move(config), spec);
}

}  // namespace qinfer::tokenizer
