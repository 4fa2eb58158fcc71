/* Reasoning and answer in channels of their own: what comes where, options that are refused, and
 * programs that were compiled before there were channels. */
#include <stddef.h>

#include "harness.h"

typedef struct outcome {
  int32_t tokens[32];
  float logprobs[32];
  int count, events;
  uint32_t finish, channel; /* of the last event */
  char text[2][1024];       /* by channel */
  size_t size[2];
} outcome;

/* Greedily after `prompt`, in a session of its own. */
static void generate(qinfer_engine* engine, const char* prompt,
                     const qinfer_generate_options* options, outcome* out) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  qinfer_event event = QINFER_EVENT_INIT;
  qinfer_status status;
  memset(out, 0, sizeof *out);
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_OK(qinfer_session_append_text(session, prompt, QINFER_STRLEN, 0, &err));
  CHECK_OK(qinfer_generate_begin(session, options, &task, &err));
  while ((status = qinfer_generate_next(task, QINFER_BUDGET_UNLIMITED, &event, &err)) ==
         QINFER_OK) {
    CHECK(out->finish == QINFER_FINISH_NONE && event.channel <= QINFER_CHANNEL_REASONING);
    CHECK(qinfer_utf8_complete(event.text.data, event.text.size) == event.text.size);
    CHECK(out->size[event.channel] + event.text.size < sizeof out->text[0]);
    memcpy(out->text[event.channel] + out->size[event.channel], event.text.data, event.text.size);
    out->size[event.channel] += event.text.size;
    out->finish = event.finish_reason;
    out->channel = event.channel;
    ++out->events;
    if (event.token < 0) {
      CHECK(event.logprob_count == 0);
      continue;
    }
    CHECK(out->count < 32 && event.logprob_count == 2);
    out->tokens[out->count] = event.token;
    out->logprobs[out->count++] = event.logprobs[0].logprob;
  }
  CHECK_STATUS(status, QINFER_END);
  qinfer_task_release(task);
  qinfer_session_release(session);
}

static qinfer_generate_options greedy(void) {
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  options.max_tokens = 24;
  options.flags = QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS;
  options.logprobs = 1;
  return options;
}

static void same_tokens(const outcome* a, const outcome* b) {
  CHECK(a->count == b->count && a->finish == b->finish);
  CHECK(memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0);
  CHECK(memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) == 0);
}

static void test_channels(qinfer_engine* engine) {
  static outcome plain, split;
  const char* prompt = "And it came to pass";
  qinfer_generate_options options = greedy();
  const char *begin, *end;
  generate(engine, prompt, &options, &plain);
  CHECK(plain.size[1] == 0 && plain.size[0] > 40 && plain.events == plain.count);
  /* Without such tags in the text, splitting changes nothing. */
  options.flags |= QINFER_GENERATE_SPLIT_REASONING;
  generate(engine, prompt, &options, &split);
  same_tokens(&plain, &split);
  CHECK(split.size[1] == 0 && strcmp(split.text[0], plain.text[0]) == 0);
  /* Tags out of the middle of what the model writes. */
  begin = plain.text[0] + 7;
  options.reasoning_begin.data = begin;
  options.reasoning_begin.size = 6;
  begin = strstr(plain.text[0], ""); /* the first of its kind is what counts */
  while (strncmp(begin, options.reasoning_begin.data, 6) != 0) ++begin;
  options.reasoning_end.data = begin + 16;
  options.reasoning_end.size = 8;
  end = begin + 6;
  while (strncmp(end, options.reasoning_end.data, 8) != 0) ++end;
  generate(engine, prompt, &options, &split);
  same_tokens(&plain, &split);
  CHECK(split.size[0] + split.size[1] + 14 <= plain.size[0]);
  CHECK(split.size[1] >= (size_t)(end - begin) - 6);
  CHECK(strncmp(split.text[0], plain.text[0], (size_t)(begin - plain.text[0])) == 0);
  CHECK(strncmp(split.text[1], begin + 6, (size_t)(end - begin) - 6) == 0);
  /* Reasoning that nothing ends; and inside from the first. */
  options.reasoning_end.data = "</think>";
  generate(engine, prompt, &options, &split);
  same_tokens(&plain, &split);
  CHECK(split.channel == QINFER_CHANNEL_REASONING && split.size[0] == 7);
  options.reasoning_begin.data = "<think";
  options.reasoning_start = QINFER_REASONING_INSIDE;
  generate(engine, prompt, &options, &split);
  same_tokens(&plain, &split);
  CHECK(split.size[0] == 0 && strcmp(split.text[1], plain.text[0]) == 0);
}

static void test_opened_by_the_prompt(qinfer_engine* engine) {
  static outcome split;
  qinfer_generate_options options = greedy();
  options.flags |= QINFER_GENERATE_SPLIT_REASONING;
  generate(engine, "Who made the light?<think>\n", &options, &split);
  CHECK(split.size[0] == 0 && split.size[1] > 0);
  options.reasoning_start = QINFER_REASONING_OUTSIDE;
  generate(engine, "Who made the light?<think>\n", &options, &split);
  CHECK(split.size[0] > 0 && split.size[1] == 0);
  options.reasoning_start = QINFER_REASONING_DETECT;
  generate(engine, "Who made the light?<think>\n\n</think>\n\n", &options, &split);
  CHECK(split.size[0] > 0 && split.size[1] == 0);
}

/* A special token as tag, made certain by a bias: no text, but another channel. */
static void test_special_token(qinfer_model* model, qinfer_engine* engine) {
  static outcome split;
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_generate_options options = greedy();
  qinfer_logit_bias bias = {0, 1000.0f};
  int special = 0;
  CHECK_OK(qinfer_tokenizer_special(model, QINFER_TOKEN_EOS, &bias.token, &err));
  CHECK_OK(qinfer_tokenizer_token(model, bias.token, &options.reasoning_begin, &special, &err));
  CHECK(special == 1);
  options.flags |= QINFER_GENERATE_SPLIT_REASONING;
  options.reasoning_end.data = "</think>";
  options.reasoning_end.size = QINFER_STRLEN;
  options.logit_bias = &bias;
  options.logit_bias_count = 1;
  generate(engine, "And God", &options, &split);
  CHECK(split.size[0] == 0 && split.size[1] == 0 && split.count == 24);
  CHECK(split.channel == QINFER_CHANNEL_REASONING);
}

static void test_bad_options(qinfer_engine* engine) {
  static outcome plain, old;
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  qinfer_generate_options options = greedy();
  const qinfer_str tag = {"[A]", 3}, none = {NULL, 0}, broken = {"\xe2\x82", 2};
  CHECK_OK(qinfer_session_create(engine, &session, &err));
  CHECK_OK(qinfer_session_append_text(session, "And", QINFER_STRLEN, 0, &err));
#define REFUSED(expected_detail)                                                      \
  CHECK_FAILS(qinfer_generate_begin(session, &options, &task, &err), QINFER_E_MISUSE, \
              expected_detail)
  options.reasoning_begin = options.reasoning_end = tag; /* without the flag */
  REFUSED(QINFER_DETAIL_OPTION);
  options.flags |= QINFER_GENERATE_SPLIT_REASONING; /* the same twice */
  REFUSED(QINFER_DETAIL_OPTION);
  options.reasoning_end = none;
  REFUSED(QINFER_DETAIL_OPTION);
  options.reasoning_end = broken;
  REFUSED(QINFER_DETAIL_OPTION);
  options.reasoning_end.data = NULL;
  REFUSED(QINFER_DETAIL_NULL);
  options.reasoning_begin = options.reasoning_end = none;
  options.reasoning_start = 3;
  REFUSED(QINFER_DETAIL_OPTION);
  options.reasoning_start = 0;
  options.reserved = 1;
  REFUSED(QINFER_DETAIL_RESERVED);
  CHECK(task == NULL);
  qinfer_session_release(session);
  /* A program of the time before: a smaller struct, and whatever lies behind it is not read. */
  options = greedy();
  generate(engine, "And God", &options, &plain);
  options.struct_size = (uint32_t)offsetof(qinfer_generate_options, reasoning_begin);
  options.reasoning_begin = options.reasoning_end = tag;
  options.reserved = 7;
  generate(engine, "And God", &options, &old);
  same_tokens(&plain, &old);
  CHECK(strcmp(plain.text[0], old.text[0]) == 0);
}

/* A message's reasoning reaches the template, and tags in texts stay as they are. */
static void test_template(qinfer_runtime* runtime) {
  static const char kExpected[] = "<think>\nHm & <b>.\n</think>\n\nYes.|<think>a</think>b|";
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_render_options options = QINFER_RENDER_OPTIONS_INIT;
  char text[256];
  size_t size = 0;
  options.template_text.data =
      "{% for m in messages %}{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n"
      "</think>\n\n{% endif %}{{ m.content }}|{% endfor %}";
  options.template_text.size = QINFER_STRLEN;
  options.messages_json.data =
      "[{\"role\": \"assistant\", \"reasoning_content\": \"Hm & <b>.\", \"content\": \"Yes.\"},"
      " {\"role\": \"assistant\", \"content\": \"<think>a</think>b\"}]";
  options.messages_json.size = QINFER_STRLEN;
  CHECK_OK(qinfer_template_render(runtime, NULL, &options, text, sizeof text, &size, &err));
  CHECK(size == strlen(kExpected) && memcmp(text, kExpected, size) == 0);
}

void test_reasoning(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_runtime* runtime = make_runtime();
  qinfer_model* model = load_model(runtime);
  qinfer_engine* engine = NULL;
  test_template(runtime);
  if (model != NULL) {
    CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
    test_channels(engine);
    test_opened_by_the_prompt(engine);
    test_special_token(model, engine);
    test_bad_options(engine);
  }
  qinfer_engine_release(engine);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
}
