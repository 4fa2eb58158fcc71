/* What prompt lookup gains: generates after the same prompt without and with it, in turns, and
 * prints the medians. The tokens must be the same; where they are not, that is an error. Not a
 * test.
 *
 * usage: lookup_bench MODEL TEXT [-s SKIP] [-c BYTES] [-n TOKENS] [-r REPETITIONS] [-t THREADS]
 *                     [-T TEMPERATURE] [-i INSTRUCTION]
 * The prompt is the instruction and BYTES of the file TEXT after SKIP of them, through the model's
 * chat template where it has one. Times begin after the prompt has been computed. */
#include <qinfer/qinfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_TOKENS 4096
#define MOST_RUNS 99

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

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

typedef struct result {
  int32_t tokens[MOST_TOKENS];
  uint32_t count;
  double seconds;
  uint64_t drafted, accepted, steps;
  char* text; /* where to put it, or NULL */
} result;

static void generate(const qinfer_session* after, const qinfer_generate_options* options,
                     result* out) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  qinfer_event event = QINFER_EVENT_INIT;
  qinfer_status status;
  double start;
  out->count = 0;
  check(qinfer_session_fork(after, &session, &err), &err, "fork");
  start = now();
  check(qinfer_generate_begin(session, options, &task, &err), &err, "generate");
  while ((status = qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event, &err)) ==
         QINFER_OK) {
    if (event.token >= 0) out->tokens[out->count++] = event.token;
    if (out->text != NULL) strncat(out->text, event.text.data, (size_t)event.text.size);
  }
  check(status, &err, "generate");
  out->seconds = now() - start;
  check(qinfer_generate_lookup_counts(task, &out->drafted, &out->accepted, &out->steps, &err), &err,
        "counts");
  qinfer_task_release(task);
  qinfer_session_release(session);
}

static char* read_text(const char* path, long skip, size_t most, size_t* size) {
  FILE* file = fopen(path, "rb");
  char* text = (char*)malloc(most + 1);
  if (file == NULL || text == NULL || fseek(file, skip, SEEK_SET) != 0) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(1);
  }
  *size = fread(text, 1, most, file);
  fclose(file);
  *size = (size_t)qinfer_utf8_complete(text, *size);
  text[*size] = 0;
  return text;
}

int main(int argc, char** argv) {
  const char* instruction = "Summarise this text by copying its most important sentences:";
  size_t bytes = 2400, size = 0;
  uint32_t tokens = 192, runs = 7, threads = 2, i, prompt = 0;
  float temperature = 0.0f;
  long skip = 0;
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime_options runtime_options = QINFER_RUNTIME_OPTIONS_INIT;
  qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_engine_options engine_options = QINFER_ENGINE_OPTIONS_INIT;
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  qinfer_render_options chat = QINFER_RENDER_OPTIONS_INIT;
  qinfer_message message;
  qinfer_runtime* runtime = NULL;
  qinfer_model* model = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  static result plain, lookup;
  static double speeds[2][MOST_RUNS];
  char *text, *content;
  int arg;
  if (argc < 3) {
    fprintf(stderr,
            "usage: lookup_bench MODEL TEXT [-s SKIP] [-c BYTES] [-n TOKENS] [-r REPETITIONS] "
            "[-t THREADS] [-T TEMPERATURE] [-i INSTRUCTION]\n");
    return 2;
  }
  for (arg = 3; arg + 1 < argc; arg += 2) {
    const char* value = argv[arg + 1];
    if (strcmp(argv[arg], "-s") == 0) skip = strtol(value, NULL, 10);
    if (strcmp(argv[arg], "-c") == 0) bytes = (size_t)strtoul(value, NULL, 10);
    if (strcmp(argv[arg], "-n") == 0) tokens = (uint32_t)strtoul(value, NULL, 10);
    if (strcmp(argv[arg], "-r") == 0) runs = (uint32_t)strtoul(value, NULL, 10);
    if (strcmp(argv[arg], "-t") == 0) threads = (uint32_t)strtoul(value, NULL, 10);
    if (strcmp(argv[arg], "-T") == 0) temperature = (float)atof(value);
    if (strcmp(argv[arg], "-i") == 0) instruction = value;
  }
  if (tokens == 0 || tokens > MOST_TOKENS) tokens = MOST_TOKENS;
  if (runs == 0 || runs > MOST_RUNS) runs = 1;
  text = read_text(argv[2], skip, bytes, &size);
  content = (char*)malloc(size + strlen(instruction) + 3);
  if (content == NULL) return 1;
  sprintf(content, "%s\n\n%s", instruction, text);
  runtime_options.threads = threads;
  check(qinfer_runtime_create(QINFER_ABI, &runtime_options, &runtime, &err), &err, "runtime");
  source.path.data = argv[1];
  source.path.size = QINFER_STRLEN;
  check(qinfer_model_load(runtime, &source, &load, &model, &err), &err, argv[1]);
  engine_options.max_sessions = 2;
  check(qinfer_engine_create(model, &engine_options, &engine, &err), &err, "engine");
  check(qinfer_session_create(engine, &session, &err), &err, "session");
  message.role.data = "user";
  message.role.size = 4;
  message.content.data = content;
  message.content.size = QINFER_STRLEN;
  chat.messages = &message;
  chat.message_count = 1;
  if (qinfer_session_append_chat(session, &chat, &err) < QINFER_OK) {
    check(qinfer_session_append_text(session, content, QINFER_STRLEN, 0, &err), &err, "prompt");
  }
  check(qinfer_session_length(session, &prompt, &err), &err, "session");
  check(qinfer_session_prefill_begin(session, &task, &err), &err, "prefill");
  check(qinfer_task_wait(task, UINT64_MAX, &err), &err, "prefill");
  qinfer_task_release(task);
  options.max_tokens = tokens;
  options.temperature = temperature;
  options.seed = 1;
  for (i = 0; i <= runs; ++i) { /* the first of each is not counted */
    options.flags = temperature == 0.0f ? QINFER_GENERATE_GREEDY : 0;
    plain.text = i == 0 ? (char*)calloc(1, 64 * (size_t)tokens + 1) : NULL;
    generate(session, &options, &plain);
    if (i == 0 && plain.text != NULL) printf("%s\n\n", plain.text);
    free(plain.text);
    options.flags |= QINFER_GENERATE_PROMPT_LOOKUP;
    generate(session, &options, &lookup);
    if (plain.count != lookup.count ||
        memcmp(plain.tokens, lookup.tokens, plain.count * sizeof plain.tokens[0]) != 0) {
      fprintf(stderr, "prompt lookup has changed the tokens\n");
      return 1;
    }
    if (i == 0) continue;
    speeds[0][i - 1] = plain.count / plain.seconds;
    speeds[1][i - 1] = lookup.count / lookup.seconds;
  }
  for (i = 0; i < 2; ++i) qsort(speeds[i], runs, sizeof(double), ascending);
  printf("prompt %u tokens, generated %u, %u runs each, tokens a second: median (min to max)\n",
         prompt, plain.count, runs);
  for (i = 0; i < 2; ++i) {
    printf("%s %.1f (%.1f to %.1f)\n", i == 0 ? "plain  " : "lookup ", speeds[i][runs / 2],
           speeds[i][0], speeds[i][runs - 1]);
  }
  printf("ratio %.2f; last run: drafted %u, accepted %u, steps %u\n",
         speeds[1][runs / 2] / speeds[0][runs / 2], (unsigned)lookup.drafted,
         (unsigned)lookup.accepted, (unsigned)lookup.steps);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
  free(content);
  free(text);
  return 0;
}
