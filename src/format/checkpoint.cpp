// Opens whatever a path or a host's bytes turn out to be, as a Checkpoint. The containers are
// parsed in their own files; this one tells them apart and puts parts together.
#include "format/checkpoint.h"

#include <algorithm>
#include <cstring>

#include "format/gguf.h"
#include "format/hf_folder.h"
#include "format/memory_guard.h"
#include "format/path_info.h"
#include "format/qinfer_file.h"
#include "format/safetensors.h"
#include "io/folder.h"

namespace qinfer::format {
namespace {

using Sources = std::vector<std::shared_ptr<io::Source>>;
using Opened = StatusOr<std::shared_ptr<Checkpoint>>;

class SafetensorsCheckpoint final : public Checkpoint {
 public:
  SafetensorsCheckpoint(std::string name, Sources sources, SafetensorsTables tables,
                        SideFiles side_files, Memory* memory)
      : Checkpoint(memory),
        name_(std::move(name)),
        sources_(std::move(sources)),
        tables_(std::move(tables)),
        side_files_(std::move(side_files)) {}
  Container container() const override { return Container::kSafetensors; }
  const std::string& name() const override { return name_; }
  absl::Span<const TensorInfo> tensors() const override { return tables_.tensors; }
  const TensorInfo* Find(std::string_view tensor) const override {
    return FindByName(tables_.tensors, tensor);
  }
  absl::Span<const std::shared_ptr<io::Source>> sources() const override { return sources_; }
  const SideFiles& side_files() const override { return side_files_; }
  absl::Span<const MetadataEntry> metadata() const override { return tables_.metadata; }

 private:
  std::string name_;
  Sources sources_;
  SafetensorsTables tables_;
  SideFiles side_files_;
};

class GgufCheckpoint final : public Checkpoint {
 public:
  GgufCheckpoint(std::shared_ptr<Gguf> gguf, SideFiles side_files, Memory* memory)
      : Checkpoint(memory), gguf_(std::move(gguf)), side_files_(std::move(side_files)) {}
  Container container() const override { return Container::kGguf; }
  const std::string& name() const override { return gguf_->name(); }
  absl::Span<const TensorInfo> tensors() const override { return gguf_->tensors(); }
  const TensorInfo* Find(std::string_view tensor) const override {
    return FindByName(gguf_->tensors(), tensor);
  }
  absl::Span<const std::shared_ptr<io::Source>> sources() const override {
    return gguf_->sources();
  }
  const SideFiles& side_files() const override { return side_files_; }
  const Gguf* gguf() const override { return gguf_.get(); }

 private:
  std::shared_ptr<Gguf> gguf_;
  SideFiles side_files_;
};

class ConfigCheckpoint final : public Checkpoint {
 public:
  ConfigCheckpoint(std::string name, SideFiles side_files, Memory* memory)
      : Checkpoint(memory), name_(std::move(name)), side_files_(std::move(side_files)) {}
  Container container() const override { return Container::kConfigOnly; }
  const std::string& name() const override { return name_; }
  absl::Span<const TensorInfo> tensors() const override { return {}; }
  const TensorInfo* Find(std::string_view /*tensor*/) const override { return nullptr; }
  absl::Span<const std::shared_ptr<io::Source>> sources() const override { return {}; }
  const SideFiles& side_files() const override { return side_files_; }

 private:
  std::string name_;
  SideFiles side_files_;
};

class QinferCheckpoint final : public Checkpoint {
 public:
  QinferCheckpoint(std::shared_ptr<QinferFile> file, Memory* memory)
      : Checkpoint(memory), file_(std::move(file)), sources_{file_->source()}, tensors_(memory) {
    tensors_.reserve(file_->tensors().size());
    for (const QinferTensor& tensor : file_->tensors()) {
      TensorInfo info;
      info.name = tensor.name;
      info.dtype = DType::kOther;  // packed: src/weights reads the format
      info.dtype_name = tensor.format;
      info.rank = tensor.rank;
      std::copy(std::begin(tensor.shape), std::end(tensor.shape), info.shape);
      info.offset = tensor.offset;
      info.bytes = tensor.bytes;
      tensors_.push_back(info);
    }
  }

  // The small documents; tokenizer.json stays in the file (QinferFile::Load).
  Status ReadSideFiles() {
    side_files_.config_json = Document::Borrow(file_->Metadata(kMetaConfig));
    const struct {
      std::string_view name;
      Document* out;
    } wanted[] = {
        {kSideGenerationConfig, &side_files_.generation_config_json},
        {kSideTokenizerConfig, &side_files_.tokenizer_config_json},
        {kSideChatTemplate, &side_files_.chat_template_jinja},
    };
    for (const auto& side : wanted) {
      const QinferTensor* tensor = file_->Find(side.name);
      if (tensor == nullptr) continue;
      if (tensor->bytes > kMaxSideFile) {
        return FormatError(StrCat(file_->name(), ": ", Printable(side.name), " has ", tensor->bytes,
                                  " bytes; at most ", kMaxSideFile));
      }
      const absl::Span<const uint8_t> mapped = file_->Map(*tensor);
      if (!mapped.empty()) {
        *side.out = Document::Borrow({reinterpret_cast<const char*>(mapped.data()), mapped.size()});
        continue;
      }
      QINFER_ASSIGN_OR_RETURN(Buffer bytes, Buffer::Create(memory(), tensor->bytes, "a document"));
      QINFER_RETURN_IF_ERROR(file_->Read(*tensor, 0, {bytes.as<uint8_t>(), bytes.size()}));
      *side.out = Document::Own(std::move(bytes));
    }
    return OkStatus();
  }

  Container container() const override { return Container::kQinfer; }
  const std::string& name() const override { return file_->name(); }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }
  const TensorInfo* Find(std::string_view tensor) const override {
    return FindByName(tensors_, tensor);
  }
  absl::Span<const std::shared_ptr<io::Source>> sources() const override { return sources_; }
  const SideFiles& side_files() const override { return side_files_; }
  absl::Span<const MetadataEntry> metadata() const override { return file_->metadata(); }
  const QinferFile* qinfer() const override { return file_.get(); }

 private:
  std::shared_ptr<QinferFile> file_;
  Sources sources_;
  std::pmr::vector<TensorInfo> tensors_;
  SideFiles side_files_;
};

Opened OpenSafetensors(std::string name, Sources sources, SideFiles side_files, Memory* memory) {
  SafetensorsTables tables(memory);
  for (uint32_t i = 0; i < sources.size(); ++i) {
    QINFER_RETURN_IF_ERROR(ParseSafetensors(*sources[i], i, memory, &tables).status());
  }
  QINFER_RETURN_IF_ERROR(SortByName(name, &tables.tensors));
  return std::shared_ptr<Checkpoint>(std::make_shared<SafetensorsCheckpoint>(
      std::move(name), std::move(sources), std::move(tables), std::move(side_files), memory));
}

Opened OpenGguf(Sources sources, SideFiles side_files, Memory* memory) {
  QINFER_ASSIGN_OR_RETURN(auto gguf, Gguf::Open(std::move(sources), memory));
  return std::shared_ptr<Checkpoint>(
      std::make_shared<GgufCheckpoint>(std::move(gguf), std::move(side_files), memory));
}

Opened OpenQinfer(std::shared_ptr<io::Source> source, const OpenOptions& options) {
  QINFER_ASSIGN_OR_RETURN(auto file, QinferFile::Open(std::move(source), options.memory));
  auto checkpoint = std::make_shared<QinferCheckpoint>(std::move(file), options.memory);
  QINFER_RETURN_IF_ERROR(checkpoint->ReadSideFiles());
  return std::shared_ptr<Checkpoint>(std::move(checkpoint));
}

// Third-party files are read and repacked, never used in place: only .qinfer is mapped.
StatusOr<std::shared_ptr<io::Source>> OpenUnmapped(const std::string& path, Memory* memory) {
  return io::OpenFile(path, io::Access::kCopy, memory);
}

Opened OpenSharded(const std::string& index_path, Memory* memory) {
  const std::string folder = io::FolderOf(index_path);
  QINFER_ASSIGN_OR_RETURN(const ShardIndex index, ReadShardIndex(index_path, memory));
  Sources sources;
  for (const std::string& shard : index.shards) {
    const std::string path = io::JoinPath(folder, shard);
    QINFER_ASSIGN_OR_RETURN(const io::PathKind kind, io::KindOf(path));
    if (kind == io::PathKind::kMissing) {
      return IoError(StrCat("the shard ", path, ", which ", index_path,
                            " names, is missing; fetch the whole model"));
    }
    QINFER_ASSIGN_OR_RETURN(auto source, OpenUnmapped(path, memory));
    sources.push_back(std::move(source));
  }
  QINFER_ASSIGN_OR_RETURN(SideFiles side_files, ReadSideFiles(folder, memory));
  QINFER_ASSIGN_OR_RETURN(auto checkpoint, OpenSafetensors(index_path, std::move(sources),
                                                           std::move(side_files), memory));
  for (const ShardIndex::Entry& entry : index.entries) {
    const TensorInfo* tensor = checkpoint->Find(entry.tensor);
    if (tensor == nullptr || tensor->source != entry.shard) {
      return FormatError(StrCat(index_path, ": the tensor ", Printable(entry.tensor), " is not in ",
                                index.shards[entry.shard], ", where the index puts it"));
    }
  }
  return checkpoint;
}

// The other parts lie beside the one that was named.
StatusOr<Sources> OpenGgufParts(const std::string& path, Memory* memory) {
  Sources sources;
  SplitName split;
  const bool is_part = ParseSplitName(io::NameOf(path), &split) && split.count > 1;
  if (!is_part) {
    QINFER_ASSIGN_OR_RETURN(auto source, OpenUnmapped(path, memory));
    sources.push_back(std::move(source));
    return sources;
  }
  if (split.count > kMaxShards) {
    return UnsupportedError(StrCat(path, ": more than ", kMaxShards, " parts"));
  }
  for (uint32_t i = 1; i <= split.count; ++i) {
    const std::string part = io::JoinPath(io::FolderOf(path), MakeSplitName(split, i));
    QINFER_ASSIGN_OR_RETURN(const io::PathKind kind, io::KindOf(part));
    if (kind == io::PathKind::kMissing) {
      return IoError(StrCat("the part ", part, " is missing beside ", path));
    }
    QINFER_ASSIGN_OR_RETURN(auto source, OpenUnmapped(part, memory));
    sources.push_back(std::move(source));
  }
  return sources;
}

Opened OpenWeightFile(const std::string& path, const OpenOptions& options, bool may_be_folder);

Opened OpenFolder(const std::string& folder, const OpenOptions& options) {
  QINFER_ASSIGN_OR_RETURN(const FolderContents contents, ExamineFolder(folder));
  if (!contents.index.empty()) return OpenSharded(contents.index, options.memory);
  if (contents.weights.size() == 1)
    return OpenWeightFile(contents.weights[0], options, /*may_be_folder=*/false);
  if (!contents.weights.empty()) {
    QINFER_ASSIGN_OR_RETURN(const Content content, DescribePath(contents.weights[0]));
    if (content != Content::kSafetensors)
      return OpenWeightFile(contents.weights[0], options, /*may_be_folder=*/false);
    Sources sources;
    for (const std::string& path : contents.weights) {
      QINFER_ASSIGN_OR_RETURN(auto source, OpenUnmapped(path, options.memory));
      sources.push_back(std::move(source));
    }
    QINFER_ASSIGN_OR_RETURN(SideFiles side_files, ReadSideFiles(folder, options.memory));
    return OpenSafetensors(folder, std::move(sources), std::move(side_files), options.memory);
  }
  if (contents.has_config) {
    QINFER_ASSIGN_OR_RETURN(SideFiles side_files, ReadSideFiles(folder, options.memory));
    return std::shared_ptr<Checkpoint>(
        CheckpointOfDocuments(folder, std::move(side_files), options.memory));
  }
  return FormatError(StrCat(folder,
                            ": no model in this folder (it holds no *.safetensors, *.gguf, ",
                            "*.qinfer or config.json)"));
}

Opened OpenConfig(const std::string& path, Memory* memory) {
  QINFER_ASSIGN_OR_RETURN(SideFiles side_files, ReadSideFiles(io::FolderOf(path), memory));
  QINFER_ASSIGN_OR_RETURN(Buffer config, io::ReadSmallFile(path, kMaxSideFile, memory));
  side_files.config_json = Document::Own(std::move(config));
  side_files.config_json.set_path(path);
  return std::shared_ptr<Checkpoint>(CheckpointOfDocuments(path, std::move(side_files), memory));
}

// One shard of several: the whole model if an index beside it says so, else that file alone.
Opened OpenSafetensorsFile(const std::string& path, Memory* memory) {
  SplitName split;
  if (ParseSplitName(io::NameOf(path), &split) && split.count > 1) {
    const std::string index =
        io::JoinPath(io::FolderOf(path), split.prefix + ".safetensors.index.json");
    QINFER_ASSIGN_OR_RETURN(const io::PathKind kind, io::KindOf(index));
    if (kind == io::PathKind::kFile) return OpenSharded(index, memory);
  }
  QINFER_ASSIGN_OR_RETURN(auto source, OpenUnmapped(path, memory));
  QINFER_ASSIGN_OR_RETURN(SideFiles side_files, ReadSideFiles(io::FolderOf(path), memory));
  return OpenSafetensors(path, Sources{std::move(source)}, std::move(side_files), memory);
}

Opened OpenWeightFile(const std::string& path, const OpenOptions& options, bool may_be_folder) {
  QINFER_ASSIGN_OR_RETURN(const Content content, DescribePath(path));
  switch (content) {
    case Content::kFolder:
      if (!may_be_folder) return FormatError(StrCat(path, ": a folder with a file's name"));
      return OpenFolder(path, options);
    case Content::kSafetensors:
      return OpenSafetensorsFile(path, options.memory);
    case Content::kShardIndex:
      return OpenSharded(path, options.memory);
    case Content::kGguf: {
      QINFER_ASSIGN_OR_RETURN(Sources sources, OpenGgufParts(path, options.memory));
      return OpenGguf(std::move(sources), SideFiles{}, options.memory);
    }
    case Content::kQinfer: {
      QINFER_ASSIGN_OR_RETURN(auto source, io::OpenFile(path, options.access, options.memory));
      return OpenQinfer(std::move(source), options);
    }
    case Content::kConfigJson:
      return OpenConfig(path, options.memory);
    case Content::kTokenizerJson:
      return FormatError(StrCat(path, ": a tokenizer, not a model"));
    case Content::kUnknown:
      break;
  }
  return FormatError(StrCat(path, ": not a model file (neither safetensors, GGUF, .qinfer nor a ",
                            "config.json; is it empty or cut?)"));
}

// Notes what an opened checkpoint holds of `memory`. Others who allocate meanwhile blur the figure.
template <typename F>
Opened Measured(Memory* memory, F&& open) {
  const uint64_t before = memory->used_bytes();
  Opened opened = open();
  const uint64_t after = memory->used_bytes();
  if (opened.ok() && after > before) (*opened)->set_memory_bytes(after - before);
  return opened;
}

}  // namespace

StatusOr<Document> Document::Copy(std::string_view text, Memory* memory, const char* what) {
  if (text.empty()) return Document();
  QINFER_ASSIGN_OR_RETURN(Buffer bytes, Buffer::Create(memory, text.size(), what));
  std::memcpy(bytes.data(), text.data(), text.size());
  return Own(std::move(bytes));
}

Document Document::Own(Buffer bytes) {
  Document document;
  document.owner_ = std::make_shared<const Buffer>(std::move(bytes));
  document.text_ = {document.owner_->as<char>(), document.owner_->size()};
  return document;
}

Document Document::Borrow(std::string_view text) {
  Document document;
  document.text_ = text;
  return document;
}

std::string Checkpoint::PlaceOf(const Document& document, const char* document_name) const {
  return document.path().empty() ? StrCat(name(), ": ", document_name) : document.path();
}

Status Checkpoint::Read(const TensorInfo& tensor, uint64_t begin, absl::Span<uint8_t> out) const {
  if (begin > tensor.bytes || out.size() > tensor.bytes - begin ||
      tensor.source >= sources().size()) {
    return MisuseError(StrCat(name(), ": bytes ", begin, " to ", begin + out.size(), " of tensor ",
                              Printable(tensor.name), ", which has ", tensor.bytes));
  }
  return Annotate(sources()[tensor.source]->ReadAt(tensor.offset + begin, out),
                  StrCat("tensor ", Printable(tensor.name)));
}

StatusOr<std::shared_ptr<Checkpoint>> OpenCheckpoint(const std::string& path,
                                                     const OpenOptions& options) {
  if (options.memory == nullptr) return MisuseError("OpenOptions::memory is not set");
  return Measured(options.memory, [&] {
    return CatchNoMemory(path, options.memory, [&] { return OpenWeightFile(path, options, true); });
  });
}

StatusOr<std::shared_ptr<Checkpoint>> OpenCheckpoint(std::shared_ptr<io::Source> source,
                                                     SideFiles side_files,
                                                     const OpenOptions& options) {
  if (options.memory == nullptr) return MisuseError("OpenOptions::memory is not set");
  if (source == nullptr) return MisuseError("no source given");
  const std::string name = source->name();
  // The documents are already there, and from now on the checkpoint's.
  const uint64_t documents = side_files.bytes();
  Opened opened = Measured(options.memory, [&] {
    return CatchNoMemory(name, options.memory, [&]() -> Opened {
      QINFER_ASSIGN_OR_RETURN(const Content content, DescribeSource(*source));
      switch (content) {
        case Content::kSafetensors:
          return OpenSafetensors(name, Sources{std::move(source)}, std::move(side_files),
                                 options.memory);
        case Content::kGguf:
          return OpenGguf(Sources{std::move(source)}, std::move(side_files), options.memory);
        case Content::kQinfer:
          return OpenQinfer(std::move(source), options);
        case Content::kFolder:
        case Content::kShardIndex:
        case Content::kConfigJson:
        case Content::kTokenizerJson:
        case Content::kUnknown:
          break;
      }
      return FormatError(
          StrCat(name, ": not a model file (neither safetensors, GGUF nor .qinfer)"));
    });
  });
  if (opened.ok()) (*opened)->set_memory_bytes((*opened)->memory_bytes() + documents);
  return opened;
}

std::shared_ptr<Checkpoint> CheckpointOfDocuments(std::string name, SideFiles side_files,
                                                  Memory* memory) {
  return std::make_shared<ConfigCheckpoint>(std::move(name), std::move(side_files), memory);
}

Status CheckNotInput(const Checkpoint& checkpoint, const std::string& path) {
  // Also where there is no such file yet: whoever opens the folder next would read it.
  const std::string file = io::NameOf(path);
  if (IsDocumentName(file)) {
    return MisuseError(StrCat(path, ": a model's folder is read with what is named ", file,
                              ": choose another name for the output"));
  }
  bool on_disk = checkpoint.container() == Container::kConfigOnly, same = false;
  for (const auto& source : checkpoint.sources()) {
    on_disk |= source->IsFile(source->name());
    same |= source->IsFile(path);
  }
  if (on_disk && !same) {
    const std::string& name = checkpoint.name();
    QINFER_ASSIGN_OR_RETURN(const io::PathKind kind, io::KindOf(name));
    same = IsSideFile(kind == io::PathKind::kFolder ? name : io::FolderOf(name), path);
  }
  if (!same) return OkStatus();
  return MisuseError(StrCat(path, " belongs to the model that is read (", checkpoint.name(),
                            "): choose another output"));
}

}  // namespace qinfer::format
