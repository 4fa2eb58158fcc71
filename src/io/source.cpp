// The three kinds of Source: a file (mapped or read), borrowed memory, and the host's io table.
#include "io/source.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "io/mapped.h"
#include "io/posix.h"

namespace qinfer::io {
namespace {

Status PastTheEnd(const std::string& name, uint64_t offset, uint64_t n, uint64_t size) {
  return IoError(StrCat("cannot read ", n, " bytes of ", name, " at byte ", offset,
                        ": it has only ", size, " bytes"));
}

bool InRange(uint64_t offset, uint64_t n, uint64_t size) {
  return offset <= size && n <= size - offset;
}

class FileSource final : public Source {
 public:
  FileSource(std::string name, Descriptor file, uint64_t size)
      : name_(std::move(name)), file_(std::move(file)), size_(size) {}
  ~FileSource() override {
    if (map_ == nullptr) return;
    munmap(map_, static_cast<size_t>(size_));
    memory_->ReleaseMapped(size_);
  }

  Status MapAll(Memory* memory) {
    if (size_ == 0) return OkStatus();  // nothing to map, and mmap refuses it
    if (size_ > SIZE_MAX) return UnsupportedError(StrCat(name_, " is too large to map"));
    QINFER_RETURN_IF_ERROR(Annotate(memory->ReserveMapped(size_), name_));
    void* map = mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, file_.get(), 0);
    if (map == MAP_FAILED) {
      const int error = errno;
      memory->ReleaseMapped(size_);
      return SystemError("map", name_, error);
    }
    map_ = map;
    memory_ = memory;
    return OkStatus();
  }

  const std::string& name() const override { return name_; }
  uint64_t size() const override { return size_; }
  // By pread even where a map exists: a file that shrinks is then an error and not a signal.
  Status ReadAt(uint64_t offset, absl::Span<uint8_t> out) const override {
    if (!InRange(offset, out.size(), size_)) return PastTheEnd(name_, offset, out.size(), size_);
    return ReadFully(file_.get(), name_, offset, out.data(), out.size());
  }
  const uint8_t* Map() const override { return static_cast<const uint8_t*>(map_); }
  bool IsFile(const std::string& path) const override {
    struct stat ours, theirs;
    return fstat(file_.get(), &ours) == 0 && stat(path.c_str(), &theirs) == 0 &&
           ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
  }

 private:
  std::string name_;
  Descriptor file_;
  uint64_t size_;
  void* map_ = nullptr;
  Memory* memory_ = nullptr;
};

class MemorySource final : public Source {
 public:
  MemorySource(absl::Span<const uint8_t> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  uint64_t size() const override { return bytes_.size(); }
  Status ReadAt(uint64_t offset, absl::Span<uint8_t> out) const override {
    if (!InRange(offset, out.size(), size())) return PastTheEnd(name_, offset, out.size(), size());
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return OkStatus();
  }
  const uint8_t* Map() const override {
    return reinterpret_cast<uintptr_t>(bytes_.data()) % Memory::kAlign == 0 ? bytes_.data()
                                                                            : nullptr;
  }

 private:
  absl::Span<const uint8_t> bytes_;
  std::string name_;
};

class HostSource final : public Source {
 public:
  HostSource(const HostIo& io, std::string name) : io_(io), name_(std::move(name)) {}
  ~HostSource() override {
    if (io_.drop != nullptr) io_.drop(io_.user);
  }

  Status Start() {
    if (io_.size == nullptr || io_.read_at == nullptr) {
      return MisuseError(StrCat(name_, ": the io table needs `size` and `read_at`"));
    }
    const int32_t status = io_.size(io_.user, &size_);
    if (status != 0) return HostError("size", status, 0);
    if (size_ > static_cast<uint64_t>(INT64_MAX)) {
      return IoError(StrCat(name_, ": the host's `size` says ", size_, " bytes"));
    }
    if (io_.map == nullptr || size_ == 0) return OkStatus();
    const void* map = nullptr;
    // A host that cannot map this one says so, and it is read instead.
    if (io_.map(io_.user, 0, size_, &map) == 0 && map != nullptr &&
        reinterpret_cast<uintptr_t>(map) % Memory::kAlign == 0) {
      map_ = static_cast<const uint8_t*>(map);
    }
    return OkStatus();
  }

  const std::string& name() const override { return name_; }
  uint64_t size() const override { return size_; }
  Status ReadAt(uint64_t offset, absl::Span<uint8_t> out) const override {
    if (!InRange(offset, out.size(), size_)) return PastTheEnd(name_, offset, out.size(), size_);
    if (out.empty()) return OkStatus();
    const int32_t status = io_.read_at(io_.user, offset, out.data(), out.size());
    return status == 0 ? OkStatus() : HostError("read_at", status, offset);
  }
  const uint8_t* Map() const override { return map_; }

 private:
  Status HostError(const char* function, int32_t status, uint64_t offset) const {
    return WithOsError(IoError(StrCat("the host's `", function, "` of ", name_,
                                      " failed with status ", status, " at byte ", offset)),
                       status);
  }

  HostIo io_;
  std::string name_;
  uint64_t size_ = 0;
  const uint8_t* map_ = nullptr;
};

}  // namespace

StatusOr<std::shared_ptr<Source>> OpenFile(const std::string& path, Access access, Memory* memory) {
  uint64_t size = 0;
  QINFER_ASSIGN_OR_RETURN(Descriptor file, OpenForReading(path, &size));
  auto source = std::make_shared<FileSource>(path, std::move(file), size);
  if (access == Access::kMap) QINFER_RETURN_IF_ERROR(source->MapAll(memory));
  return std::shared_ptr<Source>(std::move(source));
}

uint64_t MappedBytes(const Source& source) {
  const auto* const file = dynamic_cast<const FileSource*>(&source);
  return file == nullptr || file->Map() == nullptr ? 0 : file->size();
}

std::shared_ptr<Source> BorrowMemory(absl::Span<const uint8_t> bytes, std::string name) {
  return std::make_shared<MemorySource>(bytes, std::move(name));
}

StatusOr<std::shared_ptr<Source>> WrapHostIo(const HostIo& io, std::string name) {
  DropGuard guard(&io);
  auto source = std::make_shared<HostSource>(io, std::move(name));  // drops also on failure
  guard.Dismiss();
  QINFER_RETURN_IF_ERROR(source->Start());
  return std::shared_ptr<Source>(std::move(source));
}

}  // namespace qinfer::io
