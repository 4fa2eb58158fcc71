// kernels/cpu/avxvnni with other instructions in place of AVX-VNNI's, for machines without it: see
// CMakeLists.txt. Names say which.
#pragma once

#include "kernels/kernels.h"

namespace qinfer::kernels {

const Table* AvxVnniTable_evex();
const Table* AvxVnniTable_emulated();

inline const Table* AvxVnniEmulated() {
  static const Table table = [] {
    Table named = *AvxVnniTable_emulated();
    named.name = "avxvnni-emulated";
    return named;
  }();
  return &table;
}

// Null where the processor has no such instruction.
inline const Table* AvxVnniByEvex() {
  if (!__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vnni")) return nullptr;
  static const Table table = [] {
    Table named = *AvxVnniTable_evex();
    named.name = "avxvnni-evex";
    return named;
  }();
  return &table;
}

}  // namespace qinfer::kernels
