/* Structs of other versions, flags and values out of range: told apart, and never half accepted. */
#include "harness.h"

typedef struct larger_runtime_options {
  qinfer_runtime_options known;
  uint64_t unknown[4];
} larger_runtime_options;

static void test_sizes(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = NULL;
  larger_runtime_options options;
  /* An application of a later version, with nothing new in use. */
  qinfer_runtime_options_init(&options.known, sizeof options);
  CHECK(options.known.struct_size == sizeof options);
  CHECK_OK(qinfer_runtime_create(QINFER_ABI, &options.known, &runtime, &err));
  qinfer_runtime_release(runtime);
  /* One that uses a new field. */
  options.unknown[3] = 1;
  runtime = (qinfer_runtime*)&options;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options.known, &runtime, &err), QINFER_E_ABI,
              QINFER_DETAIL_UNKNOWN_FIELDS);
  CHECK(runtime == NULL);
  options.unknown[3] = 0;
  options.known.struct_size = sizeof(qinfer_runtime_options) - 1;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options.known, &runtime, &err), QINFER_E_ABI,
              QINFER_DETAIL_STRUCT_TOO_SMALL);
  options.known.struct_size = 0;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options.known, &runtime, &err), QINFER_E_ABI,
              QINFER_DETAIL_STRUCT_TOO_SMALL);
  options.known.struct_size = 4097;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options.known, &runtime, &err), QINFER_E_ABI,
              QINFER_DETAIL_STRUCT_TOO_LARGE);
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI + 1, NULL, &runtime, &err), QINFER_E_ABI,
              QINFER_DETAIL_VERSION);
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, NULL, NULL, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NULL);
}

static void test_error_struct(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = NULL;
  err.struct_size = 0;
  CHECK(qinfer_runtime_create(QINFER_ABI, NULL, &runtime, &err) == QINFER_E_ABI);
  CHECK(runtime == NULL && err.message[0] == 0);
  err.struct_size = 5000;
  CHECK(qinfer_runtime_create(QINFER_ABI, NULL, &runtime, &err) == QINFER_E_ABI);
  /* Without one everything works as well. */
  CHECK(qinfer_runtime_create(QINFER_ABI + 7, NULL, &runtime, NULL) == QINFER_E_ABI);
  CHECK(qinfer_runtime_create(QINFER_ABI, NULL, &runtime, NULL) == QINFER_OK);
  qinfer_runtime_release(runtime);
}

static void test_runtime_options(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = NULL;
  counting_allocator counter;
  qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
  qinfer_executor executor = QINFER_EXECUTOR_INIT;
  options.flags = (uint64_t)1 << 40;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_UNKNOWN_FLAGS);
  options.flags = 0;
  options.reserved = 3;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_RESERVED);
  options.reserved = 0;
  options.next = &options;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_RESERVED);
  options.next = NULL;
  options.cpu_isa_cap = 17;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
#if defined(__x86_64__)
  options.cpu_isa_cap = QINFER_ISA_NEON;
#else
  options.cpu_isa_cap = QINFER_ISA_AVX2;
#endif
  CHECK(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err) == QINFER_E_UNSUPPORTED);
  options.cpu_isa_cap = QINFER_ISA_REF;
  CHECK_OK(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err));
  {
    qinfer_runtime_info info = QINFER_RUNTIME_INFO_INIT;
    CHECK_OK(qinfer_runtime_info_get(runtime, &info, &err));
    CHECK(info.cpu_isa == QINFER_ISA_REF);
    CHECK(info.cpu_isa_name.size == 3 && memcmp(info.cpu_isa_name.data, "ref", 3) == 0);
  }
  qinfer_runtime_release(runtime);
  options.cpu_isa_cap = 0;
  counting_allocator_init(&counter);
  counter.table.release = NULL;
  options.allocator = &counter.table;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  options.allocator = NULL;
  options.executor = &executor;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  options.executor = NULL;
  options.threads = 1000000;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  options.threads = 0;
  options.log_level = 9;
  CHECK_FAILS(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
}

/* Output structs: what is known is filled in, what the library does not know is zero. */
static void test_outputs(qinfer_runtime* runtime) {
  qinfer_error err = QINFER_ERROR_INIT;
  struct {
    qinfer_memory_usage known;
    unsigned char tail[40];
  } usage;
  size_t i;
  memset(&usage, 0xab, sizeof usage);
  usage.known.struct_size = sizeof usage;
  CHECK_OK(qinfer_runtime_memory(runtime, &usage.known, &err));
  CHECK(usage.known.struct_size == sizeof usage);
  for (i = 0; i < sizeof usage.tail; ++i) CHECK(usage.tail[i] == 0);
  usage.known.struct_size = 8;
  CHECK_FAILS(qinfer_runtime_memory(runtime, &usage.known, &err), QINFER_E_ABI,
              QINFER_DETAIL_STRUCT_TOO_SMALL);
  CHECK_FAILS(qinfer_runtime_memory(runtime, NULL, &err), QINFER_E_MISUSE, QINFER_DETAIL_NULL);
}

static void test_model_options(qinfer_runtime* runtime, qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
  qinfer_engine_options engine_options = QINFER_ENGINE_OPTIONS_INIT;
  qinfer_calibration_options calibration_options = QINFER_CALIBRATION_OPTIONS_INIT;
  qinfer_model* none = NULL;
  qinfer_engine* engine = NULL;
  qinfer_calibration* calibration = NULL;
  CHECK_FAILS(qinfer_model_load(runtime, &source, NULL, &none, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  source.path.data = model_path();
  source.path.size = QINFER_STRLEN;
  source.data = "x";
  source.data_size = 1;
  CHECK_FAILS(qinfer_model_load(runtime, &source, NULL, &none, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  source.data = NULL;
  load.access = 7;
  CHECK_FAILS(qinfer_model_load(runtime, &source, &load, &none, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  load.access = 0;
  load.parts = 7;
  CHECK_FAILS(qinfer_model_load(runtime, &source, &load, &none, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  load.parts = 0;
  load.flags = 1u << 20;
  CHECK_FAILS(qinfer_model_load(runtime, &source, &load, &none, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_UNKNOWN_FLAGS);
  CHECK(none == NULL);
  engine_options.k_type = 9;
  CHECK_FAILS(qinfer_engine_create(model, &engine_options, &engine, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  engine_options.k_type = QINFER_KV_F16;
  engine_options.activations = 5;
  CHECK_FAILS(qinfer_engine_create(model, &engine_options, &engine, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  engine_options.activations = 0;
  engine_options.determinism = 2;
  CHECK_FAILS(qinfer_engine_create(model, &engine_options, &engine, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  engine_options.determinism = QINFER_DETERMINISM_FAST;
  engine_options.reserved = 1;
  CHECK_FAILS(qinfer_engine_create(model, &engine_options, &engine, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_RESERVED);
  /* A program of the time before determinism: what lies behind its struct is not read. */
  engine_options.struct_size = (uint32_t)offsetof(qinfer_engine_options, determinism);
  CHECK_OK(qinfer_engine_create(model, &engine_options, &engine, &err));
  {
    qinfer_engine_options filled = QINFER_ENGINE_OPTIONS_INIT;
    filled.determinism = 9;
    CHECK_OK(qinfer_engine_options_get(engine, &filled, &err));
    CHECK(filled.determinism == QINFER_DETERMINISM_STRICT && filled.reserved == 0);
  }
  qinfer_engine_release(engine);
  engine = NULL;
  --engine_options.struct_size;
  CHECK_FAILS(qinfer_engine_create(model, &engine_options, &engine, &err), QINFER_E_ABI,
              QINFER_DETAIL_STRUCT_TOO_SMALL);
  engine_options.struct_size = (uint32_t)sizeof engine_options;
  engine_options.reserved = 0;
  CHECK_OK(qinfer_engine_create(model, &engine_options, &engine, &err));
  {
    qinfer_engine_options filled = QINFER_ENGINE_OPTIONS_INIT;
    CHECK_OK(qinfer_engine_options_get(engine, &filled, &err));
    CHECK(filled.k_type == QINFER_KV_F16 && filled.v_type == QINFER_KV_INT8);
    CHECK(filled.determinism == QINFER_DETERMINISM_FAST);
    CHECK(filled.context_tokens > 0 && filled.max_sessions == 8);
  }
  qinfer_engine_release(engine);
  calibration_options.ema_alpha = 2.0;
  CHECK_FAILS(qinfer_calibration_create(model, &calibration_options, &calibration, &err),
              QINFER_E_MISUSE, QINFER_DETAIL_OPTION);
  calibration_options.ema_alpha = 0.0;
  calibration_options.range = 99;
  CHECK_FAILS(qinfer_calibration_create(model, &calibration_options, &calibration, &err),
              QINFER_E_MISUSE, QINFER_DETAIL_OPTION);
}

static void test_generate_options(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  qinfer_str empty = {NULL, 0};
  int i;
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_OK(qinfer_session_append_text(session, "Now", QINFER_STRLEN, 0, &err));
  for (i = 0; i < 16; ++i) {
    qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
    qinfer_logit_bias bias = {-5, 1.0f};
    const int32_t stop = i == 8 ? -1 : 999999;
    const qinfer_str text = {"x", 1};
    const qinfer_str cut = {"x\xe2\x82", 3}; /* within a character */
    switch (i) {
      case 0:
        options.temperature = -1.0f;
        break;
      case 1:
        options.top_p = 1.5f;
        break;
      case 2:
        options.min_p = -0.5f;
        break;
      case 3:
        options.repetition_penalty = -1.0f;
        break;
      case 4:
        options.temperature = (float)strtod("nan", NULL);
        break;
      case 5:
        options.logit_bias = &bias;
        options.logit_bias_count = 1;
        break;
      case 6:
        options.logit_bias_count = 3;
        break;
      case 7:
        options.stop_strings = &empty;
        options.stop_string_count = 1;
        break;
      case 8:
      case 9:
        options.stop_tokens = &stop;
        options.stop_token_count = 1;
        break;
      case 10:
        options.logit_bias = &bias;
        options.logit_bias_count = UINT64_MAX;
        break;
      case 11:
        options.stop_tokens = &stop;
        options.stop_token_count = UINT64_MAX;
        break;
      case 12:
        options.stop_strings = &text;
        options.stop_string_count = UINT64_MAX;
        break;
      case 13:
        options.logprobs = UINT32_MAX;
        break;
      case 14:
        options.stop_strings = &cut;
        options.stop_string_count = 1;
        break;
      default:
        options.flags = (uint64_t)1 << 63;
        break;
    }
    CHECK(qinfer_generate_begin(session, &options, &task, &err) == QINFER_E_MISUSE);
    CHECK(task == NULL);
    CHECK(err.detail == (i == 6   ? QINFER_DETAIL_NULL
                         : i < 15 ? QINFER_DETAIL_OPTION
                                  : QINFER_DETAIL_UNKNOWN_FLAGS));
  }
  {
    const int32_t token = 1;
    CHECK_FAILS(qinfer_session_append(session, &token, SIZE_MAX, &err), QINFER_E_MISUSE,
                QINFER_DETAIL_OPTION);
  }
  {
    qinfer_engine_options bad = QINFER_ENGINE_OPTIONS_INIT;
    qinfer_engine* none = NULL;
    bad.max_sessions = 65537;
    CHECK_FAILS(qinfer_engine_create(model, &bad, &none, &err), QINFER_E_MISUSE,
                QINFER_DETAIL_OPTION);
    bad.max_sessions = 0;
    bad.context_tokens = UINT64_MAX;
    CHECK_FAILS(qinfer_engine_create(model, &bad, &none, &err), QINFER_E_MISUSE,
                QINFER_DETAIL_OPTION);
  }
  /* None of them has left the session in use. */
  CHECK_OK(qinfer_session_append_text(session, " and", QINFER_STRLEN, 0, &err));
  qinfer_session_release(session);
  qinfer_engine_release(engine);
}

static void test_quantize_options(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_task* task = NULL;
  int i;
  for (i = 0; i < 7; ++i) {
    memory_file file;
    qinfer_write_io io = memory_writer(&file);
    qinfer_target target = QINFER_TARGET_INIT;
    qinfer_quantize_options options = QINFER_QUANTIZE_OPTIONS_INIT;
    qinfer_override override = {{"*", 1}, {"int99", 5}};
    memset(&file, 0, sizeof file);
    target.io = &io;
    switch (i) {
      case 0:
        options.scheme.data = "int77";
        options.scheme.size = 5;
        break;
      case 1:
        options.group_size = 33;
        break;
      case 2:
        options.flags = (uint64_t)1 << 50;
        break;
      case 3:
        options.flags = QINFER_QUANTIZE_RESUME;
        break;
      case 4:
        options.overrides = &override;
        options.override_count = 1;
        break;
      case 5:
        options.scheme.data = "f16";
        options.scheme.size = QINFER_STRLEN;
        options.group_size = 64;
        break;
      default:
        options.method.data = "magic";
        options.method.size = 5;
        break;
    }
    CHECK(qinfer_quantize_begin(model, &options, &target, &task, &err) < 0);
    CHECK(task == NULL);
    CHECK(file.drops == 1 && file.commits == 0 && file.abandons <= 1);
    memory_file_free(&file);
  }
}

void test_options(void) {
  qinfer_runtime* runtime;
  qinfer_model* model;
  test_sizes();
  test_error_struct();
  test_runtime_options();
  runtime = make_runtime();
  model = load_model(runtime);
  test_outputs(runtime);
  if (model != NULL) {
    test_model_options(runtime, model);
    test_generate_options(model);
    test_quantize_options(model);
  }
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
}
