// The checks of struct sizes and of pointers with lengths.
#include "api/structs.h"

namespace qinfer::api {
namespace {

Status CheckSize(uint32_t size, uint32_t first_size, const char* name) {
  if (size < first_size) {
    return AbiError(QINFER_DETAIL_STRUCT_TOO_SMALL,
                    StrCat(name, ".struct_size is ", size, ", at least ", first_size,
                           " is needed: use the struct's _INIT macro or _init function"));
  }
  if (size > kMaxStructSize) {
    return AbiError(QINFER_DETAIL_STRUCT_TOO_LARGE,
                    StrCat(name, ".struct_size is ", size, ", above ", kMaxStructSize,
                           ": it was probably never set"));
  }
  return OkStatus();
}

uint32_t SizeOf(const void* value) {
  uint32_t size;
  std::memcpy(&size, value, sizeof size);
  return size;
}

}  // namespace

Status ReadStructBytes(const void* in, uint32_t first_size, uint32_t known_size, const char* name,
                       void* out) {
  const uint32_t size = SizeOf(in);
  QINFER_RETURN_IF_ERROR(CheckSize(size, first_size, name));
  const unsigned char* bytes = static_cast<const unsigned char*>(in);
  for (uint32_t i = known_size; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return AbiError(QINFER_DETAIL_UNKNOWN_FIELDS,
                    StrCat(name, " sets a field at byte ", i, " that this library (",
                           QINFER_VERSION_STRING, ") does not know"));
  }
  std::memcpy(out, in, size < known_size ? size : known_size);
  return OkStatus();
}

void ClearOutBytes(void* out, uint32_t first_size) noexcept {
  if (out == nullptr) return;
  const uint32_t size = SizeOf(out);
  if (size < first_size || size > kMaxStructSize) return;
  std::memset(static_cast<unsigned char*>(out) + sizeof size, 0, size - sizeof size);
}

Status CheckOutBytes(const void* out, uint32_t first_size, const char* name) {
  QINFER_RETURN_IF_ERROR(NotNull(out, name));
  return CheckSize(SizeOf(out), first_size, name);
}

StatusOr<std::string_view> Text(const char* data, size_t size, const char* name) {
  if (data == nullptr) {
    if (size == 0 || size == QINFER_STRLEN) return std::string_view();
    return Misuse(QINFER_DETAIL_NULL, StrCat(name, " is NULL and its size is ", size));
  }
  return size == QINFER_STRLEN ? std::string_view(data) : std::string_view(data, size);
}

StatusOr<std::string> CopyText(const qinfer_str& text, const char* name) {
  QINFER_ASSIGN_OR_RETURN(const std::string_view view, Text(text, name));
  return std::string(view);
}

Status NotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return OkStatus();
  return Misuse(QINFER_DETAIL_NULL, StrCat(name, " is NULL"));
}

Status KnownFlags(uint64_t flags, uint64_t known, const char* name) {
  if ((flags & ~known) == 0) return OkStatus();
  return Misuse(QINFER_DETAIL_UNKNOWN_FLAGS,
                StrCat(name, " has unknown bits 0x", absl::Hex(flags & ~known), "; known are 0x",
                       absl::Hex(known)));
}

Status Reserved(uint64_t value, const char* name) {
  if (value == 0) return OkStatus();
  return Misuse(QINFER_DETAIL_RESERVED, StrCat(name, " is reserved and must be zero"));
}

Status BadOption(const std::string& message) { return Misuse(QINFER_DETAIL_OPTION, message); }

}  // namespace qinfer::api
