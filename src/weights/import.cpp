// Repacking of stored tensors into our panels without loss, and decoding of any readable type.
#include "core/checked.h"
#include "weights/blocks.h"

namespace qinfer::weights {
namespace {

using kernels::kPanelRows;
using kernels::WeightKind;

std::string DTypeName(DType dtype) { return std::string(Info(dtype).name); }

bool FloatKind(DType dtype, WeightKind* kind) {
  switch (dtype) {
    case DType::kF32:
      *kind = WeightKind::kF32;
      return true;
    case DType::kF16:
      *kind = WeightKind::kF16;
      return true;
    case DType::kBF16:
      *kind = WeightKind::kBF16;
      return true;
    default:
      return false;
  }
}

float Read32(const uint8_t* p) {
  float f;
  std::memcpy(&f, p, 4);
  return f;
}

// torch's float8_e4m3fn: no infinities, 0x7f and 0xff are NaN.
float F8E4M3ToFloat(uint8_t b) {
  const uint32_t sign = static_cast<uint32_t>(b & 0x80u) << 24;
  const uint32_t exponent = (b >> 3) & 15u, mantissa = b & 7u;
  if ((b & 0x7fu) == 0x7fu) return BitsToFloat(sign | 0x7fc00000u);
  if (exponent != 0) return BitsToFloat(sign | (exponent + 120) << 23 | mantissa << 20);
  return BitsToFloat(FloatToBits(static_cast<float>(mantissa) * 0x1p-9f) | sign);
}

}  // namespace

const BlockType* FindBlockType(DType dtype) {
  for (const BlockType& t : LegacyBlocks())
    if (t.dtype == dtype) return &t;
  for (const BlockType& t : KBlocks())
    if (t.dtype == dtype) return &t;
  for (const BlockType& t : MxBlocks())
    if (t.dtype == dtype) return &t;
  return nullptr;
}

StatusOr<Format> ExactFormat(DType dtype, std::string_view word) {
  Format format;
  if (FloatKind(dtype, &format.kind)) return format;
  if (const BlockType* type = FindBlockType(dtype)) return type->format;
  return UnsupportedError(StrCat("no weight format holds ",
                                 word.empty() ? std::string(DTypeName(dtype)) : std::string(word),
                                 " exactly; known: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, "
                                 "Q4_K, Q5_K, Q6_K, MXFP4"));
}

Status ImportRows(DType dtype, absl::Span<const uint8_t> source, uint64_t first_row, uint64_t count,
                  uint64_t cols, absl::Span<uint8_t> out) {
  QINFER_ASSIGN_OR_RETURN(const Format format, ExactFormat(dtype));
  uint64_t panel_bytes, out_bytes, elements, source_bytes;
  if (!PackedSize(format, count, cols, &panel_bytes, &out_bytes) || out.size() != out_bytes)
    return MisuseError(StrCat("importing ", count, " x ", cols, " ", DTypeName(dtype), " into ",
                              out.size(), " bytes"));
  const DTypeInfo& info = Info(dtype);
  if (cols % info.block != 0)
    return FormatError(StrCat(DTypeName(dtype), " rows of ", cols,
                              " elements are not a whole number of blocks of ", info.block));
  if (!CheckedMul<uint64_t>(count, cols, &elements) ||
      !TensorBytes(dtype, elements, &source_bytes) || source.size() != source_bytes)
    return FormatError(StrCat(source.size(), " bytes where ", count, " rows of ", cols, " ",
                              DTypeName(dtype), " take ", source_bytes));
  PanelWriter writer(format, cols, out.data());
  writer.Clear(CeilDiv<uint64_t>(count, kPanelRows));
  const uint8_t* p = source.data();
  const BlockType* type = FindBlockType(dtype);
  for (uint64_t row = 0; row < count; ++row) {
    for (uint64_t k = 0; k < cols; k += info.block, p += info.bytes) {
      if (type == nullptr) {
        if (dtype == DType::kF32)
          writer.WriteValue32(row, k, Read32(p));
        else
          writer.WriteValue16(row, k, Read16(p));
        continue;
      }
      if (!type->finite(p))
        return FormatError(StrCat(DTypeName(dtype), " scale is not finite or out of range, row ",
                                  first_row + row, ", column ", k));
      type->repack(p, row, k, &writer);
    }
  }
  return OkStatus();
}

Status DecodeToFloat(DType dtype, absl::Span<const uint8_t> source, uint64_t elements, float* out) {
  uint64_t bytes;
  if (!TensorBytes(dtype, elements, &bytes) || source.size() != bytes)
    return FormatError(
        StrCat(source.size(), " bytes do not hold ", elements, " elements of ", DTypeName(dtype)));
  const uint8_t* p = source.data();
  if (const BlockType* type = FindBlockType(dtype)) {
    const DTypeInfo& info = Info(dtype);
    for (uint64_t i = 0; i < elements; i += info.block, p += info.bytes) {
      if (!type->finite(p))
        return FormatError(
            StrCat(DTypeName(dtype), " scale is not finite or out of range, element ", i));
      type->decode(p, out + i);
    }
    return OkStatus();
  }
  switch (dtype) {
    case DType::kF32:
      if (elements != 0) std::memcpy(out, p, elements * 4);
      return OkStatus();
    case DType::kF16:
      for (uint64_t i = 0; i < elements; ++i) out[i] = HalfToFloat(Read16(p + i * 2));
      return OkStatus();
    case DType::kBF16:
      for (uint64_t i = 0; i < elements; ++i) out[i] = Bf16ToFloat(Read16(p + i * 2));
      return OkStatus();
    case DType::kF64:
      for (uint64_t i = 0; i < elements; ++i) {
        double d;
        std::memcpy(&d, p + i * 8, 8);
        out[i] = static_cast<float>(d);
      }
      return OkStatus();
    case DType::kF8E4M3:
      for (uint64_t i = 0; i < elements; ++i) out[i] = F8E4M3ToFloat(p[i]);
      return OkStatus();
    default:
      return UnsupportedError(StrCat(DTypeName(dtype), " cannot be decoded to F32"));
  }
}

}  // namespace qinfer::weights
