// tokenizer.json by SAX events: nothing is built for the large lists but the lists themselves, and
// depth and size of the rest are bounded.
#include "tokenizer/tokenizer_json.h"

#include <nlohmann/json.hpp>

namespace qinfer::tokenizer {
namespace {

constexpr size_t kMaxDepth = 64;

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

class Reader {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  Reader(TokenizerJson* json, TokenizerSpec* spec) : tree_(&json->tree), json_(json), spec_(spec) {}

  const Status& status() const { return status_; }

  bool null() { return InTree("null") && (Add(JsonNode::kNull) != nullptr); }
  bool boolean(bool value) {
    if (mode_ == Mode::kAddedItem) {
      SetAddedFlag(value);
      return true;
    }
    if (!InTree("a boolean")) return false;
    JsonNode* node = Add(JsonNode::kBool);
    if (node == nullptr) return false;
    node->boolean = value;
    return true;
  }
  bool number_integer(number_integer_t value) { return Number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) { return Number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) { return Number(value); }
  bool string(string_t& value) {
    switch (mode_) {
      case Mode::kMerges: {
        TokenizerJson::Merge merge;
        if (!Keep(spec_->Store(value, &merge.left))) return false;
        json_->merges.push_back(merge);
        return true;
      }
      case Mode::kMergePair:
        if (pair_parts_ >= 2) return Fail("a merge of more than two parts");
        if (!Keep(spec_->Store(value, pair_parts_ == 0 ? &pair_.left : &pair_.right))) return false;
        ++pair_parts_;
        return true;
      case Mode::kAddedItem:
        return key_ != "content" || Keep(spec_->Store(value, &added_.content));
      case Mode::kVocabArray:
        return true;
      default:
        break;
    }
    if (!InTree("a string")) return false;
    JsonNode* node = Add(JsonNode::kString);
    if (node == nullptr) return false;
    return tree_->SetText(node, value) || Fail(tree_->why());
  }
  bool binary(binary_t&) { return Fail("a binary value"); }

  bool start_object(std::size_t) {
    if (!Deeper()) return false;
    if (mode_ == Mode::kAddedList) {
      mode_ = Mode::kAddedItem;
      added_ = SpecAdded();
      return true;
    }
    if (mode_ == Mode::kTree && AtModelKey("vocab")) {
      if (json_->has_vocab_object) return Fail("a second vocabulary");
      json_->has_vocab_object = true;
      mode_ = Mode::kVocab;
      return true;
    }
    return InTree("an object") && Open(JsonNode::kObject);
  }
  bool key(string_t& value) {
    key_ = value;
    return true;
  }
  bool end_object() {
    --depth_;
    if (mode_ == Mode::kAddedItem) {
      mode_ = Mode::kAddedList;
      spec_->added.push_back(added_);
      return true;
    }
    if (mode_ == Mode::kVocab) {
      mode_ = Mode::kTree;
      return true;
    }
    tree_->Close();
    return true;
  }
  bool start_array(std::size_t) {
    if (!Deeper()) return false;
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kMergePair;
      pair_ = TokenizerJson::Merge();
      pair_.pair = true;
      pair_parts_ = 0;
      return true;
    }
    if (mode_ == Mode::kVocabArray) {
      ++skipped_arrays_;
      return true;
    }
    if (mode_ == Mode::kTree && AtModelKey("merges")) {
      if (json_->has_merges) return Fail("a second list of merges");
      json_->has_merges = true;
      mode_ = Mode::kMerges;
      return true;
    }
    if (mode_ == Mode::kTree && AtModelKey("vocab")) {
      json_->has_vocab_array = true;
      mode_ = Mode::kVocabArray;
      skipped_arrays_ = 1;
      return true;
    }
    if (mode_ == Mode::kTree && tree_->depth() == 1 && key_ == "added_tokens") {
      mode_ = Mode::kAddedList;
      return true;
    }
    return InTree("an array") && Open(JsonNode::kArray);
  }
  bool end_array() {
    --depth_;
    switch (mode_) {
      case Mode::kMergePair:
        if (pair_parts_ != 2) return Fail("a merge that is not a pair");
        json_->merges.push_back(pair_);
        mode_ = Mode::kMerges;
        return true;
      case Mode::kVocabArray:
        if (--skipped_arrays_ == 0) mode_ = Mode::kTree;
        return true;
      case Mode::kMerges:
      case Mode::kAddedList:
        mode_ = Mode::kTree;
        return true;
      default:
        tree_->Close();
        return true;
    }
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) {
    // The library's text repeats the position and quotes the input; its reason is at the end.
    const std::string_view what = e.what();
    const size_t reason = what.rfind(": ");
    status_ = FormatError(
        StrCat("no valid JSON at byte ", position, ": ",
               std::string(reason == std::string_view::npos ? what : what.substr(reason + 2))));
    return false;
  }

 private:
  bool Fail(std::string_view what) {
    status_ =
        FormatError(StrCat("tokenizer JSON: ", std::string(what),
                           key_.empty() ? "" : StrCat(" near key \"", key_.substr(0, 64), "\"")));
    return false;
  }
  bool Keep(Status status) {
    status_ = std::move(status);
    return status_.ok();
  }
  bool InTree(std::string_view what) {
    if (mode_ == Mode::kTree || mode_ == Mode::kVocabArray) return true;
    const char* where = mode_ == Mode::kVocab                                 ? "the vocabulary"
                        : mode_ == Mode::kMerges || mode_ == Mode::kMergePair ? "the merges"
                                                                              : "the added tokens";
    return Fail(StrCat(std::string(what), " in ", where));
  }
  bool Deeper() {
    if (++depth_ <= kMaxDepth) return true;
    return Fail("nested more than 64 levels deep");
  }
  // Directly inside the object "model", at this key.
  bool AtModelKey(std::string_view name) const {
    return tree_->depth() == 2 && tree_->open(1).key == "model" && key_ == name;
  }
  // Null after a failure; a dummy inside vocabularies that are passed over.
  JsonNode* Add(JsonNode::Type type) {
    if (mode_ == Mode::kVocabArray) return &dummy_;
    JsonNode* node = tree_->Add(type, key_);
    if (node == nullptr) Fail(tree_->why());
    return node;
  }
  bool Open(JsonNode::Type type) {
    JsonNode* node = Add(type);
    if (node == nullptr) return false;
    if (node == &dummy_) return Fail("an object in a vocabulary list");
    tree_->Open(node);
    return true;
  }
  bool Number(double value) {
    if (mode_ == Mode::kVocab) {
      if (!(value >= 0 && value < kMaxVocabulary) || value != static_cast<uint32_t>(value))
        return Fail("an id that is no small non-negative integer");
      SpecToken token;
      token.id = static_cast<uint32_t>(value);
      if (!Keep(spec_->Store(key_, &token.text))) return false;
      spec_->tokens.push_back(token);
      return true;
    }
    if (mode_ == Mode::kAddedItem) return true;  // ids follow from the vocabulary
    if (!InTree("a number")) return false;
    JsonNode* node = Add(JsonNode::kFloat);
    if (node == nullptr) return false;
    node->number = value;
    return true;
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
  size_t depth_ = 0, skipped_arrays_ = 0;
  std::string key_;
  TokenizerJson::Merge pair_;
  int pair_parts_ = 0;
  SpecAdded added_;
  JsonNode dummy_;
  Status status_;
};

}  // namespace

Status ParseTokenizerJson(std::string_view text, TokenizerJson* json, TokenizerSpec* spec) {
  Reader reader(json, spec);
  const bool ok = nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  if (!ok && reader.status().ok()) return FormatError("no valid JSON");
  return reader.status();
}

}  // namespace qinfer::tokenizer
