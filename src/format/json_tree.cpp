// Building the tree, by itself or from the events of json_stream.h.
#include "format/json_tree.h"

#include <cstring>
#include <new>

#include "format/json_stream.h"

namespace qinfer::format {
namespace {

class TreeEvents final : public JsonEvents {
 public:
  explicit TreeEvents(JsonTree* tree) : tree_(tree) {}

  Status OnKey(std::string_view key) override {
    key_.assign(key);
    return OkStatus();
  }
  Status OnString(std::string_view value) override {
    JsonNode* node = tree_->Add(JsonNode::kString, key_);
    return node != nullptr && tree_->SetText(node, value) ? OkStatus() : TooLarge();
  }
  Status OnUint(uint64_t value) override {
    return Number(JsonNode::kUint, static_cast<int64_t>(value), static_cast<double>(value));
  }
  Status OnInt(int64_t value) override {
    return Number(JsonNode::kInt, value, static_cast<double>(value));
  }
  Status OnFloat(double value) override { return Number(JsonNode::kFloat, 0, value); }
  Status OnBool(bool value) override {
    JsonNode* node = tree_->Add(JsonNode::kBool, key_);
    if (node == nullptr) return TooLarge();
    node->boolean = value;
    return OkStatus();
  }
  Status OnNull() override {
    return tree_->Add(JsonNode::kNull, key_) != nullptr ? OkStatus() : TooLarge();
  }
  Status OnStartObject() override { return Open(JsonNode::kObject); }
  Status OnEndObject() override { return Close(); }
  Status OnStartArray() override { return Open(JsonNode::kArray); }
  Status OnEndArray() override { return Close(); }

 private:
  Status TooLarge() const { return FormatError(tree_->why()); }
  Status Number(JsonNode::Type type, int64_t whole, double value) {
    JsonNode* node = tree_->Add(type, key_);
    if (node == nullptr) return TooLarge();
    node->whole = whole;
    node->number = value;
    return OkStatus();
  }
  Status Open(JsonNode::Type type) {
    JsonNode* node = tree_->Add(type, key_);
    if (node == nullptr) return TooLarge();
    tree_->Open(node);
    return OkStatus();
  }
  Status Close() {
    tree_->Close();
    return OkStatus();
  }

  JsonTree* tree_;
  std::string key_;
};

}  // namespace

std::string_view JsonNode::TypeName() const {
  switch (type) {
    case kNull:
      return "null";
    case kBool:
      return "boolean";
    case kString:
      return "string";
    case kArray:
      return "array";
    case kObject:
      return "object";
    default:
      return "number";
  }
}

const JsonNode* JsonNode::Get(std::string_view name) const {
  const JsonNode* found = nullptr;
  if (type != kObject) return found;
  for (const JsonNode& child : *this) {
    if (child.key == name) found = &child;
  }
  return found;
}

std::string_view JsonNode::GetText(std::string_view name, std::string_view fallback) const {
  const JsonNode* node = Get(name);
  return node != nullptr && node->IsString() ? node->text : fallback;
}

bool JsonNode::GetBool(std::string_view name, bool fallback) const {
  const JsonNode* node = Get(name);
  return node != nullptr && node->type == kBool ? node->boolean : fallback;
}

Status JsonTree::Parse(std::string_view text, const std::string& where) {
  TreeEvents events(this);
  return ParseJson(text, where, JsonLimits{.max_depth = kMaxDepth}, &events);
}

bool JsonTree::Store(std::string_view text, std::string_view* out) {
  text_bytes_ += text.size();
  if (text_bytes_ > kMaxTextBytes) {
    why_ = "its configuration is longer than 16 MiB";
    return false;
  }
  if (text.empty()) return true;
  char* copy = static_cast<char*>(arena_.allocate(text.size(), 1));
  std::memcpy(copy, text.data(), text.size());
  *out = {copy, text.size()};
  return true;
}

JsonNode* JsonTree::Add(JsonNode::Type type, std::string_view key) {
  if (++nodes_ > kMaxNodes) {
    why_ = "its configuration has more than 200000 values";
    return nullptr;
  }
  if (path_.empty()) {
    root_.type = type;
    return &root_;
  }
  auto* node = new (arena_.allocate(sizeof(JsonNode), alignof(JsonNode))) JsonNode();
  node->type = type;
  Level& level = path_.back();
  if (level.node->IsObject() && !Store(key, &node->key)) return nullptr;
  (level.last == nullptr ? level.node->first : level.last->next) = node;
  level.last = node;
  ++level.node->size;
  return node;
}

bool JsonTree::SetText(JsonNode* node, std::string_view text) { return Store(text, &node->text); }

void JsonTree::Open(JsonNode* node) { path_.push_back({node, nullptr}); }

}  // namespace qinfer::format
