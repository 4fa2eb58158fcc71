// Files that are written beside their names; see common.h.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "common.h"

namespace cli {
namespace {

// Opens what stands there and is not a regular file, which is written as it is. At once also where
// it is a pipe: one that nobody reads would block for ever.
int OpenThere(const std::string& path, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0 && errno == ENXIO && S_ISFIFO(mode)) {
    throw Error("cannot write " + path + ": it is a pipe that nobody reads");
  }
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

// "EXCL": what lies there under that name is somebody else's.
int OpenNew(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

// Whether a file can be made there, which is gone again before a signal can end the program.
bool CanBeMade(const std::string& path) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const int fd = OpenNew(path);
  const int error = errno;
  if (fd >= 0) {
    unlink(path.c_str());
    close(fd);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return fd >= 0;
}

// Throws Error where a regular file must not be replaced: a standard stream goes there.
void RefuseStandardStream(const std::string& path, const struct stat& status) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat stream = {};
    if (fstat(fd, &stream) != 0 || stream.st_dev != status.st_dev || stream.st_ino != status.st_ino)
      continue;
    throw Error("cannot write " + path + ": standard " +
                (fd == STDOUT_FILENO ? "output" : "error") + " goes there already");
  }
}

}  // namespace

OutFile::OutFile(const std::string& path, Kind kind) : path_(path), written_(path) {
  struct stat status = {};
  const bool there = stat(path.c_str(), &status) == 0;
  bool ok = false;
  if (!there || S_ISREG(status.st_mode)) {
    if (there) RefuseStandardStream(path, status);
    // A link stays one: it is what it leads to that is replaced.
    std::error_code error;
    if (std::filesystem::is_symlink(path, error)) {
      path_ = std::filesystem::canonical(path, error);
      if (error) throw Error("cannot write " + path + ": it is a link that leads to nothing");
    }
    written_ = path_ + ".tmp-" + std::to_string(getpid());
    ok = CanBeMade(written_);
  } else if (kind == Kind::kSeekable && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode))) {
    throw Error("cannot write " + path + ": it is a pipe; this output needs a file");
  } else {
    const int fd = OpenThere(path, status.st_mode);
    if (fd >= 0) file_ = fdopen(fd, "wb");
    ok = file_ != nullptr;
  }
  if (!ok) throw Error("cannot write " + path + ": " + std::strerror(errno));
}

OutFile::~OutFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  if (written_ != path_) unlink(written_.c_str());
}

void OutFile::Note(bool ok) {
  if (!ok && error_ == 0) error_ = errno;
}

bool OutFile::Begin() {
  if (file_ != nullptr || failed()) return !failed();
  const int fd = OpenNew(written_);
  if (fd >= 0) file_ = fdopen(fd, "wb");
  Note(file_ != nullptr);
  return !failed();
}

bool OutFile::Write(const void* data, size_t size) {
  if (Begin()) Note(std::fwrite(data, 1, size, file_) == size);
  return !failed();
}

bool OutFile::WriteAt(uint64_t offset, const void* data, size_t size) {
  if (Begin()) Note(fseeko(file_, static_cast<off_t>(offset), SEEK_SET) == 0);
  return !failed() && Write(data, size);
}

void OutFile::Commit() {
  if (Begin()) Note(std::fflush(file_) == 0);
  if (!failed() && written_ != path_) Note(std::rename(written_.c_str(), path_.c_str()) == 0);
  if (failed()) throw Error("cannot write " + path_ + ": " + std::strerror(error_));
  std::fclose(file_);
  file_ = nullptr;
}

}  // namespace cli
