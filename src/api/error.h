// How errors leave the library: absl::Status becomes a code, a detail and a message in the caller's
// struct, and no exception gets past Guard. Nothing here knows what a call does.
#pragma once

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "api/handle.h"
#include "core/status.h"
#include "qinfer/runtime.h"

namespace qinfer::api {

// A status with one of QINFER_DETAIL_... attached.
Status WithDetail(Status status, int32_t detail);
// MisuseError with a detail.
Status Misuse(int32_t detail, const std::string& message);
// An E_MISUSE of an inner layer that is about an option's value.
Status AsOption(Status status);
Status AbiError(int32_t detail, const std::string& message);
// What a callback of the host has returned, as our status; `os_error` carries the number.
Status CallbackError(qinfer_status status, const std::string& what);

// What the exception that is being handled means; called inside a catch block. Allocates nothing,
// so the status has no message of its own.
Status StatusOfException() noexcept;

qinfer_status CodeOf(const Status& status);

// What an entry point answers: an error, or one of OK, PENDING and END.
class Outcome {
 public:
  Outcome(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose
  Outcome(qinfer_status note) : note_(note) {}            // NOLINT: a note, never an error
  const Status& status() const { return status_; }
  qinfer_status note() const { return note_; }

 private:
  Status status_;
  qinfer_status note_ = QINFER_OK;
};

// False: the caller's struct has a size that cannot be written to.
bool ErrorUsable(const qinfer_error* err) noexcept;
// These allocate nothing.
qinfer_status Fail(qinfer_error* err, qinfer_status code, int32_t detail, int32_t os_error,
                   const char* message, size_t size) noexcept;
qinfer_status FailWith(qinfer_error* err, const Status& status) noexcept;

// Runs body() -> Outcome behind the barrier: every exception becomes a status, and one that nobody
// expects poisons the handle, since nobody knows what it has left half done.
template <typename Body>
qinfer_status Guard(qinfer_error* err, const HandleHeader* header, Body&& body) noexcept {
  if (!ErrorUsable(err)) return QINFER_E_ABI;
  try {
    const Outcome outcome = body();
    if (outcome.status().ok()) return outcome.note();
    const qinfer_status code = FailWith(err, outcome.status());
    if (code == QINFER_E_INTERNAL && header != nullptr) header->poisoned.store(true);
    return code;
  } catch (...) {
    const qinfer_status code = FailWith(err, StatusOfException());
    if (code == QINFER_E_INTERNAL && header != nullptr) header->poisoned.store(true);
    return code;
  }
}

// The handle part of Guard for a handle type H: null, type and poison are checked first.
template <typename H, typename Body>
qinfer_status GuardHandle(qinfer_error* err, const H* handle, const char* argument,
                          Body&& body) noexcept {
  if (!ErrorUsable(err)) return QINFER_E_ABI;
  const HandleHeader* header = nullptr;
  const qinfer_status bad = CheckHandle(err, handle, argument, &header);
  if (bad != QINFER_OK) return bad;
  return Guard(err, header, std::forward<Body>(body));
}

// A further handle inside a guarded body: its check as a Status.
template <typename H>
Status CheckSecond(const H* handle, const char* argument) {
  qinfer_error problem = {};
  problem.struct_size = sizeof problem;
  const HandleHeader* header = nullptr;
  if (CheckHandle(&problem, handle, argument, &header) == QINFER_OK) return OkStatus();
  return Misuse(problem.detail, problem.message);
}

// For functions that cannot fail by contract and return nothing: exceptions end here.
template <typename Body>
void GuardVoid(Body&& body) noexcept {
  try {
    body();
  } catch (...) {  // nothing to report to; destructors and the like do not get here
    return;
  }
}

}  // namespace qinfer::api
