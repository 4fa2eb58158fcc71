// Writes .qinfer files: names, sizes and offsets are fixed before the first byte of data, the
// header with the checksums comes last. The same contents give the same file, whatever the order of
// writes.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <memory>

#include "core/checked.h"
#include "format/json_stream.h"
#include "format/qinfer_file.h"
#include "format/safetensors.h"
#include "format/tensor_table.h"

namespace qinfer::format {
namespace {

constexpr uint64_t kMaxNameBytes = 4096;
constexpr uint64_t kMaxMetadataBytes = JsonLimits{}.max_token_bytes;  // as the header spells it
constexpr std::string_view kSidePrefix = "qinfer.";
constexpr std::string_view kFeaturesKey = "qinfer.features";
constexpr std::string_view kVersionKey = "qinfer.version";

struct Tensor {
  QinferWriter::Declaration declaration;
  uint64_t offset = 0;  // in the data
  uint64_t stored_bytes = 0;
  uint64_t written = 0;
  uint64_t checksum = 0;
  std::unique_ptr<XXH3_state_t> hash;  // while it is being written
};

class StreamingWriter final : public QinferWriter {
 public:
  explicit StreamingWriter(std::unique_ptr<io::Sink> sink) : sink_(std::move(sink)) {}

  Status SetMetadata(std::string_view key, std::string_view value) override {
    if (finished_) return MisuseError("the file is already finished");
    if (key.empty() || key == kVersionKey || key == kFeaturesKey ||
        key.substr(0, kTensorPrefix.size()) == kTensorPrefix) {
      return MisuseError(StrCat("the metadata key \"", Printable(key), "\" is not free"));
    }
    if (!IsValidUtf8(key) || !IsValidUtf8(value)) {
      return MisuseError(StrCat("the metadata ", Printable(key), " is not valid UTF-8"));
    }
    const uint64_t quoted = QuoteJson(value).size();
    if (quoted > kMaxMetadataBytes || key.size() > kMaxNameBytes) {
      return MisuseError(StrCat("the metadata ", Printable(key), " needs ", quoted,
                                " bytes in the header; at most ", kMaxMetadataBytes));
    }
    metadata_[std::string(key)] = std::string(value);
    return OkStatus();
  }

  Status RequireFeature(uint32_t bit) override {
    if (begun_) return MisuseError("features are declared before Begin");
    const auto known = std::find_if(std::begin(kQinferFeatures), std::end(kQinferFeatures),
                                    [&](const QinferFeature& f) { return f.bit == bit; });
    if (known == std::end(kQinferFeatures)) {
      return MisuseError(StrCat("the feature bit ", bit, " has no name"));
    }
    features_ |= uint64_t{1} << bit;
    return OkStatus();
  }

  StatusOr<uint32_t> DeclareTensor(const Declaration& declaration) override {
    if (declaration.name.rfind(kSidePrefix, 0) == 0) {
      return MisuseError(
          StrCat("the tensor name ", Printable(declaration.name), " is one of a side file"));
    }
    return Declare(declaration);
  }

  StatusOr<uint32_t> DeclareSideFile(std::string_view name, uint64_t bytes) override {
    if (name.substr(0, kSidePrefix.size()) != kSidePrefix) {
      return MisuseError(StrCat("the side file ", Printable(name), " does not begin with qinfer."));
    }
    Declaration declaration;
    declaration.name = std::string(name);
    declaration.format = "bytes";
    declaration.shape = {bytes};
    declaration.bytes = bytes;
    return Declare(declaration);
  }

  Status Begin(uint64_t spare_bytes) override {
    if (begun_) return MisuseError("Begin was already called");
    std::vector<std::string_view> names;
    names.reserve(tensors_.size());
    for (const Tensor& tensor : tensors_) names.push_back(tensor.declaration.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) {
      return MisuseError(StrCat("the tensor ", Printable(*twice), " is declared twice"));
    }
    for (Tensor& tensor : tensors_) {
      tensor.offset = data_bytes_;
      if (!CheckedAdd(data_bytes_, tensor.stored_bytes, &data_bytes_) || data_bytes_ > INT64_MAX) {
        return MisuseError("the tensors add up to more than 2^63 bytes");
      }
    }
    // Checksums have a fixed width, so the header's length is known but for later metadata.
    const uint64_t header = MakeHeader().size();
    uint64_t room = 0;
    if (!CheckedAdd<uint64_t>(8 + kQinferAlign + header, spare_bytes, &room) ||
        room > kMaxSafetensorsHeader) {
      return MisuseError(StrCat("the header needs ", header, " bytes and ", spare_bytes,
                                " spare ones; at most ", kMaxSafetensorsHeader, " are possible"));
    }
    data_begin_ = RoundUp<uint64_t>(8 + header + spare_bytes, kQinferAlign);
    begun_ = true;
    return OkStatus();
  }

  Status Write(uint32_t index, uint64_t offset, absl::Span<const uint8_t> bytes) override {
    if (!begun_ || finished_ || index >= tensors_.size()) {
      return MisuseError("Write outside of Begin and Finish, or of a tensor that is not declared");
    }
    Tensor& tensor = tensors_[index];
    const uint64_t size = tensor.declaration.bytes;
    if (offset != tensor.written || bytes.size() > size - tensor.written) {
      return MisuseError(StrCat("writing ", bytes.size(), " bytes of tensor ",
                                Printable(tensor.declaration.name), " at ", offset, "; ",
                                tensor.written, " of ", size, " are written"));
    }
    if (bytes.empty()) return OkStatus();
    if (tensor.hash == nullptr) {
      tensor.hash = std::make_unique<XXH3_state_t>();
      XXH3_64bits_reset(tensor.hash.get());
    }
    QINFER_RETURN_IF_ERROR(sink_->WriteAt(data_begin_ + tensor.offset + offset, bytes));
    XXH3_64bits_update(tensor.hash.get(), bytes.data(), bytes.size());
    tensor.written += bytes.size();
    return tensor.written == size ? Complete(&tensor) : OkStatus();
  }

  uint64_t Checksum(uint32_t index) const override { return tensors_[index].checksum; }

  void Restart(uint32_t index) override {
    Tensor& tensor = tensors_[index];
    tensor.written = tensor.checksum = 0;
    tensor.hash.reset();
  }

  Status WriteHeader() override {
    if (!begun_ || finished_) return MisuseError("the header needs a Begin, and is written once");
    for (const Tensor& tensor : tensors_) {
      if (tensor.written != tensor.declaration.bytes) {
        return MisuseError(StrCat("of tensor ", Printable(tensor.declaration.name), " only ",
                                  tensor.written, " of ", tensor.declaration.bytes,
                                  " bytes were written"));
      }
    }
    std::string header = MakeHeader();
    const uint64_t room = data_begin_ - 8;
    if (header.size() > room) {
      return MisuseError(StrCat("the metadata that was set after Begin needs ",
                                header.size() - room, " bytes more than the spare room"));
    }
    header.resize(static_cast<size_t>(room), ' ');
    std::string length(8, '\0');
    for (int i = 0; i < 8; ++i) length[static_cast<size_t>(i)] = static_cast<char>(room >> (8 * i));
    header.insert(0, length);
    QINFER_RETURN_IF_ERROR(
        sink_->WriteAt(0, {reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
    finished_ = true;
    return OkStatus();
  }

  Status Commit() override {
    if (!finished_) return MisuseError("the header is not written");
    return sink_->Commit();
  }

  uint64_t file_bytes() const override { return begun_ ? data_begin_ + data_bytes_ : 0; }

 private:
  static constexpr std::string_view kTensorPrefix = "tensor:";

  StatusOr<uint32_t> Declare(const Declaration& declaration) {
    if (begun_) return MisuseError("tensors are declared before Begin");
    const std::string where = StrCat("tensor ", Printable(declaration.name), ": ");
    if (!CheckTensorName(declaration.name, kMaxNameBytes).ok()) {
      return MisuseError(where + "not a valid name");
    }
    if (tensors_.size() == kMaxQinferTensors) {
      return UnsupportedError(StrCat("more than ", kMaxQinferTensors, " tensors"));
    }
    if (declaration.format.empty() || declaration.format.size() > 64 ||
        !IsValidUtf8(declaration.format) || !IsValidUtf8(declaration.source_name) ||
        !IsValidUtf8(declaration.source_dtype) || !IsValidUtf8(declaration.import)) {
      return MisuseError(where + "a text is empty, too long or not valid UTF-8");
    }
    uint64_t elements = 1;
    for (const uint64_t extent : declaration.shape) {
      if (extent == 0 || !CheckedMul(elements, extent, &elements)) {
        return MisuseError(where + "the shape is empty or overflows");
      }
    }
    if (declaration.shape.empty() || declaration.shape.size() > 4 || declaration.bytes == 0 ||
        declaration.bytes > static_cast<uint64_t>(INT64_MAX) - kQinferAlign) {
      return MisuseError(where + "1 to 4 dimensions and at least a byte are needed");
    }
    Tensor tensor;
    tensor.declaration = declaration;
    tensor.stored_bytes = RoundUp(declaration.bytes, kQinferAlign);
    tensors_.push_back(std::move(tensor));
    return static_cast<uint32_t>(tensors_.size() - 1);
  }

  Status Complete(Tensor* tensor) {
    const uint8_t zeros[kQinferAlign] = {};
    const auto padding = static_cast<size_t>(tensor->stored_bytes - tensor->written);
    if (padding != 0) {
      QINFER_RETURN_IF_ERROR(
          sink_->WriteAt(data_begin_ + tensor->offset + tensor->written, {zeros, padding}));
      XXH3_64bits_update(tensor->hash.get(), zeros, padding);
    }
    tensor->checksum = XXH3_64bits_digest(tensor->hash.get());
    tensor->hash.reset();
    return OkStatus();
  }

  static std::string Describe(const Tensor& tensor) {
    const Declaration& declaration = tensor.declaration;
    std::string shape;
    for (const uint64_t extent : declaration.shape) {
      absl::StrAppend(&shape, shape.empty() ? "" : ",", extent);
    }
    std::string text = StrCat("{\"shape\":[", shape, "],\"format\":", QuoteJson(declaration.format),
                              ",\"bytes\":", declaration.bytes, ",\"xxh3\":\"",
                              absl::Hex(tensor.checksum, absl::kZeroPad16), "\"");
    const struct {
      const char* key;
      const std::string& value;
    } optional[] = {{"source", declaration.source_name},
                    {"dtype", declaration.source_dtype},
                    {"import", declaration.import}};
    for (const auto& item : optional) {
      if (item.value.empty()) continue;
      absl::StrAppend(&text, ",\"", item.key, "\":", QuoteJson(item.value));
    }
    return text + "}";
  }

  std::string Features() const {
    std::string text;
    for (const QinferFeature& feature : kQinferFeatures) {
      if ((features_ >> feature.bit & 1) == 0) continue;
      absl::StrAppend(&text, text.empty() ? "" : ",", feature.bit, ":",
                      absl::string_view(feature.name.data(), feature.name.size()));
    }
    return text;
  }

  std::string MakeHeader() const {
    std::string header(kQinferHeaderStart);
    absl::StrAppend(&header, kQinferVersion, "\",\"qinfer.features\":", QuoteJson(Features()));
    for (const auto& [key, value] : metadata_) {
      absl::StrAppend(&header, ",", QuoteJson(key), ":", QuoteJson(value));
    }
    for (const Tensor& tensor : tensors_) {
      absl::StrAppend(&header, ",", QuoteJson(StrCat("tensor:", tensor.declaration.name)), ":",
                      QuoteJson(Describe(tensor)));
    }
    header += "}";
    for (const Tensor& tensor : tensors_) {
      absl::StrAppend(&header, ",", QuoteJson(tensor.declaration.name),
                      ":{\"dtype\":\"U8\",\"shape\":[", tensor.stored_bytes, "],\"data_offsets\":[",
                      tensor.offset, ",", tensor.offset + tensor.stored_bytes, "]}");
    }
    return header + "}";
  }

  std::unique_ptr<io::Sink> sink_;
  std::map<std::string, std::string> metadata_;
  std::vector<Tensor> tensors_;
  uint64_t features_ = 1;
  uint64_t data_begin_ = 0, data_bytes_ = 0;
  bool begun_ = false, finished_ = false;
};

}  // namespace

Status QinferWriter::Finish() {
  QINFER_RETURN_IF_ERROR(WriteHeader());
  return Commit();
}

StatusOr<std::unique_ptr<QinferWriter>> QinferWriter::Create(std::unique_ptr<io::Sink> sink) {
  if (sink == nullptr) return MisuseError("no sink given");
  return std::unique_ptr<QinferWriter>(std::make_unique<StreamingWriter>(std::move(sink)));
}

}  // namespace qinfer::format
