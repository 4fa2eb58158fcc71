/* How long a program waits for its first token, and what that takes of its memory: opens a model,
 * computes a prompt, takes one token; then encodes a text. One measurement in a process of its own,
 * as JSON; start.py repeats it beside its peers. Not a test.
 *
 * usage: start_bench MODEL TEXT [-t THREADS] [-p PROMPT-TOKENS] */
#include <qinfer/qinfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(qinfer_status status, const qinfer_error* err, const char* what) {
  if (status >= QINFER_OK) return;
  fprintf(stderr, "%s: %s\n", what, err->message);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Bytes that this process has to itself and has written, as the system counts them. */
static unsigned long private_bytes(void) {
  char line[256];
  unsigned long kib = 0;
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "Private_Dirty: %lu", &kib) == 1) break;
  }
  fclose(file);
  return kib << 10;
}

static char* read_all(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  char* text = NULL;
  if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
    *size = (size_t)ftell(file);
    text = (char*)malloc(*size + 1);
    rewind(file);
    if (text != NULL && fread(text, 1, *size, file) != *size) text = NULL;
    fclose(file);
  }
  if (text == NULL) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(1);
  }
  return text;
}

int main(int argc, char** argv) {
  uint32_t threads = 2, prompt = 32, runs = 0, i;
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime_options runtime_options = QINFER_RUNTIME_OPTIONS_INIT;
  qinfer_engine_options engine_options = QINFER_ENGINE_OPTIONS_INIT;
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  qinfer_event event = QINFER_EVENT_INIT;
  qinfer_runtime* runtime = NULL;
  qinfer_model* model = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  double start, loaded, first, encode = 0.0;
  unsigned long after_load;
  size_t size = 0, count = 0;
  int32_t *tokens, *ids;
  char* text;
  int arg;
  if (argc < 3) {
    fprintf(stderr, "usage: start_bench MODEL TEXT [-t THREADS] [-p PROMPT-TOKENS]\n");
    return 2;
  }
  for (arg = 3; arg + 1 < argc; arg += 2) {
    if (strcmp(argv[arg], "-t") == 0) threads = (uint32_t)strtoul(argv[arg + 1], NULL, 10);
    if (strcmp(argv[arg], "-p") == 0) prompt = (uint32_t)strtoul(argv[arg + 1], NULL, 10);
  }
  if (prompt == 0) prompt = 1;
  text = read_all(argv[2], &size);
  tokens = (int32_t*)calloc(prompt, sizeof *tokens);
  ids = (int32_t*)malloc((size + 16) * sizeof *ids);
  if (tokens == NULL || ids == NULL) return 1;
  for (i = 0; i < prompt; ++i) tokens[i] = (int32_t)(100 + i);

  start = now();
  runtime_options.threads = threads;
  check(qinfer_runtime_create(QINFER_ABI, &runtime_options, &runtime, &err), &err, "runtime");
  check(qinfer_model_load_path(runtime, argv[1], strlen(argv[1]), &model, &err), &err, argv[1]);
  loaded = now();
  after_load = private_bytes();
  engine_options.context_tokens = prompt + 16;
  check(qinfer_engine_create(model, &engine_options, &engine, &err), &err, "engine");
  check(qinfer_session_create(engine, &session, &err), &err, "session");
  check(qinfer_session_append(session, tokens, prompt, &err), &err, "prompt");
  options.max_tokens = 1;
  options.flags = QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS;
  check(qinfer_generate_begin(session, &options, &task, &err), &err, "generate");
  check(qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event, &err), &err, "generate");
  first = now();

  do { /* the fastest of a few: a text of a megabyte takes some ten milliseconds */
    const double begin = now();
    check(qinfer_tokenizer_encode(model, text, size, 0, ids, size + 16, &count, &err), &err,
          "encode");
    if (runs == 0 || now() - begin < encode) encode = now() - begin;
  } while (++runs < 5);
  printf(
      "{\"load_ms\": %.2f, \"first_token_ms\": %.2f, \"private_bytes\": %lu, "
      "\"encode_mb_per_s\": %.2f, \"encoded_tokens\": %lu}\n",
      1e3 * (loaded - start), 1e3 * (first - start), after_load, 1e-6 * (double)size / encode,
      (unsigned long)count);
  qinfer_task_release(task);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
  free(tokens);
  free(ids);
  free(text);
  return 0;
}
