// Reads .qinfer files: validates the header on top of what safetensors.cpp has checked, and gives
// out bytes in the map or read. Checksums are compared in checksum_pass.cpp.
#include "format/qinfer_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/checked.h"
#include "format/checksum_pass.h"
#include "format/json_stream.h"
#include "format/memory_guard.h"
#include "format/safetensors.h"
#include "format/tensor_table.h"

namespace qinfer::format {
namespace {

constexpr std::string_view kTensorPrefix = "tensor:";
constexpr std::string_view kSidePrefix = "qinfer.";
constexpr uint64_t kMaxFormatBytes = 64;

bool StartsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

// {"shape": [..], "format": "..", "bytes": n, "xxh3": "16 hex digits", "source": "..",
//  "dtype": "..", "import": ".."}; unknown members are passed over, so that later minor additions
// stay readable.
class TensorEvents final : public JsonEvents {
 public:
  TensorEvents(StringArena* strings, QinferTensor* tensor) : strings_(strings), tensor_(tensor) {}

  Status OnStartObject() override {
    if (++depth_ == 1) return OkStatus();
    return known() ? JsonEvents::OnStartObject() : OkStatus();
  }
  Status OnEndObject() override {
    --depth_;
    return OkStatus();
  }
  Status OnKey(std::string_view key) override {
    if (depth_ != 1) return OkStatus();
    field_ = kUnknownField;
    for (uint32_t i = 0; i < std::size(kFields); ++i) {
      if (key == kFields[i]) field_ = 1u << i;
    }
    if (known() && (seen_ & field_) != 0) {
      return FormatError(StrCat("the field ", Printable(key), " is there twice"));
    }
    seen_ |= field_;
    return OkStatus();
  }
  Status OnString(std::string_view value) override {
    switch (field_) {
      case kFormat:
        if (value.empty() || value.size() > kMaxFormatBytes) {
          return FormatError("the format's name is empty or too long");
        }
        tensor_->format = strings_->Copy(value);
        return OkStatus();
      case kChecksum: {
        const char* end = value.data() + value.size();
        const auto [at, error] = std::from_chars(value.data(), end, tensor_->checksum, 16);
        if (error != std::errc() || at != end || value.size() != 16) {
          return FormatError("xxh3 is not 16 hexadecimal digits");
        }
        return OkStatus();
      }
      case kSource:
        tensor_->source_name = strings_->Copy(value);
        return OkStatus();
      case kDType:
        tensor_->source_dtype = strings_->Copy(value);
        return OkStatus();
      case kImport:
        tensor_->import = strings_->Copy(value);
        return OkStatus();
      default:
        return known() ? JsonEvents::OnString(value) : OkStatus();
    }
  }
  Status OnStartArray() override {
    ++depth_;
    return known() && (field_ != kShape || depth_ != 2) ? JsonEvents::OnStartArray() : OkStatus();
  }
  Status OnEndArray() override {
    --depth_;
    return OkStatus();
  }
  Status OnUint(uint64_t value) override {
    if (field_ == kShape && depth_ == 2) {
      if (tensor_->rank == 4) return FormatError("more than 4 dimensions");
      if (value == 0) return FormatError("a dimension of 0");
      if (!CheckedMul(elements_, value, &elements_)) return FormatError("the shape overflows");
      tensor_->shape[tensor_->rank++] = value;
      return OkStatus();
    }
    if (field_ == kBytes && depth_ == 1) {
      tensor_->bytes = value;
      return OkStatus();
    }
    return known() ? JsonEvents::OnUint(value) : OkStatus();
  }
  Status OnInt(int64_t value) override { return known() ? JsonEvents::OnInt(value) : OkStatus(); }
  Status OnFloat(double value) override {
    return known() ? JsonEvents::OnFloat(value) : OkStatus();
  }
  Status OnBool(bool value) override { return known() ? JsonEvents::OnBool(value) : OkStatus(); }
  Status OnNull() override { return known() ? JsonEvents::OnNull() : OkStatus(); }

  bool complete() const { return (seen_ & kNeeded) == kNeeded; }

 private:
  static constexpr std::string_view kFields[] = {"shape",  "format", "bytes", "xxh3",
                                                 "source", "dtype",  "import"};
  enum Field : uint32_t {
    kShape = 1,
    kFormat = 2,
    kBytes = 4,
    kChecksum = 8,
    kSource = 16,
    kDType = 32,
    kImport = 64,
    kUnknownField = 128,
  };
  static constexpr uint32_t kNeeded = kShape | kFormat | kBytes | kChecksum;

  bool known() const { return field_ != kUnknownField; }

  StringArena* strings_;
  QinferTensor* tensor_;
  int depth_ = 0;
  uint32_t field_ = 0;
  uint32_t seen_ = 0;
  uint64_t elements_ = 1;
};

// {"<tensor>": {"min": a, "max": b, "scale": s}}: scales go to the tensors, which are sorted by
// name.
class RangeEvents final : public JsonEvents {
 public:
  explicit RangeEvents(absl::Span<QinferTensor> tensors) : tensors_(tensors) {}

  Status OnStartObject() override {
    return ++depth_ <= 2 ? OkStatus() : JsonEvents::OnStartObject();
  }
  Status OnEndObject() override {
    --depth_;
    return OkStatus();
  }
  Status OnKey(std::string_view key) override {
    if (depth_ == 2) {
      is_scale_ = key == "scale";
      return OkStatus();
    }
    const auto at =
        std::lower_bound(tensors_.begin(), tensors_.end(), key,
                         [](const QinferTensor& a, std::string_view b) { return a.name < b; });
    if (at == tensors_.end() || at->name != key) {
      return FormatError(StrCat("there is no tensor ", Printable(key)));
    }
    tensor_ = &*at;
    return OkStatus();
  }
  Status OnUint(uint64_t value) override { return Number(static_cast<double>(value)); }
  Status OnInt(int64_t value) override { return Number(static_cast<double>(value)); }
  Status OnFloat(double value) override { return Number(value); }

 private:
  Status Number(double value) {
    if (depth_ != 2) return JsonEvents::OnFloat(value);
    if (!is_scale_) return OkStatus();
    if (!(value >= double{kLeastActivationScale} && value <= double{kLargestActivationScale})) {
      return FormatError(StrCat("the scale ", value, " of ", Printable(tensor_->name),
                                " is not from ", kLeastActivationScale, " to ",
                                kLargestActivationScale));
    }
    tensor_->activation_scale = static_cast<float>(value);
    return OkStatus();
  }

  absl::Span<QinferTensor> tensors_;
  QinferTensor* tensor_ = nullptr;
  int depth_ = 0;
  bool is_scale_ = false;
};

// "0:panel16,3:something": the bits, or an error that names the first unknown one.
StatusOr<uint64_t> ParseFeatures(const std::string& file, std::string_view text) {
  uint64_t bits = 0;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    uint32_t bit = 0;
    const auto [at, error] = std::from_chars(item.data(), item.data() + item.size(), bit);
    if (error != std::errc() || at == item.data() + item.size() || *at != ':') {
      return FormatError(
          StrCat(file, ": qinfer.features holds ", Printable(item), " where BIT:NAME is expected"));
    }
    const bool known = std::any_of(std::begin(kQinferFeatures), std::end(kQinferFeatures),
                                   [&](const QinferFeature& f) { return f.bit == bit; });
    if (!known) {
      return UnsupportedError(
          StrCat(file, ": it needs the feature ",
                 Printable(item.substr(static_cast<size_t>(at - item.data()) + 1)), " (bit ", bit,
                 "), which this version of the library does not have; use a newer one"));
    }
    bits |= uint64_t{1} << bit;
  }
  return bits;
}

class MappedQinferFile final : public QinferFile {
 public:
  MappedQinferFile(std::shared_ptr<io::Source> source, Memory* memory)
      : source_(std::move(source)), tables_(memory), tensors_(memory) {
    memory_ = memory;
  }

  Status Parse() {
    QINFER_ASSIGN_OR_RETURN(const SafetensorsLayout layout,
                            ParseSafetensors(*source_, 0, memory_, &tables_));
    std::sort(tables_.metadata.begin(), tables_.metadata.end(),
              [](const MetadataEntry& a, const MetadataEntry& b) { return a.key < b.key; });
    QINFER_RETURN_IF_ERROR(CheckVersion());
    QINFER_ASSIGN_OR_RETURN(features_, ParseFeatures(name(), Metadata("qinfer.features")));
    if (layout.data_begin % kQinferAlign != 0) {
      return FormatError(StrCat(name(), ": the data begins at byte ", layout.data_begin,
                                ", not on a multiple of ", kQinferAlign));
    }
    if (tables_.tensors.size() > kMaxQinferTensors) {
      return UnsupportedError(StrCat(name(), ": ", tables_.tensors.size(), " tensors; at most ",
                                     kMaxQinferTensors, " are supported"));
    }
    QINFER_RETURN_IF_ERROR(SortByName(name(), &tables_.tensors));
    QINFER_RETURN_IF_ERROR(ParseTensors());
    return (features_ >> kFeatureStaticActivations & 1) != 0 ? ParseRanges() : OkStatus();
  }

  const std::string& name() const override { return source_->name(); }
  const std::shared_ptr<io::Source>& source() const override { return source_; }
  uint64_t features() const override { return features_; }
  absl::Span<const QinferTensor> tensors() const override {
    return absl::MakeConstSpan(tensors_).subspan(0, weights_);
  }
  absl::Span<const QinferTensor> side_tensors() const override {
    return absl::MakeConstSpan(tensors_).subspan(weights_);
  }
  const QinferTensor* Find(std::string_view tensor) const override {
    const auto group = StartsWith(tensor, kSidePrefix) ? side_tensors() : tensors();
    const auto at =
        std::lower_bound(group.begin(), group.end(), tensor,
                         [](const QinferTensor& a, std::string_view b) { return a.name < b; });
    return at != group.end() && at->name == tensor ? &*at : nullptr;
  }
  absl::Span<const MetadataEntry> metadata() const override { return tables_.metadata; }
  std::string_view Metadata(std::string_view key) const override {
    const auto at =
        std::lower_bound(tables_.metadata.begin(), tables_.metadata.end(), key,
                         [](const MetadataEntry& a, std::string_view b) { return a.key < b; });
    return at != tables_.metadata.end() && at->key == key ? at->value : std::string_view();
  }

  absl::Span<const uint8_t> Map(const QinferTensor& tensor) const override {
    const uint8_t* map = source_->Map();
    if (map == nullptr) return {};
    return {map + tensor.offset, static_cast<size_t>(tensor.bytes)};
  }
  Status Read(const QinferTensor& tensor, uint64_t begin, absl::Span<uint8_t> out) const override {
    if (begin > tensor.bytes || out.size() > tensor.bytes - begin) {
      return MisuseError(StrCat(name(), ": bytes ", begin, " to ", begin + out.size(),
                                " of tensor ", Printable(tensor.name), ", which has ",
                                tensor.bytes));
    }
    return source_->ReadAt(tensor.offset + begin, out);
  }
  StatusOr<QinferBytes> Load(const QinferTensor& tensor, Memory* memory) const override {
    if (source_->Map() != nullptr) return QinferBytes(Map(tensor));
    const auto bytes = static_cast<size_t>(tensor.bytes);
    QINFER_ASSIGN_OR_RETURN(Buffer buffer,
                            Buffer::Create(memory, bytes, std::string(tensor.name).c_str()));
    QINFER_RETURN_IF_ERROR(source_->ReadAt(tensor.offset, {buffer.as<uint8_t>(), bytes}));
    return QinferBytes(std::move(buffer), bytes);
  }

 private:
  Status CheckVersion() const {
    const std::string_view text = Metadata("qinfer.version");
    uint32_t version = 0;
    const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), version);
    if (error != std::errc() || at != text.data() + text.size() || version == 0) {
      return FormatError(StrCat(name(), ": not a .qinfer file (no valid qinfer.version)"));
    }
    if (version > kQinferVersion) {
      return UnsupportedError(StrCat(name(), ": format version ", version, "; up to ",
                                     kQinferVersion, " is supported: use a newer library"));
    }
    return OkStatus();
  }

  // Pairs the tensors with their "tensor:NAME" entries; both are sorted by name.
  Status ParseTensors() {
    const auto& metadata = tables_.metadata;
    auto entry =
        std::lower_bound(metadata.begin(), metadata.end(), kTensorPrefix,
                         [](const MetadataEntry& a, std::string_view b) { return a.key < b; });
    tensors_.reserve(tables_.tensors.size());
    for (const TensorInfo& info : tables_.tensors) {
      const std::string where = StrCat(name(), ": tensor ", Printable(info.name));
      if (entry == metadata.end() || !StartsWith(entry->key, kTensorPrefix) ||
          entry->key.substr(kTensorPrefix.size()) != info.name) {
        return FormatError(StrCat(where,
                                  ": the metadata does not describe it, or describes "
                                  "tensors that are not there"));
      }
      QinferTensor tensor;
      tensor.name = info.name;
      TensorEvents events(&tables_.strings, &tensor);
      QINFER_RETURN_IF_ERROR(ParseJson(entry->value, where, JsonLimits{.max_depth = 8}, &events));
      if (!events.complete()) {
        return FormatError(StrCat(where, ": its metadata lacks shape, format, bytes or xxh3"));
      }
      if (info.dtype != DType::kU8 || info.rank != 1 || info.bytes % kQinferAlign != 0) {
        return FormatError(StrCat(where, ": stored as ",
                                  absl::string_view(info.dtype_name.data(), info.dtype_name.size()),
                                  " of rank ", info.rank, " and ", info.bytes,
                                  " bytes; U8 of rank 1 and a multiple of 64 bytes is expected"));
      }
      if (tensor.bytes > info.bytes || info.bytes - tensor.bytes >= kQinferAlign) {
        return FormatError(
            StrCat(where, ": it claims ", tensor.bytes, " bytes of ", info.bytes, " stored ones"));
      }
      tensor.offset = info.offset;
      tensor.stored_bytes = info.bytes;
      tensors_.push_back(tensor);
      ++entry;
    }
    if (entry != metadata.end() && StartsWith(entry->key, kTensorPrefix)) {
      return FormatError(StrCat(name(), ": the metadata describes the tensor ",
                                Printable(entry->key.substr(kTensorPrefix.size())),
                                ", which is not there"));
    }
    // Side files are neighbours in the order of names; they go behind the weights.
    const auto is_side = [](const QinferTensor& t) { return StartsWith(t.name, kSidePrefix); };
    const auto side = std::find_if(tensors_.begin(), tensors_.end(), is_side);
    const auto side_end = std::find_if_not(side, tensors_.end(), is_side);
    weights_ = tensors_.size() - static_cast<size_t>(side_end - side);
    std::rotate(side, side_end, tensors_.end());
    return OkStatus();
  }

  Status ParseRanges() {
    const std::string_view json = Metadata(kMetaActivationRanges);
    const std::string where = StrCat(name(), ": metadata ", std::string(kMetaActivationRanges));
    if (json.empty()) {
      return FormatError(where + ": missing, though the file needs static_activations");
    }
    RangeEvents events(absl::MakeSpan(tensors_).subspan(0, weights_));
    return ParseJson(json, where, JsonLimits{.max_depth = 2}, &events);
  }

  std::shared_ptr<io::Source> source_;
  SafetensorsTables tables_;
  std::pmr::vector<QinferTensor> tensors_;  // weights, then side files, each sorted by name
  size_t weights_ = 0;
  uint64_t features_ = 0;
};

}  // namespace

StatusOr<std::shared_ptr<QinferFile>> QinferFile::Open(std::shared_ptr<io::Source> source,
                                                       Memory* memory) {
  const std::string name = source->name();
  return CatchNoMemory(name, memory, [&]() -> StatusOr<std::shared_ptr<QinferFile>> {
    auto file = std::make_shared<MappedQinferFile>(std::move(source), memory);
    QINFER_RETURN_IF_ERROR(file->Parse());
    return std::shared_ptr<QinferFile>(std::move(file));
  });
}

Status QinferFile::VerifyAll() const {
  QINFER_ASSIGN_OR_RETURN(const std::unique_ptr<ChecksumPass> pass,
                          ChecksumPass::Create(this, memory_));
  while (!pass->finished()) QINFER_RETURN_IF_ERROR(pass->Step());
  return OkStatus();
}

}  // namespace qinfer::format
