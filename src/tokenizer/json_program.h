// The configured steps of a tokenizer.json (normalizer, pre-tokenizer, post-processor, decoder) as
// the programs of a spec. Vocabulary and merges are read in from_json.cpp.
#pragma once

#include "tokenizer/spec.h"
#include "tokenizer/tokenizer_json.h"

namespace qinfer::tokenizer {

// Null nodes (absent or null in the file) mean: no such step. UnsupportedError names an unknown
// type and lists the known ones.
Status ReadNormalizer(const JsonNode* node, TokenizerSpec* spec);
Status ReadPretokenizer(const JsonNode* node, TokenizerSpec* spec);
Status ReadPostProcessor(const JsonNode* node, TokenizerSpec* spec);
Status ReadDecoder(const JsonNode* node, TokenizerSpec* spec);

// For programs that are not read from JSON.
void AddByteLevel(bool prefix_space, bool use_regex, TokenizerSpec* spec);
void AddScanner(uint32_t scanner, TokenizerSpec* spec);  // Isolated
void FinishPretokenizer(TokenizerSpec* spec);  // a last ByteAlphabet step becomes byte_level

}  // namespace qinfer::tokenizer
