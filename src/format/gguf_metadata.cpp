// Selecting metadata.
#include "format/gguf_metadata.h"

#include <algorithm>
#include <cstring>

#include "format/gguf_walk.h"

namespace qinfer::format {

GgufMetadata SelectGgufMetadata(const Gguf& gguf, absl::Span<const std::string_view> prefixes) {
  GgufMetadata metadata;
  for (const std::string_view key : gguf.keys()) {
    if (std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
          return key.substr(0, prefix.size()) == prefix;
        })) {
      metadata.records.push_back(gguf.Record(key));
    }
  }
  const uint32_t magic = kGgufMagic, version = 3;
  const uint64_t tensors = 0, count = metadata.records.size();
  uint8_t* head = metadata.head.data();
  std::memcpy(head, &magic, 4);
  std::memcpy(head + 4, &version, 4);
  std::memcpy(head + 8, &tensors, 8);
  std::memcpy(head + 16, &count, 8);
  return metadata;
}

}  // namespace qinfer::format
