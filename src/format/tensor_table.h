// The table of tensors that every container fills: names that outlive parsing, order, duplicates,
// overlaps, look-up. How a container spells its entries is in that container's own file.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/checkpoint.h"

namespace qinfer::format {

// With these a hostile file cannot make the table much larger than the file itself.
inline constexpr uint64_t kMaxTensorsPerFile = 262'144;
inline constexpr uint64_t kMaxTensors = 524'288;

bool IsValidUtf8(std::string_view text);
// A name from a file as it may stand in a message: short, no control bytes, valid UTF-8.
std::string Printable(std::string_view text);
// Ok if `name` can be a tensor's: not empty, at most `max_bytes`, valid UTF-8, no NUL.
Status CheckTensorName(std::string_view name, uint64_t max_bytes);

// Copies of strings, given back together. Throws what Memory throws.
class StringArena {
 public:
  explicit StringArena(Memory* memory) : blocks_(memory) {}
  StringArena(StringArena&&) = default;
  StringArena& operator=(StringArena&&) = default;
  std::string_view Copy(std::string_view text);

 private:
  static constexpr size_t kBlock = 16 << 10;
  std::pmr::vector<std::pmr::vector<char>> blocks_;
  size_t used_ = 0;  // of the last block, unless that is a large string's own
  bool open_ = false;
};

// Sorts by name; two of one name are a FormatError.
Status SortByName(const std::string& file, std::pmr::vector<TensorInfo>* tensors);
// Null if absent. `tensors` is sorted by name.
const TensorInfo* FindByName(absl::Span<const TensorInfo> tensors, std::string_view name);
// Indices of the tensors that lie in `source`, in the order of their bytes; FormatError if two
// share a byte.
StatusOr<std::pmr::vector<uint32_t>> OrderByOffset(const std::string& file,
                                                   absl::Span<const TensorInfo> tensors,
                                                   uint32_t source, Memory* memory);

}  // namespace qinfer::format
