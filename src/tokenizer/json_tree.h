// The parts of a tokenizer.json: what is small as a bounded tree, vocabulary, merges and added
// tokens as flat lists. What the values mean is for json_program.cpp and from_json.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/spec.h"

namespace qinfer::tokenizer {

struct JsonNode {
  enum Type : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  Type type = kNull;
  bool boolean = false;
  double number = 0;
  std::string text;
  std::string key;  // in an object
  std::vector<std::unique_ptr<JsonNode>> children;

  // Child of an object; null if absent, and null if `this` is no object.
  const JsonNode* Get(std::string_view name) const;
  // The texts and flags that configuration files hold; the default where absent or of another type.
  std::string_view GetText(std::string_view name, std::string_view fallback = {}) const;
  bool GetBool(std::string_view name, bool fallback) const;
  bool IsObject() const { return type == kObject; }
};

struct TokenizerJson {
  explicit TokenizerJson(Memory* m) : merges(m) {}
  JsonNode root;  // without vocab, merges, added_tokens
  // Texts in the spec's arena. A merge written as one string has an empty right side until it is
  // resolved.
  struct Merge {
    Piece left, right;
    bool pair = false;
  };
  std::pmr::vector<Merge> merges;
  bool has_vocab_object = false, has_vocab_array = false, has_merges = false;
};

// Parses; vocabulary entries go to spec->tokens, added tokens to spec->added. FormatError with the
// byte offset for what is no JSON, is nested too deeply, or has entries of a wrong type.
Status ParseTokenizerJson(std::string_view text, TokenizerJson* json, TokenizerSpec* spec);
// A small document as a tree.
Status ParseSmallJson(std::string_view text, JsonNode* root);

}  // namespace qinfer::tokenizer
