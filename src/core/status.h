// The one way errors travel inside the library: absl::Status with a message that names what went
// wrong (file, tensor, byte offset, option) and what to do. What the public C codes are called is
// decided in src/api alone.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace qinfer {

using absl::Status;
using absl::StatusOr;
using absl::StrCat;

inline Status OkStatus() { return absl::OkStatus(); }

// A wrong argument, option or call order: the caller's mistake.
inline Status MisuseError(const std::string& message) {
  return absl::InvalidArgumentError(message);
}
// A file's contents are wrong: corrupt, truncated, inconsistent. Names the file and the offset or
// the tensor.
inline Status FormatError(const std::string& message) { return absl::DataLossError(message); }
// Reading or writing failed in the system or in the host's io table.
inline Status IoError(const std::string& message) { return absl::UnavailableError(message); }
// Valid, but something this build does not do. Names it and lists what is known.
inline Status UnsupportedError(const std::string& message) {
  return absl::UnimplementedError(message);
}
// The allocator returned null.
inline Status NoMemoryError(const std::string& message) {
  return absl::ResourceExhaustedError(message);
}
// A limit that the host has set would be exceeded. Names the limit and what was asked.
inline Status BudgetError(const std::string& message) { return absl::OutOfRangeError(message); }
inline Status CancelledError() { return absl::CancelledError("cancelled by the caller"); }
// Somebody else is inside an object that takes one caller at a time.
inline Status BusyError(const std::string& message) { return absl::AbortedError(message); }
// A bug of ours.
inline Status InternalError(const std::string& message) { return absl::InternalError(message); }

// Puts `where` in front of an error's message and keeps its code and payloads.
Status Annotate(const Status& status, const std::string& where);

// The system's number for an error (errno), or what a host's callback returned, carried beside the
// message. 0 = none.
Status WithOsError(Status status, int32_t os_error);
int32_t OsErrorOf(const Status& status);

// What Memory throws when the host's byte limit, and not the allocator, says no.
class BudgetExceeded : public std::bad_alloc {
 public:
  const char* what() const noexcept override { return "host_bytes_limit exceeded"; }
};

}  // namespace qinfer

#define QINFER_CONCAT_INNER(a, b) a##b
#define QINFER_CONCAT(a, b) QINFER_CONCAT_INNER(a, b)

#define QINFER_RETURN_IF_ERROR(expression)           \
  do {                                               \
    ::qinfer::Status qinfer_status_ = (expression);  \
    if (!qinfer_status_.ok()) return qinfer_status_; \
  } while (false)

// (auto x, F()): x = *F(), or returns F's error. NOLINTBEGIN(bugprone-macro-parentheses)
#define QINFER_ASSIGN_OR_RETURN(target, expression) \
  QINFER_ASSIGN_OR_RETURN_INNER(QINFER_CONCAT(qinfer_or_, __LINE__), target, expression)
#define QINFER_ASSIGN_OR_RETURN_INNER(temporary, target, expression) \
  auto temporary = (expression);                                     \
  if (!temporary.ok()) return temporary.status();                    \
  target = std::move(temporary).value()  // NOLINTEND(bugprone-macro-parentheses)
