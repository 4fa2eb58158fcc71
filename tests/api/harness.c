/* The test program's main, and what harness.h declares. */
#define _POSIX_C_SOURCE 200809L
#include "harness.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

int failures = 0;

void fail_at(const char* file, int line, const char* what, const qinfer_error* err) {
  fprintf(stderr, "%s:%d: %s", file, line, what);
  if (err != NULL && err->message[0] != 0) {
    fprintf(stderr, "\n  %s, detail %d: %s", qinfer_status_name(err->status), err->detail,
            err->message);
  }
  fprintf(stderr, "\n");
  ++failures;
}

static int is_folder(const char* path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

const char* model_path(void) {
  if (is_folder(QINFER_SOURCE_DIR "/samples/models/tiny-llama")) {
    return QINFER_SOURCE_DIR "/samples/models/tiny-llama";
  }
  if (is_folder(QINFER_SHARED_DIR "/models/tiny-llama")) {
    return QINFER_SHARED_DIR "/models/tiny-llama";
  }
  return NULL;
}

const char* temporary_path(const char* name) {
  static char path[256];
  snprintf(path, sizeof path, "/tmp/qinfer-api-%ld-%s", (long)getpid(), name);
  return path;
}

static pthread_mutex_t allocator_mutex = PTHREAD_MUTEX_INITIALIZER;

static void* counting_alloc(void* user, size_t size, size_t align) {
  counting_allocator* counter = (counting_allocator*)user;
  void* block = NULL;
  if (posix_memalign(&block, align < sizeof(void*) ? sizeof(void*) : align, size) != 0) return NULL;
  pthread_mutex_lock(&allocator_mutex);
  counter->live_bytes += (long long)size;
  ++counter->live_blocks;
  ++counter->total_blocks;
  pthread_mutex_unlock(&allocator_mutex);
  return block;
}

static void counting_release(void* user, void* block, size_t size, size_t align) {
  counting_allocator* counter = (counting_allocator*)user;
  (void)align;
  free(block);
  pthread_mutex_lock(&allocator_mutex);
  counter->live_bytes -= (long long)size;
  --counter->live_blocks;
  pthread_mutex_unlock(&allocator_mutex);
}

void counting_allocator_init(counting_allocator* counter) {
  memset(counter, 0, sizeof *counter);
  qinfer_allocator_init(&counter->table, sizeof counter->table);
  counter->table.user = counter;
  counter->table.alloc = counting_alloc;
  counter->table.release = counting_release;
}

static qinfer_status memory_write(void* user, uint64_t offset, const void* src, size_t n) {
  memory_file* file = (memory_file*)user;
  if (file->fail_write_after != 0 && --file->fail_write_after == 0) return QINFER_E_IO;
  if (offset + n > file->room) {
    const size_t room = (size_t)(offset + n) * 2;
    unsigned char* bytes = (unsigned char*)realloc(file->bytes, room);
    if (bytes == NULL) return QINFER_E_NOMEM;
    memset(bytes + file->room, 0, room - file->room);
    file->bytes = bytes;
    file->room = room;
  }
  memcpy(file->bytes + offset, src, n);
  if (offset + n > file->size) file->size = (size_t)(offset + n);
  return QINFER_OK;
}
static qinfer_status memory_commit(void* user) {
  ++((memory_file*)user)->commits;
  return QINFER_OK;
}
static void memory_abandon(void* user) { ++((memory_file*)user)->abandons; }
static void memory_drop(void* user) { ++((memory_file*)user)->drops; }
static qinfer_status memory_size(void* user, uint64_t* out) {
  *out = ((memory_file*)user)->size;
  return QINFER_OK;
}
static qinfer_status memory_read(void* user, uint64_t offset, void* dst, size_t n) {
  memory_file* file = (memory_file*)user;
  if (offset > file->size || n > file->size - offset) return QINFER_E_IO;
  memcpy(dst, file->bytes + offset, n);
  __atomic_fetch_add(&file->reads, 1, __ATOMIC_RELAXED); /* several threads read at once */
  return QINFER_OK;
}

qinfer_write_io memory_writer(memory_file* file) {
  qinfer_write_io io = QINFER_WRITE_IO_INIT;
  io.user = file;
  io.write_at = memory_write;
  io.commit = memory_commit;
  io.abandon = memory_abandon;
  io.drop = memory_drop;
  return io;
}

qinfer_io memory_reader(memory_file* file) {
  qinfer_io io = QINFER_IO_INIT;
  io.user = file;
  io.size = memory_size;
  io.read_at = memory_read;
  io.drop = memory_drop;
  return io;
}

int read_file(const char* path, memory_file* out) {
  FILE* file = fopen(path, "rb");
  long size;
  memset(out, 0, sizeof *out);
  if (file == NULL) return 0;
  fseek(file, 0, SEEK_END);
  size = ftell(file);
  rewind(file);
  out->bytes = (unsigned char*)malloc((size_t)size + 1);
  out->size = out->room = (size_t)size;
  if (out->bytes == NULL || fread(out->bytes, 1, (size_t)size, file) != (size_t)size) {
    free(out->bytes);
    out->bytes = NULL;
    fclose(file);
    return 0;
  }
  out->bytes[size] = 0;
  fclose(file);
  return 1;
}

void memory_file_free(memory_file* file) {
  free(file->bytes);
  memset(file, 0, sizeof *file);
}

qinfer_runtime* make_runtime(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = NULL;
  CHECK_OK(qinfer_runtime_create(QINFER_ABI, NULL, &runtime, &err));
  return runtime;
}

qinfer_model* load_model(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_model* model = NULL;
  CHECK_OK(qinfer_model_load_path(runtime, model_path(), QINFER_STRLEN, &model, &err));
  return model;
}

size_t generate_greedy(qinfer_session* session, const char* prompt, uint32_t count,
                       int32_t* tokens) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  qinfer_event event = QINFER_EVENT_INIT;
  qinfer_task* task = NULL;
  qinfer_status status;
  size_t made = 0;
  options.max_tokens = count;
  options.flags = QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS;
  CHECK_OK(qinfer_session_append_text(session, prompt, QINFER_STRLEN, 0, &err));
  CHECK_OK(qinfer_generate_begin(session, &options, &task, &err));
  while ((status = qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event, &err)) ==
         QINFER_OK) {
    if (event.token >= 0 && made < count) tokens[made++] = event.token;
  }
  CHECK(status == QINFER_END);
  if (status < 0) fail_at(__FILE__, __LINE__, "generation", &err);
  qinfer_task_release(task);
  return made;
}
