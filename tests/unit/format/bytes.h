// Builders of small files for the tests of src/format: little-endian bytes, GGUF files that may be
// wrong in one chosen place, temporary folders.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "format/gguf.h"
#include "io/source.h"

namespace qinfer::format::testing {

class Bytes {
 public:
  template <typename T>
  Bytes& Put(T value) {
    const size_t at = data.size();
    data.resize(at + sizeof(T));
    std::memcpy(data.data() + at, &value, sizeof(T));
    return *this;
  }
  Bytes& Raw(std::string_view text) {
    data.append(text);
    return *this;
  }
  Bytes& String(std::string_view text) { return Put<uint64_t>(text.size()).Raw(text); }
  Bytes& Pad(size_t alignment) {
    data.resize((data.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }
  // GGUF: a key and the id of its value's type.
  Bytes& Key(std::string_view key, uint32_t type) { return String(key).Put(type); }
  // GGUF: one row of the tensor table; dimensions innermost first.
  Bytes& Tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                uint64_t offset) {
    String(name).Put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) Put(dim);
    return Put(type).Put(offset);
  }
  Bytes& GgufHeader(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    return Raw("GGUF").Put(version).Put(tensors).Put(keys);
  }

  std::string data;
};

// A small valid GGUF: every kind of value, three tensors.
inline std::string SmallGguf(uint32_t version = 3) {
  Bytes b;
  b.GgufHeader(3, 9, version);
  b.Key("general.architecture", 8).String("llama");
  b.Key("general.alignment", 4).Put<uint32_t>(64);
  b.Key("a.i8", 1).Put<int8_t>(-5);
  b.Key("a.f32", 6).Put<float>(1.5f);
  b.Key("a.bool", 7).Put<uint8_t>(1);
  b.Key("a.u64", 10).Put<uint64_t>(UINT64_MAX);
  b.Key("a.strings", 9).Put<uint32_t>(8).Put<uint64_t>(3).String("x").String("").String("zwei");
  b.Key("a.ints", 9).Put<uint32_t>(5).Put<uint64_t>(2).Put<int32_t>(-1).Put<int32_t>(7);
  b.Key("a.nested", 9)
      .Put<uint32_t>(9)
      .Put<uint64_t>(1)
      .Put<uint32_t>(0)
      .Put<uint64_t>(2)
      .Raw("ab");
  b.Tensor("z.weight", {64, 2}, 2, 0);      // Q4_0: 4 blocks of 18 bytes
  b.Tensor("a.weight", {3}, 0, 128);        // F32: 12 bytes
  b.Tensor("m.weight", {2, 3, 4}, 1, 192);  // F16: 48 bytes
  b.Pad(64);
  const size_t data = b.data.size();
  b.data.resize(data + 192 + 48, '\x11');
  return b.data;
}

inline std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  return Bytes().String(header).Raw(data).data;
}

inline std::shared_ptr<io::Source> Borrow(const std::string& bytes, std::string name = "test") {
  return io::BorrowMemory(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
      std::move(name));
}

// All strings of an array; empty where it is none.
inline std::vector<std::string_view> StringsOf(const GgufValue& value) {
  auto strings = GgufStrings::Of(value);
  std::vector<std::string_view> all(strings.ok() ? strings->count() : 0);
  for (std::string_view& text : all) EXPECT_TRUE(strings->Next(&text).ok());
  return all;
}

class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/qinfer_test_XXXXXX";
    path_ = mkdtemp(name) == nullptr ? "" : name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }

 private:
  std::string path_;
};

// Every prefix of `file` up to `header_bytes`, then in steps; and every single bit of the header
// flipped. `open` must come back with or without an error, and without crashing.
inline void TruncateAndFlip(const std::string& file, size_t header_bytes,
                            const std::function<bool(const std::string&)>& open) {
  for (size_t n = 0; n < file.size(); n += n < header_bytes ? 1 : 16) {
    EXPECT_FALSE(open(file.substr(0, n))) << "cut to " << n << " bytes";
  }
  size_t accepted = 0;
  for (size_t bit = 0; bit < header_bytes * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    accepted += open(flipped) ? 1 : 0;
  }
  EXPECT_LT(accepted, header_bytes * 8);  // flips inside names and values stay valid files
}

}  // namespace qinfer::format::testing
