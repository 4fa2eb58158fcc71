// The element types that files hold: what they are called and how many bytes a run of elements
// takes. How they are decoded is in src/weights.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace qinfer {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kF8E4M3,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kBool,
  // GGUF blocks
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kMxfp4,
  kOther,  // known to exist, not readable: carried so that a listing can name it
};

struct DTypeInfo {
  absl::string_view name;  // "F16", "Q4_K", ...
  uint32_t block;          // elements per block
  uint32_t bytes;          // bytes per block
};

const DTypeInfo& Info(DType type);

// False for an overflow or a count that is not a whole number of blocks.
bool TensorBytes(DType type, uint64_t elements, uint64_t* bytes);

}  // namespace qinfer
