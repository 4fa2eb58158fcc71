// qinfer quantize: calibrate, quantize, write one file, and report what it cost.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "common.h"

namespace cli {
namespace {

struct Options : Common {
  std::string model, out, scheme = "int4", group_size = "32", method = "rtn", embedding, head;
  std::string calibration, save_calibration, memory_limit, report, html;
  std::vector<std::string> set;
  uint32_t samples = 0;
  uint64_t seed = 0;
  bool asymmetric = false, resume = false, no_search = false, no_calibration = false,
       no_evaluation = false, static_activations = false;
};

using Out = std::unique_ptr<OutFile>;

Out Open(const std::string& path) {
  return path.empty() ? nullptr : std::make_unique<OutFile>(path);
}

void Finish(const Out& out, const std::string& text) {
  out->Write(text.data(), text.size());
  out->Commit();
}

// Whether the size of groups is still open: floats have none, full names (int4-g32-f16) say it.
bool HasGroups(const std::string& scheme) {
  return scheme != "f16" && scheme != "bf16" && scheme != "f32" &&
         scheme.find('-') == std::string::npos;
}

uint32_t GroupSize(const std::string& text) {
  if (text == "row") return QINFER_GROUP_ROW;
  return static_cast<uint32_t>(std::stoul(text));
}

bool IsCalibrationFile(const std::string& path) {
  constexpr std::string_view kMagic = "QINFCAL\n";  // docs/quantization.md
  std::ifstream in(path, std::ios::binary);
  char begin[8] = {};
  in.read(begin, sizeof(begin));
  return in && std::string_view(begin, sizeof(begin)) == kMagic;
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// Statistics of an earlier run, or samples that the quantization will run: so that its limit, its
// state on disk and its progress are theirs too. Null where it does all of that by itself.
Calibration MakeCalibration(qinfer_model* model, const Options& options,
                            const qinfer_calibration_options& calibration) {
  if (options.calibration.empty() && options.save_calibration.empty()) return nullptr;
  RefusePipe("--calibration", options.calibration);
  qinfer_calibration* raw = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  if (options.calibration != "-" && IsCalibrationFile(options.calibration)) {
    qinfer_source source = QINFER_SOURCE_INIT;
    source.path = Str(options.calibration);
    Check(qinfer_calibration_load(model, &source, &raw, &error), error, "calibration");
    return Calibration(raw);
  }
  Check(qinfer_calibration_create(model, &calibration, &raw, &error), error, "calibration");
  Calibration handle(raw);
  if (options.calibration.empty()) {
    Check(qinfer_calibration_self_generate(raw, &error), error, "calibration");
    return handle;
  }
  const std::string text = ReadFile(options.calibration);
  if (text.empty()) throw Error(options.calibration + " is empty: --calibration needs a text");
  Check(qinfer_calibration_add_text(raw, text.data(), text.size(), &error), error,
        options.calibration.c_str());
  return handle;
}

void RunQuantize(const Options& options) {
  RequireName("--out", options.out);
  RefuseOverlap({{"--out", options.out},
                 {"--report", options.report},
                 {"--html", options.html},
                 {"--save-calibration", options.save_calibration}},
                {{"MODEL", options.model}, {"--calibration", options.calibration}});
  if (IsFolder(options.save_calibration)) {
    throw Error("cannot write " + options.save_calibration +
                ": it is a folder; name a file inside it");
  }
  const Out report_out = Open(options.report), html_out = Open(options.html);
  const uint64_t limit = options.memory_limit.empty() ? 0 : ParseBytes(options.memory_limit);
  const Runtime runtime = MakeRuntime(options);
  const Model model = OpenModel(runtime.get(), options.model, options, QINFER_PARTS_HEADER);
  qinfer_calibration_options calibration_options = QINFER_CALIBRATION_OPTIONS_INIT;
  calibration_options.samples = options.samples;
  calibration_options.seed = options.seed;
  const Calibration calibration = MakeCalibration(model.get(), options, calibration_options);

  qinfer_quantize_options quantize = QINFER_QUANTIZE_OPTIONS_INIT;
  quantize.scheme = Str(options.scheme);
  quantize.method = Str(options.method);
  quantize.embedding = Str(options.embedding);
  quantize.head = Str(options.head);
  quantize.group_size = HasGroups(options.scheme) ? GroupSize(options.group_size) : 0;
  if (options.asymmetric) quantize.flags |= QINFER_QUANTIZE_ASYMMETRIC;
  if (options.resume) quantize.flags |= QINFER_QUANTIZE_RESUME;
  if (options.no_search) quantize.flags |= QINFER_QUANTIZE_NO_SEARCH;
  if (options.no_calibration) quantize.flags |= QINFER_QUANTIZE_NO_CALIBRATION;
  if (options.no_evaluation) quantize.flags |= QINFER_QUANTIZE_NO_EVALUATION;
  if (options.static_activations) quantize.flags |= QINFER_QUANTIZE_STATIC_ACTIVATIONS;
  std::vector<qinfer_override> overrides;
  for (const std::string& item : options.set) {
    const size_t equals = item.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == item.size()) {
      throw Error(
          "--set '" + item + "': write PATTERN=FORMAT, for example --set '*.down_proj.weight=int8'",
          2);
    }
    overrides.push_back({Str(std::string_view(item).substr(0, equals)),
                         Str(std::string_view(item).substr(equals + 1))});
  }
  quantize.overrides = overrides.data();
  quantize.override_count = overrides.size();
  quantize.calibration = calibration.get();
  quantize.calibration_options = calibration == nullptr ? &calibration_options : nullptr;
  quantize.memory_limit_bytes = limit;
  qinfer_target target = QINFER_TARGET_INIT;
  target.path = Str(options.out);
  std::optional<InterruptGuard> guard(InterruptGuard::Signals::kAll);  // while files come about
  qinfer_task* raw = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_quantize_begin(model.get(), &quantize, &target, &raw, &error), error,
        "cannot quantize");
  const Task task(raw);
  Run(task.get(), "quantize", options.json);
  if (!options.save_calibration.empty()) {
    qinfer_target file = QINFER_TARGET_INIT;
    file.path = Str(options.save_calibration);
    Check(qinfer_calibration_save(calibration.get(), &file, &error), error,
          "cannot save the calibration");
  }
  InterruptGuard::ThrowIfSeen("quantize");
  const Report report = TakeReport(task.get());
  if (report_out != nullptr) Finish(report_out, Render(report.get(), QINFER_RENDER_JSON) + "\n");
  if (html_out != nullptr) Finish(html_out, Render(report.get(), QINFER_RENDER_HTML));
  guard.reset();
  std::printf("%s\n", options.json
                          ? Render(report.get(), QINFER_RENDER_JSON).c_str()
                          : VisibleLines(Render(report.get(), QINFER_RENDER_TABLE)).c_str());
}

}  // namespace

void AddQuantize(CLI::App* app) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app->add_subcommand(
      "quantize", "Quantize a model into one .qinfer file, and say what it cost");
  sub->add_option("MODEL", options->model, kModelHelp)->required();
  sub->add_option("-o,--out", options->out, "The .qinfer file to write")->required();
  sub->add_option("--scheme", options->scheme,
                  "int4, int6, int8, fp4 (MXFP4), f16, bf16, or a full format name")
      ->capture_default_str();
  CLI::Option* group =
      sub->add_option("--group-size", options->group_size, "Weights per scale: 32, 64, 128 or row");
  group->check(CLI::IsMember({"32", "64", "128", "row"}))->capture_default_str();
  sub->add_flag("--asymmetric", options->asymmetric, "A minimum beside each scale");
  sub->add_option("--method", options->method, "rtn: round to nearest")
      ->check(CLI::IsMember({"rtn"}))
      ->capture_default_str();
  sub->add_option("--embedding", options->embedding, "Embedding: keep, f16, bf16, int8");
  sub->add_option("--head", options->head, "Output head: a format, or keep");
  sub->add_option("--set", options->set,
                  "PATTERN=FORMAT for tensors by name; may be repeated, the last match wins");
  CLI::Option* calibration =
      sub->add_option("--calibration", options->calibration,
                      "A text, or what --save-calibration wrote; without it the model writes its "
                      "own samples");
  CLI::Option* save = sub->add_option("--save-calibration", options->save_calibration,
                                      "Keep the statistics in this file, for --calibration");
  sub->add_option("--samples", options->samples, "Samples of 512 tokens (default 128)")
      ->transform(Whole<uint32_t>());
  sub->add_option("--seed", options->seed, "Which samples are drawn")
      ->transform(Whole<uint64_t>())
      ->capture_default_str();
  sub->add_option("--memory-limit", options->memory_limit,
                  "Peak memory beside the model's file, for example 2GiB; calibration included");
  sub->add_flag("--resume", options->resume,
                "Keep the calibration and finished layers in OUT.partial/ and go on from them");
  sub->add_flag("--no-search", options->no_search, "Scales from the extremes");
  CLI::Option* none =
      sub->add_flag("--no-calibration", options->no_calibration, "Treat all inputs alike")
          ->excludes(calibration)
          ->excludes(save);
  sub->add_flag("--no-evaluation", options->no_evaluation,
                "No perplexity and divergence at the end");
  sub->add_flag("--static-activations", options->static_activations,
                "Scales of INT8 activations fixed by calibration")
      ->excludes(none);
  sub->add_option("--report", options->report, "Write the report as JSON");
  sub->add_option("--html", options->html, "Write the report as one HTML page");
  AddJson(sub, options.get());
  AddMachine(sub, options.get());
  AddLoad(sub, options.get());
  sub->callback([options, group] {
    if (group->count() != 0 && !HasGroups(options->scheme)) {
      throw Error("--group-size means nothing with --scheme " + options->scheme, 2);
    }
    RunQuantize(*options);
  });
}

}  // namespace cli
