// How the caller's structs and texts come in and go out: size checks that let older and newer
// headers meet, and conversions from pointer and length. What the fields mean is checked where they
// are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "api/error.h"
#include "core/status.h"
#include "qinfer/qinfer.h"

namespace qinfer::api {

inline constexpr uint32_t kMaxStructSize = 4096;

// The size that each struct had in the first release that had it: never changes.
template <typename S>
inline constexpr uint32_t kFirstSize = sizeof(S);
template <>
inline constexpr uint32_t kFirstSize<qinfer_generate_options> = offsetof(qinfer_generate_options,
                                                                         reasoning_begin);
template <>
inline constexpr uint32_t kFirstSize<qinfer_engine_options> = offsetof(qinfer_engine_options,
                                                                       determinism);

// Copies what the caller knows of an option struct over defaults of zero. `name` for messages.
Status ReadStructBytes(const void* in, uint32_t first_size, uint32_t known_size, const char* name,
                       void* out);

// `*out` = the caller's options; all zero where `in` is null.
template <typename S>
Status ReadStruct(const S* in, const char* name, S* out) {
  *out = S{};
  if (in == nullptr) return OkStatus();
  return ReadStructBytes(in, kFirstSize<S>, sizeof(S), name, out);
}

// Zeroes an output struct whose size can be believed, keeping struct_size. Entry points call it
// before they look at their handles, so that outputs are zero whatever a call fails of.
void ClearOutBytes(void* out, uint32_t first_size) noexcept;
template <typename S>
void ClearOut(S* out) noexcept {
  ClearOutBytes(out, kFirstSize<S>);
}
// Checks an output struct, which ClearOut has zeroed.
Status CheckOutBytes(const void* out, uint32_t first_size, const char* name);
template <typename S>
Status CheckOut(const S* out, const char* name) {
  return CheckOutBytes(out, kFirstSize<S>, name);
}
// Copies `value` into a prepared output struct.
template <typename S>
void WriteOut(const S& value, S* out) {
  const uint32_t size = out->struct_size;
  std::memcpy(out, &value, size < sizeof(S) ? size : sizeof(S));
  out->struct_size = size;
}
// As the public *_init functions.
template <typename S>
void InitStruct(S* out, size_t size) {
  if (out == nullptr || size < sizeof(uint32_t)) return;
  std::memset(static_cast<void*>(out), 0, size);
  out->struct_size = static_cast<uint32_t>(size);
}

Status BadOption(const std::string& message);

// Text of the caller; MisuseError for NULL with a size. The view is the caller's memory.
StatusOr<std::string_view> Text(const char* data, size_t size, const char* name);
inline StatusOr<std::string_view> Text(const qinfer_str& text, const char* name) {
  return Text(text.data, text.size, name);
}
StatusOr<std::string> CopyText(const qinfer_str& text, const char* name);
inline qinfer_str Str(std::string_view text) { return {text.data(), text.size()}; }

// An array of the caller: NULL only with a count of zero. Counts above `most`, and those that no
// memory could hold, are refused before anything is read.
template <typename T>
StatusOr<absl::Span<const T>> Array(const T* data, uint64_t count, const char* name,
                                    uint64_t most = PTRDIFF_MAX / sizeof(T)) {
  if (data == nullptr && count != 0) {
    return Misuse(QINFER_DETAIL_NULL, StrCat(name, " is NULL and its count is ", count));
  }
  if (count > most) {
    return BadOption(StrCat(name, ": the count is ", count, "; at most ", most, " are possible"));
  }
  return absl::Span<const T>(data, static_cast<size_t>(count));
}

// MisuseError for a null output pointer.
Status NotNull(const void* pointer, const char* name);
// MisuseError naming the bits that are set beside `known`.
Status KnownFlags(uint64_t flags, uint64_t known, const char* name);
Status Reserved(uint64_t value, const char* name);

// The convention for results of variable size.
template <typename T>
Status Deliver(absl::Span<const T> result, T* buffer, size_t capacity, size_t* out_size,
               const char* name) {
  *out_size = result.size();
  if (buffer == nullptr) {
    if (capacity == 0) return OkStatus();
    return Misuse(QINFER_DETAIL_NULL, StrCat(name, " is NULL and its capacity is ", capacity));
  }
  if (capacity < result.size()) {
    return Misuse(QINFER_DETAIL_BUFFER_TOO_SMALL,
                  StrCat(name, " has room for ", capacity, " and ", result.size(), " are needed"));
  }
  if (!result.empty()) std::memcpy(buffer, result.data(), result.size() * sizeof(T));
  return OkStatus();
}

}  // namespace qinfer::api
