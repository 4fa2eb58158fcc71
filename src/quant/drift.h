// Held-out samples on their way through two models at once, layer by layer: the source in floating
// point and the quantized one as it will run. Says how far the hidden states have drifted after
// each layer, and at the end what that means for the predictions: perplexity, KL divergence, same
// top token. Never holds more than one layer or a slice of the head.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "exec/forward.h"
#include "exec/model.h"
#include "quant/calibration_data.h"
#include "quant/metrics.h"
#include "quant/recipe.h"

namespace qinfer::quant {

class Drift {
 public:
  // Bytes that Create takes from Memory for so many tokens, the longest sample being `longest`.
  static uint64_t PlanBytes(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                            uint64_t tokens, uint32_t longest, const exec::Context& context);
  // `samples` are not empty. Everything given outlives the object.
  static StatusOr<std::unique_ptr<Drift>> Create(
      std::shared_ptr<const format::Checkpoint> checkpoint, const model::ModelSpec& spec,
      std::vector<Sample> samples, const exec::Context& context);

  // --- The embedding: the reference reads the source; panels of the packed one come by.
  Status EmbedReference(size_t sample);
  Status EmbedPanels(const weights::Format& format, uint64_t rows, uint32_t begin, uint32_t end,
                     absl::Span<const uint8_t> panels);

  // --- A layer on one sample: the same call until it is true.
  size_t samples() const { return samples_.size(); }
  StatusOr<bool> RunReference(const exec::LayerWeights& weights, uint32_t layer, size_t sample,
                              const Deadline& deadline);
  StatusOr<bool> RunQuantized(const exec::LayerWeights& weights, uint32_t layer, size_t sample,
                              const Deadline& deadline);
  // Compares the two a piece at a time: true when `sums` holds all of them.
  bool StepCompare(ErrorSums* sums);

  // --- The head: its inputs, sample by sample; then slices of rows, in order, of both heads. The
  // same slice until it is true.
  Status BeginHead();
  Status HeadInputs(size_t sample);
  StatusOr<bool> HeadSlice(const exec::Linear& reference, const exec::Linear& quantized,
                           uint64_t first_row, const Deadline& deadline);
  // reference_perplexity, perplexity, kl_mean, kl_median, kl_p99, kl_p999, kl_max, top1, tokens.
  Status FinishHead(observe::Report* report) const;
  static uint64_t HeadBytes(uint64_t rows_scored, uint64_t slice_rows, uint32_t hidden_size,
                            const exec::Context& context);
  uint64_t scored() const { return targets_.size(); }
  // Rows of the head that one slice has: a multiple of kHeadBlock but for the last.
  static constexpr uint32_t kHeadBlock = 256;

  // The hidden states as bytes, for a resumed run.
  absl::Span<const uint8_t> State() const;
  Status SetState(std::string_view bytes);

 private:
  // Running sums of one scored position over the vocabulary.
  struct Row {
    double max = 0, sum = 0, weighted = 0;  // reference: sum e^(a-max), sum e^(a-max) (a-b)
    double other_max = 0, other_sum = 0;    // quantized
    float best = 0, other_best = 0;
    uint32_t best_id = 0, other_best_id = 0;
    float target = 0, other_target = 0;
    bool started = false;
  };

  enum class SlicePhase : uint8_t { kReference, kQuantized, kScore };

  Drift() = default;
  StatusOr<bool> StepLayer(exec::Forward* forward, const exec::LayerWeights& weights,
                           uint32_t layer, size_t first_row, size_t sample,
                           const Deadline& deadline);
  Status PrepareSlice(uint32_t rows);
  bool Multiply(const exec::Linear& linear, const float* x, uint32_t count, float* out,
                const Deadline& deadline);
  void ScoreRow(float* a, float* b, uint64_t first_row, uint32_t rows, int32_t target,
                float* powers, Row* row) const;
  double Power(double x) const;

  std::shared_ptr<const format::Checkpoint> checkpoint_;
  const model::ModelSpec* spec_ = nullptr;
  exec::Context context_;
  std::vector<Sample> samples_;
  std::vector<size_t> begins_;  // first token of each sample
  size_t tokens_ = 0;
  Buffer hidden_;  // reference [tokens][hidden], then quantized
  std::unique_ptr<exec::Forward> forward_, reference_forward_;
  std::vector<int32_t> targets_;
  Buffer head_inputs_, head_logits_, head_scratch_;
  uint64_t slice_rows_ = 0;
  bool layer_begun_ = false;
  size_t compared_ = 0;  // tokens
  // Where the slice at hand has got to: a tile of targets, and units of its phase.
  SlicePhase slice_phase_ = SlicePhase::kReference;
  size_t slice_first_ = 0;
  uint32_t slice_next_ = 0;
  std::vector<Row> rows_;
};

// Whether every linear weight of the source is a float type: then one forward pass serves both.
bool AllFloat(const format::Checkpoint& checkpoint, const model::ModelSpec& spec);

}  // namespace qinfer::quant
