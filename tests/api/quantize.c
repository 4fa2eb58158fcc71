/* Calibration and quantization through the API, at a small size. */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "harness.h"

static const char kText[] =
    "In the beginning God created the heaven and the earth. And the earth was without form, and "
    "void; "
    "and darkness was upon the face of the deep. And the Spirit of God moved upon the face of the "
    "waters. And God said, Let there be light: and there was light. And God saw the light, that it "
    "was "
    "good: and God divided the light from the darkness. And God called the light Day, and the "
    "darkness "
    "he called Night. And the evening and the morning were the first day. And God said, Let there "
    "be a "
    "firmament in the midst of the waters, and let it divide the waters from the waters. ";

static qinfer_calibration* calibrate(qinfer_model* model, const char* text) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_calibration_options options = QINFER_CALIBRATION_OPTIONS_INIT;
  qinfer_calibration *calibration = NULL, *taken = NULL;
  qinfer_task* task = NULL;
  options.samples = 4;
  options.sample_tokens = 32;
  CHECK_OK(qinfer_calibration_create(model, &options, &calibration, &err));
  CHECK_OK(qinfer_calibration_add_text(calibration, text, QINFER_STRLEN, &err));
  CHECK_OK(qinfer_calibration_run_begin(calibration, &task, &err));
  CHECK_FAILS(qinfer_calibration_add_text(calibration, "x", 1, &err), QINFER_E_BUSY,
              QINFER_DETAIL_SESSION_IN_USE);
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  CHECK_OK(qinfer_task_take_calibration(task, &taken, &err));
  qinfer_task_release(task);
  qinfer_calibration_release(calibration);
  return taken;
}

static void test_calibration(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_calibration *first = calibrate(model, kText), *second = calibrate(model, kText + 100);
  qinfer_calibration* loaded = NULL;
  memory_file file;
  qinfer_write_io writer = memory_writer(&file);
  qinfer_io reader = memory_reader(&file);
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  memset(&file, 0, sizeof file);
  CHECK_OK(qinfer_calibration_merge(first, second, &err));
  CHECK_FAILS(qinfer_calibration_merge(first, first, &err), QINFER_E_MISUSE, QINFER_DETAIL_OPTION);
  CHECK_FAILS(qinfer_calibration_merge(first, NULL, &err), QINFER_E_MISUSE, QINFER_DETAIL_NULL);
  target.io = &writer;
  CHECK_OK(qinfer_calibration_save(first, &target, &err));
  CHECK(file.commits == 1 && file.drops == 1 && file.size > 100);
  source.io = &reader;
  CHECK_OK(qinfer_calibration_load(model, &source, &loaded, &err));
  CHECK(file.drops == 2);
  qinfer_calibration_release(loaded);
  /* One flipped byte is found. */
  file.bytes[file.size / 2] ^= 0x20;
  CHECK(qinfer_calibration_load(model, &source, &loaded, &err) < 0);
  CHECK(loaded == NULL && file.drops == 3);
  memory_file_free(&file);
  qinfer_calibration_release(first);
  qinfer_calibration_release(second);
}

/* Samples that wait are run by the quantization, and can be saved afterwards; a calibration with
 * nothing in it is refused. */
static void test_waiting_calibration(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_quantize_options options = QINFER_QUANTIZE_OPTIONS_INIT;
  qinfer_calibration_options few = QINFER_CALIBRATION_OPTIONS_INIT;
  qinfer_target target = QINFER_TARGET_INIT, saved = QINFER_TARGET_INIT;
  qinfer_calibration* calibration = NULL;
  qinfer_task* task = NULL;
  char path[300], file[300];
  snprintf(path, sizeof path, "%s", temporary_path("waiting.qinfer"));
  snprintf(file, sizeof file, "%s", temporary_path("waiting.calibration"));
  target.path.data = path;
  saved.path.data = file;
  target.path.size = saved.path.size = QINFER_STRLEN;
  few.samples = 2;
  few.sample_tokens = 32;
  CHECK_OK(qinfer_calibration_create(model, &few, &calibration, &err));
  options.calibration = calibration;
  options.flags = QINFER_QUANTIZE_NO_EVALUATION;
  CHECK_FAILS(qinfer_quantize_begin(model, &options, &target, &task, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  CHECK(qinfer_calibration_save(calibration, &saved, &err) < 0);
  CHECK_OK(qinfer_calibration_add_text(calibration, kText, QINFER_STRLEN, &err));
  options.memory_limit_bytes = 1000;
  CHECK(qinfer_quantize_begin(model, &options, &target, &task, &err) == QINFER_E_BUDGET);
  options.memory_limit_bytes = 0;
  CHECK_OK(qinfer_quantize_begin(model, &options, &target, &task, &err));
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  CHECK_OK(qinfer_calibration_save(calibration, &saved, &err));
  CHECK(access(path, F_OK) == 0 && access(file, F_OK) == 0);
  qinfer_task_release(task);
  qinfer_calibration_release(calibration);
  unlink(path);
  unlink(file);
}

static void test_quantize_to_path(qinfer_runtime* runtime, qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_calibration* calibration = calibrate(model, kText);
  qinfer_quantize_options options = QINFER_QUANTIZE_OPTIONS_INIT;
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_override override = {{"*down_proj*", QINFER_STRLEN}, {"int8", QINFER_STRLEN}};
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_task *task = NULL, *second = NULL;
  qinfer_report *report = NULL, *parsed = NULL;
  qinfer_model* packed = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_str text;
  uint32_t i;
  int32_t tokens[6];
  int overridden = 0, small = 0;
  char path[300];
  snprintf(path, sizeof path, "%s", temporary_path("int4.qinfer"));
  target.path.data = path;
  target.path.size = QINFER_STRLEN;
  options.group_size = 64;
  options.overrides = &override;
  options.override_count = 1;
  options.calibration = calibration;
  options.flags = QINFER_QUANTIZE_NO_EVALUATION;
  /* Cancelled half-way: no file, and the calibration is free again. */
  CHECK_OK(qinfer_quantize_begin(model, &options, &target, &task, &err));
  CHECK_FAILS(qinfer_quantize_begin(model, &options, &target, &second, &err), QINFER_E_BUSY,
              QINFER_DETAIL_SESSION_IN_USE);
  for (i = 0; i < 3; ++i) CHECK(qinfer_task_step(task, 0, &err) == QINFER_PENDING);
  qinfer_task_cancel(task);
  CHECK_STATUS(qinfer_task_wait(task, UINT64_MAX, &err), QINFER_E_CANCELLED);
  qinfer_task_release(task);
  CHECK(access(path, F_OK) != 0);

  CHECK_OK(qinfer_quantize_begin(model, &options, &target, &task, &err));
  qinfer_calibration_release(calibration);
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  CHECK_OK(qinfer_task_take_report(task, &report, &err));
  qinfer_task_release(task);
  CHECK(access(path, F_OK) == 0);
  CHECK_OK(qinfer_report_render(report, QINFER_RENDER_TABLE, &text, &err));
  CHECK(text.size > 50);
  CHECK_OK(qinfer_report_render(report, QINFER_RENDER_HTML, &text, &err));
  CHECK(text.size > 50 && memchr(text.data, '<', text.size) != NULL);
  CHECK_OK(qinfer_report_render(report, QINFER_RENDER_JSON, &text, &err));
  CHECK_OK(qinfer_report_parse(runtime, text.data, text.size, &parsed, &err));
  qinfer_report_release(parsed);
  qinfer_report_release(report);

  source.path = target.path;
  CHECK_OK(qinfer_model_load(runtime, &source, NULL, &packed, &err));
  if (packed != NULL) {
    qinfer_model_info info = QINFER_MODEL_INFO_INIT;
    CHECK_OK(qinfer_model_info_get(packed, &info, &err));
    for (i = 0; i < info.tensor_count; ++i) {
      qinfer_tensor_info tensor = QINFER_TENSOR_INFO_INIT;
      CHECK_OK(qinfer_model_tensor(packed, i, &tensor, &err));
      CHECK(tensor.has_checksum == 1);
      if (tensor.format.size >= 4 && memcmp(tensor.format.data, "int8", 4) == 0) ++overridden;
      if (tensor.format.size >= 8 && memcmp(tensor.format.data, "int4-g64", 8) == 0) ++small;
    }
    CHECK(overridden == (int)info.layers && small > overridden);
    CHECK_OK(qinfer_verify_begin(packed, &task, &err));
    CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
    CHECK_OK(qinfer_task_take_report(task, &report, &err));
    {
      int32_t ok = 0;
      CHECK_OK(qinfer_report_bool(report, "ok", 2, &ok, &err));
      CHECK(ok == 1);
    }
    qinfer_report_release(report);
    qinfer_task_release(task);
    CHECK_OK(qinfer_engine_create(packed, NULL, &engine, &err));
    CHECK_OK(qinfer_session_create(engine, &session, &err));
    CHECK(generate_greedy(session, "And God said", 6, tokens) == 6);
  }
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  qinfer_model_release(packed);
  unlink(path);
}

/* A packed model that is loaded whole is converted and quantized like any other, wherever it was
 * read from. */
static void test_packed_source(qinfer_runtime* runtime, qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  memory_file file, copy;
  qinfer_write_io writer = memory_writer(&file), other = memory_writer(&copy);
  qinfer_io reader = memory_reader(&file);
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_load_options options = QINFER_LOAD_OPTIONS_INIT;
  qinfer_quantize_options quantize = QINFER_QUANTIZE_OPTIONS_INIT;
  qinfer_task* task = NULL;
  int kind;
  memset(&file, 0, sizeof file);
  target.io = &writer;
  CHECK_OK(qinfer_convert_begin(model, &target, &task, &err));
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  qinfer_task_release(task);
  options.parts = QINFER_PARTS_ALL;
  quantize.flags = QINFER_QUANTIZE_NO_CALIBRATION | QINFER_QUANTIZE_NO_EVALUATION;
  target.io = &other;
  for (kind = 0; kind < 2; ++kind) {
    qinfer_source source = QINFER_SOURCE_INIT;
    qinfer_model* packed = NULL;
    if (kind == 0) {
      source.io = &reader;
    } else {
      source.data = file.bytes;
      source.data_size = file.size;
    }
    CHECK_OK(qinfer_model_load(runtime, &source, &options, &packed, &err));
    memset(&copy, 0, sizeof copy);
    CHECK_OK(qinfer_convert_begin(packed, &target, &task, &err));
    CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
    qinfer_task_release(task);
    CHECK(copy.commits == 1 && copy.size > file.size / 2);
    memory_file_free(&copy);
    memset(&copy, 0, sizeof copy);
    CHECK_OK(qinfer_quantize_begin(packed, &quantize, &target, &task, &err));
    CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
    qinfer_task_release(task);
    CHECK(copy.commits == 1 && copy.size > 1000);
    memory_file_free(&copy);
    qinfer_model_release(packed);
  }
  memory_file_free(&file);
}

/* When a background task has been waited for and every handle is released, so is all memory,
 * whatever its thread is doing. */
static void test_nothing_is_left(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_calibration_options options = QINFER_CALIBRATION_OPTIONS_INIT;
  int round, late = 0;
  options.samples = 1;
  options.sample_tokens = 32;
  for (round = 0; round < 20; ++round) {
    qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
    qinfer_model* model = load_model(runtime);
    qinfer_calibration* calibration = NULL;
    qinfer_task* task = NULL;
    CHECK_OK(qinfer_calibration_create(model, &options, &calibration, &err));
    CHECK_OK(qinfer_calibration_add_text(calibration, kText, QINFER_STRLEN, &err));
    CHECK_OK(qinfer_calibration_run_begin(calibration, &task, &err));
    CHECK_OK(qinfer_task_run(task, &err));
    CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
    qinfer_task_release(task);
    qinfer_calibration_release(calibration);
    qinfer_model_release(model);
    CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
    if (usage.used_bytes + usage.mapped_bytes != 0) ++late;
  }
  CHECK(late == 0);
}

void test_quantize(void) {
  qinfer_runtime* runtime = make_runtime();
  qinfer_model* model = load_model(runtime);
  if (model != NULL) {
    test_calibration(model);
    test_waiting_calibration(model);
    test_quantize_to_path(runtime, model);
    test_packed_source(runtime, model);
  }
  qinfer_model_release(model);
  if (model != NULL) test_nothing_is_left(runtime);
  qinfer_runtime_release(runtime);
}
