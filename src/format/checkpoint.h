// A model as it lies on disk, whatever the container: a table of named tensors, and side documents
// (configuration, tokenizer, templates). Parsed and validated, no execution: nothing here knows
// what a layer is.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "io/source.h"

namespace qinfer::format {

class Gguf;
class QinferFile;

struct TensorInfo {
  std::string_view name;  // as the file names it; lives as long as the checkpoint
  DType dtype = DType::kF32;
  std::string_view dtype_name;  // the file's own word, also for kOther
  uint32_t rank = 0;            // ≤ 4; where a file has more, the fourth holds the rest's product
  uint64_t shape[4] = {1, 1, 1,
                       1};  // outermost first: a linear weight is [out_features, in_features]
  uint32_t source = 0;      // index into Checkpoint::sources()
  uint64_t offset = 0;      // absolute byte offset in that source
  uint64_t bytes = 0;

  uint64_t elements() const {
    return shape[0] * shape[1] * shape[2] * shape[3];
  }  // checked when parsed
};

// One text of a container's own metadata (safetensors' __metadata__).
struct MetadataEntry {
  std::string_view key, value;
};

enum class Container : uint8_t { kSafetensors, kGguf, kQinfer, kConfigOnly };

// A text that goes with a model, byte for byte. Copies share it.
class Document {
 public:
  Document() = default;
  // In bytes of its own; `what` names it where there is no memory.
  static StatusOr<Document> Copy(std::string_view text, Memory* memory, const char* what);
  static Document Own(Buffer bytes);
  static Document Borrow(std::string_view text);  // which outlives it

  // The path of the file that it was read from; empty for what stands in another file, or was
  // given.
  void set_path(std::string path) { path_ = std::move(path); }
  const std::string& path() const { return path_; }
  std::string_view text() const { return text_; }
  bool empty() const { return text_.empty(); }
  size_t size() const { return text_.size(); }

 private:
  std::shared_ptr<const Buffer> owner_;  // null: borrowed, or empty
  std::string_view text_;
  std::string path_;
};

// Side documents of a Hugging Face folder; empty where absent. For GGUF use gguf() instead.
struct SideFiles {
  Document config_json;
  Document generation_config_json;
  Document tokenizer_json;
  Document tokenizer_config_json;
  Document chat_template_jinja;
  Document quantize_config_json;

  uint64_t bytes() const {
    return config_json.size() + generation_config_json.size() + tokenizer_json.size() +
           tokenizer_config_json.size() + chat_template_jinja.size() + quantize_config_json.size();
  }
};

class Checkpoint {
 public:
  // `memory`: what reading the documents takes its own from; outlives the checkpoint.
  explicit Checkpoint(Memory* memory) : memory_(memory) {}
  virtual ~Checkpoint() = default;
  virtual Container container() const = 0;
  virtual const std::string& name() const = 0;               // path or host's name, for messages
  virtual absl::Span<const TensorInfo> tensors() const = 0;  // sorted by name
  virtual const TensorInfo* Find(std::string_view tensor) const = 0;  // null if absent
  virtual absl::Span<const std::shared_ptr<io::Source>> sources() const = 0;
  virtual const SideFiles& side_files() const = 0;
  // Where one of them is, for messages: its path, or its name within what name() names.
  std::string PlaceOf(const Document& document, const char* document_name) const;
  virtual absl::Span<const MetadataEntry> metadata() const { return {}; }
  virtual const Gguf* gguf() const { return nullptr; }          // set for kGguf
  virtual const QinferFile* qinfer() const { return nullptr; }  // set for kQinfer

  Memory* memory() const { return memory_; }
  // What opening took from the Memory (tables, metadata, documents), maps not included: for memory
  // plans.
  uint64_t memory_bytes() const { return memory_bytes_; }
  void set_memory_bytes(uint64_t bytes) { memory_bytes_ = bytes; }

  // Reads bytes [begin, begin + out.size()) of a tensor.
  Status Read(const TensorInfo& tensor, uint64_t begin, absl::Span<uint8_t> out) const;

 private:
  Memory* memory_;
  uint64_t memory_bytes_ = 0;
};

struct OpenOptions {
  io::Access access = io::Access::kMap;
  Memory* memory = nullptr;
};

// PATH is a folder (config.json, *.safetensors or an index), a .safetensors, .gguf (any part of a
// split) or .qinfer file; told apart by content, not by name. A folder or file with config.json
// alone opens as kConfigOnly.
StatusOr<std::shared_ptr<Checkpoint>> OpenCheckpoint(const std::string& path,
                                                     const OpenOptions& options);
// From bytes the host supplies: a .gguf, .qinfer or single .safetensors (whose config must then be
// in `side_files`).
StatusOr<std::shared_ptr<Checkpoint>> OpenCheckpoint(std::shared_ptr<io::Source> source,
                                                     SideFiles side_files,
                                                     const OpenOptions& options);

// Documents without a model file, as a checkpoint of kind kConfigOnly.
std::shared_ptr<Checkpoint> CheckpointOfDocuments(std::string name, SideFiles side_files,
                                                  Memory* memory);

// MisuseError where a file at `path` would replace, or be read as, one that a model is read from.
Status CheckNotInput(const Checkpoint& checkpoint, const std::string& path);

}  // namespace qinfer::format
