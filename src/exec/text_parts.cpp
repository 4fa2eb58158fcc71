// Where tokenizers and templates are found. A template that does not parse is not fatal (the model
// works without it) but its reason is kept; a tokenizer that is broken is.
#include "exec/text_parts.h"

#include <algorithm>

#include "format/gguf.h"
#include "model/config_reader.h"
#include "tokenizer/tool_template.h"

namespace qinfer::exec {
namespace {

constexpr uint64_t kReadAtOnce = 256 << 10;

// The text under `key`; empty = none.
StatusOr<std::string> GgufText(const format::Gguf& gguf, const char* key) {
  const format::GgufValue* const value = gguf.Find(key);
  if (value == nullptr) return std::string();
  QINFER_ASSIGN_OR_RETURN(const std::string_view text, value->AsString());
  return std::string(text);
}

constexpr char kGgufTemplate[] = "tokenizer.chat_template";
constexpr char kGgufToolTemplate[] = "tokenizer.chat_template.tool_use";

}  // namespace

TextWork::TextWork(const format::Checkpoint& checkpoint,
                   std::shared_ptr<const tokenizer::Tokenizer> tokenizer, Memory* memory)
    : checkpoint_(checkpoint), memory_(memory) {
  parts_.tokenizer = std::move(tokenizer);
  if (parts_.tokenizer != nullptr) phase_ = Phase::kConfig;
}

StatusOr<bool> TextWork::Step() {
  switch (phase_) {
    case Phase::kFind:
      QINFER_RETURN_IF_ERROR(FindTokenizer());
      return false;
    case Phase::kRead:
      QINFER_RETURN_IF_ERROR(ReadPiece());
      return false;
    case Phase::kTokenizer: {
      QINFER_ASSIGN_OR_RETURN(const bool made, tokenizer_->Step());
      if (!made) return false;
      parts_.tokenizer = tokenizer_->Take();
      tokenizer_.reset();
      json_ = format::QinferBytes();
      phase_ = Phase::kConfig;
      return false;
    }
    case Phase::kConfig:
      QINFER_RETURN_IF_ERROR(FindTemplate());
      return false;
    case Phase::kDefaults:
      QINFER_RETURN_IF_ERROR(FindDefaults());
      return false;
    case Phase::kTemplate:
      QINFER_RETURN_IF_ERROR(ParseTemplate());
      return true;
  }
  return InternalError("text parts in no phase");
}

Status TextWork::FindTokenizer() {
  const format::SideFiles& files = checkpoint_.side_files();
  if (checkpoint_.qinfer() != nullptr) return FindInQinfer();
  phase_ = Phase::kConfig;
  if (checkpoint_.gguf() != nullptr) {
    const format::GgufValue* kind = checkpoint_.gguf()->Find("tokenizer.ggml.model");
    if (kind == nullptr) return OkStatus();
    // How llama.cpp's converter says that there is none.
    const StatusOr<std::string_view> word = kind->AsString();
    if (word.ok() && (*word == "none" || *word == "no_vocab")) return OkStatus();
    tokenizer_ = tokenizer::TokenizerWork::OfGguf(*checkpoint_.gguf(), memory_);
  } else if (!files.tokenizer_json.empty()) {
    tokenizer_ = tokenizer::TokenizerWork::OfJson(
        {files.tokenizer_json.text(), checkpoint_.PlaceOf(files.tokenizer_json, "tokenizer.json")},
        Config(), memory_);
  } else {
    return OkStatus();
  }
  phase_ = Phase::kTokenizer;
  return OkStatus();
}

// The compiled tokenizer, used in place where the file is mapped; else the source's own.
Status TextWork::FindInQinfer() {
  const format::QinferFile& file = *checkpoint_.qinfer();
  phase_ = Phase::kConfig;
  stored_ = file.Find(format::kSideTokenizerCompiled);
  compiled_ = stored_ != nullptr;
  if (!compiled_) stored_ = file.Find(format::kSideTokenizerJson);
  if (stored_ == nullptr) return OkStatus();
  const absl::Span<const uint8_t> mapped = file.Map(*stored_);
  if (!mapped.empty()) {
    (compiled_ ? parts_.compiled : json_) = format::QinferBytes(mapped);
    OpenBytes();
    return OkStatus();
  }
  QINFER_ASSIGN_OR_RETURN(read_, Buffer::Create(memory_, static_cast<size_t>(stored_->bytes),
                                                std::string(stored_->name).c_str()));
  phase_ = Phase::kRead;
  return OkStatus();
}

Status TextWork::ReadPiece() {
  const uint64_t piece = std::min(kReadAtOnce, stored_->bytes - read_bytes_);
  QINFER_RETURN_IF_ERROR(checkpoint_.qinfer()->Read(
      *stored_, read_bytes_, {read_.as<uint8_t>() + read_bytes_, static_cast<size_t>(piece)}));
  read_bytes_ += piece;
  if (read_bytes_ < stored_->bytes) return OkStatus();
  (compiled_ ? parts_.compiled : json_) =
      format::QinferBytes(std::move(read_), static_cast<size_t>(stored_->bytes));
  OpenBytes();
  return OkStatus();
}

void TextWork::OpenBytes() {
  const std::string& name = checkpoint_.qinfer()->name();
  tokenizer_ = compiled_
                   ? tokenizer::TokenizerWork::OfCompiled(parts_.compiled.span(), name, memory_)
                   : tokenizer::TokenizerWork::OfJson(
                         {json_.text(), StrCat(name, ": tokenizer.json")}, Config(), memory_);
  phase_ = Phase::kTokenizer;
}

tokenizer::NamedText TextWork::Config() const {
  const format::Document& config = checkpoint_.side_files().tokenizer_config_json;
  return {config.text(), checkpoint_.PlaceOf(config, "tokenizer_config.json")};
}

// A file of its own, metadata, or an entry of tokenizer_config.json.
Status TextWork::FindTemplate() {
  if (config_ == nullptr) {
    const format::Document& own = checkpoint_.side_files().chat_template_jinja;
    template_ = std::string(own.text());
    template_place_ = checkpoint_.PlaceOf(own, "chat_template.jinja");
    phase_ = Phase::kDefaults;
    if (!template_.empty()) return OkStatus();
    if (checkpoint_.gguf() != nullptr) {
      template_place_ = StrCat(checkpoint_.name(), ": metadata ", kGgufTemplate);
      QINFER_ASSIGN_OR_RETURN(template_, GgufText(*checkpoint_.gguf(), kGgufTemplate));
      QINFER_ASSIGN_OR_RETURN(tool_template_, GgufText(*checkpoint_.gguf(), kGgufToolTemplate));
      return OkStatus();
    }
    const tokenizer::NamedText config = Config();
    if (config.text.empty()) return OkStatus();
    template_place_ = config.name;
    config_ = std::make_unique<tokenizer::TokenizerConfig>(config.text, config.name);
    phase_ = Phase::kConfig;
    return OkStatus();
  }
  QINFER_ASSIGN_OR_RETURN(const bool read, config_->Step());
  if (!read) return OkStatus();
  QINFER_ASSIGN_OR_RETURN(template_, config_->ChatTemplate());
  tool_template_ = config_->tool_template();
  config_.reset();
  phase_ = Phase::kDefaults;
  return OkStatus();
}

Status TextWork::FindDefaults() {
  phase_ = Phase::kTemplate;
  QINFER_ASSIGN_OR_RETURN(parts_.defaults,
                          model::GenerationDefaultsFromCheckpoint(checkpoint_, memory_));
  if (checkpoint_.qinfer() == nullptr || !parts_.defaults.eos_ids.empty()) return OkStatus();
  return FindInGgufMetadata();
}

// A file made from GGUF keeps that one's metadata: in it stand what ends a text, and the template
// for conversations with tools.
Status TextWork::FindInGgufMetadata() {
  const format::QinferFile& file = *checkpoint_.qinfer();
  const format::QinferTensor* tensor = file.Find(format::kSideGgufMetadata);
  if (tensor == nullptr) return OkStatus();
  QINFER_ASSIGN_OR_RETURN(const format::QinferBytes bytes, file.Load(*tensor, memory_));
  QINFER_ASSIGN_OR_RETURN(
      const std::shared_ptr<format::Gguf> gguf,
      format::Gguf::Open({io::BorrowMemory(bytes.span(), file.name())}, memory_));
  parts_.defaults = model::GenerationDefaultsFromGguf(*gguf);
  QINFER_ASSIGN_OR_RETURN(const std::string own, GgufText(*gguf, kGgufTemplate));
  if (template_ != own) return OkStatus();  // another one was given in its place
  QINFER_ASSIGN_OR_RETURN(tool_template_, GgufText(*gguf, kGgufToolTemplate));
  return OkStatus();
}

Status TextWork::ParseTemplate() {
  if (template_.empty() && tool_template_.empty()) return OkStatus();
  StatusOr<std::shared_ptr<const tokenizer::ChatTemplate>> parsed =
      tokenizer::ParseTemplates(template_, tool_template_, template_place_);
  if (parsed.ok()) {
    parts_.chat_template = *std::move(parsed);
  } else {
    parts_.chat_template_error = std::string(parsed.status().message());
  }
  return OkStatus();
}

StatusOr<TextParts> LoadTextParts(const format::Checkpoint& checkpoint,
                                  std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                  Memory* memory) {
  TextWork work(checkpoint, std::move(tokenizer), memory);
  for (;;) {
    QINFER_ASSIGN_OR_RETURN(const bool done, work.Step());
    if (done) return work.Take();
  }
}

}  // namespace qinfer::exec
