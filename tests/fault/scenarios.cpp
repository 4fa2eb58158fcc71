// The scenarios. Nothing here knows what fails, or that something does.
#include "scenarios.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace fault {
namespace {

// Releases what it holds at the end of a scenario, in whatever state that ended.
template <typename H, void (*Release)(H*)>
struct Owned {
  H* handle = nullptr;
  ~Owned() { Release(handle); }
};
using Runtime = Owned<qinfer_runtime, qinfer_runtime_release>;
using Model = Owned<qinfer_model, qinfer_model_release>;
using Engine = Owned<qinfer_engine, qinfer_engine_release>;
using Session = Owned<qinfer_session, qinfer_session_release>;
using Task = Owned<qinfer_task, qinfer_task_release>;
using Report = Owned<qinfer_report, qinfer_report_release>;
using Calibration = Owned<qinfer_calibration, qinfer_calibration_release>;

#define TRY(call)                      \
  do {                                 \
    const qinfer_status try_ = (call); \
    if (try_ < QINFER_OK) return try_; \
  } while (false)

qinfer_status OpenRuntime(const Hooks& hooks, Runtime* runtime, qinfer_error* err) {
  qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
  options.allocator = hooks.allocator;
  options.threads = 1;  // so that the N-th of everything is always the same one
  return qinfer_runtime_create(QINFER_ABI, &options, &runtime->handle, err);
}

qinfer_str Text(const std::string& text) { return {text.data(), text.size()}; }

qinfer_status OpenModel(const Files& files, const Hooks& hooks, uint32_t parts,
                        const Runtime& runtime, Model* model, qinfer_error* err) {
  qinfer_io io = hooks.open(&files.weights);
  qinfer_source source = QINFER_SOURCE_INIT;
  source.io = &io;
  source.config_json = Text(files.config);
  source.tokenizer_json = Text(files.tokenizer);
  source.tokenizer_config_json = Text(files.tokenizer_config);
  qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
  load.parts = parts;
  return qinfer_model_load(runtime.handle, &source, &load, &model->handle, err);
}

qinfer_status Load(const Files& files, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  Model model;
  Report report;
  TRY(OpenRuntime(hooks, &runtime, err));
  TRY(OpenModel(files, hooks, QINFER_PARTS_ALL, runtime, &model, err));
  TRY(qinfer_model_report(model.handle, QINFER_MODEL_REPORT_INFO, &report.handle, err));
  qinfer_str json;
  return qinfer_report_render(report.handle, QINFER_RENDER_JSON, &json, err);
}

// A folder, with everything that lies in it.
qinfer_status LoadFolder(const Files& files, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  Model model;
  TRY(OpenRuntime(hooks, &runtime, err));
  return qinfer_model_load_path(runtime.handle, files.path.data(), files.path.size(), &model.handle,
                                err);
}

qinfer_status LoadBytes(const std::string& bytes, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  Model model;
  TRY(OpenRuntime(hooks, &runtime, err));
  qinfer_io io = hooks.open(&bytes);
  qinfer_source source = QINFER_SOURCE_INIT;
  source.io = &io;
  return qinfer_model_load(runtime.handle, &source, nullptr, &model.handle, err);
}
qinfer_status LoadGguf(const Files& files, const Hooks& hooks, qinfer_error* err) {
  return LoadBytes(files.gguf, hooks, err);
}
qinfer_status LoadQinfer(const Files& files, const Hooks& hooks, qinfer_error* err) {
  return LoadBytes(files.qinfer, hooks, err);
}

qinfer_status Plan(const Files& files, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  TRY(OpenRuntime(hooks, &runtime, err));
  qinfer_io io = hooks.open(&files.weights);
  qinfer_source source = QINFER_SOURCE_INIT;
  source.io = &io;
  source.config_json = Text(files.config);
  qinfer_memory_plan plan = QINFER_MEMORY_PLAN_INIT;
  return qinfer_model_plan(runtime.handle, &source, nullptr, nullptr, &plan, err);
}

// A vocabulary of a few tokens, so that every allocation can fail in a short time.
const std::string kSmallTokenizer = R"({"version":"1.0","added_tokens":[{"id":0,"content":"<s>",
"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,
"use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,
"trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,
"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,
"vocab":{"<s>":0,"a":1,"b":2,"c":3,"ab":4,"abc":5},"merges":["a b","ab c"]}})";

const std::string kSmallTokenizerConfig =
    R"({"bos_token":"<s>","add_bos_token":true,"chat_template":"{{ messages[0].content }}"})";

qinfer_status Tokenize(const Files&, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  Model model;
  TRY(OpenRuntime(hooks, &runtime, err));
  qinfer_io io = hooks.open(&kSmallTokenizer);
  qinfer_source source = QINFER_SOURCE_INIT;
  source.io = &io;
  qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
  load.parts = QINFER_PARTS_VOCABULARY;
  TRY(qinfer_model_load(runtime.handle, &source, &load, &model.handle, err));
  int32_t ids[16];
  size_t count = 0;
  TRY(qinfer_tokenizer_encode(model.handle, "abcab<s>", QINFER_STRLEN, 0, ids, 16, &count, err));
  char text[64];
  size_t size = 0;
  return qinfer_tokenizer_decode(model.handle, ids, count, 0, text, sizeof text, &size, nullptr,
                                 err);
}

const std::string kTemplate =
    "{%- set ns = namespace(n=0) -%}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "[{{ m.role | upper }} {{ ns.n }}] {{ m['content'] | trim }}\n"
    "{% macro show(x) %}{{ x ~ x }}{{ caller() }}{% endmacro %}{% set ns.show = show %}"
    "{% set q %}{% call show(m.content) %}!{% endcall %}{% endset %}"
    "{{ q.split('e')|sort|map('replace', 'l', 'long')|join(', ') }}{% endfor %}"
    "{% if add_generation_prompt %}[ASSISTANT]{% endif %}";

qinfer_status Render(const Files&, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  TRY(OpenRuntime(hooks, &runtime, err));
  const qinfer_message messages[] = {{{"system", 6}, {"Be brief.", 9}},
                                     {{"user", 4}, {"Hello", 5}}};
  qinfer_render_options options = QINFER_RENDER_OPTIONS_INIT;
  options.messages = messages;
  options.message_count = 2;
  options.template_text = Text(kTemplate);
  char text[256];
  size_t size = 0;
  return qinfer_template_render(runtime.handle, nullptr, &options, text, sizeof text, &size, err);
}

qinfer_status Generate(const Files& files, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  Model model;
  Engine engine;
  Session session, fork;
  Task task;
  TRY(OpenRuntime(hooks, &runtime, err));
  TRY(OpenModel(files, hooks, QINFER_PARTS_ALL, runtime, &model, err));
  qinfer_engine_options engine_options = QINFER_ENGINE_OPTIONS_INIT;
  engine_options.context_tokens = 64;
  engine_options.batch_tokens = 16;
  engine_options.max_sessions = 2;
  TRY(qinfer_engine_create(model.handle, &engine_options, &engine.handle, err));
  TRY(qinfer_session_create(engine.handle, &session.handle, err));
  TRY(qinfer_session_append_text(session.handle, "abcab", QINFER_STRLEN, 0, err));
  TRY(qinfer_session_fork(session.handle, &fork.handle, err));
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  options.max_tokens = 6;
  options.logprobs = 2;
  options.flags = QINFER_GENERATE_IGNORE_EOS | QINFER_GENERATE_PROMPT_LOOKUP;
  const qinfer_logit_bias bias = {5, 1000.0f};  // one token again and again: something to guess
  options.logit_bias = &bias;
  options.logit_bias_count = 1;
  const qinfer_str stop = {"zzzz", 4};
  options.stop_strings = &stop;
  options.stop_string_count = 1;
  TRY(qinfer_generate_begin(session.handle, &options, &task.handle, err));
  for (;;) {
    qinfer_event event = QINFER_EVENT_INIT;
    const qinfer_status status =
        qinfer_generate_next(task.handle, QINFER_BUDGET_UNLIMITED, &event, err);
    TRY(status);
    if (status == QINFER_END) break;
  }
  return qinfer_session_truncate(session.handle, 1, err);
}

// A prompt of latent attention that is long enough for its expanded form.
qinfer_status Expand(const Files& files, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  Model model;
  Engine engine;
  Session session;
  Task task;
  TRY(OpenRuntime(hooks, &runtime, err));
  qinfer_io io = hooks.open(&files.latent);
  qinfer_source source = QINFER_SOURCE_INIT;
  source.io = &io;
  TRY(qinfer_model_load(runtime.handle, &source, nullptr, &model.handle, err));
  qinfer_engine_options engine_options = QINFER_ENGINE_OPTIONS_INIT;
  engine_options.max_sessions = 1;
  engine_options.determinism = QINFER_DETERMINISM_FAST;
  TRY(qinfer_engine_create(model.handle, &engine_options, &engine.handle, err));
  TRY(qinfer_session_create(engine.handle, &session.handle, err));
  int32_t tokens[80];
  for (int32_t i = 0; i < 80; ++i) tokens[i] = i;
  TRY(qinfer_session_append(session.handle, tokens, 80, err));
  qinfer_generate_options options = QINFER_GENERATE_OPTIONS_INIT;
  options.max_tokens = 1;
  options.flags = QINFER_GENERATE_IGNORE_EOS;
  TRY(qinfer_generate_begin(session.handle, &options, &task.handle, err));
  return qinfer_task_wait(task.handle, UINT64_MAX, err);
}

qinfer_status RunAndTakeReport(Task* task, qinfer_error* err) {
  Report report;
  TRY(qinfer_task_wait(task->handle, UINT64_MAX, err));
  TRY(qinfer_task_take_report(task->handle, &report.handle, err));
  qinfer_str json;
  return qinfer_report_render(report.handle, QINFER_RENDER_JSON_COMPACT, &json, err);
}

// Where outputs go: nowhere, but in order.
qinfer_status DropBytes(void*, uint64_t, const void*, size_t) { return QINFER_OK; }
qinfer_write_io Nowhere() {
  qinfer_write_io io = QINFER_WRITE_IO_INIT;
  io.write_at = DropBytes;
  return io;
}

qinfer_status Calibrate(const Files& files, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  Model model;
  Calibration calibration;
  Task task;
  TRY(OpenRuntime(hooks, &runtime, err));
  TRY(OpenModel(files, hooks, QINFER_PARTS_HEADER, runtime, &model, err));
  qinfer_calibration_options options = QINFER_CALIBRATION_OPTIONS_INIT;
  options.samples = 1;
  options.sample_tokens = 8;
  TRY(qinfer_calibration_create(model.handle, &options, &calibration.handle, err));
  int32_t tokens[32];
  for (int32_t i = 0; i < 32; ++i) tokens[i] = i + 5;
  TRY(qinfer_calibration_add_tokens(calibration.handle, tokens, 32, err));
  TRY(qinfer_calibration_run_begin(calibration.handle, &task.handle, err));
  TRY(qinfer_task_wait(task.handle, UINT64_MAX, err));
  qinfer_write_io sink = Nowhere();
  qinfer_target target = QINFER_TARGET_INIT;
  target.io = &sink;
  return qinfer_calibration_save(calibration.handle, &target, err);
}

qinfer_status Quantize(const Files& files, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  Model model;
  Task task;
  TRY(OpenRuntime(hooks, &runtime, err));
  TRY(OpenModel(files, hooks, QINFER_PARTS_HEADER, runtime, &model, err));
  qinfer_quantize_options options = QINFER_QUANTIZE_OPTIONS_INIT;
  options.flags =
      QINFER_QUANTIZE_NO_CALIBRATION | QINFER_QUANTIZE_NO_EVALUATION | QINFER_QUANTIZE_NO_SEARCH;
  qinfer_write_io sink = Nowhere();
  qinfer_target target = QINFER_TARGET_INIT;
  target.io = &sink;
  TRY(qinfer_quantize_begin(model.handle, &options, &target, &task.handle, err));
  return RunAndTakeReport(&task, err);
}

qinfer_status Convert(const Files& files, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  Model model;
  Task task;
  TRY(OpenRuntime(hooks, &runtime, err));
  TRY(OpenModel(files, hooks, QINFER_PARTS_HEADER, runtime, &model, err));
  qinfer_write_io sink = Nowhere();
  qinfer_target target = QINFER_TARGET_INIT;
  target.io = &sink;
  TRY(qinfer_convert_begin(model.handle, &target, &task.handle, err));
  return RunAndTakeReport(&task, err);
}

qinfer_status Evaluate(const Files& files, const Hooks& hooks, qinfer_error* err) {
  Runtime runtime;
  Model model;
  Task task;
  TRY(OpenRuntime(hooks, &runtime, err));
  TRY(OpenModel(files, hooks, QINFER_PARTS_ALL, runtime, &model, err));
  int32_t tokens[64];
  for (int32_t i = 0; i < 64; ++i) tokens[i] = i + 5;
  qinfer_perplexity_options options = QINFER_PERPLEXITY_OPTIONS_INIT;
  options.context = 16;
  options.max_windows = 1;
  options.reference = model.handle;
  TRY(qinfer_perplexity_begin(model.handle, tokens, 64, &options, &task.handle, err));
  return RunAndTakeReport(&task, err);
}

qinfer_status AppendBytes(void* user, uint64_t offset, const void* src, size_t n) {
  std::string& out = *static_cast<std::string*>(user);
  if (out.size() < offset + n) out.resize(offset + n);
  out.replace(offset, n, static_cast<const char*>(src), n);
  return QINFER_OK;
}

// The model as a .qinfer file.
qinfer_status MakeQinfer(Files* files, qinfer_error* err) {
  Runtime runtime;
  Model model;
  Task task;
  TRY(qinfer_runtime_create(QINFER_ABI, nullptr, &runtime.handle, err));
  qinfer_source source = QINFER_SOURCE_INIT;
  source.data = files->weights.data();
  source.data_size = files->weights.size();
  source.config_json = Text(files->config);
  source.tokenizer_json = Text(files->tokenizer);
  source.tokenizer_config_json = Text(files->tokenizer_config);
  qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
  load.parts = QINFER_PARTS_HEADER;
  TRY(qinfer_model_load(runtime.handle, &source, &load, &model.handle, err));
  qinfer_write_io sink = QINFER_WRITE_IO_INIT;
  sink.user = &files->qinfer;
  sink.write_at = AppendBytes;
  qinfer_target target = QINFER_TARGET_INIT;
  target.io = &sink;
  TRY(qinfer_convert_begin(model.handle, &target, &task.handle, err));
  return qinfer_task_wait(task.handle, UINT64_MAX, err);
}

bool ReadAll(const std::string& path, std::string* out) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  out->assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  return true;
}

}  // namespace

bool LoadFiles(Files* files) {
  files->path = QINFER_SOURCE_DIR "/tests/golden/models/llama-odd";
  files->tokenizer = kSmallTokenizer;
  files->tokenizer_config = kSmallTokenizerConfig;
  const struct {
    std::string path;
    std::string* out;
  } wanted[] = {
      {files->path + "/config.json", &files->config},
      {files->path + "/model.safetensors", &files->weights},
      {QINFER_SOURCE_DIR "/tests/golden/gguf-models/llama-rope-freqs.gguf", &files->gguf},
      {QINFER_SOURCE_DIR "/tests/golden/models/deepseek-v3-small/model-f16.gguf", &files->latent},
  };
  for (const auto& file : wanted) {
    if (ReadAll(file.path, file.out)) continue;
    std::fprintf(stderr, "cannot read %s\n", file.path.c_str());
    return false;
  }
  qinfer_error err = QINFER_ERROR_INIT;
  if (MakeQinfer(files, &err) >= QINFER_OK) return true;
  std::fprintf(stderr, "making a .qinfer file: %s\n", err.message);
  return false;
}

const std::vector<NamedScenario>& Scenarios() {
  static const std::vector<NamedScenario> scenarios = {
      {"tokenize", Tokenize},
      {"render", Render},
      {"plan", Plan},
      {"load", Load},
      {"load_folder", LoadFolder},
      {"load_gguf", LoadGguf},
      {"load_qinfer", LoadQinfer},
      {"generate", Generate},
      {"expand", Expand},
      {"convert", Convert},
      {"quantize", Quantize},
      {"calibrate", Calibrate},
      {"evaluate", Evaluate},
  };
  return scenarios;
}

}  // namespace fault
