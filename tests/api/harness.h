/* The little that the C tests share: checks that name the place, the test model, counting hooks and
 * a memory file. No test framework, since these programs are compiled as C99 like those of users.
 */
#ifndef QINFER_TESTS_API_HARNESS_H
#define QINFER_TESTS_API_HARNESS_H

#include <qinfer/qinfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/core/sanitizer.h"
#include "process.h"

/* The thread sanitizer looks for races: under it, of many cases that one thread works through alone
 * a few are enough. */
#if defined(QINFER_THREAD_SANITIZER)
enum { kThreadSanitizer = 1 };
#else
enum { kThreadSanitizer = 0 };
#endif

extern int failures;
void fail_at(const char* file, int line, const char* what, const qinfer_error* err);

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) fail_at(__FILE__, __LINE__, #condition, NULL); \
  } while (0)
/* `call` uses the local `err`. */
#define CHECK_STATUS(call, expected)                                     \
  do {                                                                   \
    const qinfer_status status_ = (call);                                \
    if (status_ != (expected)) {                                         \
      fprintf(stderr, "%s instead of %s\n", qinfer_status_name(status_), \
              qinfer_status_name(expected));                             \
      fail_at(__FILE__, __LINE__, #call, &err);                          \
    }                                                                    \
  } while (0)
#define CHECK_OK(call) CHECK_STATUS(call, QINFER_OK)
#define CHECK_FAILS(call, expected, expected_detail)                               \
  do {                                                                             \
    qinfer_error_init(&err, sizeof err);                                           \
    CHECK_STATUS(call, expected);                                                  \
    if (err.detail != (expected_detail) || err.message[0] == 0) {                  \
      fprintf(stderr, "detail %d instead of %d\n", err.detail, (expected_detail)); \
      fail_at(__FILE__, __LINE__, #call, &err);                                    \
    }                                                                              \
  } while (0)

/* A folder with a small model, or NULL: the test is then skipped. */
const char* model_path(void);
/* A path for a temporary file, unique to this process; kept until the next call. */
const char* temporary_path(const char* name);

/* An allocator that counts. */
typedef struct counting_allocator {
  qinfer_allocator table;
  long long live_bytes;
  long long live_blocks;
  long long total_blocks;
} counting_allocator;
void counting_allocator_init(counting_allocator* counter);

/* A file in memory, to write and to read. */
typedef struct memory_file {
  unsigned char* bytes;
  size_t size, room;
  int drops, commits, abandons, reads;
  int fail_write_after; /* 0 = never */
} memory_file;
qinfer_write_io memory_writer(memory_file* file);
qinfer_io memory_reader(memory_file* file);
int read_file(const char* path, memory_file* out); /* 1 = done */
void memory_file_free(memory_file* file);

/* Generates greedily after `prompt`; returns how many tokens. */
size_t generate_greedy(qinfer_session* session, const char* prompt, uint32_t count,
                       int32_t* tokens);
/* A model by default options; NULL if that fails, which is recorded. */
qinfer_model* load_model(qinfer_runtime* runtime);
qinfer_runtime* make_runtime(void);

/* The groups of tests, one per file. */
void test_lifecycle(void);
void test_options(void);
void test_errors(void);
void test_tasks(void);
void test_threads(void);
void test_host_threads(void);
void test_hooks(void);
void test_text(void);
void test_sessions(void);
void test_quantize(void);
void test_experts(void);
void test_reasoning(void);
void test_lookup(void);
void test_output_values(void);
void test_verified_load(void);

#endif
