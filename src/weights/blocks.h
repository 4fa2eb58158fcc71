// Other people's weight blocks (GGUF): one entry per type says which of our formats holds it
// exactly, how a block is repacked, and how it is decoded. A family of types per file.
#pragma once

#include "weights/panel.h"

namespace qinfer::weights {

struct BlockType {
  DType dtype;
  Format format;
  // True if every scale of the block is finite and one that `format` has.
  bool (*finite)(const uint8_t* block);
  // Repacks one block whose first weight is input k of `row`.
  void (*repack)(const uint8_t* block, uint64_t row, uint64_t k, PanelWriter* writer);
  // Decodes one block, as its inventors' reference does.
  void (*decode)(const uint8_t* block, float* out);
};

absl::Span<const BlockType> LegacyBlocks();  // Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
absl::Span<const BlockType> KBlocks();       // Q4_K, Q5_K, Q6_K
absl::Span<const BlockType> MxBlocks();      // MXFP4
const BlockType* FindBlockType(DType dtype);

inline uint16_t Read16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}
inline bool FiniteHalf(uint16_t h) { return (h & 0x7c00u) != 0x7c00u; }

}  // namespace qinfer::weights
