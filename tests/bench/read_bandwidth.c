/* Read bandwidth of this machine: threads sum 64-byte lines of an own buffer each, several passes,
 * the best pass counts. What decode speed is measured against. usage: read_bandwidth THREADS
 * MEGABYTES-PER-THREAD   prints GB/s */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "passes.h"

struct job {
  const uint64_t* data;
  size_t words;
  uint64_t sum;
};

static void read_all(void* argument) {
  struct job* job = argument;
  uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
  const uint64_t* p = job->data;
  for (size_t i = 0; i < job->words; i += 8) {
    a += p[i];
    b += p[i + 1];
    c += p[i + 2];
    d += p[i + 3];
    e += p[i + 4];
    f += p[i + 5];
    g += p[i + 6];
    h += p[i + 7];
  }
  job->sum += a + b + c + d + e + f + g + h;
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  const size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 256) << 20;
  if (threads < 1 || threads > kMaxThreads || bytes == 0) return 2;
  static struct job jobs[kMaxThreads];
  void* arguments[kMaxThreads];
  for (int i = 0; i < threads; ++i) {
    void* data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return 1;
    madvise(data, bytes, MADV_NOHUGEPAGE);
    memset(data, i + 1, bytes);
    jobs[i] = (struct job){data, bytes / 8, 0};
    arguments[i] = &jobs[i];
  }
  const double best = best_pass(threads, read_all, arguments);
  uint64_t sum = 0;
  for (int i = 0; i < threads; ++i) sum += jobs[i].sum;
  printf("%.2f\n", (double)bytes * threads / best * 1e-9);
  return sum == 1; /* keeps the loads alive */
}
