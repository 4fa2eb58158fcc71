/* Sessions and generation: what is appended, computed, forked and cut back; events, ends, logprobs.
 */
#include <math.h>

#include "harness.h"

static void prefill(qinfer_session* session) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_task* task = NULL;
  CHECK_OK(qinfer_session_prefill_begin(session, &task, &err));
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  qinfer_task_release(task);
}

static float* logits_of(qinfer_session* session, size_t* count) {
  qinfer_error err = QINFER_ERROR_INIT;
  float* row = NULL;
  *count = 0;
  CHECK_OK(qinfer_session_logits(session, NULL, 0, count, &err));
  row = (float*)malloc(*count * sizeof *row + 1);
  CHECK_OK(qinfer_session_logits(session, row, *count, count, &err));
  return row;
}

static void test_sequences(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_engine_options options = QINFER_ENGINE_OPTIONS_INIT;
  qinfer_engine* engine = NULL;
  qinfer_session *session = NULL, *fork = NULL, *third = NULL;
  uint32_t length = 0, prompt = 0;
  size_t count = 0, width = 0;
  float *first, *second;
  int32_t tokens[256], original[256], more[8], again[8];
  options.context_tokens = 256;
  options.max_sessions = 2;
  CHECK_OK(qinfer_engine_create(model, &options, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_OK(qinfer_session_append_text(session, "And the evening and the morning", QINFER_STRLEN, 0,
                                      &err));
  CHECK_OK(qinfer_session_length(session, &prompt, &err));
  prefill(session);
  first = logits_of(session, &width);
  CHECK(width > 100);
  CHECK_OK(qinfer_session_fork(session, &fork, &err));
  CHECK(qinfer_session_create(engine, &third, &err) == QINFER_E_BUDGET);
  CHECK(generate_greedy(session, "", 8, more) == 8);
  CHECK_OK(qinfer_session_length(session, &length, &err));
  CHECK(length == prompt + 8);
  /* The fork has not moved, and gives the same continuation. */
  CHECK_OK(qinfer_session_length(fork, &length, &err));
  CHECK(length == prompt);
  CHECK(generate_greedy(fork, "", 8, again) == 8);
  CHECK(memcmp(more, again, sizeof more) == 0);
  qinfer_session_release(fork);
  /* Cut back and computed again: the same logits, bit for bit. */
  CHECK_OK(qinfer_session_tokens(session, original, 256, &count, &err));
  CHECK_OK(qinfer_session_truncate(session, prompt, &err));
  prefill(session);
  second = logits_of(session, &width);
  CHECK(memcmp(first, second, width * sizeof *first) == 0);
  free(second);
  /* From the ids alone in a fresh session, too. */
  CHECK_OK(qinfer_session_create(engine, &third, &err));
  CHECK_OK(qinfer_session_append(third, original, prompt, &err));
  prefill(third);
  second = logits_of(third, &width);
  CHECK(memcmp(first, second, width * sizeof *first) == 0);
  free(second);
  free(first);
  CHECK(qinfer_session_truncate(third, prompt + 1, &err) == QINFER_E_MISUSE);
  tokens[0] = -1;
  CHECK(qinfer_session_append(third, tokens, 1, &err) == QINFER_E_MISUSE);
  tokens[0] = 1 << 30;
  CHECK(qinfer_session_append(third, tokens, 1, &err) == QINFER_E_MISUSE);
  {
    int32_t many[300];
    memset(many, 0, sizeof many);
    CHECK(qinfer_session_append(third, many, 300, &err) == QINFER_E_BUDGET);
  }
  CHECK_FAILS(qinfer_session_append(third, NULL, 4, &err), QINFER_E_MISUSE, QINFER_DETAIL_NULL);
  CHECK_OK(qinfer_session_length(third, &length, &err));
  CHECK(length == prompt);
  qinfer_session_release(third);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
}

static void test_events(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  qinfer_event event = QINFER_EVENT_INIT;
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  int32_t tokens[12];
  char text[1024];
  size_t size = 0;
  uint32_t prompt = 0, made = 0;
  qinfer_status status;
  int count = 0, last = 0;
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK(qinfer_generate_begin(session, NULL, &task, &err) == QINFER_E_MISUSE); /* empty */
  CHECK_OK(qinfer_session_append_text(session, "And God", QINFER_STRLEN, 0, &err));
  options.max_tokens = 12;
  options.flags = QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS;
  options.logprobs = 3;
  CHECK_OK(qinfer_generate_begin(session, &options, &task, &err));
  while ((status = qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event, &err)) ==
         QINFER_OK) {
    CHECK(qinfer_utf8_complete(event.text.data, event.text.size) == event.text.size);
    memcpy(text + size, event.text.data, event.text.size);
    size += event.text.size;
    last = (int)event.finish_reason;
    if (event.token < 0) continue;
    CHECK(event.logprob_count == 4);
    CHECK(event.logprobs[0].token == event.token);
    CHECK(event.logprobs[0].logprob <= 0.0f && event.logprobs[1].logprob <= 0.0f);
    CHECK(event.logprobs[1].token == event.token); /* greedy: the best one */
    tokens[count++] = event.token;
  }
  CHECK(status == QINFER_END && count == 12 && last == QINFER_FINISH_MAX_TOKENS);
  CHECK_STATUS(qinfer_generate_next(task, 0, &event, &err), QINFER_END);
  CHECK(event.token == 0 && event.text.size == 0);
  CHECK_OK(qinfer_generate_counts(task, &prompt, &made, &err));
  CHECK(made == 12 && prompt > 0);
  qinfer_task_release(task);
  {
    char decoded[1024];
    size_t length = 0;
    CHECK_OK(qinfer_tokenizer_decode(model, tokens, 12, QINFER_DECODE_CONTINUE, decoded,
                                     sizeof decoded, &length, NULL, &err));
    CHECK(length == size && memcmp(decoded, text, size) == 0);
  }
  /* A stop string in the middle of that text ends it there. */
  if (size > 8) {
    qinfer_str stop;
    size_t stopped = 0;
    int reason = 0;
    stop.data = text + size / 2;
    stop.size = 3;
    CHECK_OK(qinfer_session_truncate(session, prompt, &err));
    options.stop_strings = &stop;
    options.stop_string_count = 1;
    CHECK_OK(qinfer_generate_begin(session, &options, &task, &err));
    while (qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event, &err) == QINFER_OK) {
      stopped += event.text.size;
      reason = (int)event.finish_reason;
    }
    CHECK(reason == QINFER_FINISH_STOP_STRING && stopped <= size / 2);
    qinfer_task_release(task);
    options.stop_string_count = 0;
  }
  /* A stop token; and small budgets. */
  CHECK_OK(qinfer_session_truncate(session, prompt, &err));
  options.stop_tokens = &tokens[3];
  options.stop_token_count = 1;
  CHECK_OK(qinfer_generate_begin(session, &options, &task, &err));
  count = 0;
  while ((status = qinfer_generate_next(task, 0, &event, &err)) >= QINFER_OK &&
         status != QINFER_END) {
    if (status == QINFER_OK && event.token >= 0) CHECK(event.token == tokens[count++]);
    if (status == QINFER_OK) last = (int)event.finish_reason;
  }
  CHECK(last == QINFER_FINISH_STOP_TOKEN && count <= 4);
  qinfer_task_release(task);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
}

/* The same seed gives the same text; another one another text; the best token is not always taken.
 */
static void test_sampling(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_engine* engine = NULL;
  int32_t runs[3][32];
  int run;
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  for (run = 0; run < 3; ++run) {
    qinfer_session* session = NULL;
    qinfer_task* task = NULL;
    qinfer_event event = QINFER_EVENT_INIT;
    qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
    int count = 0;
    CHECK_OK(qinfer_session_create(engine, &session, &err));
    CHECK_OK(qinfer_session_append_text(session, "The", QINFER_STRLEN, 0, &err));
    options.max_tokens = 32;
    options.temperature = 1.2f;
    options.top_k = 50;
    options.top_p = 0.95f;
    options.seed = run == 2 ? 99 : 7;
    options.flags = QINFER_GENERATE_IGNORE_EOS;
    CHECK_OK(qinfer_generate_begin(session, &options, &task, &err));
    while (qinfer_generate_next(task, run == 1 ? 1000 : QINFER_BUDGET_UNLIMITED, &event, &err) !=
           QINFER_END) {
      if (event.struct_size != sizeof event) break;
      if (event.token > 0 && count < 32 && event.text.size > 0) runs[run][count++] = event.token;
      event.token = 0;
    }
    while (count < 32) runs[run][count++] = 0;
    qinfer_task_release(task);
    qinfer_session_release(session);
  }
  CHECK(memcmp(runs[0], runs[1], sizeof runs[0]) == 0);
  CHECK(memcmp(runs[0], runs[2], sizeof runs[0]) != 0);
  qinfer_engine_release(engine);
}

static void test_chat(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_message message = {{"user", 4}, {"Who art thou?", QINFER_STRLEN}};
  qinfer_render_options options = QINFER_RENDER_OPTIONS_INIT;
  uint32_t length = 0;
  options.messages = &message;
  options.message_count = 1;
  options.template_text.data = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
  options.template_text.size = QINFER_STRLEN;
  CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_OK(qinfer_session_append_chat(session, &options, &err));
  CHECK_OK(qinfer_session_length(session, &length, &err));
  CHECK(length >= 3);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
}

static qinfer_status count_rows(void* user, const float* row, uint32_t vocab_size) {
  int* counts = (int*)user;
  if (vocab_size == 0 || !(row[0] == row[0])) return QINFER_E_FORMAT;
  ++counts[0];
  return counts[1] != 0 && counts[0] == counts[1] ? QINFER_E_UNSUPPORTED : QINFER_OK;
}

static void test_perplexity(qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_perplexity_options options = QINFER_PERPLEXITY_OPTIONS_INIT;
  qinfer_task* task = NULL;
  qinfer_report* report = NULL;
  int32_t* ids;
  size_t count = 0, i;
  double perplexity = 0.0, kl = 1.0, top = 0.0;
  int64_t tokens = 0;
  int counts[2] = {0, 0};
  static const char kText[] =
      "And it came to pass in those days, that there went out a decree from Caesar Augustus, that "
      "all the world should be taxed. And all went to be taxed, every one into his own city. ";
  char* text = (char*)malloc(sizeof kText * 4);
  text[0] = 0;
  for (i = 0; i < 4; ++i) strcat(text, kText);
  CHECK_OK(qinfer_tokenizer_encode(model, text, QINFER_STRLEN, 0, NULL, 0, &count, &err));
  ids = (int32_t*)malloc(count * sizeof *ids);
  CHECK_OK(qinfer_tokenizer_encode(model, text, QINFER_STRLEN, 0, ids, count, &count, &err));
  options.context = 64;
  options.max_windows = 2;
  options.reference = model;
  options.reference_activations = QINFER_ACTIVATIONS_AUTO;
  options.logits = count_rows;
  options.logits_user = counts;
  CHECK_OK(qinfer_perplexity_begin(model, ids, count, &options, &task, &err));
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  CHECK_OK(qinfer_task_take_report(task, &report, &err));
  qinfer_task_release(task);
  CHECK_OK(qinfer_report_double(report, "perplexity", QINFER_STRLEN, &perplexity, &err));
  CHECK_OK(qinfer_report_int(report, "tokens", QINFER_STRLEN, &tokens, &err));
  CHECK_OK(qinfer_report_double(report, "kl_mean", QINFER_STRLEN, &kl, &err));
  CHECK_OK(qinfer_report_double(report, "top1", QINFER_STRLEN, &top, &err));
  CHECK(perplexity > 1.0 && perplexity < 1000.0 && fabs(kl) < 1e-6 && top > 0.99);
  CHECK(tokens == counts[0] && tokens > 0);
  qinfer_report_release(report);
  /* What the callback returns ends the task. */
  counts[0] = 0;
  counts[1] = 5;
  CHECK_OK(qinfer_perplexity_begin(model, ids, count, &options, &task, &err));
  CHECK_STATUS(qinfer_task_wait(task, UINT64_MAX, &err), QINFER_E_UNSUPPORTED);
  CHECK(err.detail == QINFER_DETAIL_CALLBACK && err.os_error == QINFER_E_UNSUPPORTED);
  qinfer_task_release(task);
  CHECK(qinfer_perplexity_begin(model, ids, 3, &options, &task, &err) == QINFER_E_MISUSE);
  free(ids);
  free(text);
}

void test_sessions(void) {
  qinfer_runtime* runtime = make_runtime();
  qinfer_model* model = load_model(runtime);
  if (model != NULL) {
    test_sequences(model);
    test_events(model);
    test_sampling(model);
    test_chat(model);
    test_perplexity(model);
  }
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
}
