// What everything that holds a file descriptor shares: one that closes itself, reads and writes
// that retry and send no signal, and messages with the system's reason. What files mean is not for
// here; who reads or writes a whole file takes a Source or a Sink.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "core/status.h"

namespace qinfer::io {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // 0 or errno.
  int Close();

 private:
  int fd_ = -1;
};

// "cannot WHAT PATH: reason", with advice where the reason is one that a user can mend.
Status SystemError(const std::string& what, const std::string& path, int error);

// Opens a regular file for reading and asks its size on the same descriptor.
StatusOr<Descriptor> OpenForReading(const std::string& path, uint64_t* size);

// Fills `out` from `offset`; a file that ends before is an IoError that names the offset.
Status ReadFully(int fd, const std::string& name, uint64_t offset, uint8_t* out, uint64_t n);

// Writes all of `bytes` at `offset`. Where the process's limit of file sizes is reached, this is an
// IoError and not the signal that would end the process.
Status WriteFully(int fd, const std::string& name, uint64_t offset,
                  absl::Span<const uint8_t> bytes);

// Makes the names in a folder durable. File systems that cannot do that are left alone.
Status SyncFolder(const std::string& folder);

}  // namespace qinfer::io
