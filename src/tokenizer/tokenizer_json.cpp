// tokenizer.json by events: nothing is built for the large lists but the lists themselves, and the
// size of the rest is bounded.
#include "tokenizer/tokenizer_json.h"

namespace qinfer::tokenizer {
namespace {

// Where the next event goes.
enum class Mode : uint8_t {
  kTree,
  kVocab,
  kVocabArray,
  kMerges,
  kMergePair,
  kAddedList,
  kAddedItem
};

}  // namespace

class TokenizerJsonParse::Reader final : public format::JsonEvents {
 public:
  Reader(TokenizerJson* json, TokenizerSpec* spec) : tree_(&json->tree), json_(json), spec_(spec) {}

  Status OnNull() override {
    QINFER_RETURN_IF_ERROR(InTree("null"));
    JsonNode* node = nullptr;
    return Add(JsonNode::kNull, &node);
  }
  Status OnBool(bool value) override {
    if (mode_ == Mode::kAddedItem) {
      SetAddedFlag(value);
      return OkStatus();
    }
    QINFER_RETURN_IF_ERROR(InTree("a boolean"));
    JsonNode* node = nullptr;
    QINFER_RETURN_IF_ERROR(Add(JsonNode::kBool, &node));
    node->boolean = value;
    return OkStatus();
  }
  Status OnUint(uint64_t value) override { return Number(static_cast<double>(value)); }
  Status OnInt(int64_t value) override { return Number(static_cast<double>(value)); }
  Status OnFloat(double value) override { return Number(value); }
  Status OnString(std::string_view value) override {
    switch (mode_) {
      case Mode::kMerges: {
        TokenizerJson::Merge merge;
        QINFER_RETURN_IF_ERROR(spec_->Store(value, &merge.left));
        json_->merges.push_back(merge);
        return OkStatus();
      }
      case Mode::kMergePair:
        if (pair_parts_ >= 2) return Wrong("a merge of more than two parts");
        return spec_->Store(value, pair_parts_++ == 0 ? &pair_.left : &pair_.right);
      case Mode::kAddedItem:
        return key_ == "content" ? spec_->Store(value, &added_.content) : OkStatus();
      case Mode::kVocabArray:
        return OkStatus();
      default:
        break;
    }
    QINFER_RETURN_IF_ERROR(InTree("a string"));
    JsonNode* node = nullptr;
    QINFER_RETURN_IF_ERROR(Add(JsonNode::kString, &node));
    return tree_->SetText(node, value) ? OkStatus() : Wrong(tree_->why());
  }

  Status OnStartObject() override {
    if (mode_ == Mode::kAddedList) {
      mode_ = Mode::kAddedItem;
      added_ = SpecAdded();
      return OkStatus();
    }
    if (mode_ == Mode::kTree && AtModelKey("vocab")) {
      if (json_->has_vocab_object) return Wrong("a second vocabulary");
      json_->has_vocab_object = true;
      mode_ = Mode::kVocab;
      return OkStatus();
    }
    QINFER_RETURN_IF_ERROR(InTree("an object"));
    return Open(JsonNode::kObject);
  }
  Status OnKey(std::string_view key) override {
    key_.assign(key);
    return OkStatus();
  }
  Status OnEndObject() override {
    if (mode_ == Mode::kAddedItem) {
      mode_ = Mode::kAddedList;
      spec_->added.push_back(added_);
    } else if (mode_ == Mode::kVocab) {
      mode_ = Mode::kTree;
    } else {
      tree_->Close();
    }
    return OkStatus();
  }
  Status OnStartArray() override {
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kMergePair;
      pair_ = TokenizerJson::Merge();
      pair_.pair = true;
      pair_parts_ = 0;
      return OkStatus();
    }
    if (mode_ == Mode::kVocabArray) {
      ++skipped_arrays_;
      return OkStatus();
    }
    if (mode_ == Mode::kTree && AtModelKey("merges")) {
      if (json_->has_merges) return Wrong("a second list of merges");
      json_->has_merges = true;
      mode_ = Mode::kMerges;
      return OkStatus();
    }
    if (mode_ == Mode::kTree && AtModelKey("vocab")) {
      json_->has_vocab_array = true;
      mode_ = Mode::kVocabArray;
      skipped_arrays_ = 1;
      return OkStatus();
    }
    if (mode_ == Mode::kTree && tree_->depth() == 1 && key_ == "added_tokens") {
      mode_ = Mode::kAddedList;
      return OkStatus();
    }
    QINFER_RETURN_IF_ERROR(InTree("an array"));
    return Open(JsonNode::kArray);
  }
  Status OnEndArray() override {
    switch (mode_) {
      case Mode::kMergePair:
        if (pair_parts_ != 2) return Wrong("a merge that is not a pair");
        json_->merges.push_back(pair_);
        mode_ = Mode::kMerges;
        return OkStatus();
      case Mode::kVocabArray:
        if (--skipped_arrays_ == 0) mode_ = Mode::kTree;
        return OkStatus();
      case Mode::kMerges:
      case Mode::kAddedList:
        mode_ = Mode::kTree;
        return OkStatus();
      default:
        tree_->Close();
        return OkStatus();
    }
  }

 private:
  Status Wrong(std::string_view what) const {
    return FormatError(StrCat(
        std::string(what), key_.empty() ? "" : StrCat(" near key \"", key_.substr(0, 64), "\"")));
  }
  Status InTree(std::string_view what) const {
    if (mode_ == Mode::kTree || mode_ == Mode::kVocabArray) return OkStatus();
    const char* where = mode_ == Mode::kVocab                                 ? "the vocabulary"
                        : mode_ == Mode::kMerges || mode_ == Mode::kMergePair ? "the merges"
                                                                              : "the added tokens";
    return Wrong(StrCat(std::string(what), " in ", where));
  }
  // Directly inside the object "model", at this key.
  bool AtModelKey(std::string_view name) const {
    return tree_->depth() == 2 && tree_->open(1).key == "model" && key_ == name;
  }
  // A dummy inside vocabularies that are passed over.
  Status Add(JsonNode::Type type, JsonNode** node) {
    *node = mode_ == Mode::kVocabArray ? &dummy_ : tree_->Add(type, key_);
    return *node != nullptr ? OkStatus() : Wrong(tree_->why());
  }
  Status Open(JsonNode::Type type) {
    if (mode_ == Mode::kVocabArray) return Wrong("an object in a vocabulary list");
    JsonNode* node = nullptr;
    QINFER_RETURN_IF_ERROR(Add(type, &node));
    tree_->Open(node);
    return OkStatus();
  }
  Status Number(double value) {
    if (mode_ == Mode::kVocab) {
      if (!(value >= 0 && value < kMaxVocabulary) || value != static_cast<uint32_t>(value))
        return Wrong("an id that is no small non-negative integer");
      SpecToken token;
      token.id = static_cast<uint32_t>(value);
      QINFER_RETURN_IF_ERROR(spec_->Store(key_, &token.text));
      spec_->tokens.push_back(token);
      return OkStatus();
    }
    if (mode_ == Mode::kAddedItem) return OkStatus();  // ids follow from the vocabulary
    QINFER_RETURN_IF_ERROR(InTree("a number"));
    JsonNode* node = nullptr;
    QINFER_RETURN_IF_ERROR(Add(JsonNode::kFloat, &node));
    node->number = value;
    return OkStatus();
  }
  void SetAddedFlag(bool value) {
    const uint32_t flag = key_ == "single_word"  ? kSingleWord
                          : key_ == "lstrip"     ? kLstrip
                          : key_ == "rstrip"     ? kRstrip
                          : key_ == "normalized" ? kNormalized
                          : key_ == "special"    ? kAddedSpecial
                                                 : 0u;
    added_.flags = value ? added_.flags | flag : added_.flags & ~flag;
  }

  format::JsonTree* tree_;
  TokenizerJson* json_;
  TokenizerSpec* spec_;
  Mode mode_ = Mode::kTree;
  size_t skipped_arrays_ = 0;
  std::string key_;
  TokenizerJson::Merge pair_;
  int pair_parts_ = 0;
  SpecAdded added_;
  JsonNode dummy_;
};

TokenizerJsonParse::TokenizerJsonParse(std::string_view text, TokenizerJson* json,
                                       TokenizerSpec* spec)
    : reader_(std::make_unique<Reader>(json, spec)),
      parse_(text, std::string(), format::JsonLimits(), reader_.get()) {}

TokenizerJsonParse::~TokenizerJsonParse() = default;

StatusOr<bool> TokenizerJsonParse::Step() { return parse_.Step(); }

}  // namespace qinfer::tokenizer
