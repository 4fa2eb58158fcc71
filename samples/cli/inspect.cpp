// qinfer info and convert: what a model is, and the lossless way into a .qinfer file. The listing
// of inspect is in tensors.cpp.
#include <sys/stat.h>
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "common.h"
#include "tensors.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options : Common {
  std::string model, out;
  bool verify = false;
};

Report InfoReport(const qinfer_model* model) {
  qinfer_report* raw = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_model_report(model, QINFER_MODEL_REPORT_INFO, &raw, &error), error,
        "cannot describe the model");
  return Report(raw);
}

Json Parsed(const Report& report) { return Json::parse(Render(report.get(), QINFER_RENDER_JSON)); }

// "tokenizer" and "chat_template" as they are once loaded: of them a header says nothing. No
// tokenizer where the model comes without a vocabulary.
Json TextParts(qinfer_runtime* runtime, const Options& options) {
  Json parts = {{"chat_template", false}};
  try {
    const Model model = OpenModel(runtime, options.model, options, QINFER_PARTS_VOCABULARY);
    const Json all = Parsed(InfoReport(model.get()));
    for (const char* name : {"tokenizer", "chat_template", "chat_template_error"}) {
      if (all.contains(name)) parts[name] = all[name];
    }
  } catch (const Error&) {
  }
  return parts;
}

// What a configuration's model would take in several formats, and what cannot be left unsaid.
void PrintPlans(const qinfer_report* report) {
  const size_t experts = static_cast<size_t>(Number(report, "experts.count"));
  if (experts != 0) {
    std::printf("  experts        %zu, %.0f used, in %.0f layers\n", experts,
                Number(report, "experts.used"), Number(report, "experts.layers"));
  }
  for (size_t i = 0; i < Count(report, "skipped"); ++i) {
    const std::string at = "skipped[" + std::to_string(i) + "].";
    std::printf("  left out       %s: %s\n", Visible(Text(report, at + "tensors")).c_str(),
                Visible(Text(report, at + "why")).c_str());
  }
  std::printf("\n  %-20s %12s\n", "weights as", "in memory");
  for (size_t i = 0; i < Count(report, "plans"); ++i) {
    const std::string at = "plans[" + std::to_string(i) + "].";
    std::printf("  %-20s %12s\n", Text(report, at + "weights").c_str(),
                Bytes(static_cast<uint64_t>(Number(report, at + "weight_bytes"))).c_str());
  }
  std::printf(
      "  KV cache, 1000 tokens: %s in F16, %s in INT8\n",
      Bytes(static_cast<uint64_t>(Number(report, "kv_bytes_per_token.f16") * 1000)).c_str(),
      Bytes(static_cast<uint64_t>(Number(report, "kv_bytes_per_token.int8") * 1000)).c_str());
}

// What its header says, or that it is a vocabulary alone: a file without any tensor.
Model OpenForInfo(qinfer_runtime* runtime, const Options& options, bool* vocabulary_alone) {
  *vocabulary_alone = false;
  try {
    return OpenModel(runtime, options.model, options, QINFER_PARTS_HEADER);
  } catch (const Error&) {
    Model model;
    try {
      model = OpenModel(runtime, options.model, options, QINFER_PARTS_VOCABULARY);
    } catch (const Error&) {
    }
    if (model != nullptr) {
      const qinfer_model_info info = Info(model.get());
      *vocabulary_alone = info.tensor_count == 0 && (info.container == QINFER_CONTAINER_GGUF ||
                                                     info.container == QINFER_CONTAINER_TOKENIZER);
    }
    if (!*vocabulary_alone) throw;
    return model;
  }
}

void PrintVocabulary(const Options& options, const qinfer_model_info& info) {
  std::printf("%s\n  a vocabulary alone: it has no weights\n  vocabulary     %u\n",
              Visible(options.model).c_str(), info.vocab_size);
  std::printf("  chat template  %s\n",
              (info.flags & QINFER_MODEL_HAS_TEMPLATE) != 0 ? "yes" : "none");
}

struct Sum {
  uint32_t count = 0;
  uint64_t elements = 0, bytes = 0;
};
std::map<std::string, Sum> SumsByType(const qinfer_model* model, const qinfer_model_info& info) {
  std::map<std::string, Sum> by_type;
  for (uint32_t i = 0; i < info.tensor_count; ++i) {
    const qinfer_tensor_info tensor = Tensor(model, i);
    const qinfer_str type = tensor.format.size != 0 && info.container == QINFER_CONTAINER_QINFER
                                ? tensor.format
                                : tensor.source_type;
    Sum& sum = by_type[Shown(type)];
    ++sum.count;
    sum.elements += tensor.elements;
    sum.bytes += tensor.bytes;
  }
  return by_type;
}

void RunInfo(const Options& options) {
  const Runtime runtime = MakeRuntime(options);
  bool vocabulary_alone = false;
  Model model = OpenForInfo(runtime.get(), options, &vocabulary_alone);
  const qinfer_model_info info = Info(model.get());
  if (vocabulary_alone && !options.json) return PrintVocabulary(options, info);
  const std::string architecture = Shown(info.architecture);
  const std::map<std::string, Sum> by_type = SumsByType(model.get(), info);
  const Report report = InfoReport(model.get());
  model.reset();  // the plan opens the file again: not two tables of its tensors at a time
  qinfer_source source = QINFER_SOURCE_INIT;
  source.path = Str(options.model);
  qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
  load.access = options.load == "copy" ? QINFER_LOAD_COPY : QINFER_LOAD_MAP;
  qinfer_engine_options engine = QINFER_ENGINE_OPTIONS_INIT;
  engine.context_tokens = options.context;
  engine.k_type = engine.v_type = KvType(options.kv);
  engine.activations = ActivationType(options.activations);
  engine.determinism = DeterminismType(options.determinism);
  qinfer_memory_plan plan = QINFER_MEMORY_PLAN_INIT;
  qinfer_error error = QINFER_ERROR_INIT;
  const bool planned = !vocabulary_alone;
  if (planned) {
    Check(qinfer_model_plan(runtime.get(), &source, &load, &engine, &plan, &error), error,
          "cannot plan memory");
  }
  const Json text_parts = TextParts(runtime.get(), options);
  if (options.json) {
    Json json = Parsed(report);
    json.update(text_parts);
    if (planned) {
      json["memory_plan"] = {{"mapped_bytes", plan.mapped_bytes},
                             {"weight_bytes", plan.weight_bytes},
                             {"tokenizer_bytes", plan.tokenizer_bytes},
                             {"load_peak_bytes", plan.load_peak_bytes},
                             {"kv_bytes", plan.kv_bytes},
                             {"workspace_bytes", plan.workspace_bytes},
                             {"total_bytes", plan.total_bytes}};
    }
    std::printf("%s\n", json.dump(2).c_str());
    return;
  }
  std::printf("%s\n", Visible(options.model).c_str());
  std::printf("  architecture   %s\n", architecture.c_str());
  const bool billions = info.parameters >= 1000000000;
  std::printf("  parameters     %.2f %s\n",
              static_cast<double>(info.parameters) * (billions ? 1e-9 : 1e-6),
              billions ? "B" : "M");
  std::printf("  layers         %u of width %u (feed-forward %u)\n", info.layers, info.hidden_size,
              info.intermediate_size);
  std::printf("  attention      %u heads of %u, %u KV heads\n", info.heads, info.head_dim,
              info.kv_heads);
  std::printf("  vocabulary     %u, head %s\n", info.vocab_size,
              (info.flags & QINFER_MODEL_TIED_HEAD) != 0 ? "tied to the embedding" : "of its own");
  std::printf("  context        %u\n", info.max_context);
  std::printf("  tokenizer      %s\n", text_parts.contains("tokenizer") ? "yes" : "none");
  std::printf("  chat template  %s\n", text_parts["chat_template"] == true ? "yes" : "none");
  if (!by_type.empty())
    std::printf("\n  %-20s %8s %14s %12s\n", "tensors by type", "count", "elements", "bytes");
  for (const auto& [type, sum] : by_type) {
    std::printf("  %-20s %8u %14" PRIu64 " %12s\n", type.c_str(), sum.count, sum.elements,
                Bytes(sum.bytes).c_str());
  }
  if (planned &&
      (info.container == QINFER_CONTAINER_CONFIG || Number(report.get(), "experts.count") != 0)) {
    PrintPlans(report.get());
  }
  if (planned) {
    std::printf(
        "\n  memory plan    weights %s, mapped %s, tokenizer %s, KV cache %s, workspace %s\n",
        Bytes(plan.weight_bytes).c_str(), Bytes(plan.mapped_bytes).c_str(),
        Bytes(plan.tokenizer_bytes).c_str(), Bytes(plan.kv_bytes).c_str(),
        Bytes(plan.workspace_bytes).c_str());
    std::printf("                 peak while loading %s, in all %s\n",
                Bytes(plan.load_peak_bytes).c_str(), Bytes(plan.total_bytes).c_str());
  }
}

void RunConvert(const Options& options) {
  RequireName("--out", options.out);
  const Runtime runtime = MakeRuntime(options);
  const Model model = OpenModel(runtime.get(), options.model, options, QINFER_PARTS_HEADER);
  qinfer_target target = QINFER_TARGET_INIT;
  target.path = Str(options.out);
  std::optional<InterruptGuard> guard(InterruptGuard::Signals::kAll);  // while files come about
  qinfer_task* raw = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_convert_begin(model.get(), &target, &raw, &error), error, "cannot convert");
  const Task task(raw);
  Run(task.get(), "convert", options.json);
  guard.reset();
  const Report report = TakeReport(task.get());
  if (options.json) {
    std::printf("%s\n", Render(report.get(), QINFER_RENDER_JSON).c_str());
    return;
  }
  const size_t count = Count(report.get(), "tensors");
  constexpr size_t kNamed = 8;  // of what may be tens of thousands
  size_t exact = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::string at = "tensors[" + std::to_string(i) + "].";
    if (Text(report.get(), at + "import") == "exact") {
      ++exact;
    } else if (i - exact < kNamed) {
      std::printf("not lossless: %s, stored as %s\n",
                  Visible(Text(report.get(), at + "name")).c_str(),
                  Visible(Text(report.get(), at + "format")).c_str());
    }
  }
  if (count - exact > kNamed) {
    std::printf("and %zu more, which qinfer inspect lists\n", count - exact - kNamed);
  }
  if (Number(report.get(), "skipped.tensors") > 0) {
    std::printf("left out: %.0f tensors, %s\n", Number(report.get(), "skipped.tensors"),
                Text(report.get(), "skipped.why").c_str());
  }
  struct stat status = {};
  const uint64_t size =
      stat(options.out.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
  std::printf("%s: %s, %zu of %zu tensors without loss\n", Visible(options.out).c_str(),
              Bytes(size).c_str(), exact, count);
}

}  // namespace

void AddInspect(CLI::App* app) {
  auto info = std::make_shared<Options>();
  CLI::App* sub =
      app->add_subcommand("info", "What a model is, its tensors by type, and a memory plan");
  sub->add_option(
         "MODEL", info->model,
         "A folder, .safetensors, .gguf or .qinfer; a folder with config.json alone is enough, and "
         "so is a vocabulary alone")
      ->required();
  AddContext(sub, info.get(),
             "Tokens of KV cache to plan for (default: the model's context, up to 4096)");
  AddJson(sub, info.get());
  AddMachine(sub, info.get());
  AddLoad(sub, info.get());
  AddEngine(sub, info.get());
  AddDeterminism(sub, info.get());
  sub->callback([info] { RunInfo(*info); });

  auto inspect = std::make_shared<Options>();
  sub = app->add_subcommand(
      "inspect",
      "Every tensor: shape, format, whether its import is exact, and its checksum: XXH3-64 "
      "of its bytes as the file stores them, where a .qinfer states it or "
      "--verify has read them");
  sub->add_option("MODEL", inspect->model, kModelHelp)->required();
  sub->add_flag("--verify", inspect->verify,
                "Read and check all contents, and show every checksum");
  AddJson(sub, inspect.get());
  AddLoad(sub, inspect.get());
  sub->callback([inspect] { RunInspect(*inspect, inspect->model, inspect->verify); });

  auto convert = std::make_shared<Options>();
  sub = app->add_subcommand(
      "convert", "Repack a model as one .qinfer file, without loss where our formats allow");
  sub->add_option("MODEL", convert->model, kModelHelp)->required();
  sub->add_option("-o,--out", convert->out, "The .qinfer file to write")->required();
  AddJson(sub, convert.get());
  AddMachine(sub, convert.get());
  AddLoad(sub, convert.get());
  sub->callback([convert] { RunConvert(*convert); });
}

}  // namespace cli
