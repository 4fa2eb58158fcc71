/* Tasks: steps within a budget, progress, cancel at every point, results that are taken once. */
#include "harness.h"

static void test_stepped_load(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_progress progress = QINFER_PROGRESS_INIT;
  qinfer_task* task = NULL;
  qinfer_model* model = NULL;
  qinfer_report* report = NULL;
  qinfer_status status = QINFER_PENDING;
  int steps = 0;
  source.path.data = model_path();
  source.path.size = QINFER_STRLEN;
  CHECK_OK(qinfer_model_load_begin(runtime, &source, NULL, &task, &err));
  CHECK_OK(qinfer_task_progress(task, &progress, &err));
  CHECK(progress.status == QINFER_PENDING && progress.kind == QINFER_TASK_LOAD);
  CHECK(progress.done == 0 && progress.step_ns == 0);
  CHECK_STATUS(qinfer_task_wait(task, 0, &err), QINFER_PENDING);
  CHECK_FAILS(qinfer_task_take_model(task, &model, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NOT_FINISHED);
  while (status == QINFER_PENDING && steps < 1000000) {
    status = qinfer_task_step(task, QINFER_BUDGET_MIN, &err);
    ++steps;
  }
  CHECK(status == QINFER_OK);
  CHECK(steps > 1);
  CHECK_OK(qinfer_task_progress(task, &progress, &err));
  CHECK(progress.status == QINFER_OK && progress.done == progress.total && progress.step_ns > 0);
  CHECK_OK(qinfer_task_step(task, 0, &err));
  qinfer_task_cancel(task); /* too late: it stays finished */
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  CHECK_FAILS(qinfer_task_take_report(task, &report, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NO_RESULT);
  CHECK_OK(qinfer_task_take_model(task, &model, &err));
  CHECK(model != NULL);
  qinfer_model_release(model);
  CHECK_FAILS(qinfer_task_take_model(task, &model, &err), QINFER_E_MISUSE, QINFER_DETAIL_NO_RESULT);
  CHECK(model == NULL);
  qinfer_task_release(task);
}

/* Cancelled after 0, 1, 2, ... steps: always the same status, and no memory left. */
static void test_cancelled_load(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  int after;
  for (after = 0; after < 12; ++after) {
    qinfer_source source = QINFER_SOURCE_INIT;
    qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
    qinfer_task* task = NULL;
    qinfer_model* model = NULL;
    int i;
    source.path.data = model_path();
    source.path.size = QINFER_STRLEN;
    CHECK_OK(qinfer_model_load_begin(runtime, &source, NULL, &task, &err));
    for (i = 0; i < after; ++i) CHECK(qinfer_task_step(task, 0, &err) == QINFER_PENDING);
    qinfer_task_cancel(task);
    qinfer_task_cancel(task);
    CHECK_STATUS(qinfer_task_wait(task, UINT64_MAX, &err), QINFER_E_CANCELLED);
    CHECK_STATUS(qinfer_task_step(task, 0, &err), QINFER_E_CANCELLED);
    CHECK(qinfer_task_take_model(task, &model, &err) == QINFER_E_CANCELLED);
    CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
    CHECK(usage.used_bytes == 0 && usage.mapped_bytes == 0);
    qinfer_task_release(task);
  }
}

/* A session whose generation is cancelled at step k keeps what was committed and goes on as if
 * nothing had happened. */
static void test_cancelled_generation(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  enum { kTokens = 24 };
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  int32_t expected[kTokens];
  int steps;
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK(generate_greedy(session, "The sons of", kTokens, expected) == kTokens);
  qinfer_session_release(session);
  for (steps = 0; steps < 400; steps = steps * 2 + 1) {
    qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
    qinfer_task* task = NULL;
    int32_t tokens[512];
    uint32_t prompt = 0;
    size_t count = 0, i;
    int k;
    CHECK_OK(qinfer_session_create(engine, &session, &err));
    CHECK_OK(qinfer_session_append_text(session, "The sons of", QINFER_STRLEN, 0, &err));
    CHECK_OK(qinfer_session_length(session, &prompt, &err));
    options.max_tokens = kTokens;
    options.flags = QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS;
    CHECK_OK(qinfer_generate_begin(session, &options, &task, &err));
    for (k = 0; k < steps; ++k) {
      if (qinfer_task_step(task, QINFER_BUDGET_MIN, &err) != QINFER_PENDING) break;
    }
    CHECK(k < steps || qinfer_session_append(session, NULL, 0, &err) == QINFER_E_BUSY);
    qinfer_task_cancel(task);
    qinfer_task_release(task);
    CHECK_OK(qinfer_session_tokens(session, tokens, 512, &count, &err));
    CHECK(count >= prompt && count <= prompt + kTokens);
    for (i = prompt; i < count; ++i) CHECK(tokens[i] == expected[i - prompt]);
    if (count < prompt + kTokens) {
      int32_t rest[kTokens];
      const uint32_t missing = prompt + kTokens - (uint32_t)count;
      CHECK(generate_greedy(session, "", missing, rest) == missing);
      for (i = 0; i < missing; ++i) CHECK(rest[i] == expected[count - prompt + i]);
    }
    qinfer_session_release(session);
  }
  qinfer_engine_release(engine);
}

static void test_failed_task(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_progress progress = QINFER_PROGRESS_INIT;
  qinfer_task* task = NULL;
  qinfer_model* model = NULL;
  source.path.data = "/no/such/model";
  source.path.size = QINFER_STRLEN;
  CHECK_OK(qinfer_model_load_begin(runtime, &source, NULL, &task, &err));
  CHECK_STATUS(qinfer_task_wait(task, UINT64_MAX, &err), QINFER_E_IO);
  CHECK(strstr(err.message, "/no/such/model") != NULL);
  err.message[0] = 0;
  CHECK_STATUS(qinfer_task_step(task, 0, &err), QINFER_E_IO);
  CHECK(strstr(err.message, "/no/such/model") != NULL);
  CHECK_STATUS(qinfer_task_take_model(task, &model, &err), QINFER_E_IO);
  CHECK_OK(qinfer_task_progress(task, &progress, &err));
  CHECK(progress.status == QINFER_E_IO);
  qinfer_task_release(task);
}

static void test_verify(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_task* task = NULL;
  qinfer_report* report = NULL;
  int32_t ok = 0;
  size_t count = 0;
  qinfer_str checksum;
  CHECK_OK(qinfer_verify_begin(model, &task, &err));
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  CHECK_OK(qinfer_task_take_report(task, &report, &err));
  qinfer_task_release(task);
  CHECK_OK(qinfer_report_bool(report, "ok", 2, &ok, &err));
  CHECK(ok == 1);
  CHECK_OK(qinfer_report_size(report, "tensors", QINFER_STRLEN, &count, &err));
  CHECK(count > 10);
  CHECK_OK(qinfer_report_string(report, "tensors[0].checksum", QINFER_STRLEN, &checksum, &err));
  CHECK(checksum.size == 16);
  qinfer_report_release(report);
}

void test_tasks(void) {
  qinfer_runtime* runtime = make_runtime();
  qinfer_model* model;
  test_stepped_load(runtime);
  test_cancelled_load(runtime);
  test_failed_task(runtime);
  model = load_model(runtime);
  if (model != NULL) {
    test_cancelled_generation(model);
    test_verify(model);
  }
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
}
