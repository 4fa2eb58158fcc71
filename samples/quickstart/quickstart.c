/* The whole main job through the C API: take an unquantized model, calibrate it, quantize it to
 * INT8 and to INT4, write one file each, map them back, generate text from each, and print what
 * quantization cost. Written to be copied from; C99, no other library. usage: quickstart MODEL
 * OUT-FOLDER [--text HELD-OUT.txt] [--calibration FILE.txt] [--context N] [--windows N] [--prompt
 * TEXT] [--threads N] */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "qinfer/qinfer.h"

static void die(const char* what, const qinfer_error* error) {
  fflush(stdout);
  fprintf(stderr, "quickstart: %s: %s\n", what, error != NULL ? error->message : "failed");
  exit(1);
}

static void check(qinfer_status status, const char* what, const qinfer_error* error) {
  if (status < 0) die(what, error);
}

static void* allocate(size_t bytes) {
  void* memory = malloc(bytes);
  if (memory == NULL) die("out of memory", NULL);
  return memory;
}

static double now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static char* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) die(path, NULL);
  fseek(file, 0, SEEK_END);
  const long length = ftell(file);
  rewind(file);
  char* text = allocate((size_t)length + 1);
  *size = fread(text, 1, (size_t)length, file);
  text[*size] = '\0';
  fclose(file);
  return text;
}

static int ends_with(const char* text, const char* end) {
  const size_t size = strlen(text), end_size = strlen(end);
  return size >= end_size && strcmp(text + size - end_size, end) == 0;
}

/* Bytes of a file, of all parts of a split GGUF, or of the files of a folder that a model is made
 * of: weights, vocabulary, configuration. */
static uint64_t size_on_disk(const char* path) {
  static const char* const endings[] = {".safetensors", ".json", ".model", ".jinja"};
  struct stat status;
  char folder[4096], name[8192];
  if (stat(path, &status) != 0) return 0;
  const int is_folder = S_ISDIR(status.st_mode);
  const char* slash = strrchr(path, '/');
  const char* first = slash == NULL ? path : slash + 1; /* of a split: the first part's name */
  const char* split = is_folder ? NULL : strstr(first, "-00001-of-");
  if (!is_folder && split == NULL) return (uint64_t)status.st_size;
  if (is_folder) {
    snprintf(folder, sizeof(folder), "%s", path);
  } else {
    snprintf(folder, sizeof(folder), "%.*s./", (int)(first - path), path);
  }
  uint64_t total = 0;
  DIR* entries = opendir(folder);
  if (entries == NULL) return 0;
  for (struct dirent* entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
    int counts = 0;
    if (split != NULL) {
      counts = strncmp(entry->d_name, first, (size_t)(split - first) + 1) == 0 &&
               ends_with(entry->d_name, split + strlen("-00001"));
    } else {
      for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); ++i)
        counts |= ends_with(entry->d_name, endings[i]);
    }
    snprintf(name, sizeof(name), "%s/%s", folder, entry->d_name);
    struct stat part;
    if (counts && stat(name, &part) == 0) total += (uint64_t)part.st_size;
  }
  closedir(entries);
  return total;
}

/* Steps a task to its end. On a terminal a percentage that moves; elsewhere a line every ten
 * seconds and one when done. */
static void run(qinfer_task* task, const char* title) {
  qinfer_error error = QINFER_ERROR_INIT;
  const int terminal = isatty(1);
  const double start = now_seconds();
  double last_line = start;
  qinfer_status status = QINFER_PENDING;
  while (status == QINFER_PENDING) {
    status = qinfer_task_step(task, 100 * 1000000u, &error);
    qinfer_progress progress = QINFER_PROGRESS_INIT;
    if (qinfer_task_progress(task, &progress, NULL) != QINFER_OK || progress.total == 0) continue;
    const double percent = 100.0 * (double)progress.done / (double)progress.total;
    if (terminal) {
      printf("\r  %-44s %3.0f %%", title, percent);
    } else if (status == QINFER_PENDING && now_seconds() - last_line >= 10.0) {
      last_line = now_seconds();
      printf("  %-44s %3.0f %%\n", title, percent);
    }
    fflush(stdout);
  }
  check(status, title, &error);
  printf("%s  %-44s done in %.1f s\n", terminal ? "\r" : "", title, now_seconds() - start);
  fflush(stdout);
}

typedef struct settings {
  const char *model, *out, *text, *calibration, *prompt;
  uint32_t context, windows, threads;
} settings;

static qinfer_model* open_model(qinfer_runtime* runtime, const char* path, uint32_t parts) {
  qinfer_error error = QINFER_ERROR_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
  qinfer_model* model = NULL;
  source.path.data = path;
  source.path.size = strlen(path);
  load.parts = parts;
  check(qinfer_model_load(runtime, &source, &load, &model, &error), path, &error);
  return model;
}

static qinfer_calibration* calibrate(qinfer_model* model, const char* path) {
  qinfer_error error = QINFER_ERROR_INIT;
  qinfer_calibration* calibration = NULL;
  qinfer_task* task = NULL;
  check(qinfer_calibration_create(model, NULL, &calibration, &error), "calibration", &error);
  if (path != NULL) {
    size_t size = 0;
    char* text = read_file(path, &size);
    check(qinfer_calibration_add_text(calibration, text, size, &error), path, &error);
    free(text);
  } else {
    check(qinfer_calibration_self_generate(calibration, &error), "calibration", &error);
  }
  check(qinfer_calibration_run_begin(calibration, &task, &error), "calibration", &error);
  run(task, "calibrate: 128 samples of 512 tokens");
  qinfer_task_release(task);
  return calibration;
}

static void quantize(qinfer_model* model, qinfer_calibration* calibration, const char* scheme,
                     const char* path) {
  qinfer_error error = QINFER_ERROR_INIT;
  qinfer_quantize_options options = QINFER_QUANTIZE_OPTIONS_INIT;
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_task* task = NULL;
  char title[64];
  options.scheme.data = scheme;
  options.scheme.size = strlen(scheme);
  options.calibration = calibration;
  options.flags = QINFER_QUANTIZE_NO_EVALUATION; /* measured below, for all three alike */
  target.path.data = path;
  target.path.size = strlen(path);
  check(qinfer_quantize_begin(model, &options, &target, &task, &error), "quantize", &error);
  snprintf(title, sizeof(title), "quantize to %s, groups of 32", scheme);
  run(task, title);
  qinfer_task_release(task);
}

/* Text after `prompt`, always the likeliest token. The caller frees it. */
static char* generate(qinfer_engine* engine, const char* prompt) {
  qinfer_error error = QINFER_ERROR_INIT;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  char* text = allocate(1 << 16);
  size_t used = 0;
  check(qinfer_session_create(engine, &session, &error), "session", &error);
  check(qinfer_session_append_text(session, prompt, QINFER_STRLEN, 0, &error), "prompt", &error);
  options.flags = QINFER_GENERATE_GREEDY;
  options.max_tokens = 48;
  check(qinfer_generate_begin(session, &options, &task, &error), "generate", &error);
  for (;;) {
    qinfer_event event = QINFER_EVENT_INIT;
    const qinfer_status status =
        qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event, &error);
    check(status, "generate", &error);
    if (status == QINFER_END) break;
    if (status == QINFER_OK && used + event.text.size < (1 << 16) - 1) {
      memcpy(text + used, event.text.data, event.text.size);
      used += event.text.size;
    }
  }
  text[used] = '\0';
  qinfer_task_release(task);
  qinfer_session_release(session);
  return text;
}

/* Seconds to append `count` tokens of `tokens` and compute them. */
static double feed(qinfer_session* session, const int32_t* tokens, size_t count) {
  qinfer_error error = QINFER_ERROR_INIT;
  qinfer_task* task = NULL;
  const double start = now_seconds();
  check(qinfer_session_append(session, tokens, count, &error), "speed", &error);
  check(qinfer_session_prefill_begin(session, &task, &error), "speed", &error);
  check(qinfer_task_wait(task, UINT64_MAX, &error), "speed", &error);
  qinfer_task_release(task);
  return now_seconds() - start;
}

typedef struct row {
  const char* name;
  uint64_t disk, memory;
  double perplexity, kl, top1, prefill, decode;
  char* sample;
} row;

/* Loads one variant and fills its row; `reference` is the original, or NULL for the original
 * itself. */
static row measure(qinfer_runtime* runtime, const settings* options, const char* name,
                   const char* path, const char* reference, const int32_t* tokens, size_t count) {
  qinfer_error error = QINFER_ERROR_INIT;
  row result = {name, size_on_disk(path), 0, 0, 0, 1, 0, 0, NULL};
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
  qinfer_engine_options engine_options = QINFER_ENGINE_OPTIONS_INIT;
  char title[96];
  qinfer_model* model = open_model(runtime, path, QINFER_PARTS_ALL);
  engine_options.context_tokens = 640;
  check(qinfer_engine_create(model, &engine_options, &engine, &error), "engine", &error);
  check(qinfer_runtime_memory(runtime, &usage, &error), "memory", &error);
  result.memory = usage.used_bytes + usage.mapped_bytes;
  result.sample = generate(engine, options->prompt);
  check(qinfer_session_create(engine, &session, &error), "session", &error);
  const size_t prompt = count < 256 ? count : 256;
  feed(session, tokens, prompt < 32 ? prompt : 32);
  check(qinfer_session_truncate(session, 0, &error), "speed", &error);
  result.prefill = (double)prompt / feed(session, tokens, prompt);
  check(qinfer_session_truncate(session, 0, &error), "speed", &error);
  double seconds = 0;
  for (size_t i = 0; i < 64 && i < count; ++i) seconds += feed(session, tokens + i, 1);
  result.decode = 64 / seconds;
  qinfer_session_release(session);
  qinfer_engine_release(engine);

  qinfer_perplexity_options perplexity = QINFER_PERPLEXITY_OPTIONS_INIT;
  qinfer_model* original =
      reference != NULL ? open_model(runtime, reference, QINFER_PARTS_ALL) : NULL;
  qinfer_task* task = NULL;
  qinfer_report* report = NULL;
  perplexity.context = options->context;
  perplexity.max_windows = options->windows;
  perplexity.reference = original;
  check(qinfer_perplexity_begin(model, tokens, count, &perplexity, &task, &error), "perplexity",
        &error);
  snprintf(title, sizeof(title), "measure %s on held-out text", name);
  run(task, title);
  check(qinfer_task_take_report(task, &report, &error), "perplexity", &error);
  check(qinfer_report_double(report, "perplexity", QINFER_STRLEN, &result.perplexity, &error),
        "perplexity", &error);
  if (original != NULL) {
    check(qinfer_report_double(report, "kl_mean", QINFER_STRLEN, &result.kl, &error), "divergence",
          &error);
    check(qinfer_report_double(report, "top1", QINFER_STRLEN, &result.top1, &error), "agreement",
          &error);
  }
  qinfer_report_release(report);
  qinfer_task_release(task);
  qinfer_model_release(original);
  qinfer_model_release(model);
  return result;
}

static void print_sample(const row* variant, const char* prompt) {
  printf("\n%s:\n  %s%s\n", variant->name, prompt, variant->sample);
}

int main(int argc, char** argv) {
  settings options = {NULL, NULL, NULL, NULL, "In the beginning", 256, 0, 0};
  for (int i = 1; i < argc; ++i) {
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
    if (argv[i][0] != '-') {
      if (options.model == NULL)
        options.model = argv[i];
      else if (options.out == NULL)
        options.out = argv[i];
      continue;
    }
    if (value == NULL) break;
    if (strcmp(argv[i], "--text") == 0) options.text = value;
    if (strcmp(argv[i], "--calibration") == 0) options.calibration = value;
    if (strcmp(argv[i], "--prompt") == 0) options.prompt = value;
    if (strcmp(argv[i], "--context") == 0) options.context = (uint32_t)strtoul(value, NULL, 10);
    if (strcmp(argv[i], "--windows") == 0) options.windows = (uint32_t)strtoul(value, NULL, 10);
    if (strcmp(argv[i], "--threads") == 0) options.threads = (uint32_t)strtoul(value, NULL, 10);
    ++i;
  }
  if (options.model == NULL || options.out == NULL || options.text == NULL) {
    fprintf(stderr,
            "usage: quickstart MODEL OUT-FOLDER --text HELD-OUT.txt [--calibration FILE.txt] "
            "[--context N] [--windows N]\n"
            "                  [--prompt TEXT] [--threads N]\n");
    return 2;
  }
  qinfer_error error = QINFER_ERROR_INIT;
  qinfer_runtime_options runtime_options = QINFER_RUNTIME_OPTIONS_INIT;
  qinfer_runtime* runtime = NULL;
  char int8_path[4096], int4_path[4096];
  snprintf(int8_path, sizeof(int8_path), "%s/model.int8.qinfer", options.out);
  snprintf(int4_path, sizeof(int4_path), "%s/model.int4.qinfer", options.out);
  runtime_options.threads = options.threads;
  check(qinfer_runtime_create(QINFER_ABI, &runtime_options, &runtime, &error), "runtime", &error);

  printf("%s\n", options.model);
  qinfer_model* header = open_model(runtime, options.model, QINFER_PARTS_HEADER);
  qinfer_calibration* calibration = calibrate(header, options.calibration);
  quantize(header, calibration, "int8", int8_path);
  quantize(header, calibration, "int4", int4_path);
  qinfer_calibration_release(calibration);
  qinfer_model_release(header);

  qinfer_model* vocabulary = open_model(runtime, options.model, QINFER_PARTS_VOCABULARY);
  size_t size = 0, count = 0;
  char* text = read_file(options.text, &size);
  int32_t* tokens = allocate((size + 8) * sizeof(int32_t));
  check(qinfer_tokenizer_encode(vocabulary, text, size, QINFER_ENCODE_LITERAL, tokens, size + 8,
                                &count, &error),
        "held-out text", &error);
  qinfer_model_release(vocabulary);

  row rows[3];
  rows[0] = measure(runtime, &options, "original", options.model, NULL, tokens, count);
  rows[1] = measure(runtime, &options, "INT8", int8_path, options.model, tokens, count);
  rows[2] = measure(runtime, &options, "INT4", int4_path, options.model, tokens, count);
  print_sample(&rows[0], options.prompt);
  print_sample(&rows[2], options.prompt);

  printf("\n%-10s %10s %10s %11s %9s %9s %11s %11s\n", "", "on disk", "in memory", "perplexity",
         "KL mean", "same top", "prefill", "decode");
  for (int i = 0; i < 3; ++i) {
    const row* r = &rows[i];
    printf("%-10s %7.2f MB %7.2f MB %11.4f %9.5f %7.2f %% %7.0f t/s %7.0f t/s\n", r->name,
           1e-6 * (double)r->disk, 1e-6 * (double)r->memory, r->perplexity, r->kl, 100.0 * r->top1,
           r->prefill, r->decode);
    free(r->sample);
  }
  printf("\nWritten: %s and %s\n", int8_path, int4_path);
  free(tokens);
  free(text);
  qinfer_runtime_release(runtime);
  return 0;
}
