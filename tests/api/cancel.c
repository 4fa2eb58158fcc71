/* Every kind of task, cancelled at every checkpoint: after k steps of the smallest budget, for all
 * k, or for 200 of them where there are more. Each time the task says that it was cancelled, no
 * file is left, all memory is given back, and the runtime goes on working. And every kind of task,
 * cancelled by another thread at some moment of a step on several. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gguf_image.h"
#include "harness.h"

enum { kMostCancels = 200, kCancelsElsewhere = 6, kMostSteps = 1000000, kTokens = 64 };

static const char kText[] =
    "In the beginning God created the heaven and the earth. And the earth was without form, and "
    "void; and darkness was upon the face of the deep. And the Spirit of God moved upon the face "
    "of the waters. And God said, Let there be light: and there was light. And God saw the light, "
    "that it was good: and God divided the light from the darkness. And God called the light Day, "
    "and the darkness he called Night. And the evening and the morning were the first day. ";

/* What all scenarios share, and what one run of one holds beside its task. */
typedef struct world {
  counting_allocator counter;
  qinfer_runtime* runtime;
  qinfer_model *model, *header; /* with weights; opened for its header alone */
  qinfer_engine* engine;
  memory_file gguf;
  int32_t tokens[kTokens], expected[kTokens];
  size_t expected_count;
  char folder[64], target[128], packed_path[128];
  qinfer_session* session;
  qinfer_calibration* calibration;
} world;

static qinfer_status begin_load_folder(world* w, qinfer_task** task, qinfer_error* err) {
  qinfer_source source = QINFER_SOURCE_INIT;
  source.path.data = model_path();
  source.path.size = QINFER_STRLEN;
  return qinfer_model_load_begin(w->runtime, &source, NULL, task, err);
}

static qinfer_status begin_load_gguf(world* w, qinfer_task** task, qinfer_error* err) {
  qinfer_source source = QINFER_SOURCE_INIT;
  source.data = w->gguf.bytes;
  source.data_size = w->gguf.size;
  return qinfer_model_load_begin(w->runtime, &source, NULL, task, err);
}

static qinfer_status load_packed(world* w, uint32_t access, uint32_t parts, qinfer_task** task,
                                 qinfer_error* err) {
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_load_options options = QINFER_LOAD_OPTIONS_INIT;
  source.path.data = w->packed_path;
  source.path.size = QINFER_STRLEN;
  options.flags = QINFER_LOAD_VERIFY;
  options.access = access;
  options.parts = parts;
  return qinfer_model_load_begin(w->runtime, &source, &options, task, err);
}
static qinfer_status begin_load_verified(world* w, qinfer_task** task, qinfer_error* err) {
  return load_packed(w, QINFER_LOAD_MAP, QINFER_PARTS_ALL, task, err);
}
static qinfer_status begin_load_copied(world* w, qinfer_task** task, qinfer_error* err) {
  return load_packed(w, QINFER_LOAD_COPY, QINFER_PARTS_ALL, task, err);
}
static qinfer_status begin_load_vocabulary(world* w, qinfer_task** task, qinfer_error* err) {
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_load_options options = QINFER_LOAD_OPTIONS_INIT;
  char path[600];
  snprintf(path, sizeof path, "%s/tokenizer.json", model_path());
  source.path.data = path;
  source.path.size = QINFER_STRLEN;
  options.parts = QINFER_PARTS_VOCABULARY;
  return qinfer_model_load_begin(w->runtime, &source, &options, task, err);
}

static qinfer_status begin_verify(world* w, qinfer_task** task, qinfer_error* err) {
  return qinfer_verify_begin(w->model, task, err);
}

static qinfer_target target_of(const world* w) {
  qinfer_target target = QINFER_TARGET_INIT;
  target.path.data = w->target;
  target.path.size = QINFER_STRLEN;
  return target;
}

static qinfer_status begin_convert(world* w, qinfer_task** task, qinfer_error* err) {
  const qinfer_target target = target_of(w);
  return qinfer_convert_begin(w->header, &target, task, err);
}

static qinfer_calibration_options few_samples(void) {
  qinfer_calibration_options options = QINFER_CALIBRATION_OPTIONS_INIT;
  options.samples = 2;
  options.sample_tokens = 12;
  return options;
}

/* Calibrated by what the model writes, and compared with the original. */
static qinfer_status begin_quantize(world* w, qinfer_task** task, qinfer_error* err) {
  const qinfer_target target = target_of(w);
  const qinfer_calibration_options few = few_samples();
  qinfer_quantize_options options = QINFER_QUANTIZE_OPTIONS_INIT;
  options.calibration_options = &few;
  options.flags = QINFER_QUANTIZE_NO_SEARCH;
  return qinfer_quantize_begin(w->header, &options, &target, task, err);
}

static qinfer_status make_calibration(world* w, qinfer_model* model, qinfer_error* err) {
  const qinfer_calibration_options few = few_samples();
  qinfer_status status = qinfer_calibration_create(model, &few, &w->calibration, err);
  if (status < 0) return status;
  return qinfer_calibration_add_text(w->calibration, kText, QINFER_STRLEN, err);
}

static qinfer_status begin_calibrate(world* w, qinfer_task** task, qinfer_error* err) {
  const qinfer_status status = make_calibration(w, w->model, err);
  return status < 0 ? status : qinfer_calibration_run_begin(w->calibration, task, err);
}

/* By a calibration whose samples wait. */
static qinfer_status begin_quantize_text(world* w, qinfer_task** task, qinfer_error* err) {
  const qinfer_target target = target_of(w);
  qinfer_quantize_options options = QINFER_QUANTIZE_OPTIONS_INIT;
  const qinfer_status status = make_calibration(w, w->header, err);
  if (status < 0) return status;
  options.calibration = w->calibration;
  options.flags = QINFER_QUANTIZE_NO_SEARCH | QINFER_QUANTIZE_NO_EVALUATION;
  return qinfer_quantize_begin(w->header, &options, &target, task, err);
}

static qinfer_status begin_perplexity(world* w, qinfer_task** task, qinfer_error* err) {
  qinfer_perplexity_options options = QINFER_PERPLEXITY_OPTIONS_INIT;
  options.context = 16;
  options.max_windows = 2;
  options.reference = w->model;
  return qinfer_perplexity_begin(w->model, w->tokens, kTokens, &options, task, err);
}

static qinfer_status open_session(world* w, qinfer_error* err) {
  const qinfer_status status = qinfer_session_create(w->engine, &w->session, err);
  if (status < 0) return status;
  return qinfer_session_append(w->session, w->tokens, kTokens / 2, err);
}

static qinfer_status begin_prefill(world* w, qinfer_task** task, qinfer_error* err) {
  const qinfer_status status = open_session(w, err);
  return status < 0 ? status : qinfer_session_prefill_begin(w->session, task, err);
}

static qinfer_status begin_generate(world* w, qinfer_task** task, qinfer_error* err) {
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  const qinfer_status status = open_session(w, err);
  options.max_tokens = 6;
  options.flags = QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS;
  return status < 0 ? status : qinfer_generate_begin(w->session, &options, task, err);
}

typedef struct scenario {
  const char* name;
  qinfer_status (*begin)(world* w, qinfer_task** task, qinfer_error* err);
  int at_least; /* steps: else what is called a step has become too large */
  int writes;
} scenario;

static const scenario kScenarios[] = {
    {"load a folder", begin_load_folder, 40, 0},
    {"load GGUF", begin_load_gguf, 40, 0},
    {"load .qinfer, verified", begin_load_verified, 60, 0},
    {"load .qinfer, verified, copied", begin_load_copied, 60, 0},
    {"load a vocabulary", begin_load_vocabulary, 20, 0},
    {"verify", begin_verify, 20, 0},
    {"convert", begin_convert, 60, 1},
    {"quantize", begin_quantize, 200, 1},
    {"quantize by text", begin_quantize_text, 200, 1},
    {"calibrate", begin_calibrate, 20, 0},
    {"perplexity", begin_perplexity, 20, 0},
    {"prefill", begin_prefill, 10, 0},
    {"generate", begin_generate, 20, 0},
};

static int entries(const char* folder) {
  DIR* open = opendir(folder);
  const struct dirent* entry;
  int count = 0;
  if (open == NULL) return -1;
  while ((entry = readdir(open)) != NULL) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) ++count;
  }
  closedir(open);
  return count;
}

/* Gives up what a run holds beside its task. */
static void end_run(world* w) {
  qinfer_session_release(w->session);
  w->session = NULL;
  qinfer_calibration_release(w->calibration);
  w->calibration = NULL;
  unlink(w->target);
}

static void check_usable(const world* w) {
  qinfer_error err = QINFER_ERROR_INIT;
  int32_t ids[kTokens];
  size_t count = 0;
  CHECK_OK(qinfer_tokenizer_encode(w->model, kText, 120, 0, ids, kTokens, &count, &err));
  CHECK(count == w->expected_count && memcmp(ids, w->expected, count * sizeof *ids) == 0);
}

/* Runs to the end in the smallest steps; how many there were. */
static int count_steps(world* w, const scenario* s) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_task* task = NULL;
  qinfer_status status = QINFER_PENDING;
  const long long live = w->counter.live_bytes;
  int steps = 0;
  CHECK_OK(s->begin(w, &task, &err));
  while (status == QINFER_PENDING && steps < kMostSteps) {
    status = qinfer_task_step(task, QINFER_BUDGET_MIN, &err);
    ++steps;
  }
  CHECK_STATUS(status, QINFER_OK);
  qinfer_task_release(task);
  CHECK((access(w->target, F_OK) == 0) == s->writes);
  end_run(w);
  CHECK(entries(w->folder) == 0);
  CHECK(w->counter.live_bytes == live);
  return steps;
}

static void cancel_after(world* w, const scenario* s, int k) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_task* task = NULL;
  qinfer_progress progress = QINFER_PROGRESS_INIT;
  const long long bytes = w->counter.live_bytes, blocks = w->counter.live_blocks;
  int i;
  CHECK_OK(s->begin(w, &task, &err));
  for (i = 0; i < k; ++i) CHECK_STATUS(qinfer_task_step(task, 0, &err), QINFER_PENDING);
  qinfer_task_cancel(task);
  CHECK_STATUS(qinfer_task_step(task, QINFER_BUDGET_UNLIMITED, &err), QINFER_E_CANCELLED);
  CHECK_OK(qinfer_task_progress(task, &progress, &err));
  CHECK(progress.status == QINFER_E_CANCELLED);
  /* Files are gone with the cancel, not only with the handle. */
  CHECK(entries(w->folder) == 0);
  qinfer_task_release(task);
  end_run(w);
  CHECK(w->counter.live_bytes == bytes && w->counter.live_blocks == blocks);
  check_usable(w);
}

static void run_scenario(world* w, const scenario* s) {
  const int steps = count_steps(w, s);
  const int cancels = steps < kMostCancels ? steps : kMostCancels;
  const int before = failures;
  int i;
  CHECK(steps >= s->at_least);
  /* An even sample, the first and the last step included. */
  for (i = 0; i < cancels && failures < before + 10; ++i) {
    cancel_after(w, s, cancels == 1 ? 0 : (int)((long long)i * (steps - 1) / (cancels - 1)));
  }
  CHECK(count_steps(w, s) == steps);
  printf("%-32s %6d steps, cancelled at %d of them\n", s->name, steps, i);
  fflush(stdout);
}

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

typedef struct late_cancel {
  qinfer_task* task;
  uint64_t after_ns;
} late_cancel;

static void* cancel_late(void* user) {
  const late_cancel* late = (const late_cancel*)user;
  struct timespec time;
  time.tv_sec = (time_t)(late->after_ns / 1000000000u);
  time.tv_nsec = (long)(late->after_ns % 1000000000u);
  nanosleep(&time, NULL);
  qinfer_task_cancel(late->task);
  return NULL;
}

/* Steps to the end. Waiting for the disk is a step of its own. */
static qinfer_status step_on(qinfer_task* task) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_status status;
  do {
    status = qinfer_task_step(task, QINFER_BUDGET_UNLIMITED, &err);
  } while (status == QINFER_PENDING);
  return status;
}

/* First before it begins, then at moments spread over a whole run; whether a task is finished by
 * then, is up to the machine. */
static void run_elsewhere(world* w, const scenario* s) {
  qinfer_error err = QINFER_ERROR_INIT;
  const long long bytes = w->counter.live_bytes, blocks = w->counter.live_blocks;
  uint64_t whole = 0;
  int i, cancelled = 0;
  for (i = -1; i < kCancelsElsewhere; ++i) {
    late_cancel late = {NULL, 0};
    const uint64_t begin = now_ns();
    pthread_t thread;
    qinfer_status status;
    CHECK_OK(s->begin(w, &late.task, &err));
    late.after_ns = whole * (uint64_t)(i < 0 ? 0 : i) / kCancelsElsewhere;
    if (i >= 0) pthread_create(&thread, NULL, cancel_late, &late);
    if (i == 0) pthread_join(thread, NULL);
    status = step_on(late.task);
    if (i > 0) pthread_join(thread, NULL);
    if (i < 0) whole = now_ns() - begin;
    if (i < 0) CHECK_STATUS(status, QINFER_OK);
    if (i == 0) CHECK_STATUS(status, QINFER_E_CANCELLED);
    CHECK(status == QINFER_OK || status == QINFER_E_CANCELLED);
    CHECK(step_on(late.task) == status);
    CHECK(entries(w->folder) == (s->writes && status == QINFER_OK));
    cancelled += status == QINFER_E_CANCELLED;
    qinfer_task_release(late.task);
    end_run(w);
    CHECK(w->counter.live_bytes == bytes && w->counter.live_blocks == blocks);
    check_usable(w);
  }
  printf("%-32s %6.1f ms, cancelled by another thread %d times of %d\n", s->name,
         1e-6 * (double)whole, cancelled, kCancelsElsewhere);
  fflush(stdout);
}

static int make_world(world* w, uint32_t threads) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_load_options header = QINFER_LOAD_OPTIONS_INIT;
  qinfer_engine_options engine = QINFER_ENGINE_OPTIONS_INIT;
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_task* task = NULL;
  memory_file weights;
  char path[600];
  size_t header_bytes = 0, i;
  memset(w, 0, sizeof *w);
  snprintf(w->folder, sizeof w->folder, "/tmp/qinfer-cancel-XXXXXX");
  if (mkdtemp(w->folder) == NULL) return 0;
  snprintf(w->target, sizeof w->target, "%s/out.qinfer", w->folder);
  snprintf(w->packed_path, sizeof w->packed_path, "%s.qinfer", w->folder);
  counting_allocator_init(&w->counter);
  options.allocator = &w->counter.table;
  options.threads = threads;
  CHECK_OK(qinfer_runtime_create(QINFER_ABI, &options, &w->runtime, &err));
  source.path.data = model_path();
  source.path.size = QINFER_STRLEN;
  header.parts = QINFER_PARTS_HEADER;
  CHECK_OK(qinfer_model_load(w->runtime, &source, NULL, &w->model, &err));
  CHECK_OK(qinfer_model_load(w->runtime, &source, &header, &w->header, &err));
  engine.context_tokens = 128;
  engine.max_sessions = 2;
  CHECK_OK(qinfer_engine_create(w->model, &engine, &w->engine, &err));
  for (i = 0; i < kTokens; ++i) w->tokens[i] = (int32_t)(i * i % 500 + 5);
  CHECK_OK(qinfer_tokenizer_encode(w->model, kText, 120, 0, w->expected, kTokens,
                                   &w->expected_count, &err));
  snprintf(path, sizeof path, "%s/model.safetensors", model_path());
  CHECK(read_file(path, &weights));
  w->gguf = gguf_image(w->model, &weights, 1, &header_bytes);
  memory_file_free(&weights);
  target.path.data = w->packed_path;
  target.path.size = QINFER_STRLEN;
  CHECK_OK(qinfer_convert_begin(w->model, &target, &task, &err));
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  qinfer_task_release(task);
  return failures == 0;
}

/* In a step of any budget, a task that writes stops before it waits for the disk, and says so. */
static void test_waiting_is_a_step(world* w) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_task* task = NULL;
  qinfer_progress progress = QINFER_PROGRESS_INIT;
  const uint64_t minute = (uint64_t)60 * 1000000000;
  CHECK_OK(begin_convert(w, &task, &err));
  CHECK_STATUS(qinfer_task_step(task, minute, &err), QINFER_PENDING);
  CHECK_OK(qinfer_task_progress(task, &progress, &err));
  CHECK(progress.phase.size == 4 && memcmp(progress.phase.data, "sync", 4) == 0);
  CHECK(progress.done == progress.total);
  CHECK(access(w->target, F_OK) != 0);
  CHECK_OK(qinfer_task_step(task, minute, &err));
  CHECK(access(w->target, F_OK) == 0);
  qinfer_task_release(task);
  end_run(w);
}

static void end_world(world* w) {
  qinfer_engine_release(w->engine);
  qinfer_model_release(w->header);
  qinfer_model_release(w->model);
  qinfer_runtime_release(w->runtime);
  CHECK(w->counter.live_blocks == 0);
  unlink(w->packed_path);
  rmdir(w->folder);
  memory_file_free(&w->gguf);
}

int main(int argc, char** argv) {
  world w;
  uint32_t threads;
  if (model_path() == NULL) {
    printf("skipped, no test model\n");
    return 77;
  }
  /* Steps are counted on one: with more, who takes how much of a step is a race. That says nothing
   * to the thread sanitizer, under which a run may take so long that it keeps its state between. */
  for (threads = kThreadSanitizer ? 2 : 1; threads <= 2; ++threads) {
    size_t i;
    if (!make_world(&w, threads)) return 1;
    if (threads == 1) test_waiting_is_a_step(&w);
    for (i = 0; i < sizeof kScenarios / sizeof *kScenarios; ++i) {
      if (argc > 1 && strcmp(argv[1], kScenarios[i].name) != 0) continue;
      (threads == 1 ? run_scenario : run_elsewhere)(&w, &kScenarios[i]);
    }
    end_world(&w);
  }
  return failures != 0;
}
