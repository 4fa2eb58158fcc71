// The .qinfer container: a safetensors file whose tensors are packed bytes on 64-byte boundaries,
// with logical shapes, formats and checksums in its metadata (docs/file-format.md gives every
// byte). A reader that maps, and a writer that streams. What a format string means, and how weights
// are packed, is for src/weights; what the documents say, for src/model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/checkpoint.h"
#include "io/source.h"

namespace qinfer::format {

inline constexpr uint32_t kQinferVersion = 1;
inline constexpr uint64_t kQinferAlign = 64;
inline constexpr uint64_t kMaxQinferTensors = 65'536;  // side files included
// Every .qinfer header begins so: content tells it from other safetensors files.
inline constexpr std::string_view kQinferHeaderStart = R"({"__metadata__":{"qinfer.version":")";

// Features that a reader must know to use a file: bit numbers, never reused.
struct QinferFeature {
  uint32_t bit;
  std::string_view name;
};
inline constexpr uint32_t kFeatureStaticActivations = 1;
inline constexpr QinferFeature kQinferFeatures[] = {
    {0, "panel16"},  // weights in panels of 16 rows, as docs/file-format.md describes them
    {kFeatureStaticActivations, "static_activations"},  // scales of kMetaActivationRanges are used
};

// Keys of __metadata__ that the container knows; all values are text.
inline constexpr std::string_view kMetaSpec = "qinfer.spec";      // ModelSpec, JSON
inline constexpr std::string_view kMetaConfig = "qinfer.config";  // the source's config.json
inline constexpr std::string_view kMetaRecipe = "qinfer.recipe";  // how it was quantized, JSON
inline constexpr std::string_view kMetaReport = "qinfer.report";  // what that cost, JSON

// Ranges of the inputs of linear weights: {"<tensor>": {"min": a, "max": b, "scale": s}}. The
// scales are used where the feature static_activations is set.
inline constexpr std::string_view kMetaActivationRanges = "qinfer.activation_ranges";

inline constexpr float kLeastActivationScale = 0x1p-110f, kLargestActivationScale = 0x1p110f;

// Side files: tensors that hold documents byte for byte.
inline constexpr std::string_view kSideTokenizerJson = "qinfer.tokenizer.json";
inline constexpr std::string_view kSideTokenizerConfig = "qinfer.tokenizer_config.json";
inline constexpr std::string_view kSideTokenizerCompiled = "qinfer.tokenizer.compiled";
inline constexpr std::string_view kSideChatTemplate = "qinfer.chat_template";
inline constexpr std::string_view kSideGenerationConfig = "qinfer.generation_config.json";
// A GGUF file without tensors that holds the source's tokenizer metadata (SelectGgufMetadata).
inline constexpr std::string_view kSideGgufMetadata = "qinfer.gguf_metadata";

struct QinferTensor {
  std::string_view name;    // as the source names it; "qinfer." begins side files
  std::string_view format;  // text of src/weights, opaque here; "bytes" for side files
  uint32_t rank = 0;        // of the logical shape
  uint64_t shape[4] = {1, 1, 1, 1};
  uint64_t offset = 0;                         // absolute; a multiple of 64
  uint64_t bytes = 0;                          // without padding
  uint64_t stored_bytes = 0;                   // `bytes` rounded up to a multiple of 64
  uint64_t checksum = 0;                       // xxh3-64 of the stored bytes
  std::string_view source_name, source_dtype;  // where it came from; may be empty
  std::string_view import;                     // "exact", "measured", ...; may be empty
  float activation_scale = 0;                  // of its INT8 inputs; 0 = not fixed
};

// Bytes in the map, or read into memory of their own.
class QinferBytes {
 public:
  QinferBytes() = default;
  explicit QinferBytes(absl::Span<const uint8_t> mapped) : view_(mapped) {}
  explicit QinferBytes(Buffer owned, size_t bytes)
      : owned_(std::move(owned)), view_(owned_.as<uint8_t>(), bytes) {}
  absl::Span<const uint8_t> span() const { return view_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(view_.data()), view_.size()};
  }

 private:
  Buffer owned_;  // its data stays where it is when this moves
  absl::Span<const uint8_t> view_;
};

// Immutable and thread-safe. The header is validated by Open, contents by a ChecksumPass.
class QinferFile {
 public:
  virtual ~QinferFile() = default;
  static StatusOr<std::shared_ptr<QinferFile>> Open(std::shared_ptr<io::Source> source,
                                                    Memory* memory);

  virtual const std::string& name() const = 0;
  virtual const std::shared_ptr<io::Source>& source() const = 0;
  virtual uint64_t features() const = 0;                            // bits
  virtual absl::Span<const QinferTensor> tensors() const = 0;       // weights, sorted by name
  virtual absl::Span<const QinferTensor> side_tensors() const = 0;  // sorted by name
  // Weight or side file; null if absent.
  virtual const QinferTensor* Find(std::string_view tensor) const = 0;
  virtual absl::Span<const MetadataEntry> metadata() const = 0;
  // Empty if absent.
  virtual std::string_view Metadata(std::string_view key) const = 0;

  // In the map (without padding), or empty where the source is not mapped.
  virtual absl::Span<const uint8_t> Map(const QinferTensor& tensor) const = 0;
  // Reads bytes [begin, begin + out.size()).
  virtual Status Read(const QinferTensor& tensor, uint64_t begin,
                      absl::Span<uint8_t> out) const = 0;
  // The map if there is one, else a copy in `memory`.
  virtual StatusOr<QinferBytes> Load(const QinferTensor& tensor, Memory* memory) const = 0;

  // A whole ChecksumPass (checksum_pass.h): FormatError where bytes of weights or side files have
  // changed.
  Status VerifyAll() const;

 protected:
  Memory* memory_ = nullptr;
};

// Writes one .qinfer file: declare everything, Begin, write each tensor's bytes from front to back
// (tensors in any order, also interleaved), Finish. The header comes last, into room that Begin has
// reserved. Destroyed before Finish, it leaves nothing. One caller at a time.
class QinferWriter {
 public:
  struct Declaration {
    std::string name, format;
    std::vector<uint64_t> shape;  // logical, outermost first, at most 4
    uint64_t bytes = 0;
    std::string source_name, source_dtype, import;
  };

  static StatusOr<std::unique_ptr<QinferWriter>> Create(std::unique_ptr<io::Sink> sink);
  virtual ~QinferWriter() = default;

  // Valid UTF-8. Before Begin any size; afterwards what fits into the spare room.
  virtual Status SetMetadata(std::string_view key, std::string_view value) = 0;
  virtual Status RequireFeature(uint32_t bit) = 0;  // before Begin; panel16 is always there
  // Return the number that Write takes.
  virtual StatusOr<uint32_t> DeclareTensor(const Declaration& declaration) = 0;
  virtual StatusOr<uint32_t> DeclareSideFile(std::string_view name, uint64_t bytes) = 0;
  // Fixes names, sizes and offsets. `spare_bytes`: header room for metadata that is set later.
  virtual Status Begin(uint64_t spare_bytes) = 0;
  // `offset` is where the tensor's last write ended.
  virtual Status Write(uint32_t tensor, uint64_t offset, absl::Span<const uint8_t> bytes) = 0;
  // Of a tensor that is all written: the checksum that the header will say.
  virtual uint64_t Checksum(uint32_t tensor) const = 0;
  // Forgets what was written of a tensor: it is written once more, from its beginning.
  virtual void Restart(uint32_t tensor) = 0;
  // Every declared byte must have been written.
  virtual Status WriteHeader() = 0;
  // Commits the sink, which waits for the disk. After WriteHeader.
  virtual Status Commit() = 0;
  Status Finish();  // both

  virtual uint64_t file_bytes() const = 0;  // known after Begin
};

}  // namespace qinfer::format
