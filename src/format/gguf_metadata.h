// How a tokenizer travels from GGUF into another container: a GGUF file without tensors, made of
// pieces of the source's metadata, which lie where the source has them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "format/gguf.h"

namespace qinfer::format {

struct GgufMetadata {
  std::array<uint8_t, 24> head;
  std::vector<absl::Span<const uint8_t>> records;  // follow the head, byte for byte
};
// The metadata whose keys begin with one of `prefixes`. Gguf::Open reads the result.
GgufMetadata SelectGgufMetadata(const Gguf& gguf, absl::Span<const std::string_view> prefixes);

}  // namespace qinfer::format
