/* What a host can put in our place: executors of every kind, io tables, the log, the allocator, and
 * the limit on memory. Results must not depend on any of them. */
#include "harness.h"

enum { kTokens = 10 };
static const char* const kPrompt = "And the Lord spake unto";

static int generate_with(const qinfer_runtime_options* options, int32_t* tokens) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = NULL;
  qinfer_model* model = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  size_t made = 0;
  CHECK_OK(qinfer_runtime_create(QINFER_ABI, options, &runtime, &err));
  model = load_model(runtime);
  if (model != NULL) {
    CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
    CHECK_OK(qinfer_session_create(engine, &session, &err));
    made = generate_greedy(session, kPrompt, kTokens, tokens);
  }
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
  return made == kTokens;
}

typedef struct strange_executor {
  int order; /* 0 forwards, 1 backwards, 2 inside out */
  long calls, bodies;
} strange_executor;

static void strange_for(void* user, uint32_t count, void (*body)(void*, uint32_t), void* context) {
  strange_executor* self = (strange_executor*)user;
  uint32_t i;
  ++self->calls;
  self->bodies += count;
  for (i = 0; i < count; ++i) {
    uint32_t index = i;
    if (self->order == 1) index = count - 1 - i;
    if (self->order == 2) {
      /* odd indices first, then even ones */
      const uint32_t odd = count / 2;
      index = i < odd ? 2 * i + 1 : 2 * (i - odd);
    }
    body(context, index);
  }
}

static void test_executors(void) {
  int32_t expected[kTokens], tokens[kTokens];
  int order;
  CHECK(generate_with(NULL, expected));
  for (order = 0; order < 3; ++order) {
    uint32_t width;
    for (width = 1; width <= 7; width += 3) {
      strange_executor strange = {0, 0, 0};
      qinfer_executor table = QINFER_EXECUTOR_INIT;
      qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
      strange.order = order;
      table.user = &strange;
      table.parallel_for = strange_for;
      table.max_concurrency = width;
      options.executor = &table;
      memset(tokens, 0, sizeof tokens);
      CHECK(generate_with(&options, tokens));
      CHECK(memcmp(tokens, expected, sizeof tokens) == 0);
      CHECK(width == 1 || strange.calls > 0);
    }
  }
  {
    uint32_t threads;
    for (threads = 1; threads <= 3; ++threads) {
      qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
      options.threads = threads;
      options.cpu_isa_cap = threads == 3 ? QINFER_ISA_REF : QINFER_ISA_AUTO;
      options.spin_us = threads == 2 ? QINFER_SPIN_NEVER : 0;
      CHECK(generate_with(&options, tokens));
      CHECK(memcmp(tokens, expected, sizeof tokens) == 0);
    }
  }
}

typedef struct log_record {
  int count, bad_levels, empty;
} log_record;

static void record_log(void* user, int32_t level, const char* text, size_t size) {
  log_record* record = (log_record*)user;
  ++record->count;
  if (level < QINFER_LOG_ERROR || level > QINFER_LOG_DEBUG) ++record->bad_levels;
  if (text == NULL || size == 0 || text[size - 1] == '\n') ++record->empty;
}

static void test_log(void) {
  int32_t tokens[kTokens];
  log_record record = {0, 0, 0};
  qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
  options.log = record_log;
  options.log_user = &record;
  CHECK(generate_with(&options, tokens));
  CHECK(record.count == 0); /* nothing to warn of */
  options.log_level = QINFER_LOG_DEBUG;
  CHECK(generate_with(&options, tokens));
  CHECK(record.count >= 2 && record.bad_levels == 0 && record.empty == 0);
}

typedef struct last_warning {
  int warnings;
  char text[400]; /* of all of them */
} last_warning;

static void record_warning(void* user, int32_t level, const char* text, size_t size) {
  last_warning* record = (last_warning*)user;
  if (level != QINFER_LOG_WARNING) return;
  ++record->warnings;
  if (strlen(record->text) + size + 2 > sizeof record->text) return;
  strcat(strcat(record->text, text), "\n");
}

/* An end that no token is: the model loads and works without, and the log says which and where. */
static void test_log_of_ends(void) {
  static const struct {
    const char *json, *first, *second; /* what is to be in the log */
  } cases[] = {
      {"{\"eos_token_id\": 1}", NULL, NULL},
      {"{\"eos_token_id\": -7}", "generation_config", "eos_token_id is -7"},
      {"{\"eos_token_id\": [1, 123456789012]}", "generation_config", "123456789012"},
      {"{\"eos_token_id\": [1, 999999]}", "token 999999", "it never will"},
  };
  size_t i;
  for (i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    qinfer_error err = QINFER_ERROR_INIT;
    qinfer_runtime* runtime = NULL;
    qinfer_model* model = NULL;
    last_warning record = {0, ""};
    qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
    qinfer_source source = QINFER_SOURCE_INIT;
    qinfer_task* task = NULL;
    options.log = record_warning;
    options.log_user = &record;
    source.path.data = model_path();
    source.path.size = QINFER_STRLEN;
    source.generation_config_json.data = cases[i].json;
    source.generation_config_json.size = QINFER_STRLEN;
    CHECK_OK(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err));
    CHECK_OK(qinfer_model_load_begin(runtime, &source, NULL, &task, &err));
    CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
    CHECK_OK(qinfer_task_take_model(task, &model, &err));
    CHECK(record.warnings == (cases[i].first != NULL ? 1 : 0));
    if (cases[i].first != NULL) {
      CHECK(strstr(record.text, cases[i].first) != NULL);
      CHECK(strstr(record.text, cases[i].second) != NULL);
    }
    qinfer_task_release(task);
    qinfer_model_release(model);
    qinfer_runtime_release(runtime);
  }
}

static void test_allocator_and_limit(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  counting_allocator counter;
  qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
  int32_t tokens[kTokens];
  uint64_t limit;
  int refused = 0;
  counting_allocator_init(&counter);
  options.allocator = &counter.table;
  CHECK(generate_with(&options, tokens));
  CHECK(counter.total_blocks > 0 && counter.live_bytes == 0 && counter.live_blocks == 0);
  /* Below what is needed every limit is a clean refusal. */
  for (limit = 1 << 16; limit < ((uint64_t)1 << 32); limit *= 4) {
    qinfer_runtime* runtime = NULL;
    qinfer_model* model = NULL;
    qinfer_engine* engine = NULL;
    qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
    qinfer_status status;
    options.host_bytes_limit = limit;
    CHECK_OK(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err));
    status = qinfer_model_load_path(runtime, model_path(), QINFER_STRLEN, &model, &err);
    if (status == QINFER_OK) status = qinfer_engine_create(model, NULL, &engine, &err);
    CHECK(status == QINFER_OK || status == QINFER_E_BUDGET);
    if (status == QINFER_E_BUDGET) {
      ++refused;
      CHECK(err.message[0] != 0);
    }
    CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
    CHECK(usage.peak_bytes <= limit);
    qinfer_engine_release(engine);
    qinfer_model_release(model);
    qinfer_runtime_release(runtime);
    CHECK(counter.live_blocks == 0);
  }
  CHECK(refused >= 2);
}

/* The plan is what loading and generating then take. `source`: as many times as needed. */
static void plan_holds(const qinfer_source* source) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = make_runtime();
  qinfer_engine_options engine_options = QINFER_ENGINE_OPTIONS_INIT;
  qinfer_memory_plan plan = QINFER_MEMORY_PLAN_INIT;
  qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
  qinfer_model* model = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  int32_t tokens[kTokens];
  uint64_t loaded;
  engine_options.context_tokens = 512;
  engine_options.max_sessions = 1;
  CHECK_OK(qinfer_model_plan(runtime, source, NULL, &engine_options, &plan, &err));
  CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
  CHECK(usage.peak_bytes == 0);
  CHECK_OK(qinfer_model_load(runtime, source, NULL, &model, &err));
  if (model == NULL) return;
  CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
  CHECK(usage.mapped_bytes == plan.mapped_bytes);
  loaded = usage.used_bytes;
  CHECK_OK(qinfer_engine_create(model, &engine_options, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK(generate_greedy(session, kPrompt, kTokens, tokens) == kTokens);
  CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
  printf("memory plan %llu bytes, peak %llu bytes (%.3f)\n", (unsigned long long)plan.total_bytes,
         (unsigned long long)usage.peak_bytes, (double)plan.total_bytes / (double)usage.peak_bytes);
  CHECK(usage.peak_bytes <= plan.total_bytes);
  /* Part by part, too: what an engine adds to a loaded model, its sampler included. */
  CHECK(usage.used_bytes - loaded <= plan.kv_bytes + plan.workspace_bytes);
  CHECK((double)(plan.kv_bytes + plan.workspace_bytes) <=
        1.05 * (double)(usage.used_bytes - loaded));
  CHECK((double)plan.total_bytes <= 1.1 * (double)usage.peak_bytes);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
}

static void test_plan(void) {
  qinfer_source source = QINFER_SOURCE_INIT;
  source.path.data = model_path();
  source.path.size = QINFER_STRLEN;
  plan_holds(&source);
}

static int32_t map_memory(void* user, uint64_t offset, uint64_t n, const void** out) {
  const memory_file* file = (const memory_file*)user;
  (void)n;
  *out = file->bytes + offset;
  return 0;
}

/* The model's files through an io table, converted to memory, and loaded from there. */
static void test_io(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = make_runtime();
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_target target = QINFER_TARGET_INIT;
  memory_file weights, config, tokenizer, tokenizer_config, written;
  qinfer_io reader;
  qinfer_write_io writer;
  qinfer_model* model = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  int32_t expected[kTokens], tokens[kTokens];
  char path[600];
  CHECK(generate_with(NULL, expected));
  snprintf(path, sizeof path, "%s/model.safetensors", model_path());
  CHECK(read_file(path, &weights));
  snprintf(path, sizeof path, "%s/config.json", model_path());
  CHECK(read_file(path, &config));
  snprintf(path, sizeof path, "%s/tokenizer.json", model_path());
  CHECK(read_file(path, &tokenizer));
  snprintf(path, sizeof path, "%s/tokenizer_config.json", model_path());
  CHECK(read_file(path, &tokenizer_config));
  reader = memory_reader(&weights);
  source.io = &reader;
  source.name.data = "pak:/tiny";
  source.name.size = QINFER_STRLEN;
  source.config_json.data = (const char*)config.bytes;
  source.config_json.size = config.size;
  source.tokenizer_json.data = (const char*)tokenizer.bytes;
  source.tokenizer_json.size = tokenizer.size;
  source.tokenizer_config_json.data = (const char*)tokenizer_config.bytes;
  source.tokenizer_config_json.size = tokenizer_config.size;
  CHECK_OK(qinfer_model_load(runtime, &source, NULL, &model, &err));
  if (model == NULL) return;
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK(generate_greedy(session, kPrompt, kTokens, tokens) == kTokens);
  CHECK(memcmp(tokens, expected, sizeof tokens) == 0);
  CHECK(weights.drops == 0 && weights.reads > 0);
  /* Convert what came from the table into a file in memory. */
  memset(&written, 0, sizeof written);
  writer = memory_writer(&written);
  target.io = &writer;
  CHECK_OK(qinfer_convert_begin(model, &target, &task, &err));
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  qinfer_task_release(task);
  CHECK(written.commits == 1 && written.abandons == 0 && written.drops == 1);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  qinfer_model_release(model);
  CHECK(weights.drops == 1);
  {
    qinfer_source packed = QINFER_SOURCE_INIT;
    unsigned char* aligned = NULL;
    qinfer_model_info info = QINFER_MODEL_INFO_INIT;
    unsigned char* block = (unsigned char*)malloc(written.size + 64);
    aligned = block + (64 - (size_t)((uintptr_t)block % 64));
    memcpy(aligned, written.bytes, written.size);
    packed.data = aligned;
    packed.data_size = written.size;
    model = NULL;
    engine = NULL;
    session = NULL;
    CHECK_OK(qinfer_model_load(runtime, &packed, NULL, &model, &err));
    CHECK_OK(qinfer_model_info_get(model, &info, &err));
    CHECK(info.container == QINFER_CONTAINER_QINFER);
    CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
    CHECK_OK(qinfer_session_create(engine, &session, &err));
    CHECK(generate_greedy(session, kPrompt, kTokens, tokens) == kTokens);
    CHECK(memcmp(tokens, expected, sizeof tokens) == 0);
    qinfer_session_release(session);
    qinfer_engine_release(engine);
    qinfer_model_release(model);
    /* What is the host's own counts nowhere, whichever way it is given. */
    plan_holds(&packed);
    {
      memory_file mapped = written;
      qinfer_source by_map = QINFER_SOURCE_INIT;
      qinfer_io mapper;
      mapped.bytes = aligned;
      mapper = memory_reader(&mapped);
      mapper.map = map_memory;
      by_map.io = &mapper;
      plan_holds(&by_map);
      mapper.map = NULL;
      plan_holds(&by_map);
    }
    free(block);
  }
  /* A sink that fails is abandoned. */
  {
    int after;
    for (after = 1; after < 6; after += 2) {
      memory_file full;
      qinfer_source by_path = QINFER_SOURCE_INIT;
      qinfer_load_options header = QINFER_LOAD_OPTIONS_INIT;
      memset(&full, 0, sizeof full);
      full.fail_write_after = after;
      writer = memory_writer(&full);
      by_path.path.data = model_path();
      by_path.path.size = QINFER_STRLEN;
      header.parts = QINFER_PARTS_HEADER;
      model = NULL;
      CHECK_OK(qinfer_model_load(runtime, &by_path, &header, &model, &err));
      CHECK_OK(qinfer_convert_begin(model, &target, &task, &err));
      CHECK_STATUS(qinfer_task_wait(task, UINT64_MAX, &err), QINFER_E_IO);
      CHECK(err.os_error == QINFER_E_IO);
      qinfer_task_release(task);
      CHECK(full.commits == 0 && full.abandons == 1 && full.drops == 1);
      qinfer_model_release(model);
      memory_file_free(&full);
    }
  }
  memory_file_free(&weights);
  memory_file_free(&config);
  memory_file_free(&tokenizer);
  memory_file_free(&tokenizer_config);
  memory_file_free(&written);
  qinfer_runtime_release(runtime);
}

void test_hooks(void) {
  test_executors();
  test_log();
  test_log_of_ends();
  test_allocator_and_limit();
  test_plan();
  test_io();
}
