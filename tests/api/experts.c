/* Files of models with experts and latent attention through the API: what they say of
 * themselves, conversion without loss, quantization to INT4, generation from all three. The files
 * have no tokenizer. */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "harness.h"

enum { kTokens = 10 };

/* Greedy tokens after a fixed prompt of ids; a file that cannot be loaded counts as a failure. */
static void generate(qinfer_runtime* runtime, const char* path, int32_t* tokens) {
  static const int32_t prompt[] = {3, 17, 5, 40, 8, 2, 31, 9};
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  qinfer_event event = QINFER_EVENT_INIT;
  qinfer_model* model = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  qinfer_status status = QINFER_END;
  uint32_t made = 0;
  options.max_tokens = kTokens;
  options.flags = QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS;
  CHECK_OK(qinfer_model_load_path(runtime, path, QINFER_STRLEN, &model, &err));
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_OK(qinfer_session_append(session, prompt, sizeof prompt / sizeof prompt[0], &err));
  CHECK_OK(qinfer_generate_begin(session, &options, &task, &err));
  while (task != NULL && (status = qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event,
                                                        &err)) == QINFER_OK) {
    if (event.token >= 0 && made < kTokens) tokens[made++] = event.token;
  }
  CHECK(status == QINFER_END);
  CHECK(made == kTokens);
  qinfer_task_release(task);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  qinfer_model_release(model);
}

/* The log-probabilities of the token after a long prompt under an engine's determinism; what it
 * takes is what was planned. */
static float long_prompt(uint32_t threads, uint32_t determinism, int32_t* token) {
  qinfer_runtime_options runtime_options = QINFER_RUNTIME_OPTIONS_INIT;
  qinfer_engine_options engine_options = QINFER_ENGINE_OPTIONS_INIT;
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  qinfer_memory_plan plan = QINFER_MEMORY_PLAN_INIT;
  qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_event event = QINFER_EVENT_INIT;
  qinfer_runtime* runtime = NULL;
  qinfer_model* model = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  int32_t prompt[80];
  float result = 0.0f;
  int32_t i;
  for (i = 0; i < 80; ++i) prompt[i] = (i * 29 + i * i) % 87;
  runtime_options.threads = threads;
  CHECK_OK(qinfer_runtime_create(QINFER_ABI, &runtime_options, &runtime, &err));
  source.path.data = QINFER_SOURCE_DIR "/tests/golden/models/deepseek-v3-small";
  source.path.size = QINFER_STRLEN;
  engine_options.max_sessions = 1;
  engine_options.determinism = determinism;
  CHECK_OK(qinfer_model_plan(runtime, &source, NULL, &engine_options, &plan, &err));
  CHECK_OK(qinfer_model_load(runtime, &source, NULL, &model, &err));
  CHECK_OK(qinfer_engine_create(model, &engine_options, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_OK(qinfer_session_append(session, prompt, 80, &err));
  options.max_tokens = 1;
  options.logprobs = 1;
  options.flags = QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS;
  CHECK_OK(qinfer_generate_begin(session, &options, &task, &err));
  CHECK_OK(qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event, &err));
  *token = event.token;
  CHECK(event.logprob_count > 0);
  if (event.logprob_count > 0) result = event.logprobs[0].logprob;
  CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
  CHECK(usage.peak_bytes <= plan.total_bytes);
  CHECK((double)plan.total_bytes <= 1.1 * (double)usage.peak_bytes);
  qinfer_task_release(task);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
  return result;
}

static void test_determinism(void) {
  int32_t tokens[4];
  const float strict = long_prompt(1, QINFER_DETERMINISM_STRICT, &tokens[0]);
  const float also_strict = long_prompt(2, QINFER_DETERMINISM_STRICT, &tokens[1]);
  const float fast = long_prompt(1, QINFER_DETERMINISM_FAST, &tokens[2]);
  const float also_fast = long_prompt(2, QINFER_DETERMINISM_FAST, &tokens[3]);
  CHECK(strict == also_strict && fast == also_fast);
  CHECK(fast != strict && fast - strict < 0.3f && strict - fast < 0.3f);
  CHECK(tokens[0] == tokens[1] && tokens[0] == tokens[2] && tokens[0] == tokens[3]);
}

static void finish(qinfer_task* task) {
  qinfer_error err = QINFER_ERROR_INIT;
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  qinfer_task_release(task);
}

static void test_file(qinfer_runtime* runtime, const char* name, const char* architecture,
                      uint32_t layers, uint32_t width) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_quantize_options options = QINFER_QUANTIZE_OPTIONS_INIT;
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_model_info info = QINFER_MODEL_INFO_INIT;
  qinfer_model* model = NULL;
  qinfer_task* task = NULL;
  int32_t source[kTokens] = {0}, converted[kTokens] = {0}, packed[kTokens] = {0};
  uint64_t source_bytes;
  char path[400], out[300];
  snprintf(path, sizeof path, QINFER_SOURCE_DIR "/tests/golden/%s", name);
  snprintf(out, sizeof out, "%s", temporary_path("experts.qinfer"));
  target.path.data = out;
  target.path.size = QINFER_STRLEN;
  CHECK_OK(qinfer_model_load_path(runtime, path, QINFER_STRLEN, &model, &err));
  CHECK_OK(qinfer_model_info_get(model, &info, &err));
  CHECK(info.architecture.size == strlen(architecture) &&
        memcmp(info.architecture.data, architecture, info.architecture.size) == 0);
  CHECK(info.layers == layers);
  CHECK(info.intermediate_size == width);
  source_bytes = info.weight_bytes;
  generate(runtime, path, source);

  CHECK_OK(qinfer_convert_begin(model, &target, &task, &err));
  finish(task);
  generate(runtime, out, converted);
  CHECK(memcmp(converted, source, sizeof source) == 0);
  CHECK(unlink(out) == 0);

  task = NULL;
  options.flags = QINFER_QUANTIZE_NO_EVALUATION | QINFER_QUANTIZE_NO_CALIBRATION;
  CHECK_OK(qinfer_quantize_begin(model, &options, &target, &task, &err));
  finish(task);
  qinfer_model_release(model);
  generate(runtime, out, packed);
  CHECK_OK(qinfer_model_load_path(runtime, out, QINFER_STRLEN, &model, &err));
  CHECK_OK(qinfer_model_info_get(model, &info, &err));
  CHECK(info.weight_bytes != 0 && info.weight_bytes < source_bytes);
  qinfer_model_release(model);
  CHECK(unlink(out) == 0);
}

void test_experts(void) {
  qinfer_runtime* runtime = make_runtime();
  test_file(runtime, "models/mixtral-small/model-f16.gguf", "mixtral", 2, 28);
  test_file(runtime, "models/mixtral-small/model-old.gguf", "mixtral", 2, 28);
  test_file(runtime, "models/qwen2-moe-small/model-f16.gguf", "qwen2_moe", 3, 20);
  test_file(runtime, "models/qwen3-moe-small/model-f16.gguf", "qwen3_moe", 2, 20);
  test_file(runtime, "models/glm4-moe-small/model-f16.gguf", "glm4_moe", 2, 56);
  test_file(runtime, "models/deepseek-v3-small/model-f16.gguf", "deepseek_v3", 3, 52);
  test_file(runtime, "models/deepseek-v2-small/model-f16.gguf", "deepseek_v3", 3, 56);
  test_file(runtime, "gguf-models/qwen2moe.gguf", "qwen2_moe", 2, 20);
  test_file(runtime, "gguf-models/glm4moe-nextn.gguf", "glm4_moe", 2, 52);
  test_file(runtime, "gguf-models/deepseek2-lite.gguf", "deepseek_v3", 27, 30);
  test_file(runtime, "models/gpt-oss-small", "gpt_oss", 2, 20);
  test_file(runtime, "models/gpt-oss-small/model-f16.gguf", "gpt_oss", 2, 20);
  test_file(runtime, "models/gpt-oss-mxfp4", "gpt_oss", 2, 32);
  test_file(runtime, "models/gpt-oss-mxfp4/model-f16.gguf", "gpt_oss", 2, 32);
  test_determinism();
  qinfer_runtime_release(runtime);
}
