// The ids of GGUF's tensor types and metadata types: names and sizes. Decoding is in src/weights.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dtype.h"
#include "format/gguf.h"

namespace qinfer::format {

struct GgufTensorType {
  uint32_t id;
  std::string_view name;  // ggml's
  DType dtype;            // kOther: known, listed, not readable
  uint32_t block;         // elements per block
  uint32_t bytes;         // bytes per block
};

// Null for ids that were never assigned or have been withdrawn.
const GgufTensorType* FindGgufTensorType(uint32_t id);

// Bytes of a scalar of this type; 0 for strings and arrays.
uint32_t GgufScalarBytes(GgufType type);
std::string_view GgufTypeName(GgufType type);

}  // namespace qinfer::format
