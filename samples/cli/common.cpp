// Shared helpers of the subcommands; see common.h.
#include "common.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace cli {
namespace {

double Share(const qinfer_progress& progress) {
  if (progress.total == 0) return 0.0;
  return static_cast<double>(progress.done) / static_cast<double>(progress.total);
}

void DrawBar(const char* title, const qinfer_progress& progress) {
  constexpr int kWidth = 30;
  const double share = Share(progress);
  const int filled = static_cast<int>(share * kWidth);
  std::fprintf(stderr, "\r\033[K%s [%.*s%*s] %3.0f %%  %s", title, filled,
               "##############################", kWidth - filled, "", 100.0 * share,
               Visible(View(progress.phase)).c_str());
  std::fflush(stderr);
}

// The library names its options; here they are the command line's.
std::string WithOurNames(std::string message) {
  static constexpr std::pair<const char*, const char*> kNames[] = {
      {"cpu_isa_cap = 2 (avx2)", "--isa avx2"},
      {"cpu_isa_cap = 3 (avx512)", "--isa avx512"},
      {"cpu_isa_cap = 4 (neon)", "--isa neon"},
      {"cpu_isa_cap = 5 (avxvnni)", "--isa avxvnni"},
      {"QINFER_ISA_AUTO", "auto"},
      {"memory_limit_bytes", "--memory-limit"},
      {"context_tokens", "--context"},
      {"render options.template_text", "TEMPLATE.jinja"},
      {"it can be opened with QINFER_PARTS_HEADER alone",
       "put the weights beside it (qinfer info says what they would take)"},
      {"presence_penalty", "--presence-penalty"},
      {"frequency_penalty", "--frequency-penalty"},
      {"repetition_penalty", "--repetition-penalty"},
      {"a stop string", "--stop: a stop string"},
      {"logprobs is", "--logprobs is"},
      {"recipe.embedding", "--embedding"},
      {"recipe.head", "--head"},
  };
  for (const auto& [theirs, ours] : kNames) {
    for (size_t at = message.find(theirs); at != std::string::npos;
         at = message.find(theirs, at + std::strlen(ours))) {
      message.replace(at, std::strlen(theirs), ours);
    }
  }
  return message;
}

}  // namespace

qinfer_status Check(qinfer_status status, const qinfer_error& error, const char* what) {
  if (status >= 0) return status;
  const std::string message =
      error.message[0] != '\0' ? WithOurNames(error.message) : qinfer_status_name(status);
  const bool usage = status == QINFER_E_MISUSE && error.detail == QINFER_DETAIL_OPTION;
  throw Error(std::string(what) + ": " + message, usage ? 2 : 1);
}

void AddJson(CLI::App* app, Common* common) {
  app->add_flag("--json", common->json, "Machine-readable output");
}

void AddMachine(CLI::App* app, Common* common) {
  app->add_option("--threads", common->threads, "Threads (default: the processors available)")
      ->check(CLI::Range(1, 1024));
  app->add_option("--isa", common->isa,
                  "Instruction set: auto (the best; default), ref, avx2, avxvnni, avx512, neon")
      ->check(CLI::IsMember({"auto", "ref", "avx2", "avxvnni", "avx512", "neon"}));
}

void AddLoad(CLI::App* app, Common* common) {
  app->add_option("--load", common->load, "How a .qinfer file is reached: map (default) or copy")
      ->check(CLI::IsMember({"map", "copy"}));
}

void AddContext(CLI::App* app, Common* common, const char* help) {
  app->add_option("--context", common->context, help)->check(CLI::Range(1, 1 << 30));
}

void AddEngine(CLI::App* app, Common* common) {
  app->add_option("--kv", common->kv,
                  "KV cache type: f32, f16, int8 (default: int8; of perplexity: f16)")
      ->check(CLI::IsMember({"f32", "f16", "int8"}));
  app->add_option("--activations", common->activations,
                  "Inputs of quantized layers: auto (default), int8, float")
      ->check(CLI::IsMember({"auto", "int8", "float"}));
}

void AddDeterminism(CLI::App* app, Common* common) {
  app->add_option(
         "--determinism", common->determinism,
         "strict (default), or fast: long prompts of latent attention (DeepSeek) in less time, "
         "results depend on steps")
      ->check(CLI::IsMember({"strict", "fast"}));
}

Runtime MakeRuntime(const Common& common) {
  qinfer_runtime_options options = QINFER_RUNTIME_OPTIONS_INIT;
  options.threads = common.threads;
  if (common.isa == "ref") options.cpu_isa_cap = QINFER_ISA_REF;
  if (common.isa == "avx2") options.cpu_isa_cap = QINFER_ISA_AVX2;
  if (common.isa == "avxvnni") options.cpu_isa_cap = QINFER_ISA_AVXVNNI;
  if (common.isa == "avx512") options.cpu_isa_cap = QINFER_ISA_AVX512;
  if (common.isa == "neon") options.cpu_isa_cap = QINFER_ISA_NEON;
  qinfer_runtime* runtime = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_runtime_create(QINFER_ABI, &options, &runtime, &error), error, "cannot start");
  return Runtime(runtime);
}

Model OpenModel(qinfer_runtime* runtime, const std::string& path, const Common& common,
                uint32_t parts) {
  if (path.empty()) throw Error("the name of the model is empty: give a file or a folder", 2);
  qinfer_source source = QINFER_SOURCE_INIT;
  source.path = Str(path);
  qinfer_load_options options = QINFER_LOAD_OPTIONS_INIT;
  options.access = common.load == "copy" ? QINFER_LOAD_COPY : QINFER_LOAD_MAP;
  options.parts = parts;
  qinfer_model* model = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_model_load(runtime, &source, &options, &model, &error), error,
        "cannot load the model");
  return Model(model);
}

uint32_t KvType(const std::string& name) {
  if (name == "f32") return QINFER_KV_F32;
  if (name == "f16") return QINFER_KV_F16;
  if (name == "int8") return QINFER_KV_INT8;
  return QINFER_KV_DEFAULT;
}

uint32_t ActivationType(const std::string& name) {
  if (name == "int8") return QINFER_ACTIVATIONS_INT8;
  if (name == "float") return QINFER_ACTIVATIONS_FLOAT;
  return QINFER_ACTIVATIONS_AUTO;
}

uint32_t DeterminismType(const std::string& name) {
  return name == "fast" ? QINFER_DETERMINISM_FAST : QINFER_DETERMINISM_STRICT;
}

Engine MakeEngine(qinfer_model* model, const Common& common, uint32_t max_sessions) {
  qinfer_engine_options options = QINFER_ENGINE_OPTIONS_INIT;
  options.max_sessions = max_sessions;
  options.context_tokens = common.context;
  options.k_type = options.v_type = KvType(common.kv);
  options.activations = ActivationType(common.activations);
  options.determinism = DeterminismType(common.determinism);
  qinfer_engine* engine = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_engine_create(model, &options, &engine, &error), error, "cannot prepare the model");
  return Engine(engine);
}

void Run(qinfer_task* task, const char* title, bool quiet) {
  // So that no partial file stays behind.
  const InterruptGuard guard(InterruptGuard::Signals::kAll);
  const bool terminal = isatty(STDERR_FILENO) == 1;
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kBetweenLines(10);
  std::string last_phase;
  Clock::time_point last_line = Clock::now();
  qinfer_error error = QINFER_ERROR_INIT;
  qinfer_status status = QINFER_PENDING;
  while (status == QINFER_PENDING) {
    if (InterruptGuard::Seen()) qinfer_task_cancel(task);
    status = qinfer_task_wait(task, 100'000'000, &error);
    if (quiet) continue;
    qinfer_progress progress = QINFER_PROGRESS_INIT;
    if (qinfer_task_progress(task, &progress, nullptr) != QINFER_OK) continue;
    if (terminal) {
      DrawBar(title, progress);
    } else if (status == QINFER_PENDING &&
               (View(progress.phase) != last_phase || Clock::now() - last_line >= kBetweenLines)) {
      last_phase = View(progress.phase);
      last_line = Clock::now();
      std::fprintf(stderr, "%s: %s (%.0f %% done)\n", title, Visible(last_phase).c_str(),
                   100.0 * Share(progress));
    }
  }
  if (!quiet && terminal) std::fprintf(stderr, "\r\033[K");
  if (status == QINFER_E_CANCELLED) InterruptGuard::ThrowIfSeen(title);
  Check(status, error, title);
}

Report TakeReport(qinfer_task* task) {
  qinfer_report* report = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_task_take_report(task, &report, &error), error, "no report");
  return Report(report);
}

std::string Render(qinfer_report* report, uint32_t form) {
  qinfer_str text = {nullptr, 0};
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_report_render(report, form, &text, &error), error, "cannot show the report");
  return std::string(View(text));
}

double Number(const qinfer_report* report, const std::string& path, double otherwise) {
  double value = 0.0;
  return qinfer_report_double(report, path.data(), path.size(), &value, nullptr) == QINFER_OK
             ? value
             : otherwise;
}

std::string Text(const qinfer_report* report, const std::string& path) {
  qinfer_str value = {nullptr, 0};
  if (qinfer_report_string(report, path.data(), path.size(), &value, nullptr) != QINFER_OK)
    return "";
  return std::string(View(value));
}

size_t Count(const qinfer_report* report, const std::string& path) {
  size_t count = 0;
  return qinfer_report_size(report, path.data(), path.size(), &count, nullptr) == QINFER_OK ? count
                                                                                            : 0;
}

std::vector<int32_t> Encode(const qinfer_model* model, std::string_view text, uint64_t flags) {
  qinfer_error error = QINFER_ERROR_INIT;
  std::vector<int32_t> ids(text.size() + 8);
  size_t count = 0;
  qinfer_status status = qinfer_tokenizer_encode(model, text.data(), text.size(), flags, ids.data(),
                                                 ids.size(), &count, &error);
  if (status == QINFER_E_MISUSE && error.detail == QINFER_DETAIL_BUFFER_TOO_SMALL) {
    ids.resize(count);
    status = qinfer_tokenizer_encode(model, text.data(), text.size(), flags, ids.data(), ids.size(),
                                     &count, &error);
  }
  Check(status, error, "cannot tokenize");
  ids.resize(count);
  return ids;
}

std::string RenderPrompt(qinfer_runtime* runtime, const qinfer_model* model,
                         const qinfer_render_options& options) {
  qinfer_error error = QINFER_ERROR_INIT;
  std::string text(1 << 16, '\0');
  size_t size = 0;
  qinfer_status status = QINFER_OK;
  // A buffer that is too small tells the size that is needed.
  for (int attempt = 0; attempt < 2; ++attempt) {
    status =
        qinfer_template_render(runtime, model, &options, text.data(), text.size(), &size, &error);
    if (status != QINFER_E_MISUSE || error.detail != QINFER_DETAIL_BUFFER_TOO_SMALL) break;
    text.resize(size);
  }
  Check(status, error, "chat template");
  text.resize(size);
  return text;
}

std::string ReadFile(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) throw Error("cannot open " + path + ": " + std::strerror(errno));
  std::string text;
  char block[1 << 16];
  size_t count = 0;
  constexpr size_t kMost = size_t{1} << 30;  // a device may have no end
  while (text.size() <= kMost && (count = std::fread(block, 1, sizeof(block), file)) > 0) {
    text.append(block, count);
  }
  if (text.size() > kMost) throw Error(path + " has more than 1 GiB of text");
  const int error = std::ferror(file) != 0 ? errno : 0;
  if (file != stdin) std::fclose(file);
  if (error != 0) throw Error("cannot read " + path + ": " + std::strerror(error));
  return text;
}

namespace {

bool SamePlace(const std::string& a, const std::string& b) {
  struct stat one = {}, other = {};
  if (stat(a.c_str(), &one) != 0 || stat(b.c_str(), &other) != 0) return a == b;
  const bool kept = S_ISREG(one.st_mode);  // a device may be written again and again
  return kept && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool IsModelFile(const std::string& name) {
  for (const std::string_view end : {".safetensors", ".gguf", ".qinfer", ".jinja", "config.json",
                                     "tokenizer.json", ".index.json"}) {
    if (name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) {
      return true;
    }
  }
  return false;
}

bool Holds(const std::string& input, const std::string& path) {
  if (SamePlace(input, path)) return true;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(input, error)) {
    if (IsModelFile(entry.path().filename()) && SamePlace(entry.path(), path)) return true;
  }
  return false;
}

}  // namespace

void RefuseOverlap(std::initializer_list<NamedPath> outputs,
                   std::initializer_list<NamedPath> inputs) {
  for (auto out = outputs.begin(); out != outputs.end(); ++out) {
    if (out->path.empty()) continue;
    for (auto other = outputs.begin(); other != out; ++other) {
      if (!other->path.empty() && SamePlace(other->path, out->path)) {
        throw Error(std::string(other->option) + " and " + out->option + " both write " +
                    out->path);
      }
    }
    for (const NamedPath& in : inputs) {
      if (!in.path.empty() && Holds(in.path, out->path)) {
        throw Error(std::string(out->option) + " would replace " + out->path + ", which is read (" +
                    in.option + "): choose another output");
      }
    }
  }
}

void RequireName(const char* option, const std::string& path) {
  if (path.empty()) throw Error(std::string(option) + " is empty: give the name of a file", 2);
}

void RefusePipe(const char* option, const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  throw Error(std::string(option) + " " + path +
              " is a pipe: give a file, or - for standard input");
}

std::string Bytes(uint64_t bytes) {
  char text[32];
  const double value = static_cast<double>(bytes);
  if (value >= 1e9) {
    std::snprintf(text, sizeof(text), "%.2f GB", value * 1e-9);
  } else if (value >= 1e6) {
    std::snprintf(text, sizeof(text), "%.2f MB", value * 1e-6);
  } else {
    std::snprintf(text, sizeof(text), "%.1f kB", value * 1e-3);
  }
  return text;
}

uint64_t ParseBytes(const std::string& text) {
  size_t used = 0;
  double value = 0.0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  double factor = 0.0;
  if (unit.empty() || unit == "B") factor = 1.0;
  if (unit == "K" || unit == "kB" || unit == "KB") factor = 1e3;
  if (unit == "M" || unit == "MB") factor = 1e6;
  if (unit == "G" || unit == "GB") factor = 1e9;
  if (unit == "KiB") factor = 1024.0;
  if (unit == "MiB") factor = 1048576.0;
  if (unit == "GiB") factor = 1073741824.0;
  if (used == 0 || factor == 0.0 || !(value * factor >= 1.0 && value * factor < 1e18)) {
    throw Error("'" + text + "' is not a size; write 2GiB, 500MB or a number of bytes", 2);
  }
  return static_cast<uint64_t>(value * factor);
}

}  // namespace cli
