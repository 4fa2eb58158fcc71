// Reading of the source and target structs.
#include "api/source.h"

#include <utility>

#include "api/structs.h"

namespace qinfer::api {
namespace {

// A checkpoint with documents that the host has given in place of its own.
class WithDocuments final : public format::Checkpoint {
 public:
  WithDocuments(std::shared_ptr<format::Checkpoint> inner, const format::SideFiles& given)
      : Checkpoint(inner->memory()), inner_(std::move(inner)), files_(inner_->side_files()) {
    Replace(given.config_json, &files_.config_json);
    Replace(given.generation_config_json, &files_.generation_config_json);
    Replace(given.tokenizer_json, &files_.tokenizer_json);
    Replace(given.tokenizer_config_json, &files_.tokenizer_config_json);
    Replace(given.chat_template_jinja, &files_.chat_template_jinja);
    set_memory_bytes(inner_->memory_bytes() + given.bytes());
  }
  format::Container container() const override { return inner_->container(); }
  const std::string& name() const override { return inner_->name(); }
  absl::Span<const format::TensorInfo> tensors() const override { return inner_->tensors(); }
  const format::TensorInfo* Find(std::string_view tensor) const override {
    return inner_->Find(tensor);
  }
  absl::Span<const std::shared_ptr<io::Source>> sources() const override {
    return inner_->sources();
  }
  const format::SideFiles& side_files() const override { return files_; }
  const format::Gguf* gguf() const override { return inner_->gguf(); }
  const format::QinferFile* qinfer() const override { return inner_->qinfer(); }

 private:
  static void Replace(const format::Document& given, format::Document* own) {
    if (!given.empty()) *own = given;
  }
  std::shared_ptr<format::Checkpoint> inner_;
  format::SideFiles files_;
};

Status ReadDocument(const qinfer_str& text, const char* name, Memory* memory, format::Document* out,
                    bool* any) {
  QINFER_ASSIGN_OR_RETURN(const std::string_view view, Text(text, name));
  QINFER_ASSIGN_OR_RETURN(*out, format::Document::Copy(view, memory, name));
  if (!out->empty()) *any = true;
  return OkStatus();
}

}  // namespace

StatusOr<SourceParts> ReadSource(const qinfer_source* source, Memory* memory) {
  QINFER_RETURN_IF_ERROR(NotNull(source, "source"));
  qinfer_source read;
  QINFER_RETURN_IF_ERROR(ReadStruct(source, "source", &read));
  SourceParts parts;
  // The table first: from here on its `drop` is sure to be called.
  if (read.io != nullptr) {
    qinfer_io table;
    QINFER_RETURN_IF_ERROR(ReadStruct(read.io, "source.io", &table));
    const io::HostIo host{table.user, table.size, table.read_at, table.map, table.drop};
    io::DropGuard guard(&host);
    QINFER_ASSIGN_OR_RETURN(std::string name, CopyText(read.name, "source.name"));
    if (name.empty()) name = "the host's file";
    guard.Dismiss();
    QINFER_ASSIGN_OR_RETURN(parts.source, io::WrapHostIo(host, std::move(name)));
    QINFER_RETURN_IF_ERROR(Reserved(table.reserved, "source.io.reserved"));
  }
  QINFER_RETURN_IF_ERROR(Reserved(read.reserved, "source.reserved"));
  QINFER_ASSIGN_OR_RETURN(parts.path, CopyText(read.path, "source.path"));
  const int given =
      (parts.path.empty() ? 0 : 1) + (read.data != nullptr ? 1 : 0) + (read.io != nullptr ? 1 : 0);
  format::SideFiles& files = parts.documents;
  bool* const any = &parts.has_documents;
  QINFER_RETURN_IF_ERROR(
      ReadDocument(read.config_json, "config_json", memory, &files.config_json, any));
  QINFER_RETURN_IF_ERROR(ReadDocument(read.generation_config_json, "generation_config_json", memory,
                                      &files.generation_config_json, any));
  QINFER_RETURN_IF_ERROR(
      ReadDocument(read.tokenizer_json, "tokenizer_json", memory, &files.tokenizer_json, any));
  QINFER_RETURN_IF_ERROR(ReadDocument(read.tokenizer_config_json, "tokenizer_config_json", memory,
                                      &files.tokenizer_config_json, any));
  QINFER_RETURN_IF_ERROR(
      ReadDocument(read.chat_template, "chat_template", memory, &files.chat_template_jinja, any));
  if (given != 1) {
    return BadOption(
        StrCat("source: exactly one of path, data and io must be set, and ", given, " are"));
  }
  if (parts.path.find('\0') != std::string::npos) {
    return BadOption("source.path contains a NUL character");
  }
  if (read.data != nullptr) {
    QINFER_ASSIGN_OR_RETURN(std::string name, CopyText(read.name, "source.name"));
    parts.source =
        io::BorrowMemory(absl::Span<const uint8_t>(static_cast<const uint8_t*>(read.data),
                                                   static_cast<size_t>(read.data_size)),
                         name.empty() ? "memory" : std::move(name));
  }
  return parts;
}

StatusOr<std::shared_ptr<io::Source>> OpenBytes(const SourceParts& parts, Memory* memory) {
  if (parts.source != nullptr) return parts.source;
  return io::OpenFile(parts.path, io::Access::kCopy, memory);
}

StatusOr<std::shared_ptr<format::Checkpoint>> OpenModel(const SourceParts& parts,
                                                        const format::OpenOptions& options) {
  if (parts.source != nullptr) {
    return format::OpenCheckpoint(parts.source, parts.documents, options);
  }
  QINFER_ASSIGN_OR_RETURN(std::shared_ptr<format::Checkpoint> checkpoint,
                          format::OpenCheckpoint(parts.path, options));
  if (!parts.has_documents) return checkpoint;
  return std::shared_ptr<format::Checkpoint>(
      std::make_shared<WithDocuments>(std::move(checkpoint), parts.documents));
}

StatusOr<TargetParts> ReadTarget(const qinfer_target* target) {
  QINFER_RETURN_IF_ERROR(NotNull(target, "target"));
  qinfer_target read;
  QINFER_RETURN_IF_ERROR(ReadStruct(target, "target", &read));
  TargetParts parts;
  if (read.io != nullptr) {
    qinfer_write_io table;
    QINFER_RETURN_IF_ERROR(ReadStruct(read.io, "target.io", &table));
    const io::HostWriteIo host{table.user, table.write_at, table.commit, table.abandon, table.drop};
    io::DropGuard guard(&host);
    QINFER_ASSIGN_OR_RETURN(std::string name, CopyText(read.name, "target.name"));
    if (name.empty()) name = "the host's output";
    guard.Dismiss();
    QINFER_ASSIGN_OR_RETURN(parts.sink, io::WrapHostWriteIo(host, std::move(name)));
    QINFER_RETURN_IF_ERROR(Reserved(table.reserved, "target.io.reserved"));
  }
  QINFER_RETURN_IF_ERROR(Reserved(read.reserved, "target.reserved"));
  QINFER_ASSIGN_OR_RETURN(parts.path, CopyText(read.path, "target.path"));
  if (parts.path.find('\0') != std::string::npos) {
    return BadOption("target.path contains a NUL character");
  }
  if (parts.path.empty() == (read.io == nullptr)) {
    return BadOption("target: exactly one of path and io must be set");
  }
  return parts;
}

StatusOr<std::unique_ptr<io::Sink>> OpenSink(TargetParts parts) {
  if (parts.sink != nullptr) return std::move(parts.sink);
  return io::CreateFile(parts.path);
}

}  // namespace qinfer::api
