// Reading a source into a spec, in pieces of about 0.2 ms: byte-level and SentencePiece
// vocabularies of GGUF, and tokenizer.json.
#pragma once

#include <memory>
#include <string_view>

#include "core/status.h"
#include "format/gguf.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer_work.h"

namespace qinfer::tokenizer {

class SpecReader {
 public:
  virtual ~SpecReader() = default;
  // True when the spec is complete. Not called again after that, or after an error.
  virtual StatusOr<bool> Step() = 0;
};

// What they read, and the spec, outlive the reader. Errors begin with the source's name.
std::unique_ptr<SpecReader> ReadGguf(const format::Gguf& gguf, TokenizerSpec* spec);
// `config`: tokenizer_config.json, or empty.
std::unique_ptr<SpecReader> ReadTokenizerJson(NamedText text, NamedText config,
                                              TokenizerSpec* spec);

}  // namespace qinfer::tokenizer
