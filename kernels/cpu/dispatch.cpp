// Chooses a kernel table by what the processor and the operating system support. No kernels here,
// and no state: detection is a few instructions.
#include "kernels/cpu/tables.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace qinfer::kernels {
namespace {

#if defined(__x86_64__)
struct Support {
  bool avx2 = false, avxvnni = false, avx512 = false;
};

uint64_t Xgetbv() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

Support Detect() {
  Support support;
  uint32_t a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return support;
  constexpr uint32_t kFma = 1u << 12, kOsxsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;
  constexpr uint32_t kNeeded = kFma | kOsxsave | kAvx | kF16c;
  if ((c & kNeeded) != kNeeded) return support;
  const uint64_t enabled = Xgetbv();
  if ((enabled & 0x6) != 0x6) return support;  // xmm and ymm state
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return support;
  support.avx2 = (b & (1u << 5)) != 0;
  // F, DQ, BW, VL and VNNI, with opmask and zmm state.
  constexpr uint32_t kAvx512 = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);
  support.avx512 =
      support.avx2 && (b & kAvx512) == kAvx512 && (c & (1u << 11)) != 0 && (enabled & 0xe6) == 0xe6;
  // Leaf 7 begins with the number of its last subleaf.
  if (a < 1 || __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return support;
  support.avxvnni = support.avx2 && (a & (1u << 4)) != 0;
  return support;
}
#elif defined(QINFER_HAVE_NEON_DOTPROD)
// NEON itself is in every 64-bit Arm processor; ARMv8.2's dot product instructions are not.
bool HasDotprod() {
#if defined(__linux__)
  constexpr unsigned long kAsimdDp = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kAsimdDp) != 0;
#else
  return false;
#endif
}
#endif

}  // namespace

const Table* SelectTable(Isa cap) {
  if (cap == Isa::kRef) return RefTable();
#if defined(__x86_64__)
  [[maybe_unused]] const Support support = Detect();
#if defined(QINFER_HAVE_AVX512)
  if (support.avx512 && (cap == Isa::kAuto || cap == Isa::kAvx512)) return Avx512Table();
#endif
#if defined(QINFER_HAVE_AVXVNNI)
  if (support.avxvnni && (cap == Isa::kAuto || cap == Isa::kAvxVnni)) return AvxVnniTable();
#endif
#if defined(QINFER_HAVE_AVX2)
  if (support.avx2 && (cap == Isa::kAuto || cap == Isa::kAvx2)) return Avx2Table();
#endif
#endif
#if defined(QINFER_HAVE_NEON)
  if (cap == Isa::kAuto || cap == Isa::kNeon) {
#if defined(QINFER_HAVE_NEON_DOTPROD)
    if (HasDotprod()) return NeonDotprodTable();
#endif
    return NeonTable();
  }
#endif
  return cap == Isa::kAuto ? RefTable() : nullptr;
}

bool HasKernels(Isa isa) {
  switch (isa) {
#if defined(QINFER_HAVE_AVX2)
    case Isa::kAvx2:
#endif
#if defined(QINFER_HAVE_AVXVNNI)
    case Isa::kAvxVnni:
#endif
#if defined(QINFER_HAVE_AVX512)
    case Isa::kAvx512:
#endif
#if defined(QINFER_HAVE_NEON)
    case Isa::kNeon:
#endif
    case Isa::kRef:
      return true;
    default:
      return false;
  }
}

}  // namespace qinfer::kernels
