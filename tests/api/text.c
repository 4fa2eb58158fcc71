/* Tokenizer, chat templates, metadata: whole models, vocabularies alone, headers alone. */
#include "harness.h"

static void test_tokenizer(qinfer_model* model) {
  static const char* const kTexts[] = {"In the beginning God created the heaven and the earth.",
                                       "  two  spaces\n\n\tand tabs ",
                                       "\xc3\xa9t\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "x"};
  qinfer_error err = QINFER_ERROR_INIT;
  size_t i;
  uint32_t size = 0;
  int32_t bos = -7, eos = -7, found = -7, special = 7;
  qinfer_str text;
  for (i = 0; i < sizeof kTexts / sizeof kTexts[0]; ++i) {
    int32_t ids[128], again[128];
    char bytes[256];
    size_t count = 0, asked = 0, length = 0, complete = 0, at, k;
    CHECK_OK(qinfer_tokenizer_encode(model, kTexts[i], QINFER_STRLEN, QINFER_ENCODE_NO_SPECIAL,
                                     NULL, 0, &asked, &err));
    CHECK_OK(qinfer_tokenizer_encode(model, kTexts[i], strlen(kTexts[i]), QINFER_ENCODE_NO_SPECIAL,
                                     ids, 128, &count, &err));
    CHECK(count == asked && count > 0);
    if (count > 1) {
      memset(again, 0x55, sizeof again);
      CHECK_FAILS(qinfer_tokenizer_encode(model, kTexts[i], QINFER_STRLEN, QINFER_ENCODE_NO_SPECIAL,
                                          again, count - 1, &asked, &err),
                  QINFER_E_MISUSE, QINFER_DETAIL_BUFFER_TOO_SMALL);
      CHECK(asked == count && again[0] == 0x55555555);
    }
    CHECK_OK(qinfer_tokenizer_decode(model, ids, count, 0, bytes, sizeof bytes, &length, &complete,
                                     &err));
    CHECK(length == strlen(kTexts[i]) && memcmp(bytes, kTexts[i], length) == 0);
    CHECK(complete == length);
    /* Token by token it is the same text. */
    at = 0;
    for (k = 0; k < count; ++k) {
      size_t piece = 0;
      CHECK_OK(qinfer_tokenizer_decode(model, &ids[k], 1, k == 0 ? 0 : QINFER_DECODE_CONTINUE,
                                       bytes + at, sizeof bytes - at, &piece, NULL, &err));
      at += piece;
    }
    CHECK(at == length && memcmp(bytes, kTexts[i], length) == 0);
  }
  CHECK_OK(qinfer_tokenizer_size(model, &size, &err));
  CHECK(size > 100);
  CHECK_OK(qinfer_tokenizer_special(model, QINFER_TOKEN_BOS, &bos, &err));
  CHECK_OK(qinfer_tokenizer_special(model, QINFER_TOKEN_EOS, &eos, &err));
  CHECK(eos >= 0);
  CHECK_OK(qinfer_tokenizer_token(model, eos, &text, &special, &err));
  CHECK(text.size > 0 && special == 1);
  CHECK_OK(qinfer_tokenizer_find(model, text.data, text.size, &found, &err));
  CHECK(found == eos);
  CHECK_OK(qinfer_tokenizer_find(model, "surely no token at all", QINFER_STRLEN, &found, &err));
  CHECK(found == QINFER_TOKEN_NONE);
  CHECK_FAILS(qinfer_tokenizer_token(model, (int32_t)size, &text, NULL, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  CHECK_FAILS(qinfer_tokenizer_special(model, 9, &bos, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  CHECK_FAILS(qinfer_tokenizer_token(model, -1, &text, NULL, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_OPTION);
  {
    /* Special tokens in text: read as such, or literally. */
    int32_t ids[64];
    size_t parsed = 0, literal = 0;
    qinfer_str spelled;
    char line[64];
    CHECK_OK(qinfer_tokenizer_token(model, eos, &spelled, NULL, &err));
    CHECK(spelled.size < 40);
    snprintf(line, sizeof line, "a%.*sb", (int)spelled.size, spelled.data);
    CHECK_OK(qinfer_tokenizer_encode(model, line, QINFER_STRLEN, QINFER_ENCODE_NO_SPECIAL, ids, 64,
                                     &parsed, &err));
    CHECK(parsed == 3 && ids[1] == eos);
    CHECK_OK(qinfer_tokenizer_encode(model, line, QINFER_STRLEN,
                                     QINFER_ENCODE_NO_SPECIAL | QINFER_ENCODE_LITERAL, ids, 64,
                                     &literal, &err));
    CHECK(literal > parsed);
  }
}

static void render(qinfer_runtime* runtime, qinfer_model* model,
                   const qinfer_render_options* options, const char* expected) {
  qinfer_error err = QINFER_ERROR_INIT;
  char buffer[512];
  size_t size = 0;
  CHECK_OK(qinfer_template_render(runtime, model, options, buffer, sizeof buffer, &size, &err));
  CHECK(size == strlen(expected) && memcmp(buffer, expected, size) == 0);
}

static void test_template(qinfer_runtime* runtime, qinfer_model* model) {
  static const char* const kTemplate =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_message messages[2] = {{{"system", 6}, {"Be \"brief\"", QINFER_STRLEN}},
                                {{"user", QINFER_STRLEN}, {"h\xc3\xa9", 3}}};
  qinfer_render_options options = QINFER_RENDER_OPTIONS_INIT;
  char buffer[512];
  size_t size = 0;
  options.messages = messages;
  options.message_count = 2;
  options.template_text.data = kTemplate;
  options.template_text.size = QINFER_STRLEN;
  render(runtime, NULL, &options, "<system>Be \"brief\"<user>h\xc3\xa9<assistant>");
  render(NULL, model, &options, "<system>Be \"brief\"<user>h\xc3\xa9<assistant>");
  options.flags = QINFER_TEMPLATE_NO_GENERATION_PROMPT;
  render(runtime, model, &options, "<system>Be \"brief\"<user>h\xc3\xa9");
  CHECK_FAILS(qinfer_template_render(runtime, NULL, &options, buffer, 3, &size, &err),
              QINFER_E_MISUSE, QINFER_DETAIL_BUFFER_TOO_SMALL);
  CHECK(size > 3);
  options.messages_json.data = "[{\"role\": \"tool\", \"content\": \"7\"}]";
  options.messages_json.size = QINFER_STRLEN;
  CHECK_FAILS(qinfer_template_render(runtime, NULL, &options, NULL, 0, &size, &err),
              QINFER_E_MISUSE, QINFER_DETAIL_OPTION);
  options.messages = NULL;
  options.message_count = 0;
  render(runtime, NULL, &options, "<tool>7");
  options.template_text.data = "{{ raise_exception('no such luck') }}";
  CHECK(qinfer_template_render(runtime, NULL, &options, NULL, 0, &size, &err) == QINFER_E_MISUSE);
  CHECK(strstr(err.message, "no such luck") != NULL);
  options.template_text.data = "{% for x in %}";
  CHECK(qinfer_template_render(runtime, NULL, &options, NULL, 0, &size, &err) == QINFER_E_FORMAT);
  options.template_text.data =
      "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}";
  CHECK(qinfer_template_render(runtime, NULL, &options, NULL, 0, &size, &err) < 0);
  /* The output may be larger than the memory that a rendering has by default. */
  options.template_text.data = "{% for i in range(80) %}{{ 'x' * 500000 }}{% endfor %}";
  CHECK(qinfer_template_render(runtime, NULL, &options, NULL, 0, &size, &err) == QINFER_E_BUDGET);
  CHECK(strstr(err.message, "max_memory_bytes = 67108864") != NULL);
  options.max_output_bytes = 100u << 20;
  CHECK_OK(qinfer_template_render(runtime, NULL, &options, NULL, 0, &size, &err));
  CHECK(size == 40000000);
  options.max_output_bytes = 0;
  options.template_text.data = "{{ strftime_now('%Y-%m-%d') }}";
  options.now_unix_seconds = 86400;
  render(runtime, NULL, &options, "1970-01-02");
  options.now_unix_seconds = QINFER_NOW_EPOCH;
  render(runtime, NULL, &options, "1970-01-01");
  options.messages_json.data = "not json";
  CHECK(qinfer_template_render(runtime, NULL, &options, NULL, 0, &size, &err) < 0);
  CHECK_FAILS(qinfer_template_render(NULL, NULL, &options, NULL, 0, &size, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NULL);
  CHECK_FAILS(qinfer_template_render(runtime, NULL, NULL, NULL, 0, &size, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NULL);
  messages[1].content.data = "h\xff";
  messages[1].content.size = 2;
  options.messages = messages;
  options.message_count = 2;
  options.messages_json.data = NULL;
  options.messages_json.size = 0;
  CHECK_FAILS(qinfer_template_render(runtime, NULL, &options, NULL, 0, &size, &err),
              QINFER_E_MISUSE, QINFER_DETAIL_OPTION);
  CHECK(strstr(err.message, "the content of message 1 is not valid UTF-8 at byte 1") != NULL);
  options.message_count = 1;
  options.bos_token = messages[1].content;
  CHECK_FAILS(qinfer_template_render(runtime, NULL, &options, NULL, 0, &size, &err),
              QINFER_E_MISUSE, QINFER_DETAIL_OPTION);
  CHECK(qinfer_tokenizer_encode(model, "h\xff", 2, 0, NULL, 0, &size, &err) == QINFER_E_MISUSE);
  CHECK(strstr(err.message, "not valid UTF-8 at byte 1") != NULL);
  options.bos_token.size = 0;
  options.messages = NULL;
  options.message_count = 0;
  options.messages_json.size = options.template_text.size = 0;
  CHECK_FAILS(qinfer_template_render(runtime, NULL, &options, NULL, 0, &size, &err),
              QINFER_E_MISUSE, QINFER_DETAIL_OPTION);
}

/* What a rendering takes is the runtime's: from its allocator, within its limit, given back. */
static void test_template_memory(void) {
  qinfer_error err = QINFER_ERROR_INIT;
  counting_allocator counter;
  qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
  qinfer_render_options render_options = QINFER_RENDER_OPTIONS_INIT;
  qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
  qinfer_runtime* runtime = NULL;
  qinfer_message message = {{"user", 4}, {NULL, 0}};
  char* content = (char*)malloc(3000000);
  size_t size = 0;
  counting_allocator_init(&counter);
  options.allocator = &counter.table;
  options.host_bytes_limit = 20000000;
  CHECK_OK(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &err));
  render_options.template_text.data = "{{ messages[0].content }}{{ 'x' * 2000000 }}";
  render_options.template_text.size = QINFER_STRLEN;
  memset(content, '"', 3000000);
  message.content.data = content;
  message.content.size = 100;
  render_options.messages = &message;
  render_options.message_count = 1;
  CHECK_OK(qinfer_template_render(runtime, NULL, &render_options, NULL, 0, &size, &err));
  CHECK(size == 2000100);
  CHECK_OK(qinfer_runtime_memory(runtime, &usage, &err));
  CHECK(usage.peak_bytes >= 2000100 && usage.used_bytes == 0);
  CHECK(counter.total_blocks > 0 && counter.live_blocks == 0 && counter.live_bytes == 0);
  /* The messages count as well. */
  message.content.size = 3000000;
  CHECK(qinfer_template_render(runtime, NULL, &render_options, NULL, 0, &size, &err) ==
        QINFER_E_BUDGET);
  CHECK(strstr(err.message, "host_bytes_limit") != NULL);
  message.content.size = 100;
  render_options.template_text.data = "{{ 'x' * 11000000 }}{{ 'y' * 11000000 }}";
  CHECK(qinfer_template_render(runtime, NULL, &render_options, NULL, 0, &size, &err) ==
        QINFER_E_BUDGET);
  CHECK(strstr(err.message, "host_bytes_limit") != NULL && size == 0);
  CHECK(counter.live_blocks == 0);
  qinfer_runtime_release(runtime);
  free(content);
}

/* The list of tensors, whose rows are made when they are asked for: the same nodes as in any other
 * list, and texts that last as long as the report. */
static void test_tensor_rows(const qinfer_model* model, const qinfer_report* report) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_tensor_info tensor = QINFER_TENSOR_INFO_INIT;
  qinfer_str name = {NULL, 0}, import = {NULL, 0}, key = {NULL, 0}, other = {NULL, 0};
  int64_t number = 0;
  size_t count = 0;
  uint32_t kind = 0;
  CHECK_OK(qinfer_model_tensor(model, 1, &tensor, &err));
  CHECK_OK(qinfer_report_string(report, "tensors[1].name", QINFER_STRLEN, &name, &err));
  CHECK_OK(qinfer_report_string(report, "tensors[1][\"import\"]", QINFER_STRLEN, &import, &err));
  CHECK_OK(qinfer_report_key(report, "tensors[1]", QINFER_STRLEN, 1, &key, &err));
  CHECK_OK(qinfer_report_string(report, "tensors[0].name", QINFER_STRLEN, &other, &err));
  CHECK(name.size == tensor.name.size && memcmp(name.data, tensor.name.data, name.size) == 0);
  CHECK(other.size != name.size || memcmp(other.data, name.data, name.size) != 0);
  CHECK(import.size == 5 && memcmp(import.data, "exact", 5) == 0);
  CHECK(key.size == 5 && memcmp(key.data, "shape", 5) == 0);
  CHECK_OK(qinfer_report_int(report, "tensors[1].bytes", QINFER_STRLEN, &number, &err));
  CHECK((uint64_t)number == tensor.bytes);
  CHECK_OK(qinfer_report_int(report, "tensors[1].shape[0]", QINFER_STRLEN, &number, &err));
  CHECK((uint64_t)number == tensor.shape[0]);
  CHECK_OK(qinfer_report_size(report, "tensors[1].shape", QINFER_STRLEN, &count, &err));
  CHECK(count == tensor.rank);
  CHECK_OK(qinfer_report_kind(report, "tensors[1]", QINFER_STRLEN, &kind, &err));
  CHECK(kind == QINFER_REPORT_OBJECT);
  CHECK_OK(qinfer_report_kind(report, "tensors", QINFER_STRLEN, &kind, &err));
  CHECK(kind == QINFER_REPORT_LIST);
  static const char* const absent[] = {"tensors[1].",    "tensors[1].nothing",
                                       "tensors[1]name", "tensors[1].shape[9]",
                                       "tensors[-1]",    "tensors[999999]"};
  for (size_t i = 0; i < sizeof absent / sizeof *absent; ++i) {
    CHECK_FAILS(qinfer_report_kind(report, absent[i], QINFER_STRLEN, &kind, &err), QINFER_E_MISUSE,
                QINFER_DETAIL_NO_SUCH_NODE);
  }
  CHECK_FAILS(qinfer_report_string(report, "tensors[1].bytes", QINFER_STRLEN, &other, &err),
              QINFER_E_MISUSE, QINFER_DETAIL_WRONG_KIND);
}

static void test_metadata(qinfer_runtime* runtime, qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  qinfer_model_info info = QINFER_MODEL_INFO_INIT, header_info = QINFER_MODEL_INFO_INIT;
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
  qinfer_model* header = NULL;
  qinfer_engine* engine = NULL;
  qinfer_report* report = NULL;
  qinfer_str json;
  int64_t layers = 0;
  size_t count = 0;
  uint64_t bytes = 0;
  int32_t has = 0;
  uint32_t i;
  CHECK_OK(qinfer_model_info_get(model, &info, &err));
  CHECK(info.container == QINFER_CONTAINER_SAFETENSORS);
  CHECK(info.architecture.size == 5 && memcmp(info.architecture.data, "llama", 5) == 0);
  CHECK((info.flags & QINFER_MODEL_HAS_WEIGHTS) && (info.flags & QINFER_MODEL_HAS_TOKENIZER));
  CHECK(info.parameters > 1000000 && info.weight_bytes > 0 && info.heads % info.kv_heads == 0);
  for (i = 0; i < info.tensor_count; ++i) {
    qinfer_tensor_info tensor = QINFER_TENSOR_INFO_INIT;
    CHECK_OK(qinfer_model_tensor(model, i, &tensor, &err));
    CHECK(tensor.rank >= 1 && tensor.name.size > 0 && tensor.import == QINFER_IMPORT_EXACT);
    CHECK(tensor.source_type.size == 3 && memcmp(tensor.source_type.data, "F16", 3) == 0);
    bytes += tensor.bytes;
  }
  CHECK(bytes == info.tensor_bytes);
  {
    qinfer_tensor_info tensor = QINFER_TENSOR_INFO_INIT;
    CHECK_FAILS(qinfer_model_tensor(model, info.tensor_count, &tensor, &err), QINFER_E_MISUSE,
                QINFER_DETAIL_OPTION);
  }
  CHECK_OK(qinfer_model_report(model, QINFER_MODEL_REPORT_INFO, &report, &err));
  CHECK_OK(qinfer_report_int(report, "layers", QINFER_STRLEN, &layers, &err));
  CHECK(layers == info.layers);
  CHECK_OK(qinfer_report_render(report, QINFER_RENDER_JSON, &json, &err));
  CHECK(json.size > 100);
  qinfer_report_release(report);
  CHECK_OK(qinfer_model_report(model, QINFER_MODEL_REPORT_TENSORS, &report, &err));
  CHECK_OK(qinfer_report_size(report, "tensors", QINFER_STRLEN, &count, &err));
  CHECK(count == info.tensor_count);
  test_tensor_rows(model, report);
  qinfer_report_release(report);
  CHECK_FAILS(qinfer_model_report(model, 12, &report, &err), QINFER_E_MISUSE, QINFER_DETAIL_OPTION);

  source.path.data = model_path();
  source.path.size = QINFER_STRLEN;
  load.parts = QINFER_PARTS_HEADER;
  CHECK_OK(qinfer_model_load(runtime, &source, &load, &header, &err));
  CHECK_OK(qinfer_model_info_get(header, &header_info, &err));
  CHECK(header_info.parameters == info.parameters && header_info.weight_bytes == 0);
  /* What was not looked for is not said to be absent. */
  CHECK_OK(qinfer_model_report(header, QINFER_MODEL_REPORT_INFO, &report, &err));
  CHECK(qinfer_report_size(report, "tokenizer", QINFER_STRLEN, &count, NULL) < 0);
  CHECK(qinfer_report_bool(report, "chat_template", QINFER_STRLEN, &has, NULL) < 0);
  qinfer_report_release(report);
  CHECK_FAILS(qinfer_engine_create(header, NULL, &engine, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NOT_LOADED);
  CHECK_FAILS(qinfer_tokenizer_encode(header, "x", 1, 0, NULL, 0, &count, &err), QINFER_E_MISUSE,
              QINFER_DETAIL_NOT_LOADED);
  qinfer_model_release(header);
}

static void test_vocabulary(qinfer_runtime* runtime, qinfer_model* model) {
  qinfer_error err = QINFER_ERROR_INIT;
  char path[600];
  int kind;
  for (kind = 0; kind < 2; ++kind) {
    qinfer_source source = QINFER_SOURCE_INIT;
    qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
    qinfer_model* vocabulary = NULL;
    qinfer_model_info info = QINFER_MODEL_INFO_INIT;
    qinfer_task* task = NULL;
    qinfer_report* report = NULL;
    int32_t ids[32], expected[32], has_template = 0;
    size_t count = 0, expected_count = 0;
    snprintf(path, sizeof path, "%s%s", model_path(), kind == 0 ? "" : "/tokenizer.json");
    source.path.data = path;
    source.path.size = QINFER_STRLEN;
    load.parts = QINFER_PARTS_VOCABULARY;
    CHECK_OK(qinfer_model_load(runtime, &source, &load, &vocabulary, &err));
    if (vocabulary == NULL) return;
    CHECK_OK(qinfer_tokenizer_encode(vocabulary, "Let there be light", QINFER_STRLEN, 0, ids, 32,
                                     &count, &err));
    CHECK_OK(qinfer_tokenizer_encode(model, "Let there be light", QINFER_STRLEN, 0, expected, 32,
                                     &expected_count, &err));
    CHECK(count == expected_count && memcmp(ids, expected, count * sizeof ids[0]) == 0);
    CHECK_OK(qinfer_model_info_get(vocabulary, &info, &err));
    CHECK((info.flags & QINFER_MODEL_HAS_WEIGHTS) == 0 && info.vocab_size > 0);
    CHECK((info.flags & QINFER_MODEL_HAS_TEMPLATE) != 0); /* beside a tokenizer.json, too */
    CHECK_OK(qinfer_model_report(vocabulary, QINFER_MODEL_REPORT_INFO, &report, &err));
    CHECK_OK(qinfer_report_bool(report, "chat_template", QINFER_STRLEN, &has_template, &err));
    CHECK(has_template == 1);
    qinfer_report_release(report);
    CHECK_FAILS(qinfer_verify_begin(vocabulary, &task, &err), QINFER_E_MISUSE,
                QINFER_DETAIL_NOT_LOADED);
    qinfer_model_release(vocabulary);
  }
}

void test_text(void) {
  qinfer_runtime* runtime = make_runtime();
  qinfer_model* model = load_model(runtime);
  if (model != NULL) {
    test_tokenizer(model);
    test_template(runtime, model);
    test_template_memory();
    test_metadata(runtime, model);
    test_vocabulary(runtime, model);
  }
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
}
