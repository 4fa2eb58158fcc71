// The two kinds of Sink: a file that appears complete or not at all, and the host's write table.
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "io/folder.h"
#include "io/posix.h"
#include "io/source.h"

namespace qinfer::io {
namespace {

class FileSink final : public Sink {
 public:
  FileSink(std::string path, std::string temporary, Descriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}
  ~FileSink() override { Discard(); }

  const std::string& name() const override { return path_; }

  Status WriteAt(uint64_t offset, absl::Span<const uint8_t> bytes) override {
    if (!file_.valid()) return MisuseError(StrCat(path_, " is already finished"));
    return WriteFully(file_.get(), path_, offset, bytes);
  }

  Status Commit() override {
    if (!file_.valid()) return MisuseError(StrCat(path_, " is already finished"));
    Status status = OkStatus();
    if (fsync(file_.get()) != 0) status = SystemError("flush", path_, errno);
    const int close_error = file_.Close();
    if (status.ok() && close_error != 0) status = SystemError("close", path_, close_error);
    if (status.ok() && rename(temporary_.c_str(), path_.c_str()) != 0) {
      status = SystemError(StrCat("rename ", temporary_, " to"), path_, errno);
    }
    if (!status.ok()) {
      Discard();
      return status;
    }
    temporary_.clear();
    // The file is complete and in place; that its name survives a power cut needs the folder too.
    return SyncFolder(FolderOf(path_));
  }

 private:
  void Discard() {
    file_.Close();
    if (!temporary_.empty()) unlink(temporary_.c_str());
    temporary_.clear();
  }

  std::string path_;
  std::string temporary_;  // empty once it is gone
  Descriptor file_;
};

class HostSink final : public Sink {
 public:
  HostSink(const HostWriteIo& io, std::string name) : io_(io), name_(std::move(name)) {}
  ~HostSink() override {
    if (!committed_ && io_.abandon != nullptr) io_.abandon(io_.user);
    if (io_.drop != nullptr) io_.drop(io_.user);
  }

  const std::string& name() const override { return name_; }
  Status WriteAt(uint64_t offset, absl::Span<const uint8_t> bytes) override {
    if (committed_) return MisuseError(StrCat(name_, " is already finished"));
    if (bytes.empty()) return OkStatus();
    const int32_t status = io_.write_at(io_.user, offset, bytes.data(), bytes.size());
    if (status == 0) return OkStatus();
    return WithOsError(IoError(StrCat("the host's `write_at` of ", name_, " failed with status ",
                                      status, " at byte ", offset)),
                       status);
  }
  Status Commit() override {
    if (committed_) return MisuseError(StrCat(name_, " is already finished"));
    if (io_.commit != nullptr) {
      const int32_t status = io_.commit(io_.user);
      if (status != 0) {
        return WithOsError(
            IoError(StrCat("the host's `commit` of ", name_, " failed with status ", status)),
            status);
      }
    }
    committed_ = true;
    return OkStatus();
  }

 private:
  HostWriteIo io_;
  std::string name_;
  bool committed_ = false;
};

std::string RandomSuffix() {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(bits))) {
    timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    bits = static_cast<uint64_t>(now.tv_nsec) ^ (static_cast<uint64_t>(now.tv_sec) << 30) ^
           (static_cast<uint64_t>(getpid()) << 44);
  }
  return std::string(absl::string_view(StrCat(absl::Hex(bits, absl::kZeroPad16))));
}

}  // namespace

Status CheckWritable(const std::string& path) {
  QINFER_ASSIGN_OR_RETURN(const PathKind kind, KindOf(path));
  if (kind == PathKind::kFolder) {
    return IoError(StrCat("cannot write ", path, ": it is a folder; name a file inside it"));
  }
  if (kind == PathKind::kOther) {
    return IoError(StrCat("cannot write ", path, ": it exists and is not a regular file"));
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<Sink>> CreateFile(const std::string& path) {
  QINFER_RETURN_IF_ERROR(CheckWritable(path));
  for (int attempt = 0;; ++attempt) {
    const std::string temporary = StrCat(path, ".tmp-", RandomSuffix());
    const int fd = open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
      return std::unique_ptr<Sink>(std::make_unique<FileSink>(path, temporary, Descriptor(fd)));
    }
    if (errno == EINTR || (errno == EEXIST && attempt < 16)) continue;
    return SystemError("create", path, errno);
  }
}

StatusOr<std::unique_ptr<Sink>> WrapHostWriteIo(const HostWriteIo& io, std::string name) {
  DropGuard guard(&io);
  auto sink = std::make_unique<HostSink>(io, std::move(name));  // drops also on failure
  guard.Dismiss();
  if (io.write_at == nullptr) {
    return MisuseError(StrCat(sink->name(), ": the write table needs `write_at`"));
  }
  return std::unique_ptr<Sink>(std::move(sink));
}

}  // namespace qinfer::io
