// Parses safetensors headers event by event: no document is built, and names are copied once.
#include "format/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/checked.h"
#include "format/json_stream.h"

namespace qinfer::format {
namespace {

constexpr uint64_t kMaxNameBytes = 4096;
constexpr uint32_t kMaxRank = 8;
constexpr uint64_t kMaxMetadata = 262'144;

struct Word {
  std::string_view name;
  DType dtype;
  uint32_t bits;  // per element
};
constexpr Word kDTypes[] = {
    {"F64", DType::kF64, 64},      {"F32", DType::kF32, 32},       {"F16", DType::kF16, 16},
    {"BF16", DType::kBF16, 16},    {"F8_E4M3", DType::kF8E4M3, 8}, {"I8", DType::kI8, 8},
    {"U8", DType::kU8, 8},         {"I16", DType::kI16, 16},       {"I32", DType::kI32, 32},
    {"I64", DType::kI64, 64},      {"BOOL", DType::kBool, 8},      {"F8_E5M2", DType::kOther, 8},
    {"F8_E8M0", DType::kOther, 8}, {"U16", DType::kOther, 16},     {"U32", DType::kOther, 32},
    {"U64", DType::kOther, 64},    {"C64", DType::kOther, 64},     {"F4", DType::kOther, 4},
    {"F6_E2M3", DType::kOther, 6}, {"F6_E3M2", DType::kOther, 6},
};

const Word* FindDType(std::string_view name) {
  for (const Word& word : kDTypes) {
    if (word.name == name) return &word;
  }
  return nullptr;
}

// {"__metadata__": {"key": "text"}, "name": {"dtype": "F16", "shape": [..], "data_offsets": [b,
// e]}}
class HeaderEvents final : public JsonEvents {
 public:
  HeaderEvents(uint64_t data_begin, uint64_t data_bytes, uint32_t source, SafetensorsTables* tables)
      : data_begin_(data_begin),
        data_bytes_(data_bytes),
        source_(source),
        tables_(tables),
        first_tensor_(tables->tensors.size()) {}

  Status OnStartObject() override {
    if (place_ == kStart) {
      place_ = kTop;
    } else if (place_ == kTopValue) {
      place_ = is_metadata_ ? kMetadata : kTensor;
    } else {
      return FormatError("unexpected object");
    }
    return OkStatus();
  }

  Status OnKey(std::string_view key) override {
    if (place_ == kTop) {
      place_ = kTopValue;
      is_metadata_ = key == "__metadata__";
      return is_metadata_ ? BeginMetadata() : BeginTensor(key);
    }
    if (place_ == kMetadata) {
      metadata_key_ = keep_metadata_ ? tables_->strings.Copy(key) : std::string_view();
      place_ = kMetadataValue;
      return OkStatus();
    }
    // One of a tensor's three.
    const uint32_t field = key == "dtype" ? 1 : key == "shape" ? 2 : key == "data_offsets" ? 4 : 0;
    if (field == 0) {
      return FormatError(StrCat(Tensor(), "unknown field ", Printable(key)));
    }
    if ((seen_ & field) != 0) {
      return FormatError(StrCat(Tensor(), "the field ", Printable(key), " is there twice"));
    }
    seen_ |= field;
    place_ = field == 1 ? kDTypeValue : field == 2 ? kShapeValue : kOffsetsValue;
    return OkStatus();
  }

  Status OnString(std::string_view value) override {
    if (place_ == kMetadataValue) {
      if (keep_metadata_) {
        if (tables_->metadata.size() == kMaxMetadata) {
          return UnsupportedError(StrCat("more than ", kMaxMetadata, " entries in __metadata__"));
        }
        tables_->metadata.push_back({metadata_key_, tables_->strings.Copy(value)});
      }
      place_ = kMetadata;
      return OkStatus();
    }
    if (place_ != kDTypeValue) return FormatError("unexpected text");
    word_ = FindDType(value);
    if (word_ == nullptr) {
      return UnsupportedError(
          StrCat(Tensor(), "the type ", Printable(value),
                 " is unknown; F64 F32 F16 BF16 F8_E4M3 I8 U8 I16 I32 I64 BOOL ", "can be read"));
    }
    place_ = kTensor;
    return OkStatus();
  }

  Status OnStartArray() override {
    if (place_ != kShapeValue && place_ != kOffsetsValue) return FormatError("unexpected array");
    place_ = place_ == kShapeValue ? kShape : kOffsets;
    return OkStatus();
  }

  Status OnUint(uint64_t value) override {
    if (place_ == kShape) {
      if (rank_ == kMaxRank) {
        return FormatError(StrCat(Tensor(), "more than ", kMaxRank, " dimensions"));
      }
      shape_[rank_++] = value;
      return OkStatus();
    }
    if (place_ != kOffsets) return FormatError("unexpected number");
    if (offset_count_ == 2) return FormatError(StrCat(Tensor(), "more than two data_offsets"));
    offsets_[offset_count_++] = value;
    return OkStatus();
  }

  Status OnEndArray() override {
    if (place_ == kOffsets && offset_count_ != 2) {
      return FormatError(StrCat(Tensor(), "data_offsets needs two numbers"));
    }
    place_ = kTensor;
    return OkStatus();
  }

  Status OnEndObject() override {
    if (place_ == kTensor) QINFER_RETURN_IF_ERROR(FinishTensor());
    place_ = place_ == kTop ? kEnd : kTop;
    return OkStatus();
  }

 private:
  enum Place : uint8_t {
    kStart,
    kTop,
    kTopValue,
    kMetadata,
    kMetadataValue,
    kTensor,
    kDTypeValue,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kEnd,
  };

  std::string Tensor() const { return StrCat("tensor ", Printable(name_), ": "); }

  Status BeginMetadata() {
    if (metadata_seen_) return FormatError("__metadata__ is there twice");
    metadata_seen_ = true;
    keep_metadata_ = tables_->metadata.empty();
    return OkStatus();
  }

  Status BeginTensor(std::string_view key) {
    QINFER_RETURN_IF_ERROR(CheckTensorName(key, kMaxNameBytes));
    const uint64_t here = tables_->tensors.size() - first_tensor_;
    if (here == kMaxTensorsPerFile || tables_->tensors.size() == kMaxTensors) {
      return UnsupportedError(
          StrCat("more than ", kMaxTensorsPerFile, " tensors in one file are not supported"));
    }
    name_ = tables_->strings.Copy(key);
    seen_ = rank_ = offset_count_ = 0;
    return OkStatus();
  }

  Status FinishTensor() {
    if (seen_ != 7) {
      return FormatError(StrCat(Tensor(), "it needs dtype, shape and data_offsets"));
    }
    TensorInfo info;
    info.name = name_;
    info.dtype = word_->dtype;
    info.dtype_name = word_->name;
    info.source = source_;
    info.rank = std::min<uint32_t>(rank_, 4);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < rank_; ++i) {
      // Dimensions past the fourth are folded into it; a product that overflows anywhere is refused
      // even if a later 0 would make it small.
      if (shape_[i] != 0 && !CheckedMul(elements, shape_[i], &elements)) {
        return FormatError(StrCat(Tensor(), "its dimensions multiply to more than 2^64"));
      }
      uint64_t& extent = info.shape[std::min<uint32_t>(i, 3)];
      extent = i < 4 ? shape_[i] : extent * shape_[i];
    }
    if (std::find(shape_.begin(), shape_.begin() + rank_, 0u) != shape_.begin() + rank_) {
      elements = 0;
    }
    uint64_t bits = 0;
    if (!CheckedMul<uint64_t>(elements, word_->bits, &bits)) {
      return FormatError(StrCat(Tensor(), "its size does not fit 64 bits"));
    }
    if (offsets_[0] > offsets_[1] || offsets_[1] > data_bytes_) {
      return FormatError(StrCat(Tensor(), "its bytes ", offsets_[0], " to ", offsets_[1],
                                " are outside the data (", data_bytes_, " bytes from byte ",
                                data_begin_, "); the file is cut or corrupt"));
    }
    info.bytes = offsets_[1] - offsets_[0];
    if (bits % 8 != 0 || bits / 8 != info.bytes) {
      return FormatError(StrCat(Tensor(), "its shape and type need ", CeilDiv<uint64_t>(bits, 8),
                                " bytes, its data_offsets give ", info.bytes));
    }
    info.offset = data_begin_ + offsets_[0];
    tables_->tensors.push_back(info);
    return OkStatus();
  }

  const uint64_t data_begin_;
  const uint64_t data_bytes_;
  const uint32_t source_;
  SafetensorsTables* const tables_;
  const size_t first_tensor_;

  Place place_ = kStart;
  bool is_metadata_ = false, metadata_seen_ = false, keep_metadata_ = false;
  std::string_view metadata_key_;

  std::string_view name_;
  uint32_t seen_ = 0;  // fields, as bits
  const Word* word_ = nullptr;
  std::array<uint64_t, kMaxRank> shape_ = {};
  uint32_t rank_ = 0;
  std::array<uint64_t, 2> offsets_ = {};
  uint32_t offset_count_ = 0;
};

Status CheckMetadataKeys(const std::string& file, const std::pmr::vector<MetadataEntry>& metadata,
                         Memory* memory) {
  std::pmr::vector<std::string_view> keys(memory);
  keys.reserve(metadata.size());
  for (const MetadataEntry& entry : metadata) keys.push_back(entry.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return OkStatus();
  return FormatError(StrCat(file, ": the metadata key ", Printable(*twice), " is there twice"));
}

// Without holes: nothing may hide between the tensors or behind them.
Status CheckCoverage(const std::string& file, uint32_t source, uint64_t begin, uint64_t end,
                     absl::Span<const TensorInfo> tensors, Memory* memory) {
  QINFER_ASSIGN_OR_RETURN(const auto order, OrderByOffset(file, tensors, source, memory));
  uint64_t at = begin;
  for (const uint32_t i : order) {
    if (tensors[i].offset != at) {
      return FormatError(StrCat(file, ": bytes ", at, " to ", tensors[i].offset, ", before tensor ",
                                Printable(tensors[i].name), ", belong to no tensor"));
    }
    at += tensors[i].bytes;
  }
  if (at == end) return OkStatus();
  return FormatError(StrCat(file, ": bytes ", at, " to ", end,
                            " belong to no tensor; the file is corrupt or something was appended"));
}

}  // namespace

StatusOr<bool> LooksLikeSafetensors(const io::Source& source) {
  uint8_t start[9];
  if (source.size() < sizeof(start)) return false;
  QINFER_RETURN_IF_ERROR(source.ReadAt(0, start));
  uint64_t header = 0;
  std::memcpy(&header, start, sizeof(header));
  return header <= source.size() - 8 && start[8] == '{';
}

StatusOr<SafetensorsLayout> ParseSafetensors(const io::Source& source, uint32_t source_index,
                                             Memory* memory, SafetensorsTables* tables) {
  const std::string& file = source.name();
  uint8_t start[9];
  if (source.size() < sizeof(start)) {
    return FormatError(StrCat(file, ": ", source.size(), " bytes are too few for safetensors"));
  }
  QINFER_RETURN_IF_ERROR(source.ReadAt(0, start));
  uint64_t header = 0;
  std::memcpy(&header, start, sizeof(header));
  if (header > kMaxSafetensorsHeader || header > source.size() - 8) {
    return FormatError(StrCat(file, ": the header claims ", header, " bytes; the file has ",
                              source.size(), ", and at most ", kMaxSafetensorsHeader,
                              " are accepted; it is cut, corrupt or not safetensors"));
  }
  if (start[8] != '{') {
    return FormatError(StrCat(file, ": the header at byte 8 does not begin with '{'"));
  }
  const uint64_t data = 8 + header;
  const size_t first = tables->tensors.size();
  const bool keeps_metadata = tables->metadata.empty();
  HeaderEvents events(data, source.size() - data, source_index, tables);
  JsonLimits limits;
  limits.max_depth = 3;
  QINFER_RETURN_IF_ERROR(ParseJson(source, 8, data, file, limits, &events));
  if (keeps_metadata) {
    QINFER_RETURN_IF_ERROR(CheckMetadataKeys(file, tables->metadata, memory));
  }
  QINFER_RETURN_IF_ERROR(CheckCoverage(file, source_index, data, source.size(),
                                       absl::MakeConstSpan(tables->tensors).subspan(first),
                                       memory));
  return SafetensorsLayout{data};
}

}  // namespace qinfer::format
