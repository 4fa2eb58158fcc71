// GGUF's super-blocks of 256 weights: small integer scales (and minima) under F16 super-scales.
#include "weights/blocks.h"

namespace qinfer::weights {
namespace {

using kernels::ScaleKind;
using kernels::WeightKind;

constexpr uint32_t kBlock = 256;

// The eight 6-bit scales and minima of Q4_K and Q5_K.
void Scales6(const uint8_t* s, uint8_t* scales, uint8_t* mins) {
  for (uint32_t j = 0; j < 4; ++j) {
    scales[j] = s[j] & 63;
    mins[j] = s[j + 4] & 63;
    scales[j + 4] = static_cast<uint8_t>((s[j + 8] & 15) | (s[j] >> 6) << 4);
    mins[j + 4] = static_cast<uint8_t>((s[j + 8] >> 4) | (s[j + 4] >> 6) << 4);
  }
}

// Byte l of chunk c: low nibble = 64c + l, high nibble = 64c + 32 + l.
void CodesQ4K(const uint8_t* block, uint8_t* codes) {
  for (uint32_t c = 0; c < 4; ++c)
    for (uint32_t l = 0; l < 32; ++l) {
      const uint8_t packed = block[16 + c * 32 + l];
      codes[c * 64 + l] = packed & 15;
      codes[c * 64 + 32 + l] = packed >> 4;
    }
}

void CodesQ5K(const uint8_t* block, uint8_t* codes) {
  const uint8_t* fifth = block + 16;
  const uint8_t* packed = block + 48;
  for (uint32_t c = 0; c < 4; ++c)
    for (uint32_t l = 0; l < 32; ++l) {
      const uint32_t low = (fifth[l] >> (2 * c)) & 1u, high = (fifth[l] >> (2 * c + 1)) & 1u;
      codes[c * 64 + l] = static_cast<uint8_t>((packed[c * 32 + l] & 15) | low << 4);
      codes[c * 64 + 32 + l] = static_cast<uint8_t>((packed[c * 32 + l] >> 4) | high << 4);
    }
}

void CodesQ6K(const uint8_t* block, uint8_t* codes) {
  for (uint32_t h = 0; h < 2; ++h) {
    const uint8_t* low = block + h * 64;
    const uint8_t* top = block + 128 + h * 32;
    uint8_t* out = codes + h * 128;
    for (uint32_t l = 0; l < 32; ++l)
      for (uint32_t quarter = 0; quarter < 4; ++quarter) {
        const uint32_t nibble = (low[l + quarter % 2 * 32] >> (quarter / 2 * 4)) & 15u;
        out[quarter * 32 + l] =
            static_cast<uint8_t>(nibble | ((top[l] >> (2 * quarter)) & 3u) << 4);
      }
  }
}

bool FiniteMin(const uint8_t* block) {
  return FiniteHalf(Read16(block)) && FiniteHalf(Read16(block + 2));
}
bool FiniteQ6K(const uint8_t* block) { return FiniteHalf(Read16(block + 208)); }

template <auto kCodes>
void RepackMin(const uint8_t* block, uint64_t row, uint64_t k, PanelWriter* writer) {
  uint8_t codes[kBlock], scales[8], mins[8];
  kCodes(block, codes);
  Scales6(block + 4, scales, mins);
  const uint32_t first = static_cast<uint32_t>(k / 32);
  for (uint32_t g = 0; g < 8; ++g) {
    writer->WriteCodes(row, first + g, codes + g * 32);
    writer->WriteSub(row, first + g, scales[g], mins[g]);
  }
  writer->WriteSuperBits(row, static_cast<uint32_t>(k / kBlock), Read16(block), Read16(block + 2));
}

template <auto kCodes>
void DecodeMin(const uint8_t* block, float* out) {
  uint8_t codes[kBlock], scales[8], mins[8];
  kCodes(block, codes);
  Scales6(block + 4, scales, mins);
  const float d = HalfToFloat(Read16(block)), dmin = HalfToFloat(Read16(block + 2));
  for (uint32_t i = 0; i < kBlock; ++i) {
    const uint32_t sub = i / 32;
    out[i] = d * static_cast<float>(scales[sub]) * static_cast<float>(codes[i]) -
             dmin * static_cast<float>(mins[sub]);
  }
}

void RepackQ6K(const uint8_t* block, uint64_t row, uint64_t k, PanelWriter* writer) {
  uint8_t codes[kBlock];
  CodesQ6K(block, codes);
  for (uint32_t g = 0; g < 8; ++g)
    writer->WriteCodes(row, static_cast<uint32_t>(k / 32) + g, codes + g * 32);
  for (uint32_t g = 0; g < 16; ++g)
    writer->WriteSub(row, static_cast<uint32_t>(k / 16) + g, block[192 + g], 0);
  writer->WriteSuperBits(row, static_cast<uint32_t>(k / kBlock), Read16(block + 208), 0);
}

void DecodeQ6K(const uint8_t* block, float* out) {
  uint8_t codes[kBlock];
  CodesQ6K(block, codes);
  const float d = HalfToFloat(Read16(block + 208));
  for (uint32_t i = 0; i < kBlock; ++i)
    out[i] = d * static_cast<float>(static_cast<int8_t>(block[192 + i / 16])) *
             static_cast<float>(codes[i] - 32);
}

constexpr BlockType kTypes[] = {
    {DType::kQ4_K,
     {WeightKind::kInt4, ScaleKind::kSub8, true, 32},
     FiniteMin,
     RepackMin<CodesQ4K>,
     DecodeMin<CodesQ4K>},
    {DType::kQ5_K,
     {WeightKind::kInt6, ScaleKind::kSub8, true, 32},
     FiniteMin,
     RepackMin<CodesQ5K>,
     DecodeMin<CodesQ5K>},
    {DType::kQ6_K,
     {WeightKind::kInt6, ScaleKind::kSub8, false, 16},
     FiniteQ6K,
     RepackQ6K,
     DecodeQ6K},
};

}  // namespace

absl::Span<const BlockType> KBlocks() { return kTypes; }

}  // namespace qinfer::weights
