// The safetensors container: its header parsed and validated into a tensor table. Folders, shards
// and side documents are in hf_folder.cpp; what a .qinfer file adds is in qinfer_file.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "core/status.h"
#include "format/checkpoint.h"
#include "format/tensor_table.h"
#include "io/source.h"

namespace qinfer::format {

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // the reference library's

// What headers add up to: one file's, or all shards'.
struct SafetensorsTables {
  explicit SafetensorsTables(Memory* memory) : strings(memory), tensors(memory), metadata(memory) {}

  StringArena strings;
  std::pmr::vector<TensorInfo> tensors;
  std::pmr::vector<MetadataEntry> metadata;  // of the first file, in its order
};

// Where things lie in one file.
struct SafetensorsLayout {
  uint64_t data_begin = 0;  // 8 + header bytes
};

// True if the source looks like safetensors: a header length that fits, then '{'. Reads 9 bytes.
StatusOr<bool> LooksLikeSafetensors(const io::Source& source);

// Parses the header of `source` and appends its tensors, with their index `source_index`. Checked:
// JSON with bounded depth, names, types, shapes, sizes, ranges; tensors cover the data without
// holes or overlaps. Not checked: duplicates across files (SortByName does).
StatusOr<SafetensorsLayout> ParseSafetensors(const io::Source& source, uint32_t source_index,
                                             Memory* memory, SafetensorsTables* tables);

}  // namespace qinfer::format
