// What a thread of this processor can multiply by the instruction that a table is built on, from
// registers alone: the measure of matrix x matrix in kernels_bench. Whole machines are measured by
// integer_peak.c.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>

namespace qinfer::kernels {

// Multiply-adds of bytes, two operations each, in 10^9 a second; 0 for tables that have no such
// instruction, and where nobody has written the loop.
inline double IntegerPeakGops(const char* table) {
#if defined(__x86_64__)
  constexpr uint64_t kSteps = 200000;
  // Eight sums that do not depend on each other. In assembly, so that it needs no options.
#define QINFER_PEAK_LOOP(step)                                                                     \
  __asm__ volatile("1:\n" step("0") step("1") step("2") step("3") step("4") step("5") step("6")    \
                       step("7") "dec %0\n jnz 1b\n"                                               \
                   : "+r"(steps)                                                                   \
                   :                                                                               \
                   : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                     "xmm9", "xmm10")
#define QINFER_PEAK_512(sum) "vpdpbusd %%zmm9, %%zmm8, %%zmm" sum "\n"
#define QINFER_PEAK_EVEX(sum) "%{evex%} vpdpbusd %%ymm9, %%ymm8, %%ymm" sum "\n"
#define QINFER_PEAK_VEX(sum) "%{vex%} vpdpbusd %%ymm9, %%ymm8, %%ymm" sum "\n"
  // Sums of sixteen bits: what kernels for codes of 4 bits do eight times before they widen.
#define QINFER_PEAK_AVX2(sum) \
  "vpmaddubsw %%ymm9, %%ymm8, %%ymm10\n vpaddw %%ymm10, %%ymm" sum ", %%ymm" sum "\n"
  uint32_t products = 0;
  double best = 1e9;
  for (int pass = 0; pass < 10; ++pass) {
    uint64_t steps = kSteps;
    const auto begin = std::chrono::steady_clock::now();
    if (std::strcmp(table, "avx512") == 0) {
      products = 64;
      QINFER_PEAK_LOOP(QINFER_PEAK_512);
    } else if (std::strcmp(table, "avxvnni-evex") == 0) {
      products = 32;
      QINFER_PEAK_LOOP(QINFER_PEAK_EVEX);
    } else if (std::strcmp(table, "avxvnni") == 0) {
      products = 32;
      QINFER_PEAK_LOOP(QINFER_PEAK_VEX);
    } else if (std::strcmp(table, "avx2") == 0) {
      products = 32;
      QINFER_PEAK_LOOP(QINFER_PEAK_AVX2);
    } else {
      return 0.0;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = took.count() < best ? took.count() : best;
  }
#undef QINFER_PEAK_LOOP
#undef QINFER_PEAK_512
#undef QINFER_PEAK_EVEX
#undef QINFER_PEAK_VEX
#undef QINFER_PEAK_AVX2
  return 2.0 * products * 8 * kSteps / best * 1e-9;
#else
  (void)table;
  return 0.0;
#endif
}

}  // namespace qinfer::kernels
