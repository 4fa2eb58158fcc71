/* Handles: made and released in any order, counted, without leaks of memory, threads or files. */
#include "harness.h"

static void test_null(void) {
  qinfer_runtime_release(NULL);
  qinfer_model_release(NULL);
  qinfer_engine_release(NULL);
  qinfer_session_release(NULL);
  qinfer_task_release(NULL);
  qinfer_report_release(NULL);
  qinfer_calibration_release(NULL);
  qinfer_task_cancel(NULL);
  CHECK(qinfer_runtime_retain(NULL) == NULL);
  CHECK(qinfer_model_retain(NULL) == NULL);
  CHECK(qinfer_version() ==
        (QINFER_VERSION_MAJOR << 24 | QINFER_VERSION_MINOR << 16 | QINFER_VERSION_PATCH));
  CHECK(strcmp(qinfer_version_string(), QINFER_VERSION_STRING) == 0);
  CHECK((qinfer_features() & QINFER_FEATURE_QUANTIZE) != 0);
  CHECK(strcmp(qinfer_status_name(QINFER_E_BUSY), "E_BUSY") == 0);
  CHECK(strcmp(qinfer_status_name(-1000), "UNKNOWN") == 0);
  CHECK(qinfer_utf8_complete("ab\xc3", 3) == 2);
  CHECK(qinfer_utf8_complete("ab\xc3\xa9", 4) == 4);
  CHECK(qinfer_utf8_complete(NULL, 3) == 0);
}

/* The feature that a build must have to use an instruction set. */
static uint64_t feature_of(uint32_t isa) {
  switch (isa) {
    case QINFER_ISA_AVX2:
      return QINFER_FEATURE_AVX2;
    case QINFER_ISA_AVXVNNI:
      return QINFER_FEATURE_AVXVNNI;
    case QINFER_ISA_AVX512:
      return QINFER_FEATURE_AVX512;
    case QINFER_ISA_NEON:
      return QINFER_FEATURE_NEON;
    default:
      return 0;
  }
}

static void use_runtime(uint32_t threads, uint32_t spin_us) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
  qinfer_runtime* runtime = NULL;
  qinfer_runtime_info info = QINFER_RUNTIME_INFO_INIT;
  options.threads = threads;
  options.spin_us = spin_us;
  CHECK_OK(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err));
  CHECK_OK(qinfer_runtime_info_get(runtime, &info, &err));
  CHECK(threads == 0 || info.threads == threads);
  CHECK(info.cpu_isa_name.size > 0);
  CHECK((feature_of(info.cpu_isa) & ~qinfer_features()) == 0);
  CHECK(qinfer_runtime_retain(runtime) == runtime);
  qinfer_runtime_release(runtime);
  CHECK_OK(qinfer_runtime_info_get(runtime, &info, &err));
  qinfer_runtime_release(runtime);
}

static void test_runtimes(void) {
  int threads, files, i;
  use_runtime(2, 0); /* with a process's first thread the thread sanitizer starts one of its own */
  threads = thread_count();
  files = descriptor_count();
  for (i = 0; i < 200; ++i) use_runtime((uint32_t)(i % 5), i % 2 ? QINFER_SPIN_NEVER : 0);
  CHECK(threads_settle(threads));
  CHECK(descriptor_count() == files);
}

enum { kHandles = 8 };

static void release_one(int which, void* handle) {
  switch (which) {
    case 0:
      qinfer_runtime_release((qinfer_runtime*)handle);
      break;
    case 1:
      qinfer_model_release((qinfer_model*)handle);
      break;
    case 2:
      qinfer_engine_release((qinfer_engine*)handle);
      break;
    case 3:
      qinfer_session_release((qinfer_session*)handle);
      break;
    case 4:
      qinfer_task_release((qinfer_task*)handle);
      break;
    case 5:
      qinfer_report_release((qinfer_report*)handle);
      break;
    case 6:
      qinfer_calibration_release((qinfer_calibration*)handle);
      break;
    default:
      qinfer_session_release((qinfer_session*)handle);
      break;
  }
}

/* Everything alive at once, one task in the middle of its work (in the background in every second
 * round), released in a shuffled order. */
static void test_any_order(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  const int threads = thread_count();
  const int files = descriptor_count();
  unsigned random = 12345;
  int round;
  for (round = 0; round < 40; ++round) {
    counting_allocator counter;
    qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
    qinfer_engine_options engine_options = QINFER_ENGINE_OPTIONS_INIT;
    qinfer_event event = QINFER_EVENT_INIT;
    qinfer_runtime* runtime = NULL;
    qinfer_model* model = NULL;
    qinfer_engine* engine = NULL;
    qinfer_session *session = NULL, *fork = NULL;
    qinfer_task* task = NULL;
    qinfer_report* report = NULL;
    qinfer_calibration* calibration = NULL;
    void* handles[kHandles];
    int order[kHandles];
    int i;
    counting_allocator_init(&counter);
    options.allocator = &counter.table;
    engine_options.context_tokens = 256;
    CHECK_OK(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err));
    CHECK_OK(qinfer_model_load_path(runtime, model_path(), QINFER_STRLEN, &model, &err));
    CHECK_OK(qinfer_engine_create(model, &engine_options, &engine, &err));
    CHECK_OK(qinfer_session_create(engine, &session, &err));
    CHECK_OK(qinfer_session_append_text(session, "In the beginning", QINFER_STRLEN, 0, &err));
    CHECK_OK(qinfer_session_fork(session, &fork, &err));
    CHECK_OK(qinfer_generate_begin(session, NULL, &task, &err));
    if (round % 2) CHECK_OK(qinfer_task_run(task, &err));
    CHECK_OK(qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event, &err));
    CHECK_OK(qinfer_model_report(model, QINFER_MODEL_REPORT_INFO, &report, &err));
    CHECK_OK(qinfer_calibration_create(model, NULL, &calibration, &err));
    if (failures != 0) return;
    handles[0] = runtime;
    handles[1] = model;
    handles[2] = engine;
    handles[3] = session;
    handles[4] = task;
    handles[5] = report;
    handles[6] = calibration;
    handles[7] = fork;
    for (i = 0; i < kHandles; ++i) order[i] = i;
    for (i = kHandles - 1; i > 0; --i) {
      int j, swap;
      random = random * 1664525u + 1013904223u;
      j = (int)(random >> 16) % (i + 1);
      swap = order[i];
      order[i] = order[j];
      order[j] = swap;
    }
    for (i = 0; i < kHandles; ++i) release_one(order[i], handles[order[i]]);
    CHECK(counter.live_bytes == 0);
    CHECK(counter.live_blocks == 0);
    CHECK(counter.total_blocks > 0);
    CHECK(threads_settle(threads));
    CHECK(descriptor_count() == files);
  }
}

/* What is left goes on working without its parents. */
static void test_orphans(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = make_runtime();
  qinfer_model* model = load_model(runtime);
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
  int32_t tokens[8];
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  qinfer_engine_release(engine);
  qinfer_model_release(model);
  CHECK(generate_greedy(session, "And God said", 8, tokens) == 8);
  CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
  CHECK(usage.used_bytes > 0 && usage.peak_bytes >= usage.used_bytes);
  qinfer_session_release(session);
  CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
  CHECK(usage.used_bytes == 0 && usage.mapped_bytes == 0);
  CHECK_OK(qinfer_runtime_reset_peak(runtime, &err));
  CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
  CHECK(usage.peak_bytes == 0);
  qinfer_runtime_release(runtime);
}

void test_lifecycle(void) {
  test_null();
  test_runtimes();
  test_any_order();
  test_orphans();
}
