/* Wrong handles and wrong files: the status, the detail and the message that they give. */
#include <errno.h>

#include "harness.h"

static void test_handles(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_report *report = NULL, *none;
  qinfer_model_info info = QINFER_MODEL_INFO_INIT;
  qinfer_progress progress = QINFER_PROGRESS_INIT;
  size_t count = 7;
  CHECK_FAILS(qinfer_model_info_get(NULL, &info, &err), QINFER_E_MISUSE, QINFER_DETAIL_NULL);
  CHECK(strstr(err.message, "model") != NULL);
  CHECK_FAILS(qinfer_model_info_get((qinfer_model*)runtime, &info, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_BAD_HANDLE);
  CHECK_FAILS(qinfer_task_progress((qinfer_task*)runtime, &progress, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_BAD_HANDLE);
  CHECK_FAILS(qinfer_session_tokens((qinfer_session*)runtime, NULL, 0, &count, &err),
              QINFER_E_MISUSE, QINFER_DETAIL_BAD_HANDLE);
  CHECK(count == 0);
  qinfer_model_release((qinfer_model*)runtime); /* another type: left alone */
  qinfer_task_cancel((qinfer_task*)runtime);
  CHECK_OK(qinfer_report_parse(runtime, "{}", QINFER_STRLEN, &report, &err));
  none = report;
  CHECK_FAILS(qinfer_report_parse((qinfer_runtime*)report, "{}", 2, &none, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_BAD_HANDLE);
  CHECK(none == NULL);
  qinfer_report_release(report);
}

static void test_files(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_model* model = NULL;
  char path[2001];
  size_t i;
  CHECK_STATUS(
      qinfer_model_load_path(runtime, "/no/such/folder/model.gguf", QINFER_STRLEN, &model, &err),
      QINFER_E_IO);
  CHECK(strstr(err.message, "/no/such/folder/model.gguf") != NULL);
  CHECK(err.os_error == ENOENT);
  CHECK(model == NULL);
  /* A message that is too long is cut between characters. */
  for (i = 0; i < 2000; i += 2) memcpy(path + i, "\xc3\xa9", 2);
  path[2000] = 0;
  CHECK(qinfer_model_load_path(runtime, path, 2000, &model, &err) < 0);
  CHECK(err.message[sizeof err.message - 1] == 0);
  CHECK(strlen(err.message) > 400);
  CHECK(strstr(err.message, " ... ") != NULL);
  CHECK(strstr(err.message, "too long") != NULL);
  CHECK(qinfer_utf8_complete(err.message, strlen(err.message)) == strlen(err.message));
  CHECK_FAILS(qinfer_model_load_path(runtime, "a\0b", 3, &model, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  CHECK_FAILS(qinfer_model_load_path(runtime, NULL, 5, &model, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NULL);
}

static void test_bytes(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  static const char* const kBad[] = {"",
                                     "x",
                                     "GGUF",
                                     "GGUF\x03\0\0\0",
                                     "{\"a\":",
                                     "\x08\0\0\0\0\0\0\0{}      ",
                                     "\xff\xff\xff\xff\xff\xff\xff\x7f{}"};
  static const size_t kSizes[] = {0, 1, 4, 8, 5, 16, 10};
  size_t i;
  for (i = 0; i < sizeof kSizes / sizeof kSizes[0]; ++i) {
    qinfer_source source = QINFER_SOURCE_INIT;
    qinfer_model* model = NULL;
    qinfer_memory_plan plan = QINFER_MEMORY_PLAN_INIT;
    qinfer_status status;
    source.data = kBad[i];
    source.data_size = kSizes[i];
    source.name.data = "the pak file";
    source.name.size = QINFER_STRLEN;
    status = qinfer_model_load(runtime, &source, NULL, &model, &err);
    CHECK(status == QINFER_E_FORMAT || status == QINFER_E_UNSUPPORTED || status == QINFER_E_IO);
    CHECK(model == NULL && err.message[0] != 0);
    CHECK(strstr(err.message, "the pak file") != NULL);
    CHECK(qinfer_model_plan(runtime, &source, NULL, NULL, &plan, &err) < 0);
    CHECK(plan.total_bytes == 0);
  }
}

static void test_reports(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_report* report = NULL;
  const char* json = "{\"a\": 1, \"b\": [1.5, true, null, \"x\\u00e9\"], \"c\": {\"d\": -3}}";
  uint32_t kind;
  size_t size;
  int32_t flag;
  int64_t integer;
  double number;
  qinfer_str text;
  CHECK_OK(qinfer_report_parse(runtime, json, QINFER_STRLEN, &report, &err));
  CHECK_OK(qinfer_report_kind(report, "b", 1, &kind, &err));
  CHECK(kind == QINFER_REPORT_LIST);
  CHECK_OK(qinfer_report_kind(report, NULL, 0, &kind, &err));
  CHECK(kind == QINFER_REPORT_OBJECT);
  CHECK_OK(qinfer_report_kind(report, "b[2]", QINFER_STRLEN, &kind, &err));
  CHECK(kind == QINFER_REPORT_NULL);
  CHECK_OK(qinfer_report_size(report, "b", 1, &size, &err));
  CHECK(size == 4);
  CHECK_OK(qinfer_report_int(report, "c.d", QINFER_STRLEN, &integer, &err));
  CHECK(integer == -3);
  CHECK_OK(qinfer_report_double(report, "b[0]", QINFER_STRLEN, &number, &err));
  CHECK(number == 1.5);
  CHECK_OK(qinfer_report_bool(report, "b[1]", QINFER_STRLEN, &flag, &err));
  CHECK(flag == 1);
  CHECK_OK(qinfer_report_string(report, "b[3]", QINFER_STRLEN, &text, &err));
  CHECK(text.size == 3 && memcmp(text.data, "x\xc3\xa9", 3) == 0);
  CHECK_OK(qinfer_report_key(report, "", 0, 2, &text, &err));
  CHECK(text.size == 1 && text.data[0] == 'c');
  CHECK_OK(qinfer_report_render(report, QINFER_RENDER_JSON_COMPACT, &text, &err));
  CHECK(text.size > 10 && text.data[text.size] == 0);
  CHECK_FAILS(qinfer_report_int(report, "nothing", QINFER_STRLEN, &integer, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NO_SUCH_NODE);
  CHECK_FAILS(qinfer_report_int(report, "b[0]", QINFER_STRLEN, &integer, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_WRONG_KIND);
  CHECK_FAILS(qinfer_report_string(report, "a", 1, &text, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_WRONG_KIND);
  CHECK_FAILS(qinfer_report_key(report, "", 0, 3, &text, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NO_SUCH_NODE);
  CHECK_FAILS(qinfer_report_render(report, 44, &text, &err), QINFER_E_MISUSE, QINFER_DETAIL_OPTION);
  CHECK(qinfer_report_render(report, QINFER_RENDER_HTML, &text, &err) == QINFER_E_UNSUPPORTED);
  CHECK(text.data == NULL);
  qinfer_report_release(report);
  CHECK(qinfer_report_parse(runtime, "{\"a\": ", QINFER_STRLEN, &report, &err) == QINFER_E_FORMAT);
}

void test_errors(void) {
  qinfer_runtime* runtime = make_runtime();
  test_handles(runtime);
  test_files(runtime);
  test_bytes(runtime);
  test_reports(runtime);
  qinfer_runtime_release(runtime);
}
