// Rows and their texts; see tensor_rows.h.
#include "api/tensor_rows.h"

#include <algorithm>
#include <cstring>

#include "api/metadata.h"

namespace qinfer::api {
namespace {

using observe::Report;

constexpr std::string_view kVerifiedKeys[] = {"name", "bytes", "checksum", "ok", "problem"};
constexpr std::string_view kListedKeys[] = {"name",  "shape",  "type",    "format",
                                            "bytes", "import", "checksum"};

void CopyHex(uint64_t checksum, char (&out)[16]) {
  const std::string digits = HexChecksum(checksum);
  std::memcpy(out, digits.data(), sizeof(out));
}

}  // namespace

VerifiedTensors::VerifiedTensors(Memory* memory, absl::Span<const format::TensorInfo> tensors)
    : strings_(memory), rows_(memory) {
  rows_.reserve(tensors.size());
}

void VerifiedTensors::Add(std::string_view name, uint64_t bytes, uint64_t checksum,
                          std::string_view problem) {
  Entry entry = {strings_.Copy(name), strings_.Copy(problem), bytes, {}};
  CopyHex(checksum, entry.checksum);
  rows_.push_back(entry);
  if (!problem.empty()) ++problems_;
}

Report VerifiedTensors::Row(size_t index) const {
  const Entry& entry = rows_[index];
  Report row;
  row["name"] = entry.name;
  row["bytes"] = entry.bytes;
  row["checksum"] = std::string_view(entry.checksum, sizeof(entry.checksum));
  row["ok"] = entry.problem.empty();
  if (!entry.problem.empty()) row["problem"] = entry.problem;
  return row;
}

std::string_view VerifiedTensors::Text(size_t index, std::string_view member) const {
  const Entry& entry = rows_[index];
  if (member == "name") return entry.name;
  if (member == "problem") return entry.problem;
  if (member == "checksum") return {entry.checksum, sizeof(entry.checksum)};
  return {};
}

std::string_view VerifiedTensors::Key(size_t /*index*/, size_t member) const {
  return kVerifiedKeys[member];
}

ListedTensors::ListedTensors(Memory* memory, const format::Checkpoint& checkpoint)
    : strings_(memory), words_(memory), rows_(memory) {
  rows_.reserve(checkpoint.tensors().size());
  for (const format::TensorInfo& tensor : checkpoint.tensors()) {
    const TensorDescription described = DescribeTensor(checkpoint, tensor);
    Entry entry = {};
    entry.name = strings_.Copy(tensor.name);
    entry.type = Word(described.source_type);
    entry.format = Word(described.format);
    std::copy(std::begin(tensor.shape), std::end(tensor.shape), std::begin(entry.shape));
    entry.bytes = described.bytes;
    entry.rank = tensor.rank;
    entry.import = described.import;
    entry.has_checksum = described.has_checksum;
    if (entry.has_checksum) CopyHex(described.checksum, entry.checksum);
    rows_.push_back(entry);
  }
}

std::string_view ListedTensors::Word(std::string_view word) {
  // From the last one back: neighbours are alike. A hostile file may have a word of its own for
  // each tensor; then they are simply copied.
  constexpr size_t kLooked = 64;
  const size_t looked = std::min(kLooked, words_.size());
  const auto found =
      std::find(words_.rbegin(), words_.rbegin() + static_cast<ptrdiff_t>(looked), word);
  if (found != words_.rbegin() + static_cast<ptrdiff_t>(looked)) return *found;
  words_.push_back(strings_.Copy(word));
  return words_.back();
}

Report ListedTensors::Row(size_t index) const {
  const Entry& entry = rows_[index];
  Report row;
  row["name"] = entry.name;
  Report& shape = row["shape"];
  for (uint32_t i = 0; i < entry.rank; ++i) shape.Append() = entry.shape[i];
  row["type"] = entry.type;
  row["format"] = entry.format;
  row["bytes"] = entry.bytes;
  row["import"] = ImportName(entry.import);
  if (entry.has_checksum) {
    row["checksum"] = std::string_view(entry.checksum, sizeof(entry.checksum));
  }
  return row;
}

std::string_view ListedTensors::Text(size_t index, std::string_view member) const {
  const Entry& entry = rows_[index];
  if (member == "name") return entry.name;
  if (member == "type") return entry.type;
  if (member == "format") return entry.format;
  if (member == "import") return ImportName(entry.import);
  if (member == "checksum") return {entry.checksum, sizeof(entry.checksum)};
  return {};
}

std::string_view ListedTensors::Key(size_t /*index*/, size_t member) const {
  return kListedKeys[member];
}

}  // namespace qinfer::api
