// GGUF's blocks of 32 weights: F16 scale, optional F16 minimum, codes of 4, 5 or 8 bits. Five-bit
// codes become six-bit ones.
#include "weights/blocks.h"

namespace qinfer::weights {
namespace {

using kernels::ScaleKind;
using kernels::WeightKind;

constexpr uint32_t kBlock = 32;

// Byte j: low nibble = element j, high nibble = element j + 16.
void Nibbles(const uint8_t* packed, uint8_t* codes) {
  for (uint32_t j = 0; j < 16; ++j) {
    codes[j] = packed[j] & 15;
    codes[j + 16] = packed[j] >> 4;
  }
}

// `fifth`: bit i is the fifth bit of element i.
void FiveBits(const uint8_t* fifth, const uint8_t* packed, uint8_t* codes) {
  Nibbles(packed, codes);
  for (uint32_t i = 0; i < kBlock; ++i)
    codes[i] = static_cast<uint8_t>(codes[i] | ((fifth[i / 8] >> (i % 8)) & 1) << 4);
}

template <bool kHasMin>
bool Finite(const uint8_t* block) {
  return FiniteHalf(Read16(block)) && (!kHasMin || FiniteHalf(Read16(block + 2)));
}

void Codes4_0(const uint8_t* block, uint8_t* codes) { Nibbles(block + 2, codes); }
void Codes4_1(const uint8_t* block, uint8_t* codes) { Nibbles(block + 4, codes); }
// d * (q - 16) = d * ((q + 16) - 32)
void Codes5_0(const uint8_t* block, uint8_t* codes) {
  FiveBits(block + 2, block + 6, codes);
  for (uint32_t i = 0; i < kBlock; ++i) codes[i] = static_cast<uint8_t>(codes[i] + 16);
}
void Codes5_1(const uint8_t* block, uint8_t* codes) { FiveBits(block + 4, block + 8, codes); }
void Codes8_0(const uint8_t* block, uint8_t* codes) {
  for (uint32_t i = 0; i < kBlock; ++i) codes[i] = block[2 + i] ^ 0x80;
}

template <auto kCodes, bool kHasMin>
void Repack(const uint8_t* block, uint64_t row, uint64_t k, PanelWriter* writer) {
  uint8_t codes[kBlock];
  kCodes(block, codes);
  const uint32_t index = static_cast<uint32_t>(k / kBlock);
  writer->WriteCodes(row, index, codes);
  writer->WriteScaleBits(row, index, Read16(block), kHasMin ? Read16(block + 2) : uint16_t{0});
}

template <auto kCodes, bool kHasMin, int kZero>
void Decode(const uint8_t* block, float* out) {
  uint8_t codes[kBlock];
  kCodes(block, codes);
  const float d = HalfToFloat(Read16(block));
  for (uint32_t i = 0; i < kBlock; ++i) {
    if constexpr (kHasMin)
      out[i] = d * static_cast<float>(codes[i]) + HalfToFloat(Read16(block + 2));
    else
      out[i] = d * static_cast<float>(codes[i] - kZero);
  }
}

constexpr Format Linear(WeightKind kind, bool has_min) {
  return {kind, ScaleKind::kF16, has_min, kBlock};
}

constexpr BlockType kTypes[] = {
    {DType::kQ4_0, Linear(WeightKind::kInt4, false), Finite<false>, Repack<Codes4_0, false>,
     Decode<Codes4_0, false, 8>},
    {DType::kQ4_1, Linear(WeightKind::kInt4, true), Finite<true>, Repack<Codes4_1, true>,
     Decode<Codes4_1, true, 0>},
    {DType::kQ5_0, Linear(WeightKind::kInt6, false), Finite<false>, Repack<Codes5_0, false>,
     Decode<Codes5_0, false, 32>},
    {DType::kQ5_1, Linear(WeightKind::kInt6, true), Finite<true>, Repack<Codes5_1, true>,
     Decode<Codes5_1, true, 0>},
    {DType::kQ8_0, Linear(WeightKind::kInt8, false), Finite<false>, Repack<Codes8_0, false>,
     Decode<Codes8_0, false, 128>},
};

}  // namespace

absl::Span<const BlockType> LegacyBlocks() { return kTypes; }

}  // namespace qinfer::weights
