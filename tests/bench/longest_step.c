/* How long the steps of a task are: begins it, steps it with a small budget, and prints for each
 * phase how many steps there were, their sum and the longest; the longest also in processor time of
 * the stepping thread, since on a busy machine a step waits for others. Usage: longest_step TASK
 * MODEL [BUDGET_US], where TASK is load, verified, vocabulary, convert, quantize or calibrated; an
 * output is in the current folder until the end. */
#include <qinfer/qinfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double clock_ms(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}
static double now_ms(void) { return clock_ms(CLOCK_MONOTONIC); }
static double busy_ms(void) { return clock_ms(CLOCK_THREAD_CPUTIME_ID); }

typedef struct phase {
  char name[64];
  long steps;
  double sum, longest, longest_busy;
} phase;

static int fail(const char* what, const qinfer_error* err) {
  fprintf(stderr, "%s: %s\n", what, err->message);
  return 1;
}

int main(int argc, char** argv) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = NULL;
  qinfer_model* model = NULL;
  qinfer_task* task = NULL;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_quantize_options quantize = QINFER_QUANTIZE_OPTIONS_INIT;
  qinfer_calibration_options calibration = QINFER_CALIBRATION_OPTIONS_INIT;
  qinfer_status status;
  phase phases[64];
  size_t count = 0, i;
  char path[64];
  double begun, busy, took;
  uint64_t budget_ns;
  if (argc < 3) return fputs("usage: longest_step TASK MODEL [BUDGET_US]\n", stderr), 2;
  budget_ns = argc > 3 ? strtoull(argv[3], NULL, 10) * 1000 : 2000000;
  source.path.data = argv[2];
  source.path.size = QINFER_STRLEN;
  snprintf(path, sizeof path, "longest-step-%ld.qinfer", (long)getpid());
  target.path.data = path;
  target.path.size = QINFER_STRLEN;
  if (qinfer_runtime_create(QINFER_ABI, NULL, &runtime, &err) < 0) return fail("runtime", &err);
  if (strcmp(argv[1], "verified") == 0) load.flags = QINFER_LOAD_VERIFY;
  if (strcmp(argv[1], "vocabulary") == 0) load.parts = QINFER_PARTS_VOCABULARY;
  if (strcmp(argv[1], "convert") == 0 || strcmp(argv[1], "quantize") == 0 ||
      strcmp(argv[1], "calibrated") == 0) {
    load.parts = QINFER_PARTS_HEADER;
    if (qinfer_model_load(runtime, &source, &load, &model, &err) < 0) return fail("load", &err);
  }
  begun = now_ms();
  busy = busy_ms();
  if (model == NULL) {
    status = qinfer_model_load_begin(runtime, &source, &load, &task, &err);
  } else if (strcmp(argv[1], "convert") == 0) {
    status = qinfer_convert_begin(model, &target, &task, &err);
  } else {
    calibration.samples = 2;
    calibration.sample_tokens = 16;
    quantize.calibration_options = &calibration;
    if (strcmp(argv[1], "quantize") == 0) {
      quantize.flags = QINFER_QUANTIZE_NO_CALIBRATION | QINFER_QUANTIZE_NO_EVALUATION;
    }
    status = qinfer_quantize_begin(model, &quantize, &target, &task, &err);
  }
  if (status < 0) return fail("begin", &err);
  printf("%-22s %7s %10.2f ms %20s busy %.2f ms\n", "begin", "", now_ms() - begun, "",
         busy_ms() - busy);
  do {
    qinfer_progress progress = QINFER_PROGRESS_INIT;
    char name[64];
    begun = now_ms();
    busy = busy_ms();
    status = qinfer_task_step(task, budget_ns, &err);
    took = now_ms() - begun;
    busy = busy_ms() - busy;
    if (status < 0) return fail("step", &err);
    if (qinfer_task_progress(task, &progress, &err) < 0) return fail("progress", &err);
    snprintf(name, sizeof name, "%.*s", (int)progress.phase.size, progress.phase.data);
    for (i = 0; i < count && strcmp(phases[i].name, name) != 0; ++i) {
    }
    if (i == count && count < 64) {
      memset(&phases[count], 0, sizeof phases[count]);
      strcpy(phases[count++].name, name);
    }
    ++phases[i].steps;
    phases[i].sum += took;
    if (took > phases[i].longest) phases[i].longest = took;
    if (busy > phases[i].longest_busy) phases[i].longest_busy = busy;
  } while (status == QINFER_PENDING);
  printf("%-22s %7s %13s %13s %18s\n", "phase after the step", "steps", "together", "longest",
         "longest busy");
  for (i = 0; i < count; ++i) {
    printf("%-22s %7ld %10.2f ms %10.2f ms %15.2f ms\n", phases[i].name, phases[i].steps,
           phases[i].sum, phases[i].longest, phases[i].longest_busy);
  }
  qinfer_task_release(task);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
  unlink(path);
  return 0;
}
