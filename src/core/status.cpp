// Helpers on Status that are not worth inlining.
#include "core/status.h"

#include <cstring>

#include "absl/strings/cord.h"

namespace qinfer {
namespace {

constexpr char kOsErrorUrl[] = "qinfer/os_error";

}  // namespace

Status Annotate(const Status& status, const std::string& where) {
  if (status.ok()) return status;
  // Layers that both know the place name it once.
  const absl::string_view message = status.message();
  if (message.size() > where.size() + 1 && message.substr(0, where.size()) == where &&
      message.substr(where.size(), 2) == ": ") {
    return status;
  }
  Status made(status.code(), StrCat(where, ": ", message));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { made.SetPayload(url, payload); });
  return made;
}

Status WithOsError(Status status, int32_t os_error) {
  if (status.ok() || os_error == 0) return status;
  char bytes[sizeof os_error];
  std::memcpy(bytes, &os_error, sizeof os_error);
  status.SetPayload(kOsErrorUrl, absl::Cord(absl::string_view(bytes, sizeof bytes)));
  return status;
}

int32_t OsErrorOf(const Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kOsErrorUrl);
  int32_t os_error = 0;
  if (!payload.has_value() || payload->size() != sizeof os_error) return 0;
  char bytes[sizeof os_error];
  size_t at = 0;
  for (const char c : payload->Chars()) bytes[at++] = c;
  std::memcpy(&os_error, bytes, sizeof os_error);
  return os_error;
}

}  // namespace qinfer
