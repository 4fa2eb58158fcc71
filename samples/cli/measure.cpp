// qinfer perplexity and bench: what a model is worth and how fast it is.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

struct PerplexityOptions : Common {
  std::string model, file, reference, logits_out;
  uint32_t max_windows = 0;
};

struct BenchOptions : Common {
  std::string model;
  uint32_t prompt = 512, generate = 128, repetitions = 1;
};

// Scored rows as a NumPy file of float32 [rows][vocabulary]; the number of rows is filled in at the
// end.
class NpyWriter {
 public:
  explicit NpyWriter(const std::string& path)
      : path_(path), out_(path, std::ios::binary | std::ios::trunc) {
    WriteHeader();
  }
  bool Append(const float* row, uint32_t vocabulary) {
    vocabulary_ = vocabulary;
    ++rows_;
    out_.write(reinterpret_cast<const char*>(row), static_cast<std::streamsize>(vocabulary) * 4);
    return out_.good();
  }
  void Finish() {
    out_.seekp(0);
    WriteHeader();
    out_.close();
    if (!out_) throw Error("cannot write " + path_);
  }

 private:
  void WriteHeader() {
    std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(rows_) + ", " + std::to_string(vocabulary_) + "), }";
    text.resize(117, ' ');
    const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    out_.write(magic, 10);
    out_ << text << '\n';
  }
  std::string path_;
  std::ofstream out_;
  uint64_t rows_ = 0;
  uint32_t vocabulary_ = 0;
};

qinfer_status KeepRow(void* user, const float* row, uint32_t vocabulary) {
  return static_cast<NpyWriter*>(user)->Append(row, vocabulary) ? QINFER_OK : QINFER_E_IO;
}

void RunPerplexity(const PerplexityOptions& options) {
  const Runtime runtime = MakeRuntime(options);
  const Model model = OpenModel(runtime.get(), options.model, options, QINFER_PARTS_ALL);
  Model reference;
  if (!options.reference.empty())
    reference = OpenModel(runtime.get(), options.reference, options, QINFER_PARTS_ALL);
  // As llama.cpp's tool: what a text spells is text, also where it spells a special token ("<unk>"
  // in WikiText).
  const std::vector<int32_t> tokens =
      Encode(model.get(), ReadFile(options.file), QINFER_ENCODE_LITERAL);
  qinfer_perplexity_options perplexity = QINFER_PERPLEXITY_OPTIONS_INIT;
  perplexity.context = static_cast<uint32_t>(std::min<uint64_t>(options.context, UINT32_MAX));
  perplexity.max_windows = options.max_windows;
  perplexity.k_type = perplexity.v_type = KvType(options.kv);
  perplexity.activations = ActivationType(options.activations);
  perplexity.reference = reference.get();
  std::unique_ptr<NpyWriter> writer;
  if (!options.logits_out.empty()) {
    writer = std::make_unique<NpyWriter>(options.logits_out);
    perplexity.logits = KeepRow;
    perplexity.logits_user = writer.get();
  }
  qinfer_task* raw = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(
      qinfer_perplexity_begin(model.get(), tokens.data(), tokens.size(), &perplexity, &raw, &error),
      error, "cannot measure perplexity");
  const Task task(raw);
  Run(task.get(), "perplexity", options.json);
  const Report report = TakeReport(task.get());
  if (writer != nullptr) writer->Finish();
  if (options.json) {
    std::printf("%s\n", Render(report.get(), QINFER_RENDER_JSON).c_str());
    return;
  }
  std::printf("perplexity  %.4f +- %.4f  (%.0f windows of %.0f tokens, %.0f scored)\n",
              Number(report.get(), "perplexity"), Number(report.get(), "perplexity_stderr"),
              Number(report.get(), "windows"), Number(report.get(), "context"),
              Number(report.get(), "tokens"));
  if (reference == nullptr) return;
  std::printf("reference   %.4f\n", Number(report.get(), "reference_perplexity"));
  std::printf("KL          mean %.5f, median %.5f, 99 %% %.5f, 99.9 %% %.5f, max %.4f\n",
              Number(report.get(), "kl_mean"), Number(report.get(), "kl_median"),
              Number(report.get(), "kl_p99"), Number(report.get(), "kl_p999"),
              Number(report.get(), "kl_max"));
  std::printf("same top    %.2f %%\n", 100.0 * Number(report.get(), "top1"));
}

double Seconds(qinfer_session* session, const int32_t* tokens, size_t count) {
  qinfer_error error = QINFER_ERROR_INIT;
  const auto start = std::chrono::steady_clock::now();
  Check(qinfer_session_append(session, tokens, count, &error), error, "bench");
  qinfer_task* raw = nullptr;
  Check(qinfer_session_prefill_begin(session, &raw, &error), error, "bench");
  const Task task(raw);
  Check(qinfer_task_wait(task.get(), UINT64_MAX, &error), error, "bench");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

// Weights that a decoded token reads: all but an embedding that is not also the head.
uint64_t BytesPerToken(const qinfer_model* model, const qinfer_model_info& info) {
  uint64_t bytes = info.weight_bytes;
  if ((info.flags & QINFER_MODEL_TIED_HEAD) != 0) return bytes;
  for (uint32_t i = 0; i < info.tensor_count; ++i) {
    qinfer_tensor_info tensor = QINFER_TENSOR_INFO_INIT;
    qinfer_error error = QINFER_ERROR_INIT;
    Check(qinfer_model_tensor(model, i, &tensor, &error), error, "bench");
    const std::string_view name = View(tensor.name);
    const bool embedding =
        name.find("embed_tokens") != std::string_view::npos || name == "token_embd.weight";
    if (embedding && tensor.bytes < bytes) bytes -= tensor.bytes;
  }
  return bytes;
}

void RunBench(const BenchOptions& options) {
  Common common = options;
  const Runtime runtime = MakeRuntime(common);
  const auto load_start = std::chrono::steady_clock::now();
  const Model model = OpenModel(runtime.get(), options.model, common, QINFER_PARTS_ALL);
  const double load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - load_start).count();
  if (common.context == 0)
    common.context = std::max<uint64_t>(options.prompt, options.generate) + 64;
  const Engine engine = MakeEngine(model.get(), common);
  qinfer_model_info info = QINFER_MODEL_INFO_INIT;
  qinfer_runtime_info machine = QINFER_RUNTIME_INFO_INIT;
  qinfer_memory_usage memory = QINFER_MEMORY_USAGE_INIT;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_model_info_get(model.get(), &info, &error), error, "bench");
  Check(qinfer_runtime_info_get(runtime.get(), &machine, &error), error, "bench");
  qinfer_session* raw = nullptr;
  Check(qinfer_session_create(engine.get(), &raw, &error), error, "bench");
  const Session session(raw);
  uint64_t state = 1;
  auto draw = [&](size_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      token = static_cast<int32_t>((state >> 33) % info.vocab_size);
    }
    return tokens;
  };
  auto clear = [&] { Check(qinfer_session_truncate(session.get(), 0, &error), error, "bench"); };
  const std::vector<int32_t> warm_up =
      draw(std::min<uint32_t>(std::max<uint32_t>(options.prompt, 1), 64));
  Seconds(session.get(), warm_up.data(), warm_up.size());
  clear();
  std::vector<double> prefill, decode;
  for (uint32_t repetition = 0; repetition < options.repetitions; ++repetition) {
    if (options.prompt > 0) {
      const std::vector<int32_t> tokens = draw(options.prompt);
      prefill.push_back(options.prompt / Seconds(session.get(), tokens.data(), tokens.size()));
      clear();
    }
    if (options.generate > 0) {
      const std::vector<int32_t> tokens = draw(options.generate);
      double seconds = 0.0;
      for (const int32_t& token : tokens) seconds += Seconds(session.get(), &token, 1);
      decode.push_back(options.generate / seconds);
      clear();
    }
  }
  Check(qinfer_runtime_memory(runtime.get(), &memory, &error), error, "bench");
  const uint64_t bytes_per_token = BytesPerToken(model.get(), info);
  if (options.json) {
    Json json;
    json["model"] = options.model;
    json["prefill_tps"] = Median(prefill);
    json["decode_tps"] = Median(decode);
    json["prompt"] = options.prompt;
    json["generate"] = options.generate;
    json["model_bytes"] = info.tensor_bytes;
    json["weight_bytes"] = info.weight_bytes;
    json["bytes_per_token"] = bytes_per_token;
    json["peak_memory_bytes"] = memory.peak_bytes;
    json["load_seconds"] = load_seconds;
    json["threads"] = machine.threads;
    json["isa"] = std::string(View(machine.cpu_isa_name));
    std::printf("%s\n", json.dump().c_str());
    return;
  }
  std::printf("%s, %u threads, %.*s\n", options.model.c_str(), machine.threads,
              static_cast<int>(machine.cpu_isa_name.size), machine.cpu_isa_name.data);
  std::printf("  load           %10.1f ms\n", load_seconds * 1e3);
  if (options.prompt > 0)
    std::printf("  prefill %5u  %10.1f tokens/s\n", options.prompt, Median(prefill));
  if (options.generate > 0) {
    std::printf("  decode  %5u  %10.1f tokens/s  (%.2f GB/s of weights)\n", options.generate,
                Median(decode), Median(decode) * static_cast<double>(bytes_per_token) * 1e-9);
  }
  std::printf("  weights        %10s, peak memory %s\n", Bytes(info.weight_bytes).c_str(),
              Bytes(memory.peak_bytes).c_str());
}

}  // namespace

void AddMeasure(CLI::App* app) {
  auto perplexity = std::make_shared<PerplexityOptions>();
  perplexity->context = 512;
  CLI::App* sub = app->add_subcommand(
      "perplexity", "Perplexity on a text, and divergence from a reference model");
  sub->add_option("MODEL", perplexity->model)->required();
  sub->add_option("--file", perplexity->file, "The text; - for standard input")->required();
  sub->add_option("--context", perplexity->context,
                  "Tokens per window; the second half of each is scored")
      ->check(CLI::Range(4, 1 << 24))
      ->capture_default_str();
  sub->add_option("--max-windows", perplexity->max_windows, "Only the first windows");
  sub->add_option("--reference", perplexity->reference,
                  "The unquantized model: adds KL divergence and top-1 agreement");
  sub->add_option("--logits-out", perplexity->logits_out, "Write the scored logits as a .npy file");
  AddJson(sub, perplexity.get());
  AddMachine(sub, perplexity.get());
  AddLoad(sub, perplexity.get());
  AddEngine(sub, perplexity.get());
  sub->callback([perplexity] { RunPerplexity(*perplexity); });

  auto bench = std::make_shared<BenchOptions>();
  sub = app->add_subcommand(
      "bench", "Tokens per second: random tokens, one warm-up, no tokenizing or sampling");
  sub->add_option("MODEL", bench->model)->required();
  sub->add_option("-p,--prompt", bench->prompt, "Tokens of the prefill")->capture_default_str();
  sub->add_option("-n,--generate", bench->generate, "Tokens decoded from an empty context")
      ->capture_default_str();
  sub->add_option("-r,--repetitions", bench->repetitions, "Medians of this many")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_option("--context", bench->context, "Tokens of KV cache");
  AddJson(sub, bench.get());
  AddMachine(sub, bench.get());
  AddLoad(sub, bench.get());
  AddEngine(sub, bench.get());
  sub->callback([bench] { RunBench(*bench); });
}

}  // namespace cli
