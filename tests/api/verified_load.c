/* Loading with QINFER_LOAD_VERIFY: piece by piece, within the plan, and without anything left when
 * it is cancelled or finds a byte that has changed. */
#include "harness.h"

enum { kPieceBytes = 256 * 1024 };

static qinfer_status begin(qinfer_runtime* runtime, const qinfer_source* source, uint32_t access,
                           qinfer_task** task) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_load_options options = QINFER_LOAD_OPTIONS_INIT;
  options.access = access;
  options.flags = QINFER_LOAD_VERIFY;
  return qinfer_model_load_begin(runtime, source, &options, task, &err);
}

static int in_phase(const qinfer_progress* progress, const char* phase) {
  return progress->phase.size == strlen(phase) &&
         memcmp(progress->phase.data, phase, progress->phase.size) == 0;
}

static void check_nothing_held(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
  CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
  CHECK(usage.used_bytes == 0 && usage.mapped_bytes == 0);
}

/* The plan of what follows is exact also where verifying takes the most. */
static void test_verified_plan(const qinfer_source* source, uint32_t access) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = make_runtime();
  qinfer_load_options options = QINFER_LOAD_OPTIONS_INIT;
  qinfer_memory_plan plan = QINFER_MEMORY_PLAN_INIT, plain = QINFER_MEMORY_PLAN_INIT;
  qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
  qinfer_model* model = NULL;
  options.access = access;
  CHECK_OK(qinfer_model_plan(runtime, source, &options, NULL, &plain, &err));
  options.flags = QINFER_LOAD_VERIFY;
  CHECK_OK(qinfer_model_plan(runtime, source, &options, NULL, &plan, &err));
  CHECK(plan.load_peak_bytes >= plain.load_peak_bytes);
  CHECK(plan.load_peak_bytes - plain.load_peak_bytes <= kPieceBytes);
  CHECK_OK(qinfer_model_load(runtime, source, &options, &model, &err));
  CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
  printf("verified load: plan %llu bytes (unverified %llu), peak %llu bytes (%.3f)\n",
         (unsigned long long)plan.load_peak_bytes, (unsigned long long)plain.load_peak_bytes,
         (unsigned long long)usage.peak_bytes,
         (double)plan.load_peak_bytes / (double)usage.peak_bytes);
  CHECK(usage.peak_bytes <= plan.load_peak_bytes);
  CHECK((double)plan.load_peak_bytes <= 1.1 * (double)usage.peak_bytes);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
}

/* A step of the smallest budget compares a piece, and says how far it is. */
static int count_verifying_steps(qinfer_runtime* runtime, const qinfer_source* source,
                                 uint64_t file_bytes) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_task* task = NULL;
  qinfer_progress progress = QINFER_PROGRESS_INIT;
  uint64_t before = 0;
  int steps = 0;
  CHECK_OK(begin(runtime, source, QINFER_LOAD_MAP, &task));
  while (qinfer_task_step(task, QINFER_BUDGET_MIN, &err) == QINFER_PENDING) {
    CHECK_OK(qinfer_task_progress(task, &progress, &err));
    if (!in_phase(&progress, "verify")) continue;
    CHECK(progress.done <= progress.total && progress.total <= file_bytes);
    CHECK(progress.done >= before && progress.done - before <= kPieceBytes);
    before = progress.done;
    ++steps;
  }
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  qinfer_task_release(task);
  CHECK(steps >= (int)(file_bytes / kPieceBytes));
  return steps;
}

static void test_changed_byte(qinfer_runtime* runtime, const memory_file* file) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  memory_file changed = *file;
  qinfer_io reader = memory_reader(&changed);
  qinfer_task* task = NULL;
  qinfer_model* model = NULL;
  source.io = &reader;
  /* Read or used as it is by who does not ask for more. */
  changed.bytes[file->size - file->size / 3] ^= 4;
  CHECK_OK(qinfer_model_load(runtime, &source, NULL, &model, &err));
  qinfer_model_release(model);
  CHECK_OK(begin(runtime, &source, QINFER_LOAD_COPY, &task));
  CHECK_STATUS(qinfer_task_wait(task, UINT64_MAX, &err), QINFER_E_FORMAT);
  CHECK(strstr(err.message, "checksum of tensor") != NULL);
  qinfer_task_release(task);
  check_nothing_held(runtime);
  changed.bytes[file->size - file->size / 3] ^= 4;
  CHECK_OK(begin(runtime, &source, QINFER_LOAD_COPY, &task));
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  qinfer_task_release(task);
  check_nothing_held(runtime);
}

void test_verified_load(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = make_runtime();
  qinfer_model* model = load_model(runtime);
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_task* task = NULL;
  memory_file file;
  char path[300];
  int steps, k;
  snprintf(path, sizeof path, "%s", temporary_path("verified.qinfer"));
  target.path.data = source.path.data = path;
  target.path.size = source.path.size = QINFER_STRLEN;
  CHECK_OK(qinfer_convert_begin(model, &target, &task, &err));
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  qinfer_task_release(task);
  qinfer_model_release(model);
  check_nothing_held(runtime);
  CHECK(read_file(path, &file));
  test_verified_plan(&source, QINFER_LOAD_MAP);
  test_verified_plan(&source, QINFER_LOAD_COPY);
  steps = count_verifying_steps(runtime, &source, file.size);
  check_nothing_held(runtime);
  for (k = 0; k <= steps; ++k) {
    int i;
    CHECK_OK(begin(runtime, &source, QINFER_LOAD_MAP, &task));
    for (i = 0; i < k; ++i) CHECK(qinfer_task_step(task, 0, &err) == QINFER_PENDING);
    qinfer_task_cancel(task);
    CHECK_STATUS(qinfer_task_step(task, UINT64_MAX, &err), QINFER_E_CANCELLED);
    check_nothing_held(runtime);
    qinfer_task_release(task);
  }
  test_changed_byte(runtime, &file);
  memory_file_free(&file);
  remove(path);
  qinfer_runtime_release(runtime);
}
