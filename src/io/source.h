// Where bytes come from and go to: files, memory, and the host's io table, behind two small
// interfaces. What the bytes mean is for src/format.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"

namespace qinfer::io {

// Random-access bytes. Thread-safe. Its size is fixed when it is opened; reading past it, or a file
// that has shrunk since, is an IoError that names the source and the offset.
class Source {
 public:
  virtual ~Source() = default;
  virtual const std::string& name()
      const = 0;  // for messages: the path, or "memory", or what the host called it
  virtual uint64_t size() const = 0;
  // Fills all of `out` from `offset` on, or fails.
  virtual Status ReadAt(uint64_t offset, absl::Span<uint8_t> out) const = 0;
  // The whole content in place, valid while the Source lives, or null where it cannot be mapped.
  // 64-byte aligned.
  virtual const uint8_t* Map() const { return nullptr; }
  // Whether `path` leads to the very file that this reads, by whatever name.
  virtual bool IsFile(const std::string& path) const {
    (void)path;
    return false;
  }
};

// How a file's bytes are reached when the model is used: in place by a map, or copied into
// allocated memory.
enum class Access : uint8_t { kMap, kCopy };

// UTF-8 path. IoError (with the system's reason) if it cannot be opened or is not a regular file.
// With Access::kMap, Map() works and its bytes are counted as mapped in `memory` (BudgetError if
// over the limit).
StatusOr<std::shared_ptr<Source>> OpenFile(const std::string& path, Access access, Memory* memory);

// Borrowed: `bytes` outlives the Source.
std::shared_ptr<Source> BorrowMemory(absl::Span<const uint8_t> bytes, std::string name);

// Calls the `drop` of a host's table unless it is dismissed: for the way from the table to the
// object that owns it, where memory may run out.
template <typename Table>
class DropGuard {
 public:
  explicit DropGuard(const Table* table) : table_(table) {}
  DropGuard(const DropGuard&) = delete;
  DropGuard& operator=(const DropGuard&) = delete;
  ~DropGuard() {
    if (table_ != nullptr && table_->drop != nullptr) table_->drop(table_->user);
  }
  void Dismiss() { table_ = nullptr; }

 private:
  const Table* table_;
};

// The host's io table (see qinfer_io in the public header). `drop` is called exactly once.
struct HostIo {
  void* user = nullptr;
  int32_t (*size)(void* user, uint64_t* out_size) = nullptr;
  int32_t (*read_at)(void* user, uint64_t offset, void* dst, size_t n) = nullptr;
  int32_t (*map)(void* user, uint64_t offset, uint64_t n, const void** out) = nullptr;  // optional
  void (*drop)(void* user) = nullptr;                                                   // optional
};
StatusOr<std::shared_ptr<Source>> WrapHostIo(const HostIo& io, std::string name);

// A file being written. Until Commit nothing is visible under the final name; destroying without it
// leaves no trace.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual const std::string& name() const = 0;
  virtual Status WriteAt(uint64_t offset, absl::Span<const uint8_t> bytes) = 0;
  // Flush, fsync, rename. IoError (full disk, permission, ...) leaves no partial file.
  virtual Status Commit() = 0;
};
// Writes PATH.tmp-<unique> beside PATH and renames on Commit.
StatusOr<std::unique_ptr<Sink>> CreateFile(const std::string& path);

// The host's write table; Commit calls `commit`, destruction without it calls `abandon`. Both
// optional.
struct HostWriteIo {
  void* user = nullptr;
  int32_t (*write_at)(void* user, uint64_t offset, const void* src, size_t n) = nullptr;
  int32_t (*commit)(void* user) = nullptr;
  void (*abandon)(void* user) = nullptr;
  void (*drop)(void* user) = nullptr;
};
StatusOr<std::unique_ptr<Sink>> WrapHostWriteIo(const HostWriteIo& io, std::string name);

}  // namespace qinfer::io
