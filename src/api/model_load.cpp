// Units of a load: opening, pieces of checksums, then what exec::LoadWork steps.
#include "api/model_load.h"

#include "format/path_info.h"
#include "format/qinfer_file.h"
#include "io/folder.h"

namespace qinfer::api {
namespace {

// The largest tokenizer.json that is read: those of today's models are below 40 MB.
constexpr uint64_t kMaxTokenizerBytes = uint64_t{1} << 30;

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
  QINFER_ASSIGN_OR_RETURN(const std::shared_ptr<io::Source> bytes, OpenBytes(source_, memory));
  if (bytes->size() > kMaxTokenizerBytes) {
    return FormatError(
        StrCat(bytes->name(), " has ", bytes->size(), " bytes, too many for a tokenizer.json"));
  }
  QINFER_ASSIGN_OR_RETURN(
      Buffer text, Buffer::Create(memory, static_cast<size_t>(bytes->size()), "a tokenizer.json"));
  QINFER_RETURN_IF_ERROR(bytes->ReadAt(0, absl::Span<uint8_t>(text.as<uint8_t>(), text.size())));
  format::Document config = source_.documents.tokenizer_config_json;
  if (config.empty() && source_.source == nullptr) {
    const std::string beside = io::JoinPath(io::FolderOf(source_.path), "tokenizer_config.json");
    QINFER_ASSIGN_OR_RETURN(const io::PathKind kind, io::KindOf(beside));
    if (kind == io::PathKind::kFile) {
      QINFER_ASSIGN_OR_RETURN(Buffer found, io::ReadSmallFile(beside, kMaxTokenizerBytes, memory));
      config = format::Document::Own(std::move(found));
    }
  }
  QINFER_ASSIGN_OR_RETURN(
      state_->text.tokenizer,
      tokenizer::Tokenizer::FromJson(std::string_view(text.as<char>(), text.size()), config.text(),
                                     bytes->name(), memory));
  const std::string_view jinja = source_.documents.chat_template_jinja.text();
  if (!jinja.empty()) {
    QINFER_ASSIGN_OR_RETURN(state_->text.chat_template,
                            tokenizer::ChatTemplate::Parse(jinja, "chat_template"));
  }
  return OkStatus();
}

Status ModelLoadWork::Open() {
  progress_.phase.store("open");
  state_->name = source_.name();
  if (choice_.parts == QINFER_PARTS_VOCABULARY) {
    QINFER_ASSIGN_OR_RETURN(const bool tokenizer_json, IsTokenizerJson());
    if (tokenizer_json) {
      phase_ = Phase::kDone;
      return OpenTokenizer();
    }
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
  phase_ = Phase::kDone;
  if (choice_.parts == QINFER_PARTS_VOCABULARY) {
    QINFER_ASSIGN_OR_RETURN(state_->text,
                            exec::LoadTextParts(*state_->checkpoint, &state_->runtime->memory));
    if (state_->text.tokenizer == nullptr) {
      return FormatError(StrCat(state_->name, " holds no tokenizer"));
    }
    return OkStatus();
  }
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

Status ModelLoadWork::StepOnce(const Deadline& deadline) {
  switch (phase_) {
    case Phase::kOpen:
      return Open();
    case Phase::kVerify:
      return Verify();
    case Phase::kParts:
      return BeginParts();
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

void ModelLoadWork::Report() const {
  const Log& log = state_->runtime->log;
  if (!state_->chat_template_error().empty() && log.Enabled(LogLevel::kWarning)) {
    log.Write(LogLevel::kWarning,
              StrCat(state_->name, ": no chat template: ", state_->chat_template_error()));
  }
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
