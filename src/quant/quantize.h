// Calibration and quantization: what observers gather, which recipe says what becomes of each
// tensor, and the Work that streams a checkpoint layer by layer into a .qinfer file. Methods
// (round-to-nearest today) are one file each; later ones plug in as Method.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/work.h"
#include "exec/forward.h"
#include "exec/model.h"
#include "format/checkpoint.h"
#include "io/source.h"
#include "observe/report.h"
#include "weights/format.h"

namespace qinfer::quant {

enum class ObserverKind : uint8_t { kMinMax, kHistogram, kEma };
enum class RangeMethod : uint8_t {
  kMinMax,
  kPercentile,
  kMse,
  kKl
};  // how a histogram becomes a range

struct CalibrationOptions {
  uint32_t samples = 128, sample_tokens = 512;
  uint64_t seed = 0;
  ObserverKind activations = ObserverKind::kHistogram;
  ObserverKind weights = ObserverKind::kMinMax;
  RangeMethod range = RangeMethod::kMse;
  double ema_alpha = 0.95;
  double percentile = 99.99;
};

class CalibrationData;

// Activation statistics of a model on texts, per linear input: second moments per channel, ranges,
// histograms, token counts. Savable, mergeable.
class Calibration {
 public:
  virtual ~Calibration() = default;
  // `tokenizer`: the checkpoint's own, which somebody keeps; null = made where texts come.
  static StatusOr<std::shared_ptr<Calibration>> Create(
      std::shared_ptr<const format::Checkpoint> checkpoint, const CalibrationOptions& options,
      const exec::Context& context,
      std::shared_ptr<const tokenizer::Tokenizer> tokenizer = nullptr);
  // Texts are cut into samples; both kinds of input may be fed repeatedly before or between runs.
  virtual Status AddText(std::string_view text) = 0;
  virtual Status AddTokens(absl::Span<const int32_t> tokens) = 0;
  // Without any text: samples that the model writes itself (temperature 1, from BOS, seeded). The
  // report says so.
  virtual Status UseSelfGenerated() = 0;
  // Runs the samples through the model, one layer at a time under the memory limit of the context.
  virtual StatusOr<std::unique_ptr<Work>> Run() = 0;
  virtual Status Merge(const Calibration& other) = 0;  // MisuseError if the models differ
  virtual Status Save(io::Sink* sink) const = 0;       // versioned, checksummed
  static StatusOr<std::shared_ptr<Calibration>> Load(
      const std::shared_ptr<io::Source>& source,
      std::shared_ptr<const format::Checkpoint> checkpoint, const exec::Context& context);
  // What is inside (quant/calibration_data.h), for quantization itself.
  virtual const CalibrationData& data() const = 0;
};

struct Override {
  std::string pattern;  // of tensor names: * and ? wildcards; the last match wins
  std::string format;   // weights::ParseFormat, or "keep"
};
struct Recipe {
  std::string method = "rtn";
  // Of linear weights.
  weights::Format linear = {kernels::WeightKind::kInt4, kernels::ScaleKind::kF16, false, 32};
  std::string embedding = "keep";  // f16, bf16, int8 or keep (keep = source type where it is float)
  std::string
      head;  // empty = as linear where untied; a tied head shares the embedding unless this is set
  bool search_scales = true;
  bool static_activations = false;  // scales of INT8 activations are fixed by calibration
  std::vector<Override> overrides;
};

struct QuantizeOptions {
  Recipe recipe;
  CalibrationOptions calibration_options;
  std::shared_ptr<Calibration>
      calibration;  // null: self-generated samples, or none where `calibrate` is false
  bool calibrate = true;
  // Of what the work itself allocates (maps of the source and what is in use before are not
  // counted); 0 = what the context's limit leaves. Pieces shrink to fit; BudgetError up front, with
  // the least that would do, where they cannot.
  uint64_t memory_limit_bytes = 0;
  bool resume = false;             // keep and use OUT.partial/
  std::string output_path;         // or sink
  std::unique_ptr<io::Sink> sink;  // without a path: no resume
  // The checkpoint's own, which somebody keeps (a loaded model); null = that of the calibration, or
  // made once and kept until it is written.
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  // How often a calibration keeps how far it is, beside output_path; 0 = after every sample and
  // layer, for tests.
  uint64_t calibration_keep_interval_ns = 30'000'000'000;
  bool evaluate = true;  // end-to-end perplexity and KL on held-out samples of the calibration text
};

// What a quantization takes at most, from headers alone. Actual peak <= total <= 1.1 x actual peak,
// where the calibration's texts are known.
struct QuantizeMemoryPlan {
  uint64_t in_use_bytes = 0;     // allocated and mapped when planned: the opened checkpoint
  uint64_t document_bytes = 0;   // making the tokenizer, and writing it and other documents
  uint64_t calibrate_bytes = 0;  // running a calibration: one layer and hidden states
  uint64_t layer_bytes = 0;      // quantizing and comparing a layer
  uint64_t head_bytes = 0;       // embedding and head, in slices
  uint64_t work_bytes = 0;       // the largest of these, with what lives all the time
  uint64_t minimum_bytes = 0;    // the same with the smallest pieces: what a limit must allow
  uint64_t total_bytes = 0;      // in use and work
};
StatusOr<QuantizeMemoryPlan> PlanQuantizeMemory(const format::Checkpoint& checkpoint,
                                                const QuantizeOptions& options,
                                                const exec::Context& context);

class QuantizeWork : public Work {
 public:
  static StatusOr<std::unique_ptr<QuantizeWork>> Create(
      std::shared_ptr<const format::Checkpoint> checkpoint, QuantizeOptions options,
      const exec::Context& context);
  virtual observe::Report TakeReport() = 0;
};

// Lossless repacking of any checkpoint into .qinfer; the report says per tensor whether it was
// exact.
class ConvertWork : public Work {
 public:
  // `tokenizer`: the checkpoint's own, which somebody keeps; null = made.
  static StatusOr<std::unique_ptr<ConvertWork>> Create(
      std::shared_ptr<const format::Checkpoint> checkpoint, std::unique_ptr<io::Sink> sink,
      const exec::Context& context,
      std::shared_ptr<const tokenizer::Tokenizer> tokenizer = nullptr);
  virtual observe::Report TakeReport() = 0;
};

// The report of a quantization as a table for a terminal, and as one self-contained HTML page with
// plots.
std::string ReportTable(const observe::Report& report);
std::string ReportHtml(const observe::Report& report);

}  // namespace qinfer::quant
