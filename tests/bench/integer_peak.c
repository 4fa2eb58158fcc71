/* The rate at which this machine's processors multiply bytes: threads run independent chains of the
 * best instruction the compiler may use (VNNI, the 16-bit sums of AVX2, or NEON's dot product),
 * from registers alone. What prefill speed is measured against. usage: integer_peak THREADS prints
 * GOPS (a multiply-add is two operations) and the instruction. */
#define _GNU_SOURCE
#include <stdint.h>

#include "passes.h"

#if defined(__AVX512VNNI__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

enum { kChains = 8, kSteps = 4000000 };

#if defined(__AVX512VNNI__)
typedef __m512i vector;
#define NAME "vpdpbusd, 512 bits"
enum { kProducts = 64 };
#define SET(x) _mm512_set1_epi8(x)
#define STEP(sum, a, b) _mm512_dpbusd_epi32(sum, a, b)
#elif defined(__AVX2__)
/* Sums of sixteen bits: what kernels for codes of 4 bits do eight times before they widen. */
typedef __m256i vector;
#define NAME "vpmaddubsw and vpaddw, 256 bits"
enum { kProducts = 32 };
#define SET(x) _mm256_set1_epi8(x)
#define STEP(sum, a, b) _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b))
#elif defined(__ARM_FEATURE_DOTPROD)
typedef int32x4_t vector;
#define NAME "sdot, 128 bits"
enum { kProducts = 16 };
#define SET(x) vreinterpretq_s32_s8(vdupq_n_s8(x))
#define STEP(sum, a, b) vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))
#else
typedef int32_t vector;
#define NAME "one at a time"
enum { kProducts = 1 };
#define SET(x) (x)
#define STEP(sum, a, b) ((sum) + (a) * (b))
#endif
#if defined(__x86_64__)
#define PIN(v) __asm__ volatile("" : "+x"(v))
#elif defined(__aarch64__)
#define PIN(v) __asm__ volatile("" : "+w"(v))
#endif
#if !defined(__AVX2__) && !defined(__ARM_FEATURE_DOTPROD)
#undef PIN
#define PIN(v) __asm__ volatile("" : "+r"(v))
#endif

/* Sums by name, not in an array: compilers keep those in memory. */
#define CHAIN(sum)                              \
  PIN(a); /* or one product would do for all */ \
  sum = STEP(sum, a, b);                        \
  PIN(sum)

static void multiply(void* unused) {
  (void)unused;
  vector a = SET(1), b = SET(2);
  vector s0 = SET(0), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (int i = 0; i < kSteps; ++i) {
    CHAIN(s0);
    CHAIN(s1);
    CHAIN(s2);
    CHAIN(s3);
    CHAIN(s4);
    CHAIN(s5);
    CHAIN(s6);
    CHAIN(s7);
  }
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  void* arguments[kMaxThreads] = {NULL};
  const double best = best_pass(threads, multiply, arguments);
  printf("%.1f %s\n", 2.0 * kProducts * kChains * kSteps * threads / best * 1e-9, NAME);
  return 0;
}
