// GGUF v2/v3, little-endian, possibly split over several files: parsed and validated metadata and
// tensor table. What the values mean for a model or a tokenizer is for src/model and src/tokenizer;
// how blocks are decoded is for src/weights.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/checkpoint.h"
#include "io/reader.h"
#include "io/source.h"

namespace qinfer::format {

enum class GgufType : uint8_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// One metadata value, viewed in the file's bytes (kept in memory by the Gguf). Scalars convert
// among integer widths when the value fits; a wrong type or range is "absent with an error".
class GgufValue {
 public:
  GgufType type = GgufType::kU8;
  GgufType element_type = GgufType::kU8;  // of an array
  uint64_t count = 0;                     // of an array
  const uint8_t* bytes =
      nullptr;        // scalar: its bytes; string: its characters; array: first element
  uint64_t size = 0;  // bytes of the above

  StatusOr<uint64_t> AsUint() const;
  StatusOr<int64_t> AsInt() const;
  StatusOr<double> AsFloat() const;  // any number
  StatusOr<bool> AsBool() const;
  StatusOr<std::string_view> AsString() const;
  // Element i of an array of scalars. O(1).
  StatusOr<int64_t> IntAt(uint64_t i) const;
  StatusOr<double> FloatAt(uint64_t i) const;
};

// The strings of an array of at most 2^21, one after another.
class GgufStrings {
 public:
  GgufStrings() : reader_(nullptr, 0) {}
  static StatusOr<GgufStrings> Of(const GgufValue& value);
  uint64_t count() const { return count_; }
  // The next one, as a view into the file's bytes; called at most count() times.
  Status Next(std::string_view* out);

 private:
  io::Reader reader_;
  uint64_t count_ = 0, next_ = 0;
};

class Gguf {
 public:
  virtual ~Gguf() = default;
  // `sources`: the parts in order (one for a file that is not split). Vocabulary-only files (no
  // tensors) are fine.
  static StatusOr<std::shared_ptr<Gguf>> Open(std::vector<std::shared_ptr<io::Source>> sources,
                                              Memory* memory);
  // Null if absent. Keys of the first part.
  virtual const GgufValue* Find(std::string_view key) const = 0;
  virtual absl::Span<const std::string_view> keys() const = 0;  // in file order
  // Tensors of all parts: name, shape (outermost first, so [out, in]), type, source, offset.
  virtual absl::Span<const TensorInfo> tensors() const = 0;
  virtual const std::string& name() const = 0;
  virtual uint32_t version() const = 0;
  virtual absl::Span<const std::shared_ptr<io::Source>> sources() const = 0;
  // The key's whole record as the file has it: length, key, type, value. Empty if absent.
  virtual absl::Span<const uint8_t> Record(std::string_view key) const = 0;
};

}  // namespace qinfer::format
