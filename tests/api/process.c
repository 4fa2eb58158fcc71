#define _POSIX_C_SOURCE 200809L
#include "process.h"

#include <dirent.h>
#include <stddef.h>
#include <time.h>

static int count_entries(const char* path) {
  DIR* folder = opendir(path);
  int count = 0;
  if (folder == NULL) return -1;
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count;
}

int thread_count(void) { return count_entries("/proc/self/task") - 2; }
int descriptor_count(void) { return count_entries("/proc/self/fd") - 3; }

int threads_settle(int wanted) {
  const struct timespec pause = {0, 1000000};
  for (int i = 0; i < 2000 && thread_count() != wanted; ++i) nanosleep(&pause, NULL);
  return thread_count() == wanted;
}
