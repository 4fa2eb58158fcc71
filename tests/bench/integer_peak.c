/* The rate at which this machine's processors multiply bytes: threads run independent chains of the
 * best instruction the compiler may use (VNNI, the 16-bit sums of AVX2, or NEON's dot product),
 * from registers alone. What prefill speed is measured against. usage: integer_peak THREADS prints
 * GOPS (a multiply-add is two operations) and the instruction. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__AVX512VNNI__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

enum { kMaxThreads = 64, kPasses = 5, kChains = 8, kSteps = 4000000 };

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

static pthread_barrier_t barrier;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void* run(void* unused) {
  for (int pass = 0; pass < kPasses; ++pass) {
    pthread_barrier_wait(&barrier);
    vector sum[kChains], a = SET(1), b = SET(2);
    for (int c = 0; c < kChains; ++c) sum[c] = SET(0);
    for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 8
      for (int c = 0; c < kChains; ++c) {
        PIN(a); /* or one product would do for all */
        sum[c] = STEP(sum[c], a, b);
        PIN(sum[c]);
      }
    }
    pthread_barrier_wait(&barrier);
  }
  return unused;
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  if (threads < 1 || threads > kMaxThreads) return 2;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
  pthread_t ids[kMaxThreads];
  for (int i = 0; i < threads; ++i)
    if (pthread_create(&ids[i], NULL, run, NULL) != 0) return 1;
  double best = 1e9;
  for (int pass = 0; pass < kPasses; ++pass) {
    pthread_barrier_wait(&barrier);
    const double start = now();
    pthread_barrier_wait(&barrier);
    const double elapsed = now() - start;
    if (elapsed < best) best = elapsed;
  }
  for (int i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
  printf("%.1f %s\n", 2.0 * kProducts * kChains * kSteps * threads / best * 1e-9, NAME);
  return 0;
}
