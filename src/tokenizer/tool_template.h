// Two chat templates as one, of which one is for conversations with tools: what transformers takes
// from a list of named templates.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/chat_template.h"

namespace qinfer::tokenizer {

// As ChatTemplate::Parse; `tool_use` is taken where tools are given, `text` where not. Either may
// be empty, but not both: without `tool_use`, `text` is for all; without `text`, there must be
// tools. The result's text() is `text`.
StatusOr<std::shared_ptr<const ChatTemplate>> ParseTemplates(std::string_view text,
                                                             std::string_view tool_use,
                                                             const std::string& name);

}  // namespace qinfer::tokenizer
