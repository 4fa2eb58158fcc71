// qinfer bench: how fast a model is, measured as llama-bench does (random tokens, one warm-up, no
// tokenizing or sampling).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions : Common {
  std::string model;
  uint32_t prompt = 512, generate = 128, depth = 0, parallel = 1, repetitions = 1;
};

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Sequences of one engine that are computed together, and their random tokens.
class Sequences {
 public:
  Sequences(qinfer_engine* engine, uint32_t count, uint32_t vocab_size) : vocab_size_(vocab_size) {
    for (uint32_t i = 0; i < count; ++i) {
      qinfer_session* session = nullptr;
      Check(qinfer_session_create(engine, &session, &error_), error_, "bench");
      sessions_.emplace_back(session);
    }
  }

  // Starts them all again, with `depth` tokens.
  void Restart(uint32_t depth) {
    for (const Session& session : sessions_)
      Check(qinfer_session_truncate(session.get(), 0, &error_), error_, "bench");
    if (depth > 0) Seconds(depth);
  }

  // Computes `count` more tokens of each in one go.
  double Seconds(uint32_t count) {
    std::vector<int32_t> tokens(count);
    for (const Session& session : sessions_) {
      for (int32_t& token : tokens) token = Draw();
      Check(qinfer_session_append(session.get(), tokens.data(), count, &error_), error_, "bench");
    }
    const auto start = std::chrono::steady_clock::now();
    std::vector<Task> tasks;
    for (const Session& session : sessions_) {
      qinfer_task* task = nullptr;
      Check(qinfer_session_prefill_begin(session.get(), &task, &error_), error_, "bench");
      tasks.emplace_back(task);
    }
    // A step of one computes what all of them wait for.
    for (const Task& task : tasks)
      Check(qinfer_task_wait(task.get(), UINT64_MAX, &error_), error_, "bench");
    return Since(start);
  }

 private:
  int32_t Draw() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int32_t>((state_ >> 33) % vocab_size_);
  }

  qinfer_error error_ = QINFER_ERROR_INIT;
  std::vector<Session> sessions_;
  uint32_t vocab_size_;
  uint64_t state_ = 1;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

// Weights that a step of one token reads: all but an embedding that is not also the head, and of
// the experts the chosen ones.
uint64_t BytesPerStep(const qinfer_model* model, const qinfer_model_info& info) {
  qinfer_error error = QINFER_ERROR_INIT;
  qinfer_report* raw = nullptr;
  Check(qinfer_model_report(model, QINFER_MODEL_REPORT_INFO, &raw, &error), error, "bench");
  const Report report(raw);
  const double experts = Number(report.get(), "experts.count");
  const double idle = experts > 0 ? 1.0 - Number(report.get(), "experts.used") / experts : 0.0;
  const bool tied = (info.flags & QINFER_MODEL_TIED_HEAD) != 0;
  uint64_t unread = 0;
  for (uint32_t i = 0; i < info.tensor_count; ++i) {
    qinfer_tensor_info tensor = QINFER_TENSOR_INFO_INIT;
    Check(qinfer_model_tensor(model, i, &tensor, &error), error, "bench");
    const std::string_view name = View(tensor.name);
    const auto has = [name](const char* part) { return name.find(part) != std::string_view::npos; };
    if (has("_exps.") || has(".experts."))
      unread += static_cast<uint64_t>(static_cast<double>(tensor.bytes) * idle);
    if (!tied && (has("embed_tokens") || name == "token_embd.weight")) unread += tensor.bytes;
  }
  return info.weight_bytes > unread ? info.weight_bytes - unread : info.weight_bytes;
}

struct Measured {
  double load_seconds = 0, prefill = 0, decode = 0;  // tokens/s of all sequences
  uint64_t bytes_per_step = 0, peak_bytes = 0;
  qinfer_model_info info = QINFER_MODEL_INFO_INIT;
  uint32_t threads = 0;
  std::string isa;
};

Measured Measure(const BenchOptions& options) {
  Common common = options;
  Measured out;
  qinfer_error error = QINFER_ERROR_INIT;
  const Runtime runtime = MakeRuntime(common);
  const auto start = std::chrono::steady_clock::now();
  const Model model = OpenModel(runtime.get(), options.model, common, QINFER_PARTS_ALL);
  out.load_seconds = Since(start);
  Check(qinfer_model_info_get(model.get(), &out.info, &error), error, "bench");
  if (common.context == 0) {
    const uint64_t each = uint64_t{options.depth} + std::max(options.prompt, options.generate) + 64;
    common.context = each * options.parallel;
  }
  const Engine engine = MakeEngine(model.get(), common, options.parallel);
  Sequences sequences(engine.get(), options.parallel, out.info.vocab_size);
  sequences.Seconds(std::clamp<uint32_t>(options.prompt, 1, 64));
  std::vector<double> prefill, decode;
  for (uint32_t repetition = 0; repetition < options.repetitions; ++repetition) {
    if (options.prompt > 0) {
      sequences.Restart(options.depth);
      prefill.push_back(static_cast<double>(options.parallel) * options.prompt /
                        sequences.Seconds(options.prompt));
    }
    if (options.generate == 0) continue;
    sequences.Restart(options.depth);
    double seconds = 0.0;
    for (uint32_t i = 0; i < options.generate; ++i) seconds += sequences.Seconds(1);
    decode.push_back(static_cast<double>(options.parallel) * options.generate / seconds);
  }
  out.prefill = Median(prefill);
  out.decode = Median(decode);
  qinfer_runtime_info machine = QINFER_RUNTIME_INFO_INIT;
  qinfer_memory_usage memory = QINFER_MEMORY_USAGE_INIT;
  Check(qinfer_runtime_info_get(runtime.get(), &machine, &error), error, "bench");
  Check(qinfer_runtime_memory(runtime.get(), &memory, &error), error, "bench");
  out.peak_bytes = memory.peak_bytes;
  out.threads = machine.threads;
  out.isa = View(machine.cpu_isa_name);
  out.bytes_per_step = BytesPerStep(model.get(), out.info);
  return out;
}

void PrintJson(const BenchOptions& options, const Measured& m) {
  Json json;
  json["model"] = options.model;
  // null: not measured.
  json["prefill_tps"] = options.prompt > 0 ? Json(m.prefill) : Json();
  json["decode_tps"] = options.generate > 0 ? Json(m.decode) : Json();
  json["prompt"] = options.prompt;
  json["generate"] = options.generate;
  json["depth"] = options.depth;
  json["parallel"] = options.parallel;
  json["model_bytes"] = m.info.tensor_bytes;
  json["weight_bytes"] = m.info.weight_bytes;
  json["bytes_per_token"] = m.bytes_per_step;
  json["peak_memory_bytes"] = m.peak_bytes;
  json["load_seconds"] = m.load_seconds;
  json["threads"] = m.threads;
  json["isa"] = m.isa;
  std::printf("%s\n", json.dump().c_str());
}

void RunBench(const BenchOptions& options) {
  const Measured m = Measure(options);
  if (options.json) return PrintJson(options, m);
  std::printf("%s, %u threads, %s\n", Visible(options.model).c_str(), m.threads, m.isa.c_str());
  if (options.depth > 0) std::printf("  after          %10u tokens\n", options.depth);
  if (options.parallel > 1) std::printf("  together       %10u sequences\n", options.parallel);
  std::printf("  load           %10.1f ms\n", m.load_seconds * 1e3);
  if (options.prompt > 0)
    std::printf("  prefill %5u  %10.1f tokens/s\n", options.prompt, m.prefill);
  if (options.generate > 0) {
    std::printf("  decode  %5u  %10.1f tokens/s  (%.2f GB/s of weights)\n", options.generate,
                m.decode,
                m.decode / options.parallel * static_cast<double>(m.bytes_per_step) * 1e-9);
  }
  std::printf("  weights        %10s, peak memory %s\n", Bytes(m.info.weight_bytes).c_str(),
              Bytes(m.peak_bytes).c_str());
}

}  // namespace

void AddBench(CLI::App* app) {
  auto bench = std::make_shared<BenchOptions>();
  CLI::App* sub = app->add_subcommand(
      "bench", "Tokens per second: random tokens, one warm-up, no tokenizing or sampling");
  sub->add_option("MODEL", bench->model, kModelHelp)->required();
  sub->add_option("-p,--prompt", bench->prompt,
                  "Tokens of the prefill; 0 = none, and null in its place with --json")
      ->transform(Whole<uint32_t>())
      ->capture_default_str();
  sub->add_option("-n,--generate", bench->generate,
                  "Tokens decoded; 0 = none, and null in its place with --json")
      ->transform(Whole<uint32_t>())
      ->capture_default_str();
  sub->add_option("-d,--depth", bench->depth, "Tokens that are in the context before")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  sub->add_option("--parallel", bench->parallel, "Sequences computed together; speeds are of all")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  sub->add_option("-r,--repetitions", bench->repetitions, "Medians of this many")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  AddContext(sub, bench.get(), "Tokens of KV cache, of all sequences");
  AddJson(sub, bench.get());
  AddMachine(sub, bench.get());
  AddLoad(sub, bench.get());
  AddEngine(sub, bench.get());
  AddDeterminism(sub, bench.get());
  sub->callback([bench] { RunBench(*bench); });
}

}  // namespace cli
