// A JSON document as a tree in a Memory, for configurations: bounded in depth, values and bytes,
// and destroyed without a call of anything that could fail. What the values mean is for src/model
// and src/tokenizer; lists that grow with a model are read as events instead (json_stream.h).
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "core/status.h"

namespace qinfer::format {

struct JsonNode {
  enum Type : uint8_t { kNull, kBool, kUint, kInt, kFloat, kString, kArray, kObject };
  Type type = kNull;
  bool boolean = false;
  uint32_t size = 0;          // of an array or object
  int64_t whole = 0;          // kInt (negative); kUint: its bits
  double number = 0;          // of every number
  std::string_view text;      // of a string
  std::string_view key;       // in an object
  JsonNode* first = nullptr;  // child
  JsonNode* next = nullptr;   // sibling

  bool IsObject() const { return type == kObject; }
  bool IsArray() const { return type == kArray; }
  bool IsString() const { return type == kString; }
  bool IsNumber() const { return type == kUint || type == kInt || type == kFloat; }
  bool IsWhole() const { return type == kUint || type == kInt; }
  uint64_t unsigned_whole() const { return static_cast<uint64_t>(whole); }
  std::string_view TypeName() const;  // "number", "object", ...

  // Child of an object, the last of equal keys; null if absent, and null if `this` is no object.
  const JsonNode* Get(std::string_view name) const;
  // The texts and flags that configuration files hold; the default where absent or of another type.
  std::string_view GetText(std::string_view name, std::string_view fallback = {}) const;
  bool GetBool(std::string_view name, bool fallback) const;

  // for (const JsonNode& child : node)
  class Iterator {
   public:
    explicit Iterator(const JsonNode* node) : node_(node) {}
    const JsonNode& operator*() const { return *node_; }
    Iterator& operator++() {
      node_ = node_->next;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return node_ != other.node_; }

   private:
    const JsonNode* node_;
  };
  Iterator begin() const { return Iterator(first); }
  Iterator end() const { return Iterator(nullptr); }
};

// Owns the nodes of one document. Throws what Memory throws.
class JsonTree {
 public:
  static constexpr uint32_t kMaxDepth = 64, kMaxNodes = 200'000;
  static constexpr uint64_t kMaxTextBytes = 16 << 20;

  explicit JsonTree(Memory* memory) : arena_(memory), path_(memory) {}
  JsonTree(const JsonTree&) = delete;
  JsonTree& operator=(const JsonTree&) = delete;

  // The whole document. FormatError begins with `where` and names the byte.
  Status Parse(std::string_view text, const std::string& where);
  const JsonNode& root() const { return root_; }

  // For readers that take parts of a document otherwise: the next value of the innermost open array
  // or object (under `key` there), or the root. Null where a bound is reached; why() says which.
  JsonNode* Add(JsonNode::Type type, std::string_view key);
  bool SetText(JsonNode* node, std::string_view text);
  void Open(JsonNode* node);  // values go into it until Close
  void Close() { path_.pop_back(); }
  size_t depth() const { return path_.size(); }
  const JsonNode& open(size_t level) const { return *path_[level].node; }
  const char* why() const { return why_; }

 private:
  struct Level {
    JsonNode* node;
    JsonNode* last;  // child
  };
  // False where the texts of the document would become too long.
  bool Store(std::string_view text, std::string_view* out);

  std::pmr::monotonic_buffer_resource arena_;
  std::pmr::vector<Level> path_;
  JsonNode root_;
  uint32_t nodes_ = 0;
  uint64_t text_bytes_ = 0;
  const char* why_ = "";
};

}  // namespace qinfer::format
