// POSIX plumbing: descriptors, retried reads, messages, folders. Sources and sinks build on it.
#include "io/posix.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "io/folder.h"

namespace qinfer::io {
namespace {

const char* Advice(int error) {
  switch (error) {
    case ENOENT:
      return "; check the path";
    case EACCES:
    case EPERM:
      return "; check the permissions of the file and of the folders above it";
    case EROFS:
      return "; the file system is read-only: choose another place";
    case ENOSPC:
      return "; the disk is full: free some space or choose another place";
    case EDQUOT:
      return "; the disk quota is used up: free some space or choose another place";
    case EFBIG:
      return "; the file size limit of this process (ulimit -f) or of the file system is reached";
    case EMFILE:
    case ENFILE:
      return "; close some files or raise the limit (ulimit -n)";
    default:
      return "";
  }
}

// strerror is not thread-safe everywhere; the GNU form of strerror_r may ignore the buffer.
std::string Reason(int error) {
  char buffer[128] = "";
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
  return strerror_r(error, buffer, sizeof(buffer));
#else
  return strerror_r(error, buffer, sizeof(buffer)) == 0 ? buffer : "unknown error";
#endif
}

Status CheckPath(const std::string& path) {
  if (path.empty()) return MisuseError("the path is empty");
  if (path.find('\0') != std::string::npos) {
    return MisuseError(StrCat("the path holds a NUL byte after ", path.c_str()));
  }
  return OkStatus();
}

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

}  // namespace

int Descriptor::Close() {
  const int fd = std::exchange(fd_, -1);
  // After EINTR the descriptor is gone on Linux: no retry.
  return fd < 0 || close(fd) == 0 || errno == EINTR ? 0 : errno;
}

Status SystemError(const std::string& what, const std::string& path, int error) {
  return WithOsError(
      IoError(StrCat("cannot ", what, " ", path, ": ", Reason(error), Advice(error))), error);
}

StatusOr<Descriptor> OpenForReading(const std::string& path, uint64_t* size) {
  QINFER_RETURN_IF_ERROR(CheckPath(path));
  // O_NONBLOCK: a FIFO must not hang the open; it means nothing for regular files.
  int fd = -1;
  do {
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return SystemError("open", path, errno);
  Descriptor file(fd);
  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError("examine", path, errno);
  if (S_ISDIR(info.st_mode)) return IoError(StrCat("cannot read ", path, ": it is a folder"));
  if (!S_ISREG(info.st_mode)) {
    return IoError(StrCat("cannot read ", path, ": it is not a regular file"));
  }
  *size = static_cast<uint64_t>(info.st_size);
  return file;
}

Status ReadFully(int fd, const std::string& name, uint64_t offset, uint8_t* out, uint64_t n) {
  constexpr uint64_t kMaxChunk = 1u << 30;  // Linux reads less than 2 GiB at a time
  while (n > 0) {
    const ssize_t got =
        pread(fd, out, static_cast<size_t>(std::min(n, kMaxChunk)), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Annotate(SystemError("read", name, errno), StrCat("at byte ", offset));
    }
    if (got == 0) {
      return IoError(StrCat("cannot read ", name, " at byte ", offset,
                            ": the file ends there; it was cut since it was opened"));
    }
    out += got;
    offset += static_cast<uint64_t>(got);
    n -= static_cast<uint64_t>(got);
  }
  return OkStatus();
}

Status WriteFully(int fd, const std::string& name, uint64_t offset,
                  absl::Span<const uint8_t> bytes) {
  constexpr uint64_t kMaxChunk = 1u << 30;
  const uint8_t* from = bytes.data();
  uint64_t left = bytes.size();
  if (offset > static_cast<uint64_t>(INT64_MAX) || left > INT64_MAX - offset) {
    return MisuseError(StrCat("writing ", name, " at byte ", offset, ": past any file's end"));
  }
  const NoFileSizeSignal guard;
  while (left > 0) {
    const ssize_t put = pwrite(fd, from, static_cast<size_t>(std::min(left, kMaxChunk)),
                               static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {  // nothing written is not a success that could be repeated
      return Annotate(SystemError("write", name, put < 0 ? errno : ENOSPC),
                      StrCat("at byte ", offset));
    }
    from += put;
    offset += static_cast<uint64_t>(put);
    left -= static_cast<uint64_t>(put);
  }
  return OkStatus();
}

Status SyncFolder(const std::string& folder) {
  const Descriptor handle(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Only an error of the disk is one: some file systems cannot sync folders.
  if (handle.valid() && fsync(handle.get()) != 0 && errno == EIO) {
    return SystemError("flush the folder", folder, errno);
  }
  return OkStatus();
}

StatusOr<PathKind> KindOf(const std::string& path) {
  QINFER_RETURN_IF_ERROR(CheckPath(path));
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return PathKind::kMissing;
    return SystemError("examine", path, errno);
  }
  if (S_ISREG(info.st_mode)) return PathKind::kFile;
  return S_ISDIR(info.st_mode) ? PathKind::kFolder : PathKind::kOther;
}

bool SameFile(const std::string& a, const std::string& b) {
  struct stat one, other;
  return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

StatusOr<std::vector<std::string>> ListFolder(const std::string& path, size_t max_entries) {
  QINFER_RETURN_IF_ERROR(CheckPath(path));
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return SystemError("list", path, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> closer(folder, &closedir);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(folder);
    if (entry == nullptr) {
      if (errno != 0) return SystemError("list", path, errno);
      break;
    }
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() == max_entries) {
      return IoError(StrCat("the folder ", path, " holds more than ", max_entries,
                            " entries; name the model's file instead"));
    }
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

// Opens a file of at most so many bytes.
StatusOr<Descriptor> OpenSmall(const std::string& path, uint64_t max_bytes, uint64_t* size) {
  QINFER_ASSIGN_OR_RETURN(Descriptor file, OpenForReading(path, size));
  if (*size > max_bytes) {
    return FormatError(StrCat(path, " has ", *size, " bytes; at most ", max_bytes,
                              " are accepted for this kind of file"));
  }
  return file;
}

}  // namespace

StatusOr<std::string> ReadSmallFile(const std::string& path, uint64_t max_bytes) {
  uint64_t size = 0;
  QINFER_ASSIGN_OR_RETURN(const Descriptor file, OpenSmall(path, max_bytes, &size));
  std::string bytes(static_cast<size_t>(size), '\0');
  QINFER_RETURN_IF_ERROR(
      ReadFully(file.get(), path, 0, reinterpret_cast<uint8_t*>(bytes.data()), size));
  return bytes;
}

StatusOr<Buffer> ReadSmallFile(const std::string& path, uint64_t max_bytes, Memory* memory) {
  uint64_t size = 0;
  QINFER_ASSIGN_OR_RETURN(const Descriptor file, OpenSmall(path, max_bytes, &size));
  QINFER_ASSIGN_OR_RETURN(Buffer bytes,
                          Buffer::Create(memory, static_cast<size_t>(size), path.c_str()));
  QINFER_RETURN_IF_ERROR(ReadFully(file.get(), path, 0, bytes.as<uint8_t>(), size));
  return bytes;
}

std::string JoinPath(const std::string& folder, const std::string& name) {
  return !folder.empty() && folder.back() == '/' ? folder + name : folder + "/" + name;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string NameOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace qinfer::io
