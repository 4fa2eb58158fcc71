// kernels/cpu/avx512/quantize.cpp on emulated instructions, under another name.
#include "tests/unit/kernels/emulated/avx512.h"

#define avx512 avx512_emulated
#define Avx512Table EmulatedAvx512Table
#include "kernels/cpu/avx512/quantize.cpp"
