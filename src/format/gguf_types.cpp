// The tables of GGUF's type ids.
#include "format/gguf_types.h"

namespace qinfer::format {
namespace {

constexpr GgufTensorType kTensorTypes[] = {
    {0, "F32", DType::kF32, 1, 4},
    {1, "F16", DType::kF16, 1, 2},
    {2, "Q4_0", DType::kQ4_0, 32, 18},
    {3, "Q4_1", DType::kQ4_1, 32, 20},
    {6, "Q5_0", DType::kQ5_0, 32, 22},
    {7, "Q5_1", DType::kQ5_1, 32, 24},
    {8, "Q8_0", DType::kQ8_0, 32, 34},
    {9, "Q8_1", DType::kOther, 32, 36},
    {10, "Q2_K", DType::kOther, 256, 84},
    {11, "Q3_K", DType::kOther, 256, 110},
    {12, "Q4_K", DType::kQ4_K, 256, 144},
    {13, "Q5_K", DType::kQ5_K, 256, 176},
    {14, "Q6_K", DType::kQ6_K, 256, 210},
    {15, "Q8_K", DType::kOther, 256, 292},
    {16, "IQ2_XXS", DType::kOther, 256, 66},
    {17, "IQ2_XS", DType::kOther, 256, 74},
    {18, "IQ3_XXS", DType::kOther, 256, 98},
    {19, "IQ1_S", DType::kOther, 256, 50},
    {20, "IQ4_NL", DType::kOther, 32, 18},
    {21, "IQ3_S", DType::kOther, 256, 110},
    {22, "IQ2_S", DType::kOther, 256, 82},
    {23, "IQ4_XS", DType::kOther, 256, 136},
    {24, "I8", DType::kI8, 1, 1},
    {25, "I16", DType::kI16, 1, 2},
    {26, "I32", DType::kI32, 1, 4},
    {27, "I64", DType::kI64, 1, 8},
    {28, "F64", DType::kF64, 1, 8},
    {29, "IQ1_M", DType::kOther, 256, 56},
    {30, "BF16", DType::kBF16, 1, 2},
    {34, "TQ1_0", DType::kOther, 256, 54},
    {35, "TQ2_0", DType::kOther, 256, 66},
    {39, "MXFP4", DType::kMxfp4, 32, 17},
    {40, "NVFP4", DType::kOther, 64, 36},
    {41, "Q1_0", DType::kOther, 128, 18},
};

struct ScalarType {
  std::string_view name;
  uint32_t bytes;
};
constexpr ScalarType kScalars[] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};
static_assert(sizeof(kScalars) / sizeof(kScalars[0]) == static_cast<size_t>(GgufType::kF64) + 1);

}  // namespace

const GgufTensorType* FindGgufTensorType(uint32_t id) {
  for (const GgufTensorType& type : kTensorTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

uint32_t GgufScalarBytes(GgufType type) { return kScalars[static_cast<size_t>(type)].bytes; }
std::string_view GgufTypeName(GgufType type) { return kScalars[static_cast<size_t>(type)].name; }

}  // namespace qinfer::format
