// qinfer perplexity: what a model is worth.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "common.h"

namespace cli {
namespace {

struct PerplexityOptions : Common {
  std::string model, file, reference, logits_out;
  uint32_t max_windows = 0;
};

// Scored rows as a NumPy file of float32 [rows][vocabulary]; the number of rows is filled in at the
// end.
class NpyWriter {
 public:
  explicit NpyWriter(const std::string& path) : out_(path, OutFile::Kind::kSeekable) {}
  bool Append(const float* row, uint32_t vocabulary) {
    vocabulary_ = vocabulary;
    if (rows_++ == 0) WriteHeader();  // its size stays
    return out_.Write(row, size_t{vocabulary} * sizeof(float));
  }
  void Finish() {
    WriteHeader();
    out_.Commit();
  }
  bool failed() const { return out_.failed(); }

 private:
  void WriteHeader() {
    const std::string header = Header();
    out_.WriteAt(0, header.data(), header.size());
  }
  std::string Header() const {
    std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(rows_) + ", " + std::to_string(vocabulary_) + "), }";
    text.resize(117, ' ');
    const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    return std::string(magic, sizeof(magic)) + text + '\n';
  }
  OutFile out_;
  uint64_t rows_ = 0;
  uint32_t vocabulary_ = 0;
};

qinfer_status KeepRow(void* user, const float* row, uint32_t vocabulary) {
  return static_cast<NpyWriter*>(user)->Append(row, vocabulary) ? QINFER_OK : QINFER_E_IO;
}

void RunPerplexity(const PerplexityOptions& options) {
  RefuseOverlap(
      {{"--logits-out", options.logits_out}},
      {{"MODEL", options.model}, {"--reference", options.reference}, {"--file", options.file}});
  std::unique_ptr<NpyWriter> writer;
  if (!options.logits_out.empty()) writer = std::make_unique<NpyWriter>(options.logits_out);
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
  if (writer != nullptr) {
    perplexity.logits = KeepRow;
    perplexity.logits_user = writer.get();
  }
  std::optional<InterruptGuard> guard(InterruptGuard::Signals::kAll);  // while files come about
  qinfer_task* raw = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  const qinfer_status begun =
      qinfer_perplexity_begin(model.get(), tokens.data(), tokens.size(), &perplexity, &raw, &error);
  error.detail = 0;  // a text that is too short is no fault of the command line
  Check(begun, error, "cannot measure perplexity");
  const Task task(raw);
  try {
    Run(task.get(), "perplexity", options.json);
  } catch (const Error&) {
    if (writer != nullptr && writer->failed()) writer->Finish();  // says why
    throw;
  }
  const Report report = TakeReport(task.get());
  if (writer != nullptr) writer->Finish();
  guard.reset();
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

}  // namespace

void AddPerplexity(CLI::App* app) {
  auto perplexity = std::make_shared<PerplexityOptions>();
  perplexity->context = 512;
  CLI::App* sub = app->add_subcommand(
      "perplexity", "Perplexity on a text, and divergence from a reference model");
  sub->add_option("MODEL", perplexity->model, kModelHelp)->required();
  sub->add_option("--file", perplexity->file, "The text; - for standard input")->required();
  sub->add_option("--context", perplexity->context,
                  "Tokens per window; the second half of each is scored")
      ->check(CLI::Range(4, 1 << 24))
      ->capture_default_str();
  sub->add_option("--max-windows", perplexity->max_windows, "Only the first windows")
      ->transform(Whole<uint32_t>());
  sub->add_option("--reference", perplexity->reference,
                  "The unquantized model: adds KL divergence and top-1 agreement");
  sub->add_option("--logits-out", perplexity->logits_out, "Write the scored logits as a .npy file");
  AddJson(sub, perplexity.get());
  AddMachine(sub, perplexity.get());
  AddLoad(sub, perplexity.get());
  AddEngine(sub, perplexity.get());
  sub->callback([perplexity] { RunPerplexity(*perplexity); });
}

}  // namespace cli
