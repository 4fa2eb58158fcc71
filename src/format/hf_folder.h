// A Hugging Face folder: which of its files hold the weights, the shard index, and the side
// documents. Tensor tables are parsed in safetensors.cpp; what a configuration means is for
// src/model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "core/status.h"
#include "format/checkpoint.h"
#include "format/tensor_table.h"

namespace qinfer::format {

inline constexpr uint64_t kMaxTokenizerJson = 256ull << 20;
inline constexpr uint64_t kMaxSideFile = 16ull << 20;
inline constexpr uint64_t kMaxShardIndex = 64ull << 20;
inline constexpr size_t kMaxShards = 4096;

// What lies in a folder, by its names: the first of index, safetensors, GGUF, .qinfer,
// configuration.
struct FolderContents {
  std::string index;                 // path of *.safetensors.index.json, or empty
  std::vector<std::string> weights;  // paths of weight files, where there is no index
  bool has_config = false;
};
StatusOr<FolderContents> ExamineFolder(const std::string& folder);

// Whether `path` leads to a file of the folder that ReadSideFiles would read.
bool IsSideFile(const std::string& folder, const std::string& path);
// Whether a file of that name would be read in a model's folder, as one of these or as an index.
bool IsDocumentName(std::string_view name);
// The template that lies in a folder as a file of its own (chat_template.jinja, or .json).
Status ReadTemplateFile(const std::string& folder, Memory* memory, Document* out);
// Reads those that exist. Too large is a FormatError, unreadable an IoError.
StatusOr<SideFiles> ReadSideFiles(const std::string& folder, Memory* memory);

// {"weight_map": {tensor: shard}}: names of shards are plain file names in the index's folder.
struct ShardIndex {
  struct Entry {
    std::string_view tensor;
    uint32_t shard = 0;
  };
  explicit ShardIndex(Memory* memory) : strings(memory), entries(memory) {}

  std::vector<std::string> shards;  // in the order of their names
  StringArena strings;
  std::pmr::vector<Entry> entries;  // sorted by tensor
};
StatusOr<ShardIndex> ReadShardIndex(const std::string& path, Memory* memory);
StatusOr<ShardIndex> ParseShardIndex(const io::Source& source, Memory* memory);

// "model-00002-of-00003.safetensors" → {"model", ".safetensors", 2, 3}.
struct SplitName {
  std::string prefix, suffix;
  uint32_t number = 0, count = 0;
};
bool ParseSplitName(std::string_view name, SplitName* out);
std::string MakeSplitName(const SplitName& split, uint32_t number);

}  // namespace qinfer::format
