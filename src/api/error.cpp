// The mapping from absl::Status to the public codes, and the filling of qinfer_error.
#include "api/error.h"

#include <cstring>

#include "absl/strings/cord.h"
#include "core/bad_alignment.h"

namespace qinfer::api {
namespace {

constexpr char kDetailUrl[] = "qinfer/detail";
constexpr char kCodeUrl[] = "qinfer/code";  // where absl has no code of its own for ours

Status WithNumber(Status status, const char* url, int32_t number) {
  if (number == 0) return status;
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  status.SetPayload(url, absl::Cord(absl::string_view(bytes, sizeof bytes)));
  return status;
}

int32_t NumberOf(const Status& status, const char* url) {
  const absl::optional<absl::Cord> payload = status.GetPayload(url);
  int32_t number = 0;
  if (!payload.has_value() || payload->size() != sizeof number) return 0;
  char bytes[sizeof number];
  size_t at = 0;
  for (const char c : payload->Chars()) bytes[at++] = c;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

// The longest prefix of text[0, size) of at most `limit` bytes that ends between UTF-8 characters.
size_t CutAtCharacter(const char* text, size_t size, size_t limit) {
  if (size <= limit) return size;
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  return end;
}

// What a status without a message says: those made where nothing may be allocated.
absl::string_view Brief(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kResourceExhausted:
      return "no memory";
    case absl::StatusCode::kOutOfRange:
      return "host_bytes_limit would be exceeded";
    case absl::StatusCode::kInvalidArgument:
      return BadAlignment::kMessage;
    case absl::StatusCode::kInternal:
      return "unexpected exception inside the library; release this handle";
    default:
      return "failed";
  }
}

}  // namespace

Status StatusOfException() noexcept {
  try {
    throw;
  } catch (const BudgetExceeded&) {
    return Status(absl::StatusCode::kOutOfRange, absl::string_view());
  } catch (const BadAlignment&) {
    return Status(absl::StatusCode::kInvalidArgument, absl::string_view());
  } catch (const std::bad_alloc&) {
    return Status(absl::StatusCode::kResourceExhausted, absl::string_view());
  } catch (const std::length_error&) {
    return Status(absl::StatusCode::kResourceExhausted, absl::string_view());
  } catch (...) {
    return Status(absl::StatusCode::kInternal, absl::string_view());
  }
}

Status WithDetail(Status status, int32_t detail) {
  return WithNumber(std::move(status), kDetailUrl, detail);
}

Status AsOption(Status status) {
  if (status.code() != absl::StatusCode::kInvalidArgument || NumberOf(status, kDetailUrl) != 0)
    return status;
  return WithDetail(std::move(status), QINFER_DETAIL_OPTION);
}

Status Misuse(int32_t detail, const std::string& message) {
  return WithDetail(MisuseError(message), detail);
}

Status AbiError(int32_t detail, const std::string& message) {
  return WithDetail(absl::FailedPreconditionError(message), detail);
}

Status CallbackError(qinfer_status status, const std::string& what) {
  const std::string message = StrCat(what, " returned ", status);
  Status made = status == QINFER_E_CANCELLED ? Status(absl::StatusCode::kCancelled, message)
                                             : IoError(message);
  made = WithOsError(std::move(made), status);
  if (status < QINFER_OK && status >= QINFER_E_BUSY && status != QINFER_E_INTERNAL) {
    made = WithNumber(std::move(made), kCodeUrl, status);  // the host's own word, passed on
  }
  return WithDetail(std::move(made), QINFER_DETAIL_CALLBACK);
}

qinfer_status CodeOf(const Status& status) {
  if (status.ok()) return QINFER_OK;
  if (const int32_t code = NumberOf(status, kCodeUrl); code != 0) return code;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return QINFER_E_MISUSE;
    case absl::StatusCode::kDataLoss:
      return QINFER_E_FORMAT;
    case absl::StatusCode::kUnavailable:
      return QINFER_E_IO;
    case absl::StatusCode::kUnimplemented:
      return QINFER_E_UNSUPPORTED;
    case absl::StatusCode::kResourceExhausted:
      return QINFER_E_NOMEM;
    case absl::StatusCode::kOutOfRange:
      return QINFER_E_BUDGET;
    case absl::StatusCode::kCancelled:
      return QINFER_E_CANCELLED;
    case absl::StatusCode::kAborted:
      return QINFER_E_BUSY;
    case absl::StatusCode::kFailedPrecondition:
      return QINFER_E_ABI;
    default:
      return QINFER_E_INTERNAL;
  }
}

bool ErrorUsable(const qinfer_error* err) noexcept {
  return err == nullptr || (err->struct_size >= sizeof(qinfer_error) && err->struct_size <= 4096);
}

qinfer_status Fail(qinfer_error* err, qinfer_status code, int32_t detail, int32_t os_error,
                   const char* message, size_t size) noexcept {
  if (err == nullptr) return code;
  err->status = code;
  err->detail = detail;
  err->os_error = os_error;
  constexpr size_t kRoom = sizeof err->message - 1;
  // Names come first and the reason last: what is left out is in the middle.
  size_t used = CutAtCharacter(message, size, size > kRoom ? kRoom / 2 : kRoom);
  std::memcpy(err->message, message, used);
  if (size > kRoom) {
    constexpr char kGap[] = " ... ";
    std::memcpy(err->message + used, kGap, sizeof kGap - 1);
    used += sizeof kGap - 1;
    size_t rest = size - (kRoom - used);
    while (rest < size && (static_cast<unsigned char>(message[rest]) & 0xc0u) == 0x80u) ++rest;
    std::memcpy(err->message + used, message + rest, size - rest);
    used += size - rest;
  }
  std::memset(err->message + used, 0, sizeof err->message - used);
  return code;
}

qinfer_status FailWith(qinfer_error* err, const Status& status) noexcept {
  absl::string_view message = status.message();
  if (message.empty()) message = Brief(status.code());
  return Fail(err, CodeOf(status), NumberOf(status, kDetailUrl), OsErrorOf(status), message.data(),
              message.size());
}

qinfer_status CheckHeader(qinfer_error* err, const HandleHeader* header, uint32_t magic,
                          const char* argument) noexcept {
  const char* problem = nullptr;
  int32_t detail = QINFER_DETAIL_NONE;
  if (header == nullptr) {
    problem = " is NULL";
    detail = QINFER_DETAIL_NULL;
  } else if (header->magic.load(std::memory_order_relaxed) != magic) {
    problem = " is not a live handle of this type";
    detail = QINFER_DETAIL_BAD_HANDLE;
  } else if (header->poisoned.load(std::memory_order_relaxed)) {
    problem = " is poisoned by an earlier E_INTERNAL: it can only be released";
    detail = QINFER_DETAIL_POISONED;
  }
  if (problem == nullptr) return QINFER_OK;
  char text[160];
  size_t size = 0;
  for (const char* part : {argument, problem}) {
    for (; *part != 0 && size < sizeof text; ++part) text[size++] = *part;
  }
  return Fail(err, QINFER_E_MISUSE, detail, 0, text, size);
}

}  // namespace qinfer::api
