/* What stands in outputs after a call that got a wrong handle: NULL, one of another type, or one
 * that is poisoned. Every function that takes a handle and has outputs is here, none that only
 * changes its handle; each output holds other bytes before the call. */
#include "harness.h"

typedef union output {
  uint32_t struct_size;
  unsigned char bytes[1024];
} output;

/* Outputs of a call: a struct, a pointer or number, and a second number. */
static output structure;
static union slot {
  void* handle;
  qinfer_str text;
  size_t count;
  uint32_t number;
  int32_t id;
  int64_t integer;
  double real;
  unsigned char bytes[16];
} first, second;

static void fill(size_t struct_size) {
  memset(&structure, 0xa5, sizeof structure);
  structure.struct_size = (uint32_t)struct_size;
  memset(&first, 0xa5, sizeof first);
  memset(&second, 0xa5, sizeof second);
}

static int all(const void* memory, size_t begin, size_t end, unsigned char value) {
  const unsigned char* bytes = memory;
  for (; begin < end; ++begin) {
    if (bytes[begin] != value) return 0;
  }
  return 1;
}

static void* handle;
static int32_t expected_detail;

/* `size` bytes of an output are `value`, and those behind it are as before. */
static int holds(const union slot* slot, size_t size, unsigned char value) {
  return all(slot, 0, size, value) && all(slot, size, sizeof *slot, 0xa5);
}

#define REFUSED(call) CHECK_FAILS(call, QINFER_E_MISUSE, expected_detail)
/* A call with one output struct of `type`. */
#define STRUCT_OUT(type, call)                                        \
  do {                                                                \
    fill(sizeof(type));                                               \
    REFUSED(call);                                                    \
    CHECK(structure.struct_size == sizeof(type));                     \
    CHECK(all(&structure, sizeof(uint32_t), sizeof(type), 0));        \
    CHECK(all(&structure, sizeof(type), sizeof structure, 0xa5));     \
    fill(sizeof(uint32_t)); /* a size that cannot be believed */      \
    CHECK((call) < 0);                                                \
    CHECK(all(&structure, sizeof(uint32_t), sizeof structure, 0xa5)); \
  } while (0)
/* A call with `first` as its output, `size` bytes that then are `value`. */
#define FIRST_OUT(size, value, call)       \
  do {                                     \
    fill(0);                               \
    REFUSED(call);                         \
    CHECK(holds(&first, (size), (value))); \
  } while (0)
#define SECOND_TOO(size) CHECK(holds(&second, (size), 0))
#define S(type) ((type*)(void*)&structure)

static void test_runtime(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = handle;
  qinfer_source source = QINFER_SOURCE_INIT;
  source.data = "x";
  source.data_size = 1;
  STRUCT_OUT(qinfer_runtime_info, qinfer_runtime_info_get(runtime, S(qinfer_runtime_info), &err));
  STRUCT_OUT(qinfer_memory_usage, qinfer_runtime_memory(runtime, S(qinfer_memory_usage), &err));
  STRUCT_OUT(qinfer_memory_plan,
             qinfer_model_plan(runtime, &source, NULL, NULL, S(qinfer_memory_plan), &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_model_load_begin(runtime, &source, NULL, (qinfer_task**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_model_load(runtime, &source, NULL, (qinfer_model**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_model_load_path(runtime, "x", 1, (qinfer_model**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_report_parse(runtime, "{}", 2, (qinfer_report**)&first.handle, &err));
  FIRST_OUT(sizeof(size_t), 0,
            qinfer_template_render(runtime, NULL, NULL, NULL, 0, &first.count, &err));
}

static void test_model(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_model* model = handle;
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_task** const task = (qinfer_task**)&first.handle;
  STRUCT_OUT(qinfer_model_info, qinfer_model_info_get(model, S(qinfer_model_info), &err));
  STRUCT_OUT(qinfer_tensor_info, qinfer_model_tensor(model, 0, S(qinfer_tensor_info), &err));
  STRUCT_OUT(qinfer_quantize_plan,
             qinfer_quantize_plan_get(model, NULL, S(qinfer_quantize_plan), &err));
  FIRST_OUT(sizeof(void*), 0, qinfer_model_report(model, 1, (qinfer_report**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0, qinfer_verify_begin(model, task, &err));
  FIRST_OUT(sizeof(void*), 0, qinfer_convert_begin(model, &target, task, &err));
  FIRST_OUT(sizeof(void*), 0, qinfer_quantize_begin(model, NULL, &target, task, &err));
  FIRST_OUT(sizeof(void*), 0, qinfer_perplexity_begin(model, NULL, 0, NULL, task, &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_calibration_create(model, NULL, (qinfer_calibration**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_calibration_load(model, &source, (qinfer_calibration**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_engine_create(model, NULL, (qinfer_engine**)&first.handle, &err));
  FIRST_OUT(sizeof(size_t), 0,
            qinfer_tokenizer_encode(model, "a", 1, 0, NULL, 0, &first.count, &err));
  FIRST_OUT(sizeof(size_t), 0,
            qinfer_tokenizer_decode(model, NULL, 0, 0, NULL, 0, &first.count, &second.count, &err));
  SECOND_TOO(sizeof(size_t));
  FIRST_OUT(sizeof(int32_t), 0xff,
            qinfer_tokenizer_special(model, QINFER_TOKEN_BOS, &first.id, &err));
  FIRST_OUT(sizeof(qinfer_str), 0, qinfer_tokenizer_token(model, 0, &first.text, &second.id, &err));
  SECOND_TOO(sizeof(int32_t));
  FIRST_OUT(sizeof(int32_t), 0xff, qinfer_tokenizer_find(model, "a", 1, &first.id, &err));
  FIRST_OUT(sizeof(uint32_t), 0, qinfer_tokenizer_size(model, &first.number, &err));
  FIRST_OUT(sizeof(qinfer_str), 0, qinfer_template_text(model, &first.text, &err));
  if (model == NULL) return; /* then the runtime counts: see above */
  FIRST_OUT(sizeof(size_t), 0,
            qinfer_template_render(NULL, model, NULL, NULL, 0, &first.count, &err));
}

static void test_running(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_session* session = handle;
  qinfer_task* task = handle;
  STRUCT_OUT(qinfer_engine_options,
             qinfer_engine_options_get((qinfer_engine*)handle, S(qinfer_engine_options), &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_session_create((qinfer_engine*)handle, (qinfer_session**)&first.handle, &err));
  FIRST_OUT(sizeof(uint32_t), 0, qinfer_session_length(session, &first.number, &err));
  FIRST_OUT(sizeof(size_t), 0, qinfer_session_tokens(session, NULL, 0, &first.count, &err));
  FIRST_OUT(sizeof(size_t), 0, qinfer_session_logits(session, NULL, 0, &first.count, &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_session_prefill_begin(session, (qinfer_task**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0, qinfer_session_fork(session, (qinfer_session**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_generate_begin(session, NULL, (qinfer_task**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_calibration_run_begin((qinfer_calibration*)handle, (qinfer_task**)&first.handle,
                                         &err));
  STRUCT_OUT(qinfer_progress, qinfer_task_progress(task, S(qinfer_progress), &err));
  STRUCT_OUT(qinfer_event, qinfer_generate_next(task, 0, S(qinfer_event), &err));
  FIRST_OUT(sizeof(uint32_t), 0, qinfer_generate_counts(task, &first.number, &second.number, &err));
  SECOND_TOO(sizeof(uint32_t));
  FIRST_OUT(
      sizeof(uint64_t), 0,
      qinfer_generate_lookup_counts(task, (uint64_t*)&first.integer, (uint64_t*)&second.integer,
                                    (uint64_t*)(void*)structure.bytes, &err));
  SECOND_TOO(sizeof(uint64_t));
  CHECK(all(&structure, 0, sizeof(uint64_t), 0));
  FIRST_OUT(sizeof(void*), 0, qinfer_task_take_model(task, (qinfer_model**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0, qinfer_task_take_report(task, (qinfer_report**)&first.handle, &err));
  FIRST_OUT(sizeof(void*), 0,
            qinfer_task_take_calibration(task, (qinfer_calibration**)&first.handle, &err));
}

static void test_report(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_report* report = handle;
  FIRST_OUT(sizeof(uint32_t), 0, qinfer_report_kind(report, "a", 1, &first.number, &err));
  FIRST_OUT(sizeof(size_t), 0, qinfer_report_size(report, "a", 1, &first.count, &err));
  FIRST_OUT(sizeof(qinfer_str), 0, qinfer_report_key(report, "a", 1, 0, &first.text, &err));
  FIRST_OUT(sizeof(int32_t), 0, qinfer_report_bool(report, "a", 1, &first.id, &err));
  FIRST_OUT(sizeof(int64_t), 0, qinfer_report_int(report, "a", 1, &first.integer, &err));
  FIRST_OUT(sizeof(double), 0, qinfer_report_double(report, "a", 1, &first.real, &err));
  FIRST_OUT(sizeof(qinfer_str), 0, qinfer_report_string(report, "a", 1, &first.text, &err));
  FIRST_OUT(sizeof(qinfer_str), 0, qinfer_report_render(report, 1, &first.text, &err));
}

static void use(void* wrong, int32_t detail) {
  handle = wrong;
  expected_detail = detail;
}

/* A handle that answers as after an E_INTERNAL. Nothing outside of the library can bring that
 * about, so the mark is set where every handle has it: behind its two counters. */
static qinfer_runtime* poisoned(qinfer_runtime* runtime) {
  ((unsigned char*)runtime)[8] = 1;
  return runtime;
}

void test_output_values(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = make_runtime();
  qinfer_report* report = NULL;
  CHECK_OK(qinfer_report_parse(runtime, "{\"a\": 1}", QINFER_STRLEN, &report, &err));
  use(NULL, QINFER_DETAIL_NULL);
  test_runtime();
  test_model();
  test_running();
  test_report();
  use(runtime, QINFER_DETAIL_BAD_HANDLE);
  test_model();
  test_running();
  test_report();
  use(report, QINFER_DETAIL_BAD_HANDLE);
  test_runtime();
  use(poisoned(runtime), QINFER_DETAIL_POISONED);
  test_runtime();
  qinfer_report_release(report);
  qinfer_runtime_release(runtime);
}
