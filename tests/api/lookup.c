/* Prompt lookup from outside: the same events as without it, in every detail, and counts that tell
 * what it did. */
#include "harness.h"

#define ROOM 200

typedef struct outcome {
  int32_t tokens[ROOM];
  float logprobs[ROOM];
  int count;
  uint32_t finish;
  char text[4096];
  size_t size;
  uint64_t drafted, accepted, steps;
} outcome;

static void generate(qinfer_engine* engine, const qinfer_generate_options* options,
                     uint64_t budget_ns, outcome* out) {
  static const char kPrompt[] =
      "In the beginning God created the heaven and the earth. And the earth was without form. "
      "In the beginning God created the heaven and the earth. And the earth was";
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  qinfer_event event = QINFER_EVENT_INIT;
  qinfer_status status;
  uint32_t prompt = 0, made = 0, length = 0;
  memset(out, 0, sizeof *out);
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_OK(qinfer_session_append_text(session, kPrompt, QINFER_STRLEN, 0, &err));
  CHECK_OK(qinfer_generate_begin(session, options, &task, &err));
  while ((status = qinfer_generate_next(task, budget_ns, &event, &err)) == QINFER_OK ||
         status == QINFER_PENDING) {
    if (status == QINFER_PENDING) continue;
    CHECK(out->finish == QINFER_FINISH_NONE && out->count < ROOM);
    CHECK(out->size + event.text.size < sizeof out->text);
    memcpy(out->text + out->size, event.text.data, event.text.size);
    out->size += event.text.size;
    out->finish = event.finish_reason;
    if (event.token < 0) continue;
    out->tokens[out->count] = event.token;
    out->logprobs[out->count++] = event.logprob_count > 0 ? event.logprobs[0].logprob : 0.0f;
  }
  CHECK_STATUS(status, QINFER_END);
  CHECK_OK(qinfer_generate_counts(task, &prompt, &made, &err));
  CHECK(made == (uint32_t)out->count);
  CHECK_OK(qinfer_generate_lookup_counts(task, &out->drafted, &out->accepted, &out->steps, &err));
  CHECK_OK(qinfer_generate_lookup_counts(task, NULL, NULL, NULL, &err));
  qinfer_task_release(task);
  CHECK_OK(qinfer_session_length(session, &length, &err));
  CHECK(length == prompt + made);
  qinfer_session_release(session);
}

static void same(const outcome* a, const outcome* b) {
  CHECK(a->count == b->count && a->finish == b->finish && a->size == b->size);
  CHECK(memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0);
  CHECK(memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) == 0);
  CHECK(memcmp(a->text, b->text, a->size) == 0);
}

static void test_same(qinfer_engine* engine) {
  outcome plain, lookup;
  qinfer_logit_bias bias;
  int i;
  for (i = 0; i < 6; ++i) {
    qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
    const uint64_t budget = i % 2 == 0 ? QINFER_BUDGET_UNLIMITED : 1;
    options.max_tokens = 100;
    options.flags = QINFER_GENERATE_IGNORE_EOS;
    options.seed = (uint64_t)i;
    options.logprobs = 2;
    if (i == 0 || i == 5) options.flags |= QINFER_GENERATE_GREEDY;
    if (i == 2) options.temperature = 0.3f;
    if (i == 3) options.top_p = 0.7f;
    if (i == 4) options.top_k = 3;
    if (i == 4) options.repetition_penalty = 0.95f;
    if (i == 1) options.min_p = 0.2f;
    if (i == 0) {
      bias.token = 300; /* leaves one token: whoever guesses is right */
      bias.bias = 10000.0f;
      options.logit_bias = &bias;
      options.logit_bias_count = 1;
    }
    generate(engine, &options, budget, &plain);
    options.flags |= QINFER_GENERATE_PROMPT_LOOKUP;
    generate(engine, &options, budget, &lookup);
    same(&plain, &lookup);
    CHECK(plain.drafted == 0 && plain.accepted == 0 && plain.steps == 0);
    CHECK(lookup.accepted <= lookup.drafted && lookup.steps > 0);
    CHECK(lookup.steps + lookup.accepted == (uint64_t)lookup.count);
    if (i == 0) CHECK(lookup.accepted > 0);
  }
}

static void test_mistakes(qinfer_engine* engine) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  uint64_t drafted = 7, accepted = 7, steps = 7;
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_OK(qinfer_session_append_text(session, "And", QINFER_STRLEN, 0, &err));
  CHECK_OK(qinfer_session_prefill_begin(session, &task, &err));
  CHECK_FAILS(qinfer_generate_lookup_counts(task, &drafted, &accepted, &steps, &err),
              QINFER_E_MISUSE, QINFER_DETAIL_NO_RESULT);
  CHECK(drafted == 0 && accepted == 0 && steps == 0);
  CHECK(qinfer_generate_lookup_counts(NULL, &drafted, NULL, NULL, &err) == QINFER_E_MISUSE);
  qinfer_task_release(task);
  qinfer_session_release(session);
}

void test_lookup(void) {
  qinfer_runtime* runtime = make_runtime();
  qinfer_model* model = load_model(runtime);
  if (model != NULL) {
    qinfer_error err = QINFER_ERROR_INIT;
    qinfer_engine* engine = NULL;
    qinfer_engine_options options = QINFER_ENGINE_OPTIONS_INIT;
    options.max_sessions = 1; /* rows enough to guess, even so */
    CHECK_OK(qinfer_engine_create(model, &options, &engine, &err));
    test_same(engine);
    test_mistakes(engine);
    qinfer_engine_release(engine);
  }
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
}
