/* Times the passes of a few threads that do the same work at once. */
#pragma once

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kMaxThreads = 64, kPasses = 5 };

struct passes {
  void (*work)(void* argument);
  void* argument;
  pthread_barrier_t* barrier;
  double start[kPasses], end[kPasses];
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void* run_passes(void* argument) {
  struct passes* passes = argument;
  for (int pass = 0; pass < kPasses; ++pass) {
    pthread_barrier_wait(passes->barrier);
    passes->start[pass] = now();
    passes->work(passes->argument);
    passes->end[pass] = now();
  }
  return NULL;
}

/* Seconds of the best pass, from the first thread's start to the last one's end: the threads take
 * the time themselves, since another one would wait for a processor. arguments [threads]. */
static double best_pass(int threads, void (*work)(void*), void** arguments) {
  static struct passes passes[kMaxThreads];
  pthread_t ids[kMaxThreads];
  pthread_barrier_t barrier;
  if (threads < 1 || threads > kMaxThreads) exit(2);
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (int i = 0; i < threads; ++i) {
    passes[i].work = work;
    passes[i].argument = arguments[i];
    passes[i].barrier = &barrier;
    if (pthread_create(&ids[i], NULL, run_passes, &passes[i]) != 0) exit(1);
  }
  for (int i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
  double best = 1e9;
  for (int pass = 0; pass < kPasses; ++pass) {
    double start = passes[0].start[pass], end = passes[0].end[pass];
    for (int i = 1; i < threads; ++i) {
      if (passes[i].start[pass] < start) start = passes[i].start[pass];
      if (passes[i].end[pass] > end) end = passes[i].end[pass];
    }
    if (end - start < best) best = end - start;
  }
  return best;
}
