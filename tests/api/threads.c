/* Who may be inside at the same time: second steppers, sessions entered twice, background tasks,
 * cancelling from elsewhere, several sessions of one engine on several threads. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

static void sleep_ms(int ms) {
  struct timespec time;
  time.tv_sec = ms / 1000;
  time.tv_nsec = (long)(ms % 1000) * 1000000;
  nanosleep(&time, NULL);
}

/* A reader that stops inside its first read until it is let go, and tries things from in there. */
typedef struct gate {
  memory_file file;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int entered, inside, open;
  qinfer_task* task;
  qinfer_status step_inside, wait_inside, progress_inside;
  int32_t step_detail;
  qinfer_status stepped;
} gate;

static qinfer_status gate_size(void* user, uint64_t* out) {
  *out = ((gate*)user)->file.size;
  return QINFER_OK;
}

static qinfer_status gate_read(void* user, uint64_t offset, void* dst, size_t n) {
  gate* g = (gate*)user;
  int first;
  pthread_mutex_lock(&g->mutex);
  first = !g->entered;
  g->entered = 1;
  pthread_mutex_unlock(&g->mutex);
  if (first) {
    qinfer_error err = QINFER_ERROR_INIT;
    qinfer_progress progress = QINFER_PROGRESS_INIT;
    g->step_inside = qinfer_task_step(g->task, 0, &err);
    g->step_detail = err.detail;
    g->wait_inside = qinfer_task_wait(g->task, 0, &err);
    g->progress_inside = qinfer_task_progress(g->task, &progress, &err);
    pthread_mutex_lock(&g->mutex);
    g->inside = 1;
    pthread_cond_broadcast(&g->changed);
    while (!g->open) pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
  }
  memcpy(dst, g->file.bytes + offset, n);
  return QINFER_OK;
}

static void gate_drop(void* user) { ++((gate*)user)->file.drops; }

static void* step_to_end(void* user) {
  gate* g = (gate*)user;
  qinfer_error err = QINFER_ERROR_INIT;
  g->stepped = qinfer_task_step(g->task, QINFER_BUDGET_UNLIMITED, &err);
  return NULL;
}

static void test_second_stepper(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_io io = QINFER_IO_INIT;
  memory_file config;
  char path[600];
  pthread_t thread;
  gate g;
  memset(&g, 0, sizeof g);
  snprintf(path, sizeof path, "%s/model.safetensors", model_path());
  CHECK(read_file(path, &g.file));
  snprintf(path, sizeof path, "%s/config.json", model_path());
  CHECK(read_file(path, &config));
  pthread_mutex_init(&g.mutex, NULL);
  pthread_cond_init(&g.changed, NULL);
  io.user = &g;
  io.size = gate_size;
  io.read_at = gate_read;
  io.drop = gate_drop;
  source.io = &io;
  source.config_json.data = (const char*)config.bytes;
  source.config_json.size = config.size;
  CHECK_OK(qinfer_model_load_begin(runtime, &source, NULL, &g.task, &err));
  pthread_create(&thread, NULL, step_to_end, &g);
  pthread_mutex_lock(&g.mutex);
  while (!g.inside) pthread_cond_wait(&g.changed, &g.mutex);
  pthread_mutex_unlock(&g.mutex);
  CHECK_FAILS(qinfer_task_step(g.task, 0, &err), QINFER_E_BUSY, QINFER_DETAIL_STEPPED);
  CHECK_STATUS(qinfer_task_wait(g.task, 2000000, &err), QINFER_PENDING);
  {
    /* Another task of the runtime does not get the turn, and says so within its budget. */
    qinfer_task* other = NULL;
    qinfer_source second = QINFER_SOURCE_INIT;
    second.path.data = model_path();
    second.path.size = QINFER_STRLEN;
    CHECK_OK(qinfer_model_load_begin(runtime, &second, NULL, &other, &err));
    CHECK_STATUS(qinfer_task_step(other, 1000000, &err), QINFER_PENDING);
    pthread_mutex_lock(&g.mutex);
    g.open = 1;
    pthread_cond_broadcast(&g.changed);
    pthread_mutex_unlock(&g.mutex);
    CHECK_OK(qinfer_task_wait(other, UINT64_MAX, &err));
    qinfer_task_release(other);
  }
  CHECK_OK(qinfer_task_wait(g.task, UINT64_MAX, &err));
  pthread_join(thread, NULL);
  CHECK(g.stepped == QINFER_OK);
  CHECK(g.step_inside == QINFER_E_BUSY);
  CHECK(g.step_detail == QINFER_DETAIL_STEPPED || g.step_detail == QINFER_DETAIL_REENTERED);
  CHECK(g.wait_inside == QINFER_PENDING && g.progress_inside == QINFER_OK);
  qinfer_task_release(g.task);
  CHECK(g.file.drops == 1);
  memory_file_free(&g.file);
  memory_file_free(&config);
  pthread_mutex_destroy(&g.mutex);
  pthread_cond_destroy(&g.changed);
}

static void test_busy_session(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_engine* engine = NULL;
  qinfer_session *session = NULL, *fork = NULL;
  qinfer_task *task = NULL, *second = NULL;
  uint32_t length;
  size_t count;
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_FAILS(qinfer_session_logits(session, NULL, 0, &count, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NONE);
  CHECK_OK(qinfer_session_append_text(session, "Then", QINFER_STRLEN, 0, &err));
  CHECK_OK(qinfer_generate_begin(session, NULL, &task, &err));
  CHECK_FAILS(qinfer_generate_begin(session, NULL, &second, &err), QINFER_E_BUSY,
              QINFER_DETAIL_SESSION_IN_USE);
  CHECK_FAILS(qinfer_session_append_text(session, "x", 1, 0, &err), QINFER_E_BUSY,
              QINFER_DETAIL_SESSION_IN_USE);
  CHECK_FAILS(qinfer_session_length(session, &length, &err), QINFER_E_BUSY,
              QINFER_DETAIL_SESSION_IN_USE);
  CHECK_FAILS(qinfer_session_fork(session, &fork, &err), QINFER_E_BUSY,
              QINFER_DETAIL_SESSION_IN_USE);
  CHECK_FAILS(qinfer_session_truncate(session, 0, &err), QINFER_E_BUSY,
              QINFER_DETAIL_SESSION_IN_USE);
  qinfer_task_release(task);
  CHECK_OK(qinfer_session_length(session, &length, &err));
  CHECK(length > 0);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
}

static void test_background(qinfer_model* model, qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  qinfer_event event = QINFER_EVENT_INIT;
  qinfer_progress progress = QINFER_PROGRESS_INIT;
  int32_t expected[16], token_count = 0;
  qinfer_status status;
  int i;
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK(generate_greedy(session, "In the", 16, expected) == 16);
  qinfer_session_release(session);
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_OK(qinfer_session_append_text(session, "In the", QINFER_STRLEN, 0, &err));
  options.max_tokens = 16;
  options.flags = QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS;
  CHECK_OK(qinfer_generate_begin(session, &options, &task, &err));
  CHECK_OK(qinfer_task_run(task, &err));
  CHECK_OK(qinfer_task_run(task, &err));
  status = qinfer_task_step(task, 0, &err);
  CHECK(status == QINFER_E_BUSY || status == QINFER_OK);
  CHECK_OK(qinfer_task_progress(task, &progress, &err));
  CHECK(progress.background == 1);
  while ((status = qinfer_generate_next(task, 5000000000u, &event, &err)) == QINFER_OK) {
    if (event.token >= 0 && token_count < 16) CHECK(event.token == expected[token_count++]);
  }
  CHECK(status == QINFER_END && token_count == 16);
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  qinfer_task_release(task);
  /* Released at once, at any moment: the session is free afterwards. */
  for (i = 0; i < 20; ++i) {
    options.max_tokens = 0;
    CHECK_OK(qinfer_generate_begin(session, &options, &task, &err));
    CHECK_OK(qinfer_task_run(task, &err));
    if (i % 4 == 1) sleep_ms(1);
    if (i % 4 == 2) qinfer_task_cancel(task);
    if (i % 4 == 3) CHECK(qinfer_task_wait(task, 3000000, &err) == QINFER_PENDING);
    qinfer_task_release(task);
    CHECK_OK(qinfer_session_truncate(session, 4, &err));
  }
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  (void)runtime;
}

static void test_background_runtime(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  const int threads = thread_count();
  qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
  qinfer_runtime* runtime = NULL;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_task* tasks[3];
  qinfer_model* model = NULL;
  int i;
  options.flags = QINFER_RUNTIME_BACKGROUND_TASKS;
  source.path.data = model_path();
  source.path.size = QINFER_STRLEN;
  CHECK_OK(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err));
  for (i = 0; i < 3; ++i) {
    CHECK_OK(qinfer_model_load_begin(runtime, &source, NULL, &tasks[i], &err));
  }
  qinfer_runtime_release(runtime);
  CHECK_OK(qinfer_task_wait(tasks[1], UINT64_MAX, &err));
  CHECK_OK(qinfer_task_take_model(tasks[1], &model, &err));
  for (i = 0; i < 3; ++i) qinfer_task_release(tasks[i]);
  CHECK(thread_count() > threads);
  qinfer_model_release(model);
  CHECK(threads_settle(threads));
}

/* Cancels a task from another thread, once it is as far as asked: tokens of a generation, or bytes
 * of a quantization. */
typedef struct canceller {
  qinfer_task* task;
  int generation;
  uint64_t after;
} canceller;

static void* cancel_later(void* user) {
  const canceller* c = (const canceller*)user;
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_progress progress = QINFER_PROGRESS_INIT;
  for (;;) {
    uint32_t prompt = 0, generated = 0;
    CHECK_OK(qinfer_task_progress(c->task, &progress, &err));
    if (c->generation) CHECK_OK(qinfer_generate_counts(c->task, &prompt, &generated, &err));
    if (progress.status != QINFER_PENDING) break;
    if ((c->generation ? generated : progress.done) >= c->after) break;
    sleep_ms(1);
  }
  qinfer_task_cancel(c->task);
  return NULL;
}

/* Steps without a budget on this thread while another one cancels. */
static qinfer_status step_cancelled(canceller* c) {
  qinfer_error err = QINFER_ERROR_INIT;
  pthread_t thread;
  qinfer_status status;
  pthread_create(&thread, NULL, cancel_later, c);
  status = qinfer_task_step(c->task, QINFER_BUDGET_UNLIMITED, &err);
  pthread_join(thread, NULL);
  CHECK(status == QINFER_E_CANCELLED || status == QINFER_OK);
  CHECK_STATUS(qinfer_task_step(c->task, 0, &err), status);
  return status;
}

/* A generation that would go on for a long time ends soon after it is cancelled. */
static void test_cancel_from_elsewhere(qinfer_model* model) {
  enum { kLong = 900 };
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_engine_options engine_options = QINFER_ENGINE_OPTIONS_INIT;
  qinfer_engine* engine = NULL;
  int i;
  engine_options.context_tokens = 1024;
  CHECK_OK(qinfer_engine_create(model, &engine_options, &engine, &err));
  for (i = 0; i < 5; ++i) {
    qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
    qinfer_session* session = NULL;
    canceller c = {NULL, 1, 0};
    uint32_t prompt = 0, generated = 0;
    options.flags = QINFER_GENERATE_IGNORE_EOS;
    options.seed = (uint64_t)i;
    options.max_tokens = kLong;
    CHECK_OK(qinfer_session_create(engine, &session, &err));
    CHECK_OK(qinfer_session_append_text(session, "Upon", QINFER_STRLEN, 0, &err));
    CHECK_OK(qinfer_generate_begin(session, &options, &c.task, &err));
    /* The last one is let go on, which says how far that would be. */
    c.after = i == 4 ? UINT64_MAX : (uint64_t)i * 20;
    CHECK(step_cancelled(&c) == (i == 4 ? QINFER_OK : QINFER_E_CANCELLED));
    CHECK_OK(qinfer_generate_counts(c.task, &prompt, &generated, &err));
    CHECK(i == 4 ? generated == kLong : generated >= c.after && generated < kLong / 2);
    CHECK_OK(qinfer_session_append_text(session, " a", QINFER_STRLEN, 0, &err));
    qinfer_task_release(c.task);
    qinfer_session_release(session);
  }
  qinfer_engine_release(engine);
}

/* So does a quantization, and leaves no file. */
static void test_cancelled_quantization(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_quantize_options options = QINFER_QUANTIZE_OPTIONS_INIT;
  char path[300];
  int i;
  snprintf(path, sizeof path, "%s", temporary_path("cancelled.qinfer"));
  target.path.data = path;
  target.path.size = QINFER_STRLEN;
  options.flags = QINFER_QUANTIZE_NO_CALIBRATION | QINFER_QUANTIZE_NO_EVALUATION;
  for (i = 0; i < 3; ++i) {
    qinfer_progress progress = QINFER_PROGRESS_INIT;
    canceller c = {NULL, 0, 0};
    c.after = i == 2 ? UINT64_MAX : (uint64_t)i; /* at once, after the first group, never */
    CHECK_OK(qinfer_quantize_begin(model, &options, &target, &c.task, &err));
    CHECK(step_cancelled(&c) == (i == 2 ? QINFER_OK : QINFER_E_CANCELLED));
    CHECK_OK(qinfer_task_progress(c.task, &progress, &err));
    CHECK(progress.total > 1000000);
    CHECK(i == 2 ? progress.done == progress.total : progress.done < progress.total / (2 - i));
    CHECK((access(path, F_OK) == 0) == (i == 2));
    qinfer_task_release(c.task);
  }
  unlink(path);
}

typedef struct worker {
  qinfer_engine* engine;
  const char* prompt;
  int32_t tokens[12];
} worker;

static void* work(void* user) {
  worker* w = (worker*)user;
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_session* session = NULL;
  CHECK_OK(qinfer_session_create(w->engine, &session, &err));
  CHECK(generate_greedy(session, w->prompt, 12, w->tokens) == 12);
  qinfer_session_release(session);
  return NULL;
}

static void test_parallel_sessions(qinfer_model* model) {
  enum { kWorkers = 4 };
  static const char* const kPrompts[kWorkers] = {"In the beginning", "O Romeo", "And", "The king"};
  qinfer_error err = QINFER_ERROR_INIT;
  worker alone[kWorkers], together[kWorkers];
  pthread_t threads[kWorkers];
  qinfer_engine* engine = NULL;
  int i;
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  for (i = 0; i < kWorkers; ++i) {
    alone[i].engine = together[i].engine = engine;
    alone[i].prompt = together[i].prompt = kPrompts[i];
    work(&alone[i]);
  }
  for (i = 0; i < kWorkers; ++i) pthread_create(&threads[i], NULL, work, &together[i]);
  for (i = 0; i < kWorkers; ++i) pthread_join(threads[i], NULL);
  for (i = 0; i < kWorkers; ++i) {
    CHECK(memcmp(alone[i].tokens, together[i].tokens, sizeof alone[i].tokens) == 0);
  }
  qinfer_engine_release(engine);
}

void test_threads(void) {
  qinfer_runtime* runtime = make_runtime();
  qinfer_model* model = load_model(runtime);
  test_second_stepper(runtime);
  if (model != NULL) {
    test_busy_session(model);
    test_background(model, runtime);
    test_cancel_from_elsewhere(model);
    test_cancelled_quantization(model);
    test_parallel_sessions(model);
  }
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
  test_background_runtime();
}
