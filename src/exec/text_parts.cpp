// Where tokenizers and templates are found. A template that does not parse is not fatal (the model
// works without it) but its reason is kept; a tokenizer that is broken is.
#include "exec/text_parts.h"

#include "format/gguf.h"
#include "model/config_reader.h"

namespace qinfer::exec {
namespace {

// The template of tokenizer_config.json: a string, or a list of named ones.
StatusOr<std::string> TemplateFromConfig(std::string_view config, const std::string& where,
                                         Memory* memory) {
  if (config.empty()) return std::string();
  QINFER_ASSIGN_OR_RETURN(const std::unique_ptr<format::JsonTree> tree,
                          model::ParseJsonObject(config, where, memory));
  const format::JsonNode* list = tree->root().Get("chat_template");
  if (list == nullptr || list->type == format::JsonNode::kNull) return std::string();
  if (list->IsString()) return std::string(list->text);
  if (!list->IsArray()) return FormatError(where + ": chat_template: expected a string or a list");
  for (const format::JsonNode& entry : *list) {
    const format::JsonNode* text = entry.Get("template");
    if (text == nullptr || !text->IsString()) continue;
    if (entry.GetText("name") == "default") return std::string(text->text);
  }
  return std::string();
}

// The compiled tokenizer, used in place where the file is mapped; else the source's own.
Status LoadQinferTokenizer(const format::Checkpoint& checkpoint, Memory* memory, TextParts* parts) {
  const format::QinferFile& file = *checkpoint.qinfer();
  const format::QinferTensor* tensor = file.Find(format::kSideTokenizerCompiled);
  if (tensor != nullptr) {
    QINFER_ASSIGN_OR_RETURN(parts->compiled, file.Load(*tensor, memory));
    QINFER_ASSIGN_OR_RETURN(parts->tokenizer, tokenizer::Tokenizer::FromCompiled(
                                                  parts->compiled.span(), file.name(), memory));
    return OkStatus();
  }
  tensor = file.Find(format::kSideTokenizerJson);
  if (tensor == nullptr) return OkStatus();
  QINFER_ASSIGN_OR_RETURN(const format::QinferBytes json, file.Load(*tensor, memory));
  QINFER_ASSIGN_OR_RETURN(
      parts->tokenizer,
      tokenizer::Tokenizer::FromJson(
          json.text(), checkpoint.side_files().tokenizer_config_json.text(), file.name(), memory));
  return OkStatus();
}

// A file made from GGUF keeps that one's metadata, and in it what ends a text.
Status DefaultsFromGgufMetadata(const format::Checkpoint& checkpoint, Memory* memory,
                                TextParts* parts) {
  const format::QinferFile& file = *checkpoint.qinfer();
  const format::QinferTensor* tensor = file.Find(format::kSideGgufMetadata);
  if (tensor == nullptr) return OkStatus();
  QINFER_ASSIGN_OR_RETURN(const format::QinferBytes bytes, file.Load(*tensor, memory));
  QINFER_ASSIGN_OR_RETURN(
      const std::shared_ptr<format::Gguf> gguf,
      format::Gguf::Open({io::BorrowMemory(bytes.span(), file.name())}, memory));
  parts->defaults = model::GenerationDefaultsFromGguf(*gguf);
  return OkStatus();
}

Status LoadTokenizer(const format::Checkpoint& checkpoint, Memory* memory, TextParts* parts) {
  const format::SideFiles& files = checkpoint.side_files();
  if (checkpoint.qinfer() != nullptr) return LoadQinferTokenizer(checkpoint, memory, parts);
  if (checkpoint.gguf() != nullptr) {
    const format::GgufValue* kind = checkpoint.gguf()->Find("tokenizer.ggml.model");
    if (kind == nullptr) return OkStatus();
    // How llama.cpp's converter says that there is none.
    const StatusOr<std::string_view> word = kind->AsString();
    if (word.ok() && (*word == "none" || *word == "no_vocab")) return OkStatus();
    QINFER_ASSIGN_OR_RETURN(parts->tokenizer,
                            tokenizer::Tokenizer::FromGguf(*checkpoint.gguf(), memory));
    return OkStatus();
  }
  if (files.tokenizer_json.empty()) return OkStatus();
  QINFER_ASSIGN_OR_RETURN(parts->tokenizer,
                          tokenizer::Tokenizer::FromJson(
                              files.tokenizer_json.text(), files.tokenizer_config_json.text(),
                              checkpoint.name() + ": tokenizer.json", memory));
  return OkStatus();
}

}  // namespace

StatusOr<TextParts> LoadTextParts(const format::Checkpoint& checkpoint, Memory* memory) {
  TextParts parts;
  QINFER_RETURN_IF_ERROR(LoadTokenizer(checkpoint, memory, &parts));
  std::string text(checkpoint.side_files().chat_template_jinja.text());
  std::string where = checkpoint.name() + ": chat_template.jinja";
  if (text.empty() && checkpoint.gguf() != nullptr) {
    where = checkpoint.name() + ": metadata tokenizer.chat_template";
    const format::GgufValue* value = checkpoint.gguf()->Find("tokenizer.chat_template");
    if (value != nullptr) {
      QINFER_ASSIGN_OR_RETURN(const std::string_view view, value->AsString());
      text = std::string(view);
    }
  } else if (text.empty()) {
    where = checkpoint.name() + ": tokenizer_config.json";
    QINFER_ASSIGN_OR_RETURN(
        text,
        TemplateFromConfig(checkpoint.side_files().tokenizer_config_json.text(), where, memory));
  }
  if (!text.empty()) {
    StatusOr<std::shared_ptr<const tokenizer::ChatTemplate>> parsed =
        tokenizer::ChatTemplate::Parse(text, where);
    if (parsed.ok()) {
      parts.chat_template = *std::move(parsed);
    } else {
      parts.chat_template_error = std::string(parsed.status().message());
    }
  }
  QINFER_ASSIGN_OR_RETURN(parts.defaults,
                          model::GenerationDefaultsFromCheckpoint(checkpoint, memory));
  if (checkpoint.qinfer() != nullptr && parts.defaults.eos_ids.empty()) {
    QINFER_RETURN_IF_ERROR(DefaultsFromGgufMetadata(checkpoint, memory, &parts));
  }
  return parts;
}

}  // namespace qinfer::exec
