// Floating-point control while we compute: round to nearest, no flushing of subnormals, exceptions
// masked, whatever the host has set on this thread; the host's setting comes back afterwards.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace qinfer::exec {

class ScopedFpMode {
 public:
#if defined(__x86_64__)
  ScopedFpMode() : saved_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~ScopedFpMode() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  ScopedFpMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~ScopedFpMode() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#endif
  ScopedFpMode(const ScopedFpMode&) = delete;
  ScopedFpMode& operator=(const ScopedFpMode&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint32_t kDefault = 0x1f80;
  uint32_t saved_;
#elif defined(__aarch64__)
  uint64_t saved_;
#endif
};

}  // namespace qinfer::exec
