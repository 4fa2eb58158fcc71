// MXFP4 (OCP microscaling): blocks of 32 weights, a power of two and 4-bit floats 0, 0.5, 1, 1.5,
// 2, 3, 4, 6 with a sign. Our FP4 has the same nibbles, which it reads as twice these (whole
// numbers) under half the power of two.
#include "weights/blocks.h"
#include "weights/fp4.h"

namespace qinfer::weights {
namespace {

constexpr uint32_t kBlock = 32;

// Byte j (after the exponent): low nibble = element j, high nibble = element j + 16.
uint8_t Nibble(const uint8_t* block, uint32_t i) {
  const uint8_t byte = block[1 + i % 16];
  return i < 16 ? byte & 15 : byte >> 4;
}

// Exponent 255 is NaN; half of the smallest power is no power of ours, which only zeros do without.
bool Holds(const uint8_t* block) {
  if (block[0] == 255) return false;
  if (block[0] != 0) return true;
  for (uint32_t i = 0; i < kBlock; ++i)
    if (Fp4Value(Nibble(block, i)) != 0) return false;
  return true;
}

void Repack(const uint8_t* block, uint64_t row, uint64_t k, PanelWriter* writer) {
  uint8_t codes[kBlock];
  for (uint32_t i = 0; i < kBlock; ++i) codes[i] = Nibble(block, i);
  const uint32_t index = static_cast<uint32_t>(k / kBlock);
  writer->WriteCodes(row, index, codes);
  const uint32_t exponent = block[0] == 0 ? 0u : block[0] - 1u;
  // 2^(exponent - 127); 0 is below the normal numbers.
  const float scale = exponent == 0 ? 0x1p-127f : BitsToFloat(exponent << 23);
  writer->WriteScale(row, index, scale, 0.0f);
}

void Decode(const uint8_t* block, float* out) {
  // 2^(e - 128) as two factors, neither of them below the normal numbers.
  const float half = block[0] == 0 ? 0.0f : BitsToFloat(static_cast<uint32_t>(block[0]) << 23);
  for (uint32_t i = 0; i < kBlock; ++i)
    out[i] = static_cast<float>(Fp4Value(Nibble(block, i))) * 0.5f * half;
}

constexpr BlockType kTypes[] = {
    {DType::kMxfp4,
     {kernels::WeightKind::kFp4, kernels::ScaleKind::kE8M0, false, kBlock},
     Holds,
     Repack,
     Decode},
};

}  // namespace

absl::Span<const BlockType> MxBlocks() { return kTypes; }

}  // namespace qinfer::weights
