// The parts of a model that deal with text: tokenizer, chat template, generation defaults, found in
// whatever place the container keeps them.
#pragma once

#include <memory>
#include <string>

#include "core/memory.h"
#include "format/checkpoint.h"
#include "format/qinfer_file.h"
#include "model/spec.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace qinfer::exec {

struct TextParts {
  format::QinferBytes compiled;  // a compiled tokenizer's bytes; outlives `tokenizer`
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;         // null if there is none
  std::shared_ptr<const tokenizer::ChatTemplate> chat_template;  // null if there is none
  std::string chat_template_error;
  model::GenerationDefaults defaults;
};

StatusOr<TextParts> LoadTextParts(const format::Checkpoint& checkpoint, Memory* memory);

}  // namespace qinfer::exec
