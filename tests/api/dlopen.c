/* The library as a plugin: two copies of it in one process, each with its own state, and a hundred
 * times loaded and unloaded without leaving memory or threads behind. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <qinfer/qinfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"

static int failures = 0;
#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

/* Exactly the functions that a short run needs. */
#define FUNCTIONS(X)                                                                      \
  X(qinfer_status, runtime_create,                                                        \
    (uint32_t, const qinfer_runtime_options*, qinfer_runtime**, qinfer_error*))           \
  X(void, runtime_release, (qinfer_runtime*))                                             \
  X(qinfer_status, model_load_path,                                                       \
    (qinfer_runtime*, const char*, size_t, qinfer_model**, qinfer_error*))                \
  X(void, model_release, (qinfer_model*))                                                 \
  X(qinfer_status, engine_create,                                                         \
    (qinfer_model*, const qinfer_engine_options*, qinfer_engine**, qinfer_error*))        \
  X(void, engine_release, (qinfer_engine*))                                               \
  X(qinfer_status, session_create, (qinfer_engine*, qinfer_session**, qinfer_error*))     \
  X(qinfer_status, session_append_text,                                                   \
    (qinfer_session*, const char*, size_t, uint64_t, qinfer_error*))                      \
  X(void, session_release, (qinfer_session*))                                             \
  X(qinfer_status, generate_begin,                                                        \
    (qinfer_session*, const qinfer_generate_options*, qinfer_task**, qinfer_error*))      \
  X(qinfer_status, generate_next, (qinfer_task*, uint64_t, qinfer_event*, qinfer_error*)) \
  X(qinfer_status, task_run, (qinfer_task*, qinfer_error*))                               \
  X(void, task_release, (qinfer_task*))

typedef struct library {
  void* handle;
#define MEMBER(result, name, parameters) result(*name) parameters;
  FUNCTIONS(MEMBER)
#undef MEMBER
} library;

static int open_library(const char* path, library* out) {
  memset(out, 0, sizeof *out);
  out->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (out->handle == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 0;
  }
#define RESOLVE(result, name, parameters)               \
  {                                                     \
    void* symbol = dlsym(out->handle, "qinfer_" #name); \
    if (symbol == NULL) return 0;                       \
    memcpy(&out->name, &symbol, sizeof symbol);         \
  }
  FUNCTIONS(RESOLVE)
#undef RESOLVE
  return 1;
}

static const char* model_path(void) {
  static const char* const kPaths[] = {QINFER_SOURCE_DIR "/samples/models/tiny-llama",
                                       QINFER_SHARED_DIR "/models/tiny-llama"};
  struct stat info;
  int i;
  for (i = 0; i < 2; ++i) {
    if (stat(kPaths[i], &info) == 0) return kPaths[i];
  }
  return NULL;
}

typedef struct run {
  const library* lib;
  qinfer_runtime* runtime;
  qinfer_model* model;
  qinfer_engine* engine;
  qinfer_session* session;
  qinfer_task* task;
  int32_t tokens[6];
  int count;
} run;

static void begin(run* r, const library* lib, int background) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  qinfer_engine_options engine = QINFER_ENGINE_OPTIONS_INIT;
  memset(r, 0, sizeof *r);
  r->lib = lib;
  options.max_tokens = 6;
  options.flags = QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS;
  engine.context_tokens = 64;
  CHECK(lib->runtime_create(QINFER_ABI, NULL, &r->runtime, &err) == QINFER_OK);
  CHECK(lib->model_load_path(r->runtime, model_path(), QINFER_STRLEN, &r->model, &err) ==
        QINFER_OK);
  CHECK(lib->engine_create(r->model, &engine, &r->engine, &err) == QINFER_OK);
  CHECK(lib->session_create(r->engine, &r->session, &err) == QINFER_OK);
  CHECK(lib->session_append_text(r->session, "The Lord", QINFER_STRLEN, 0, &err) == QINFER_OK);
  CHECK(lib->generate_begin(r->session, &options, &r->task, &err) == QINFER_OK);
  if (background) CHECK(lib->task_run(r->task, &err) == QINFER_OK);
}

static int next(run* r) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_event event = QINFER_EVENT_INIT;
  const qinfer_status status =
      r->lib->generate_next(r->task, QINFER_BUDGET_UNLIMITED, &event, &err);
  if (status == QINFER_OK && event.token >= 0) r->tokens[r->count++] = event.token;
  return status == QINFER_OK;
}

static void end(run* r) {
  r->lib->runtime_release(r->runtime);
  r->lib->model_release(r->model);
  r->lib->engine_release(r->engine);
  r->lib->session_release(r->session);
  r->lib->task_release(r->task);
}

static int copy_file(const char* from, const char* to) {
  char buffer[65536];
  FILE* in = fopen(from, "rb");
  FILE* out = fopen(to, "wb");
  size_t n;
  if (in == NULL || out == NULL) return 0;
  while ((n = fread(buffer, 1, sizeof buffer, in)) > 0) fwrite(buffer, 1, n, out);
  fclose(in);
  return fclose(out) == 0;
}

/* Memory of its own. Counted page by page: VmRSS is counted in batches, and with pages of files. */
static long private_kib(void) {
  char line[256];
  long kib = 0;
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  while (fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "Private_Dirty: %ld", &kib) == 1) break;
  }
  fclose(file);
  return kib;
}

static int mapped(const char* path) {
  char line[1024];
  int found = 0;
  FILE* file = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, file) != NULL) found |= strstr(line, path) != NULL;
  fclose(file);
  return found;
}

int main(int argc, char** argv) {
  char copies[2][256];
  library libs[2];
  run runs[2];
  long before = 0, after;
  int i;
  if (argc < 2) return 2;
  if (model_path() == NULL) {
    printf("skipped: no test model\n");
    return 77;
  }
  for (i = 0; i < 2; ++i) {
    snprintf(copies[i], sizeof copies[i], "/tmp/qinfer-dlopen-%ld-%d.so", (long)getpid(), i);
    CHECK(copy_file(argv[1], copies[i]));
  }
  /* Two copies, used by turns. */
  CHECK(open_library(copies[0], &libs[0]) && open_library(copies[1], &libs[1]));
  if (failures == 0) {
    CHECK(libs[0].runtime_create != libs[1].runtime_create);
    begin(&runs[0], &libs[0], 0);
    begin(&runs[1], &libs[1], 1);
    while (next(&runs[0]) | next(&runs[1])) {
    }
    CHECK(runs[0].count == 6 && runs[1].count == 6);
    CHECK(memcmp(runs[0].tokens, runs[1].tokens, sizeof runs[0].tokens) == 0);
    end(&runs[1]);
    dlclose(libs[1].handle);
    CHECK(!mapped(copies[1]));
    end(&runs[0]);
    dlclose(libs[0].handle);
    CHECK(!mapped(copies[0]));
  }
  /* Loaded, used in the middle of a background task, and unloaded. */
  for (i = 0; i < 100 && failures == 0; ++i) {
    const int threads = thread_count();
    CHECK(open_library(copies[0], &libs[0]));
    begin(&runs[0], &libs[0], i % 2);
    if (i % 3 != 0) next(&runs[0]);
    end(&runs[0]);
    CHECK(threads_settle(threads));
    dlclose(libs[0].handle);
    CHECK(!mapped(copies[0]));
    if (i == 19) before = private_kib();
  }
  after = private_kib();
  printf("private memory %ld KiB after 20 cycles, %ld KiB after 100\n", before, after);
  CHECK(after - before < 4096);
  for (i = 0; i < 2; ++i) remove(copies[i]);
  return failures != 0;
}
