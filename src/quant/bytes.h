// Little-endian bytes of our own small files (calibrations, journals): a growing writer and a
// bounds-checked reader. What the fields mean is the caller's.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "core/status.h"

namespace qinfer::quant {

inline absl::Span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Hosts are little-endian (x86-64, ARMv8), so fields are copied as they are.
class ByteWriter {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void PutString(std::string_view text) {
    Put<uint64_t>(text.size());
    bytes_.append(text);
  }
  void PutBytes(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }
  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  // `name` is for messages and outlives the reader, as `bytes` does.
  ByteReader(std::string_view bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  template <typename T>
  Status Get(T* value) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    return GetBytes(value, sizeof(T));
  }
  Status GetBytes(void* out, size_t size) {
    if (size > bytes_.size() - at_) {
      return FormatError(StrCat(std::string(name_), ": ends at byte ", bytes_.size(), " where ",
                                size, " bytes are expected at ", at_));
    }
    if (size != 0) std::memcpy(out, bytes_.data() + at_, size);  // an empty vector has no address
    at_ += size;
    return OkStatus();
  }
  Status GetString(size_t limit, std::string* out) {
    uint64_t size = 0;
    QINFER_RETURN_IF_ERROR(Get(&size));
    if (size > limit || size > bytes_.size() - at_) {
      return FormatError(
          StrCat(std::string(name_), ": a string of ", size, " bytes at ", at_, " does not fit"));
    }
    out->assign(bytes_.substr(at_, size));
    at_ += size;
    return OkStatus();
  }
  size_t offset() const { return at_; }
  size_t remaining() const { return bytes_.size() - at_; }
  std::string_view name() const { return name_; }

 private:
  std::string_view bytes_, name_;
  size_t at_ = 0;
};

}  // namespace qinfer::quant
