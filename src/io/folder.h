// Small questions to the file system: what is at a path, what is in a folder, a whole small file.
// What files mean is for src/format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/memory.h"
#include "core/status.h"

namespace qinfer::io {

enum class PathKind : uint8_t { kMissing, kFile, kFolder, kOther };

// Follows links. IoError where the system does not say (no permission on the way, a link loop).
StatusOr<PathKind> KindOf(const std::string& path);

// The names in a folder, sorted, without "." and "..". More than `max_entries` is an error.
StatusOr<std::vector<std::string>> ListFolder(const std::string& path, size_t max_entries);

// The bytes of a regular file of at most `max_bytes`.
StatusOr<std::string> ReadSmallFile(const std::string& path, uint64_t max_bytes);
StatusOr<Buffer> ReadSmallFile(const std::string& path, uint64_t max_bytes, Memory* memory);

// IoError where what is at `path` is no file that could be replaced: for those who write later.
Status CheckWritable(const std::string& path);

// Whether two paths lead to one file that exists.
bool SameFile(const std::string& a, const std::string& b);

// "folder" + "name" with one slash between.
std::string JoinPath(const std::string& folder, const std::string& name);
// Everything before the last slash ("." if there is none, "/" for the root).
std::string FolderOf(const std::string& path);
// Everything after the last slash.
std::string NameOf(const std::string& path);

}  // namespace qinfer::io
