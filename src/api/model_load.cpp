// Units of a load: opening, pieces of checksums, then what exec::LoadWork steps.
#include "api/model_load.h"

#include <algorithm>

#include "format/hf_folder.h"
#include "format/path_info.h"
#include "format/qinfer_file.h"
#include "io/folder.h"

namespace qinfer::api {
namespace {

// The largest tokenizer.json that is read: those of today's models are below 40 MB.
constexpr uint64_t kMaxTokenizerBytes = uint64_t{1} << 30;
constexpr uint64_t kReadAtOnce = 256 << 10;

}  // namespace

StatusOr<bool> ModelLoadWork::IsTokenizerJson() const {
  if (source_.source != nullptr) {
    QINFER_ASSIGN_OR_RETURN(const format::Content content, format::DescribeSource(*source_.source));
    return content == format::Content::kTokenizerJson;
  }
  QINFER_ASSIGN_OR_RETURN(const format::Content content, format::DescribePath(source_.path));
  return content == format::Content::kTokenizerJson;
}

Status ModelLoadWork::OpenTokenizer() {
  Memory* const memory = &state_->runtime->memory;
  QINFER_ASSIGN_OR_RETURN(json_source_, OpenBytes(source_, memory));
  const uint64_t size = json_source_->size();
  if (size > kMaxTokenizerBytes) {
    return FormatError(
        StrCat(json_source_->name(), " has ", size, " bytes, too many for a tokenizer.json"));
  }
  QINFER_ASSIGN_OR_RETURN(json_,
                          Buffer::Create(memory, static_cast<size_t>(size), "a tokenizer.json"));
  format::SideFiles& files = source_.documents;
  if (source_.source == nullptr) {
    const std::string folder = io::FolderOf(source_.path);
    if (files.tokenizer_config_json.empty()) {
      const std::string beside = io::JoinPath(folder, "tokenizer_config.json");
      QINFER_ASSIGN_OR_RETURN(const io::PathKind kind, io::KindOf(beside));
      if (kind == io::PathKind::kFile) {
        QINFER_ASSIGN_OR_RETURN(Buffer found,
                                io::ReadSmallFile(beside, kMaxTokenizerBytes, memory));
        files.tokenizer_config_json = format::Document::Own(std::move(found));
        files.tokenizer_config_json.set_path(beside);
      }
    }
    if (files.chat_template_jinja.empty()) {
      QINFER_RETURN_IF_ERROR(format::ReadTemplateFile(folder, memory, &files.chat_template_jinja));
    }
  }
  phase_ = Phase::kRead;
  return OkStatus();
}

Status ModelLoadWork::ReadTokenizer() {
  const uint64_t piece = std::min<uint64_t>(kReadAtOnce, json_.size() - json_bytes_);
  QINFER_RETURN_IF_ERROR(json_source_->ReadAt(
      json_bytes_, {json_.as<uint8_t>() + json_bytes_, static_cast<size_t>(piece)}));
  json_bytes_ += piece;
  if (json_bytes_ < json_.size()) return OkStatus();
  Memory* const memory = &state_->runtime->memory;
  format::SideFiles files;
  files.tokenizer_json = format::Document::Own(std::move(json_));
  files.tokenizer_json.set_path(json_source_->name());
  files.tokenizer_config_json = std::move(source_.documents.tokenizer_config_json);
  files.chat_template_jinja = std::move(source_.documents.chat_template_jinja);
  json_files_ = format::CheckpointOfDocuments(state_->name, std::move(files), memory);
  text_ = std::make_unique<exec::TextWork>(*json_files_, nullptr, memory);
  progress_.phase.store("tokenizer");
  phase_ = Phase::kText;
  return OkStatus();
}

Status ModelLoadWork::Open() {
  progress_.phase.store("open");
  state_->name = source_.name();
  if (choice_.parts == QINFER_PARTS_VOCABULARY) {
    QINFER_ASSIGN_OR_RETURN(const bool tokenizer_json, IsTokenizerJson());
    if (tokenizer_json) return OpenTokenizer();
  }
  format::OpenOptions options;
  options.access = choice_.access;
  options.memory = &state_->runtime->memory;
  QINFER_ASSIGN_OR_RETURN(state_->checkpoint, OpenModel(source_, options));
  source_ = SourceParts();  // what is still needed of it lives in the checkpoint
  phase_ = Phase::kParts;
  const format::QinferFile* const file = state_->checkpoint->qinfer();
  if (!choice_.verify || file == nullptr) return OkStatus();
  QINFER_ASSIGN_OR_RETURN(checksums_, format::ChecksumPass::Create(file, options.memory));
  progress_.total.store(checksums_->bytes_total());
  progress_.phase.store("verify");
  phase_ = Phase::kVerify;
  return OkStatus();
}

Status ModelLoadWork::Verify() {
  if (!checksums_->finished()) {
    QINFER_RETURN_IF_ERROR(checksums_->Step());
    progress_.done.store(checksums_->bytes_done());
    return OkStatus();
  }
  checksums_.reset();
  phase_ = Phase::kParts;
  return OkStatus();
}

Status ModelLoadWork::BeginParts() {
  if (choice_.parts == QINFER_PARTS_VOCABULARY) {
    text_ =
        std::make_unique<exec::TextWork>(*state_->checkpoint, nullptr, &state_->runtime->memory);
    progress_.phase.store("tokenizer");
    phase_ = Phase::kText;
    return OkStatus();
  }
  phase_ = Phase::kDone;
  QINFER_ASSIGN_OR_RETURN(state_->spec, model::SpecFromCheckpoint(*state_->checkpoint));
  if (choice_.parts == QINFER_PARTS_HEADER) return OkStatus();
  if (state_->checkpoint->container() == format::Container::kConfigOnly) {
    return FormatError(StrCat(state_->name,
                              " is a configuration without weights: it can be opened "
                              "with QINFER_PARTS_HEADER alone"));
  }
  QINFER_ASSIGN_OR_RETURN(load_,
                          exec::LoadWork::Create(state_->checkpoint, state_->runtime->context()));
  phase_ = Phase::kWeights;
  return OkStatus();
}

Status ModelLoadWork::StepText() {
  QINFER_ASSIGN_OR_RETURN(const bool made, text_->Step());
  if (!made) return OkStatus();
  state_->text = text_->Take();
  text_.reset();
  json_files_.reset();
  if (state_->text.tokenizer == nullptr) {
    return FormatError(StrCat(state_->name, " holds no tokenizer"));
  }
  phase_ = Phase::kDone;
  return OkStatus();
}

Status ModelLoadWork::StepOnce(const Deadline& deadline) {
  switch (phase_) {
    case Phase::kOpen:
      return Open();
    case Phase::kVerify:
      return Verify();
    case Phase::kParts:
      return BeginParts();
    case Phase::kText:
      return StepText();
    case Phase::kRead:
      return ReadTokenizer();
    case Phase::kWeights: {
      QINFER_ASSIGN_OR_RETURN(const bool done, load_->Step(deadline));
      progress_.done.store(load_->progress().done.load());
      progress_.total.store(load_->progress().total.load());
      progress_.phase.store(load_->progress().phase.load());
      if (!done) return OkStatus();
      state_->model = load_->TakeModel();
      load_.reset();
      phase_ = Phase::kDone;
      return OkStatus();
    }
    case Phase::kDone:
      return OkStatus();
  }
  return InternalError("a load is in no phase");
}

// Ends that this model can never reach.
void ModelLoadWork::ReportDefaults(const Log& log) const {
  const model::GenerationDefaults& defaults = state_->model->generation_defaults();
  for (const std::string& warning : defaults.warnings) log.Write(LogLevel::kWarning, warning);
  const uint32_t vocabulary = state_->model->spec().vocab_size;
  for (const int32_t id : defaults.eos_ids) {
    if (static_cast<uint32_t>(id) < vocabulary) continue;
    log.Write(LogLevel::kWarning, StrCat(state_->name, ": token ", id,
                                         " is to end a text (eos_token_id), but the model ", "has ",
                                         vocabulary, " tokens; it never will"));
  }
}

void ModelLoadWork::Report() const {
  const Log& log = state_->runtime->log;
  if (!state_->chat_template_error().empty() && log.Enabled(LogLevel::kWarning)) {
    log.Write(LogLevel::kWarning,
              StrCat(state_->name, ": no chat template: ", state_->chat_template_error()));
  }
  if (state_->model != nullptr && log.Enabled(LogLevel::kWarning)) ReportDefaults(log);
  if (log.Enabled(LogLevel::kInfo)) {
    log.Write(LogLevel::kInfo,
              StrCat(state_->name, ": loaded, ",
                     state_->model == nullptr ? 0 : state_->model->weight_bytes(), " bytes"));
  }
}

StatusOr<bool> ModelLoadWork::Step(const Deadline& deadline) {
  do {
    if (deadline.Cancelled()) return CancelledError();
    QINFER_RETURN_IF_ERROR(StepOnce(deadline));
    if (phase_ == Phase::kDone) {
      Report();
      return true;
    }
  } while (!deadline.Expired());
  return false;
}

}  // namespace qinfer::api
