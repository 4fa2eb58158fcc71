/* Threads of the host: an executor that runs our loops on them, io tables that are read on them,
 * and one model that several of them ask at the same time. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "harness.h"

enum { kThreads = 3, kTokens = 10, kIds = 64, kRounds = 20 };
static const char kText[] = "And the Lord spake unto Moses, saying: O Romeo, wherefore art thou?";

/* One loop, of which every thread takes the next index. */
typedef struct loop {
  void (*body)(void*, uint32_t);
  void* context;
  uint32_t count, next;
} loop;

static void* run_loop(void* user) {
  loop* self = (loop*)user;
  for (;;) {
    const uint32_t index = __atomic_fetch_add(&self->next, 1, __ATOMIC_RELAXED);
    if (index >= self->count) return NULL;
    self->body(self->context, index);
  }
}

/* Starts its threads for the loop alone: none of them has seen anything of ours before. */
static void threaded_for(void* user, uint32_t count, void (*body)(void*, uint32_t), void* context) {
  loop work = {NULL, NULL, 0, 0};
  pthread_t threads[kThreads - 1];
  int i;
  work.body = body;
  work.context = context;
  work.count = count;
  ++*(long*)user;
  for (i = 0; i < kThreads - 1; ++i) pthread_create(&threads[i], NULL, run_loop, &work);
  run_loop(&work);
  for (i = 0; i < kThreads - 1; ++i) pthread_join(threads[i], NULL);
}

static qinfer_str text_of(const memory_file* file) {
  qinfer_str text;
  text.data = (const char*)file->bytes;
  text.size = file->size;
  return text;
}

/* Loads the model through an io table and generates. */
static void generate_from(memory_file* files, const qinfer_runtime_options* options,
                          int32_t* tokens) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = NULL;
  qinfer_model* model = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_io reader = memory_reader(&files[0]);
  files[0].reads = files[0].drops = 0;
  source.io = &reader;
  source.config_json = text_of(&files[1]);
  source.tokenizer_json = text_of(&files[2]);
  source.tokenizer_config_json = text_of(&files[3]);
  CHECK_OK(qinfer_runtime_create(QINFER_ABI, options, &runtime, &err));
  CHECK_OK(qinfer_model_load(runtime, &source, NULL, &model, &err));
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK(generate_greedy(session, kText, kTokens, tokens) == kTokens);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
  CHECK(files[0].reads > 0 && files[0].drops == 1);
}

static void test_executor(void) {
  static const char* const kNames[] = {"model.safetensors", "config.json", "tokenizer.json",
                                       "tokenizer_config.json"};
  memory_file files[4];
  int32_t expected[kTokens], tokens[kTokens];
  qinfer_executor table = QINFER_EXECUTOR_INIT;
  qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
  long loops = 0;
  int i;
  for (i = 0; i < 4; ++i) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", model_path(), kNames[i]);
    CHECK(read_file(path, &files[i]));
  }
  options.threads = 1;
  generate_from(files, &options, expected);
  options.threads = kThreads;
  memset(tokens, 0, sizeof tokens);
  generate_from(files, &options, tokens);
  CHECK(memcmp(tokens, expected, sizeof tokens) == 0);
  table.user = &loops;
  table.parallel_for = threaded_for;
  table.max_concurrency = kThreads;
  options.executor = &table;
  memset(tokens, 0, sizeof tokens);
  generate_from(files, &options, tokens);
  CHECK(memcmp(tokens, expected, sizeof tokens) == 0);
  CHECK(loops > 100);
  for (i = 0; i < 4; ++i) memory_file_free(&files[i]);
}

/* Threads begin at once, with a call that counts no memory: what all of them touch atomically puts
 * them in order, and hides races from the thread sanitizer. */
static pthread_barrier_t start;

/* What one of several threads asks of the model, and the answers that it has. */
typedef struct caller {
  qinfer_model* model;
  int together;
  int32_t ids[kIds];
  size_t id_count, decoded_size, rendered_size, report_size, names_size;
  char decoded[256], rendered[256];
} caller;

static void* ask(void* user) {
  caller* self = (caller*)user;
  qinfer_error err = QINFER_ERROR_INIT;
  const qinfer_message message = {{"user", 4}, {kText, sizeof kText - 1}};
  qinfer_render_options options = QINFER_RENDER_OPTIONS_INIT;
  int round;
  options.messages = &message;
  options.message_count = 1;
  if (self->together) pthread_barrier_wait(&start);
  for (round = 0; round < kRounds; ++round) {
    qinfer_report* report = NULL;
    qinfer_str json;
    qinfer_tensor_info tensor = QINFER_TENSOR_INFO_INIT;
    CHECK_OK(qinfer_model_tensor(self->model, (uint32_t)round, &tensor, &err));
    self->names_size += tensor.name.size + tensor.format.size;
    CHECK_OK(qinfer_tokenizer_encode(self->model, kText, sizeof kText - 1, 0, self->ids, kIds,
                                     &self->id_count, &err));
    CHECK_OK(qinfer_tokenizer_decode(self->model, self->ids, self->id_count, 0, self->decoded,
                                     sizeof self->decoded, &self->decoded_size, NULL, &err));
    CHECK_OK(qinfer_template_render(NULL, self->model, &options, self->rendered,
                                    sizeof self->rendered, &self->rendered_size, &err));
    CHECK_OK(qinfer_model_report(self->model, QINFER_MODEL_REPORT_INFO, &report, &err));
    CHECK_OK(qinfer_report_render(report, QINFER_RENDER_JSON_COMPACT, &json, &err));
    self->report_size = json.size;
    qinfer_report_release(report);
  }
  return NULL;
}

static void test_shared_model(void) {
  qinfer_runtime* runtime = make_runtime();
  qinfer_model* model = load_model(runtime);
  static caller alone, together[kThreads];
  pthread_t threads[kThreads];
  int i;
  pthread_barrier_init(&start, NULL, kThreads);
  for (i = 0; i < kThreads; ++i) {
    together[i].model = model;
    together[i].together = 1;
  }
  alone.model = model;
  /* Before the one that is alone: what is made at the first call is made by several. */
  for (i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, ask, &together[i]);
  for (i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  ask(&alone);
  CHECK(alone.id_count > 10 && alone.rendered_size > sizeof kText && alone.report_size > 100);
  for (i = 0; i < kThreads; ++i) {
    together[i].together = 0;
    CHECK(memcmp(&alone, &together[i], sizeof alone) == 0);
  }
  pthread_barrier_destroy(&start);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
}

void test_host_threads(void) {
  test_executor();
  test_shared_model();
}
