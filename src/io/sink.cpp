// The two kinds of Sink: a file that appears complete or not at all, and the host's write table.
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "io/folder.h"
#include "io/posix.h"
#include "io/source.h"

namespace qinfer::io {
namespace {

// Where a file would pass the process's size limit, the system also sends SIGXFSZ, which would end
// the host. The signal goes to the writing thread: it is held back and taken off again.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() {
    sigemptyset(&only_);
    sigaddset(&only_, SIGXFSZ);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &only_, &before_);
  }
  ~NoFileSizeSignal() {
    if (!was_pending_) {
      const timespec now = {0, 0};
      while (sigtimedwait(&only_, nullptr, &now) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

 private:
  sigset_t only_, before_;
  bool was_pending_ = false;
};

class FileSink final : public Sink {
 public:
  FileSink(std::string path, std::string temporary, Descriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}
  ~FileSink() override { Discard(); }

  const std::string& name() const override { return path_; }

  Status WriteAt(uint64_t offset, absl::Span<const uint8_t> bytes) override {
    if (!file_.valid()) return MisuseError(StrCat(path_, " is already finished"));
    const uint8_t* from = bytes.data();
    uint64_t left = bytes.size();
    if (offset > static_cast<uint64_t>(INT64_MAX) || left > INT64_MAX - offset) {
      return MisuseError(StrCat("writing ", path_, " at byte ", offset, ": past any file's end"));
    }
    const NoFileSizeSignal guard;
    while (left > 0) {
      constexpr uint64_t kMaxChunk = 1u << 30;
      const ssize_t put = pwrite(file_.get(), from, static_cast<size_t>(std::min(left, kMaxChunk)),
                                 static_cast<off_t>(offset));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Annotate(SystemError("write", path_, errno), StrCat("at byte ", offset));
      from += put;
      offset += static_cast<uint64_t>(put);
      left -= static_cast<uint64_t>(put);
    }
    return OkStatus();
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
    // Some file systems cannot sync folders, and nothing is wrong with the file then.
    const std::string folder = FolderOf(path_);
    const Descriptor handle(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (handle.valid() && fsync(handle.get()) != 0 && errno == EIO) {
      return SystemError("flush the folder of", path_, errno);
    }
    return OkStatus();
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

StatusOr<std::unique_ptr<Sink>> CreateFile(const std::string& path) {
  QINFER_ASSIGN_OR_RETURN(const PathKind kind, KindOf(path));
  if (kind == PathKind::kFolder) {
    return IoError(StrCat("cannot write ", path, ": it is a folder; name a file inside it"));
  }
  if (kind == PathKind::kOther) {
    return IoError(StrCat("cannot write ", path, ": it exists and is not a regular file"));
  }
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
