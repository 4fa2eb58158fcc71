// A bounds-checked little-endian cursor over bytes that nobody vouches for. What the bytes mean is
// the caller's business; files are read elsewhere.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace qinfer::io {

// Every read says whether it fitted; after a failure the position is unchanged.
class Reader {
 public:
  // `base` is what offset() adds, so that messages name offsets in the file.
  Reader(const uint8_t* data, uint64_t size, uint64_t base = 0)
      : data_(data), size_(size), base_(base) {}

  template <typename T>
  [[nodiscard]] bool Read(T* out) {
    static_assert(std::is_arithmetic_v<T>);
    if (sizeof(T) > remaining()) return false;
    std::memcpy(out, data_ + position_, sizeof(T));  // the supported targets are little-endian
    position_ += sizeof(T);
    return true;
  }
  [[nodiscard]] bool Bytes(uint64_t n, const uint8_t** out) {
    if (n > remaining()) return false;
    *out = data_ + position_;
    position_ += n;
    return true;
  }
  [[nodiscard]] bool Skip(uint64_t n) {
    if (n > remaining()) return false;
    position_ += n;
    return true;
  }

  uint64_t remaining() const { return size_ - position_; }
  uint64_t position() const { return position_; }
  const uint8_t* here() const { return data_ + position_; }
  uint64_t offset() const { return base_ + position_; }

 private:
  const uint8_t* data_;
  uint64_t size_;
  uint64_t base_;
  uint64_t position_ = 0;
};

}  // namespace qinfer::io
