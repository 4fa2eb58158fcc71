// How functions of kernels/cpu are declared so that nothing compiled with instruction-set flags can
// be linked into code for an older processor: internal linkage and always inlined. No kernels here.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define QINFER_FN static inline __attribute__((always_inline))
#if !defined(QINFER_UNROLL)  // tests define it away
#define QINFER_PRAGMA(text) _Pragma(#text)
#define QINFER_UNROLL(n) QINFER_PRAGMA(GCC unroll n)
#endif

namespace qinfer::kernels {

QINFER_FN uint32_t Min(uint32_t a, uint32_t b) { return a < b ? a : b; }

}  // namespace qinfer::kernels
