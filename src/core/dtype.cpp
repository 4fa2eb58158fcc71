// The table behind DType.
#include "core/dtype.h"

#include "core/checked.h"

namespace qinfer {
namespace {

constexpr DTypeInfo kTypes[] = {
    {"F32", 1, 4},    {"F16", 1, 2},      {"BF16", 1, 2},     {"F64", 1, 8},      {"F8_E4M3", 1, 1},
    {"I8", 1, 1},     {"U8", 1, 1},       {"I16", 1, 2},      {"I32", 1, 4},      {"I64", 1, 8},
    {"BOOL", 1, 1},   {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},
    {"Q8_0", 32, 34}, {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210}, {"MXFP4", 32, 17},
    {"OTHER", 1, 1},
};
static_assert(sizeof(kTypes) / sizeof(kTypes[0]) == static_cast<size_t>(DType::kOther) + 1);

}  // namespace

const DTypeInfo& Info(DType type) { return kTypes[static_cast<size_t>(type)]; }

bool TensorBytes(DType type, uint64_t elements, uint64_t* bytes) {
  const DTypeInfo& info = Info(type);
  if (elements % info.block != 0) return false;
  return CheckedMul<uint64_t>(elements / info.block, info.bytes, bytes);
}

}  // namespace qinfer
