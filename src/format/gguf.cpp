// Parses and validates GGUF files: header, metadata, tensor table, split parts. Values are typed in
// gguf_value.cpp; nothing here knows what a key means, but for alignment and splitting.
#include "format/gguf.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/checked.h"
#include "format/gguf_walk.h"
#include "format/memory_guard.h"
#include "format/tensor_table.h"
#include "io/reader.h"

namespace qinfer::format {
namespace {

constexpr uint64_t kMaxNameBytes = 256;
constexpr uint64_t kMaxAlignment = 65'536;
constexpr uint64_t kDefaultAlignment = 32;

// A forward cursor over a Source through a small window: the first pass, which keeps nothing.
class Window {
 public:
  Window(const io::Source& source, absl::Span<uint8_t> window)
      : source_(source), window_(window), size_(source.size()) {}

  template <typename T>
  bool Read(T* out) {
    if (sizeof(T) > remaining() || !Have(sizeof(T))) return false;
    std::memcpy(out, window_.data() + (position_ - begin_), sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  bool Skip(uint64_t n) {
    if (n > remaining()) return false;
    position_ += n;
    return true;
  }
  uint64_t remaining() const { return size_ - position_; }
  uint64_t offset() const { return position_; }
  const Status& status() const { return status_; }  // of the reads

 private:
  bool Have(uint64_t n) {
    if (position_ >= begin_ && position_ + n <= end_) return true;
    const uint64_t fill = std::min<uint64_t>(window_.size(), remaining());
    status_ = source_.ReadAt(position_, window_.subspan(0, static_cast<size_t>(fill)));
    if (!status_.ok()) return false;
    begin_ = position_;
    end_ = position_ + fill;
    return true;
  }

  const io::Source& source_;
  absl::Span<uint8_t> window_;
  uint64_t size_;
  uint64_t position_ = 0;
  uint64_t begin_ = 0, end_ = 0;  // what the window holds
  Status status_;
};

Status WalkToEnd(Window* window, const std::string& file) {
  GgufCounts counts;
  QINFER_RETURN_IF_ERROR(ReadGgufCounts(window, file, &counts));
  for (uint64_t i = 0; i < counts.keys; ++i) {
    uint64_t length = 0;
    if (!window->Read(&length) || !window->Skip(length)) {
      return GgufTruncated(*window, file, "a metadata key");
    }
    GgufType type = GgufType::kU8;
    QINFER_RETURN_IF_ERROR(ReadGgufType(window, file, "a metadata value", &type));
    uint64_t count = 1;
    if (type == GgufType::kArray) {
      QINFER_RETURN_IF_ERROR(ReadGgufType(window, file, "a metadata array", &type));
      if (!window->Read(&count)) return GgufTruncated(*window, file, "a metadata array");
    }
    QINFER_RETURN_IF_ERROR(
        SkipGgufElements(window, file, "a metadata value", type, count, /*depth=*/1));
  }
  for (uint64_t i = 0; i < counts.tensors; ++i) {
    uint64_t length = 0;
    uint32_t rank = 0;
    if (!window->Read(&length) || !window->Skip(length) || !window->Read(&rank)) {
      return GgufTruncated(*window, file, "the tensor table");
    }
    if (!window->Skip(uint64_t{rank} * 8 + 12)) {
      return GgufTruncated(*window, file, "the tensor table");
    }
  }
  return OkStatus();
}

// Where the tensor table ends.
StatusOr<uint64_t> FindHeaderEnd(const io::Source& source, Memory* memory) {
  QINFER_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Create(memory, 256 << 10, "reading GGUF"));
  Window window(source, absl::MakeSpan(buffer.as<uint8_t>(), buffer.size()));
  const Status status = WalkToEnd(&window, source.name());
  QINFER_RETURN_IF_ERROR(window.status());
  QINFER_RETURN_IF_ERROR(status);
  return window.offset();
}

// One key as it lies in the header's bytes.
struct Entry {
  std::string_view key;
  GgufValue value;
  const uint8_t* record = nullptr;
  uint64_t record_bytes = 0;
};

// One file: its header in memory, and the entries that view it.
struct Part {
  explicit Part(Memory* memory) : entries(memory), by_key(memory) {}

  const Entry* Find(std::string_view key) const {
    const auto at =
        std::lower_bound(by_key.begin(), by_key.end(), key,
                         [this](uint32_t i, std::string_view k) { return entries[i].key < k; });
    return at != by_key.end() && entries[*at].key == key ? &entries[*at] : nullptr;
  }

  Buffer header;
  GgufCounts counts;
  std::pmr::vector<Entry> entries;    // in file order
  std::pmr::vector<uint32_t> by_key;  // indices in the order of the keys
};

Status ParseEntry(io::Reader* reader, const std::string& file, Entry* entry) {
  entry->record = reader->here();
  uint64_t length = 0;
  const uint8_t* key = nullptr;
  if (!reader->Read(&length)) return GgufTruncated(*reader, file, "a metadata key");
  if (length == 0 || length > kMaxGgufKeyBytes) {
    return FormatError(StrCat(file, ": a metadata key before byte ", reader->offset(), " has ",
                              length, " bytes; 1 to ", kMaxGgufKeyBytes, " are accepted"));
  }
  if (!reader->Bytes(length, &key)) return GgufTruncated(*reader, file, "a metadata key");
  entry->key = {reinterpret_cast<const char*>(key), static_cast<size_t>(length)};
  if (!IsValidUtf8(entry->key)) {
    return FormatError(StrCat(file, ": the metadata key ", Printable(entry->key), " before byte ",
                              reader->offset(), " is not valid UTF-8"));
  }
  const std::string what = StrCat("the value of ", Printable(entry->key));
  GgufValue& value = entry->value;
  QINFER_RETURN_IF_ERROR(ReadGgufType(reader, file, what, &value.type));
  if (value.type == GgufType::kArray) {
    QINFER_RETURN_IF_ERROR(ReadGgufType(reader, file, what, &value.element_type));
    if (!reader->Read(&value.count)) return GgufTruncated(*reader, file, what);
    value.bytes = reader->here();
    QINFER_RETURN_IF_ERROR(
        SkipGgufElements(reader, file, what, value.element_type, value.count, /*depth=*/1));
    value.size = static_cast<uint64_t>(reader->here() - value.bytes);
  } else if (value.type == GgufType::kString) {
    if (!reader->Read(&value.size) || !reader->Bytes(value.size, &value.bytes)) {
      return GgufTruncated(*reader, file, what);
    }
  } else {
    value.size = GgufScalarBytes(value.type);
    if (!reader->Bytes(value.size, &value.bytes)) return GgufTruncated(*reader, file, what);
    if (value.type == GgufType::kBool && *value.bytes > 1) {
      return FormatError(StrCat(file, ": ", what, " is a bool of ", uint32_t{*value.bytes},
                                " before byte ", reader->offset()));
    }
  }
  entry->record_bytes = static_cast<uint64_t>(reader->here() - entry->record);
  return OkStatus();
}

Status SortKeys(const std::string& file, Part* part) {
  part->by_key.resize(part->entries.size());
  std::iota(part->by_key.begin(), part->by_key.end(), 0u);
  const auto& entries = part->entries;
  std::sort(part->by_key.begin(), part->by_key.end(),
            [&](uint32_t a, uint32_t b) { return entries[a].key < entries[b].key; });
  const auto twice =
      std::adjacent_find(part->by_key.begin(), part->by_key.end(),
                         [&](uint32_t a, uint32_t b) { return entries[a].key == entries[b].key; });
  if (twice == part->by_key.end()) return OkStatus();
  return FormatError(
      StrCat(file, ": the metadata key ", Printable(entries[*twice].key), " is there twice"));
}

StatusOr<uint64_t> Alignment(const std::string& file, const Part& part) {
  const Entry* entry = part.Find("general.alignment");
  if (entry == nullptr) return kDefaultAlignment;
  if (entry->value.type != GgufType::kU32) {
    return FormatError(StrCat(file, ": general.alignment is not a u32"));
  }
  QINFER_ASSIGN_OR_RETURN(const uint64_t alignment, entry->value.AsUint());
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kMaxAlignment) {
    return FormatError(StrCat(file, ": general.alignment is ", alignment, "; a power of two up to ",
                              kMaxAlignment, " is expected"));
  }
  return alignment;
}

// Reads one row of the tensor table; `tensor->offset` is still relative to the data.
Status ParseTensor(io::Reader* reader, const std::string& file, TensorInfo* tensor) {
  uint64_t length = 0;
  const uint8_t* name = nullptr;
  if (!reader->Read(&length) || !reader->Bytes(length, &name)) {
    return GgufTruncated(*reader, file, "a tensor's name");
  }
  tensor->name = {reinterpret_cast<const char*>(name), static_cast<size_t>(length)};
  QINFER_RETURN_IF_ERROR(Annotate(CheckTensorName(tensor->name, kMaxNameBytes),
                                  StrCat(file, ": before byte ", reader->offset())));
  const std::string where = StrCat(file, ": tensor ", Printable(tensor->name), ": ");
  if (!reader->Read(&tensor->rank)) return GgufTruncated(*reader, file, "the tensor table");
  if (tensor->rank == 0 || tensor->rank > 4) {
    return FormatError(StrCat(where, tensor->rank, " dimensions; 1 to 4 are accepted"));
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < tensor->rank; ++i) {
    uint64_t& extent = tensor->shape[tensor->rank - 1 - i];  // the file begins with the innermost
    if (!reader->Read(&extent)) return GgufTruncated(*reader, file, "the tensor table");
    if (extent == 0) return FormatError(StrCat(where, "dimension ", i, " is 0"));
    if (!CheckedMul(elements, extent, &elements) || elements > INT64_MAX) {
      return FormatError(StrCat(where, "its dimensions multiply to more than 2^63"));
    }
  }
  uint32_t id = 0;
  if (!reader->Read(&id) || !reader->Read(&tensor->offset)) {
    return GgufTruncated(*reader, file, "the tensor table");
  }
  const GgufTensorType* type = FindGgufTensorType(id);
  if (type == nullptr) {
    return UnsupportedError(StrCat(where, "type id ", id, " is not one that this build knows"));
  }
  tensor->dtype = type->dtype;
  tensor->dtype_name = type->name;
  const uint64_t row = tensor->shape[tensor->rank - 1];
  if (row % type->block != 0) {
    return FormatError(
        StrCat(where, "rows of ", row, " elements are not whole blocks of ", type->block));
  }
  if (!CheckedMul<uint64_t>(elements / type->block, type->bytes, &tensor->bytes)) {
    return FormatError(StrCat(where, "its size does not fit 64 bits"));
  }
  return OkStatus();
}

Status PlaceTensor(const std::string& file, uint64_t data, uint64_t alignment, uint64_t file_size,
                   TensorInfo* tensor) {
  const std::string where = StrCat(file, ": tensor ", Printable(tensor->name), ": ");
  if (tensor->offset % alignment != 0) {
    return FormatError(
        StrCat(where, "its offset ", tensor->offset, " is not a multiple of ", alignment));
  }
  uint64_t end = 0;
  if (!CheckedAdd(data, tensor->offset, &tensor->offset) ||
      !CheckedAdd(tensor->offset, tensor->bytes, &end) || end > file_size) {
    return FormatError(StrCat(where, tensor->bytes, " bytes at byte ", tensor->offset,
                              " reach past the end of the file (", file_size,
                              " bytes); it is cut or corrupt"));
  }
  return OkStatus();
}

class GgufFile final : public Gguf {
 public:
  GgufFile(std::vector<std::shared_ptr<io::Source>> sources, Memory* memory)
      : sources_(std::move(sources)), memory_(memory), keys_(memory), tensors_(memory) {}

  Status Parse() {
    parts_.reserve(sources_.size());
    for (uint32_t i = 0; i < sources_.size(); ++i) {
      parts_.emplace_back(memory_);
      QINFER_RETURN_IF_ERROR(ParsePart(i));
    }
    QINFER_RETURN_IF_ERROR(CheckSplit());
    keys_.reserve(parts_[0].entries.size());
    for (const Entry& entry : parts_[0].entries) keys_.push_back(entry.key);
    QINFER_RETURN_IF_ERROR(SortByName(name(), &tensors_));
    for (uint32_t i = 0; i < sources_.size(); ++i) {
      QINFER_RETURN_IF_ERROR(OrderByOffset(sources_[i]->name(), tensors_, i, memory_).status());
    }
    return OkStatus();
  }

  const GgufValue* Find(std::string_view key) const override {
    const Entry* entry = parts_[0].Find(key);
    return entry == nullptr ? nullptr : &entry->value;
  }
  absl::Span<const std::string_view> keys() const override { return keys_; }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }
  const std::string& name() const override { return sources_[0]->name(); }
  uint32_t version() const override { return parts_[0].counts.version; }
  absl::Span<const std::shared_ptr<io::Source>> sources() const override { return sources_; }
  absl::Span<const uint8_t> Record(std::string_view key) const override {
    const Entry* entry = parts_[0].Find(key);
    if (entry == nullptr) return {};
    return {entry->record, static_cast<size_t>(entry->record_bytes)};
  }

 private:
  Status ParsePart(uint32_t index) {
    const io::Source& source = *sources_[index];
    const std::string& file = source.name();
    Part& part = parts_[index];
    // Two passes: the end is found first, so that exactly the header is kept in memory. The second
    // trusts nothing of the first, since the file may have changed between them.
    QINFER_ASSIGN_OR_RETURN(const uint64_t end, FindHeaderEnd(source, memory_));
    QINFER_ASSIGN_OR_RETURN(part.header,
                            Buffer::Create(memory_, static_cast<size_t>(end), "GGUF metadata"));
    QINFER_RETURN_IF_ERROR(source.ReadAt(0, absl::MakeSpan(part.header.as<uint8_t>(), end)));
    io::Reader reader(part.header.as<uint8_t>(), end);
    QINFER_RETURN_IF_ERROR(ReadGgufCounts(&reader, file, &part.counts));
    part.entries.resize(static_cast<size_t>(part.counts.keys));
    for (Entry& entry : part.entries) QINFER_RETURN_IF_ERROR(ParseEntry(&reader, file, &entry));
    QINFER_RETURN_IF_ERROR(SortKeys(file, &part));
    QINFER_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment(file, part));

    const uint64_t count = part.counts.tensors;
    if (count > kMaxTensorsPerFile || count > kMaxTensors - tensors_.size()) {
      return UnsupportedError(StrCat(file, ": ", count, " tensors; at most ", kMaxTensorsPerFile,
                                     " a file are supported"));
    }
    const size_t first = tensors_.size();
    tensors_.resize(first + static_cast<size_t>(count));
    for (size_t i = first; i < tensors_.size(); ++i) {
      tensors_[i].source = index;
      QINFER_RETURN_IF_ERROR(ParseTensor(&reader, file, &tensors_[i]));
    }
    const uint64_t data = RoundUp(reader.position(), alignment);
    for (size_t i = first; i < tensors_.size(); ++i) {
      QINFER_RETURN_IF_ERROR(PlaceTensor(file, data, alignment, source.size(), &tensors_[i]));
    }
    return OkStatus();
  }

  // The number under `key` in part `index`, or `absent`.
  StatusOr<uint64_t> PartNumber(uint32_t index, std::string_view key, uint64_t absent) const {
    const Entry* entry = parts_[index].Find(key);
    if (entry == nullptr) return absent;
    const auto number = entry->value.AsUint();
    if (number.ok()) return *number;
    return Annotate(number.status(), StrCat(sources_[index]->name(), ": ", Printable(key)));
  }

  Status CheckSplit() const {
    for (uint32_t i = 0; i < parts_.size(); ++i) {
      QINFER_ASSIGN_OR_RETURN(const uint64_t count, PartNumber(i, "split.count", 1));
      QINFER_ASSIGN_OR_RETURN(const uint64_t number, PartNumber(i, "split.no", 0));
      // Merged files keep a count of 0.
      if (std::max<uint64_t>(count, 1) != parts_.size()) {
        return FormatError(StrCat(sources_[i]->name(), ": it says that it is one of ", count,
                                  " parts, and ", parts_.size(),
                                  " are there; put all parts into "
                                  "one folder and name any of them"));
      }
      if (number != i) {
        return FormatError(StrCat(sources_[i]->name(), ": it says that it is part ", number,
                                  " (from 0), where part ", i, " is expected"));
      }
    }
    QINFER_ASSIGN_OR_RETURN(const uint64_t total,
                            PartNumber(0, "split.tensors.count", tensors_.size()));
    if (parts_.size() > 1 && total != tensors_.size()) {
      return FormatError(StrCat(name(), ": the parts hold ", tensors_.size(),
                                " tensors together, split.tensors.count says ", total));
    }
    return OkStatus();
  }

  std::vector<std::shared_ptr<io::Source>> sources_;
  Memory* memory_;
  std::vector<Part> parts_;
  std::pmr::vector<std::string_view> keys_;
  std::pmr::vector<TensorInfo> tensors_;
};

}  // namespace

StatusOr<std::shared_ptr<Gguf>> Gguf::Open(std::vector<std::shared_ptr<io::Source>> sources,
                                           Memory* memory) {
  if (sources.empty()) return MisuseError("no GGUF source given");
  const std::string name = sources[0]->name();
  return CatchNoMemory(name, memory, [&]() -> StatusOr<std::shared_ptr<Gguf>> {
    auto file = std::make_shared<GgufFile>(std::move(sources), memory);
    QINFER_RETURN_IF_ERROR(file->Parse());
    return std::shared_ptr<Gguf>(std::move(file));
  });
}

}  // namespace qinfer::format
