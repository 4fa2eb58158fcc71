// The parts of a tokenizer.json: what is small as a bounded tree, vocabulary, merges and added
// tokens as flat lists. What the values mean is for json_program.cpp and from_json.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/json_text.h"
#include "format/json_tree.h"
#include "tokenizer/pieces.h"
#include "tokenizer/spec.h"

namespace qinfer::tokenizer {

using format::JsonNode;

struct TokenizerJson {
  explicit TokenizerJson(Memory* m) : tree(m), merges(m) {}
  format::JsonTree tree;  // without vocab, merges, added_tokens
  // Texts in the spec's arena. A merge written as one string has an empty right side until it is
  // resolved.
  struct Merge {
    Piece left, right;
    bool pair = false;
  };
  ChunkList<Merge> merges;
  bool has_vocab_object = false, has_vocab_array = false, has_merges = false;
};

// Parses, a stretch at a time; vocabulary entries go to spec->tokens, added tokens to spec->added.
class TokenizerJsonParse {
 public:
  // All outlive it.
  TokenizerJsonParse(std::string_view text, TokenizerJson* json, TokenizerSpec* spec);
  ~TokenizerJsonParse();
  // True at the end. FormatError with the byte offset for what is no JSON, is nested too deeply, or
  // has entries of a wrong type.
  StatusOr<bool> Step();

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
  format::JsonText parse_;
};

}  // namespace qinfer::tokenizer
