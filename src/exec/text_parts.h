// The parts of a model that deal with text: tokenizer, chat template, generation defaults, found in
// whatever place the container keeps them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/memory.h"
#include "format/checkpoint.h"
#include "format/qinfer_file.h"
#include "model/spec.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_work.h"

namespace qinfer::exec {

struct TextParts {
  format::QinferBytes compiled;  // a compiled tokenizer's bytes; outlives `tokenizer`
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;         // null if there is none
  std::shared_ptr<const tokenizer::ChatTemplate> chat_template;  // null if there is none
  std::string chat_template_error;
  model::GenerationDefaults defaults;
};

// Finds and makes them, in pieces of about 0.2 ms.
class TextWork {
 public:
  // The checkpoint outlives the work and what it makes. `tokenizer`: of the same checkpoint, where
  // it has been made already; null = to be made.
  TextWork(const format::Checkpoint& checkpoint,
           std::shared_ptr<const tokenizer::Tokenizer> tokenizer, Memory* memory);
  // True when all are there. Not called again after that, or after an error.
  StatusOr<bool> Step();
  TextParts Take() { return std::move(parts_); }

 private:
  enum class Phase : uint8_t { kFind, kRead, kTokenizer, kConfig, kDefaults, kTemplate };

  Status FindTokenizer();
  Status FindInQinfer();
  Status ReadPiece();
  void OpenBytes();
  tokenizer::NamedText Config() const;  // tokenizer_config.json
  Status FindTemplate();
  Status FindDefaults();
  Status FindInGgufMetadata();
  Status ParseTemplate();

  const format::Checkpoint& checkpoint_;
  Memory* const memory_;
  Phase phase_ = Phase::kFind;
  TextParts parts_;
  // The side file of a .qinfer file that holds the tokenizer, and what of it is read.
  const format::QinferTensor* stored_ = nullptr;
  bool compiled_ = false;
  Buffer read_;
  uint64_t read_bytes_ = 0;
  format::QinferBytes json_;
  std::unique_ptr<tokenizer::TokenizerWork> tokenizer_;
  std::unique_ptr<tokenizer::TokenizerConfig> config_;
  std::string template_, tool_template_, template_place_;
};

// A whole TextWork in one call.
StatusOr<TextParts> LoadTextParts(const format::Checkpoint& checkpoint,
                                  std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                  Memory* memory);

}  // namespace qinfer::exec
