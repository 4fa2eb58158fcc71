// Where tokenizers and templates are found. A template that does not parse is not fatal (the model
// works without it) but its reason is kept; a tokenizer that is broken is.
#include "exec/text_parts.h"

#include <algorithm>

#include "format/gguf.h"
#include "model/config_reader.h"

namespace qinfer::exec {
namespace {

constexpr uint64_t kReadAtOnce = 256 << 10;

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
    case Phase::kTemplate:
      QINFER_RETURN_IF_ERROR(ParseTemplate());
      return false;
    case Phase::kDefaults:
      QINFER_RETURN_IF_ERROR(FindDefaults());
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
    phase_ = Phase::kTemplate;
    if (!template_.empty()) return OkStatus();
    if (checkpoint_.gguf() != nullptr) {
      template_place_ = checkpoint_.name() + ": metadata tokenizer.chat_template";
      const format::GgufValue* value = checkpoint_.gguf()->Find("tokenizer.chat_template");
      if (value != nullptr) {
        QINFER_ASSIGN_OR_RETURN(const std::string_view view, value->AsString());
        template_ = std::string(view);
      }
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
  config_.reset();
  phase_ = Phase::kTemplate;
  return OkStatus();
}

Status TextWork::ParseTemplate() {
  phase_ = Phase::kDefaults;
  if (template_.empty()) return OkStatus();
  StatusOr<std::shared_ptr<const tokenizer::ChatTemplate>> parsed =
      tokenizer::ChatTemplate::Parse(template_, template_place_);
  if (parsed.ok()) {
    parts_.chat_template = *std::move(parsed);
  } else {
    parts_.chat_template_error = std::string(parsed.status().message());
  }
  return OkStatus();
}

Status TextWork::FindDefaults() {
  QINFER_ASSIGN_OR_RETURN(parts_.defaults,
                          model::GenerationDefaultsFromCheckpoint(checkpoint_, memory_));
  if (checkpoint_.qinfer() == nullptr || !parts_.defaults.eos_ids.empty()) return OkStatus();
  return DefaultsFromGgufMetadata(checkpoint_, memory_, &parts_);
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
