// The one implementation of Calibration: samples waiting to be run, statistics per linear input,
// and held-out samples for evaluation. How samples are run is in calibration_run.cpp, the file in
// calibration_file.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "quant/moments.h"
#include "quant/observer.h"
#include "quant/quantize.h"
#include "quant/source_tokenizer.h"

namespace qinfer::quant {

// Statistics of one linear input. Role: q stands for q, k and v; gate for gate and up; head for the
// head.
struct InputStats {
  InputStats(uint32_t layer, model::LinearRole role, uint32_t part, uint32_t cols, Memory* memory)
      : layer(layer), role(role), part(part), moments(cols, memory) {}
  uint32_t layer;  // UINT32_MAX for the head
  model::LinearRole role;
  uint32_t part;  // the expert whose input it is; model::kNoPart for all others
  Moments moments;
  std::unique_ptr<Observer> observer;
};

// A window of one of the token streams.
struct Sample {
  std::vector<int32_t> tokens;
};

struct ModelKey {
  std::string architecture;
  uint32_t hidden_size = 0, vocab_size = 0, layers = 0;
  uint64_t shape = 0, weights = 0;  // fingerprints
};

struct Origin {
  uint64_t texts = 0, text_bytes = 0, token_lists = 0;
  uint64_t samples = 0, tokens = 0;  // that were run
  bool self_generated = false;
};

using StatsTable = std::vector<InputStats>;

// The input that feeds a linear weight of this role.
model::LinearRole InputOf(model::LinearRole role);
// Inputs of experts are many (two a layer and expert, 16 KiB a histogram), and activations into
// experts never get a fixed range: only their moments and extremes are kept, whatever is asked for.
inline ObserverKind ObserverFor(ObserverKind kind, uint32_t part) {
  return part == model::kNoPart ? kind : ObserverKind::kMinMax;
}
// Every linear input of a model, in order of execution, the head's last.
struct LinearInputKey {
  uint32_t layer;
  model::LinearRole role;
  uint32_t part, cols;
};
std::vector<LinearInputKey> LinearInputs(const model::ModelSpec& spec);
// The statistics of an input, which `table` keeps by layer; null if it has none.
template <typename Table>
auto* FindStats(Table& table, uint32_t layer, model::LinearRole role, uint32_t part) {
  auto it = std::lower_bound(table.begin(), table.end(), layer,
                             [](const InputStats& s, uint32_t l) { return s.layer < l; });
  for (; it != table.end() && it->layer == layer; ++it) {
    if (it->role == role && it->part == part) return &*it;
  }
  return static_cast<decltype(&*it)>(nullptr);
}

class CalibrationKeeper;

class CalibrationData final : public Calibration,
                              public std::enable_shared_from_this<CalibrationData> {
 public:
  // Held-out samples at most this many: enough for a stable KL, few enough to be quick.
  static constexpr uint32_t kHeldOut = 8;

  CalibrationData(std::shared_ptr<const format::Checkpoint> checkpoint, model::ModelSpec spec,
                  ModelKey key, const CalibrationOptions& options, const exec::Context& context);

  Status AddText(std::string_view text) override;
  Status AddTokens(absl::Span<const int32_t> tokens) override;
  Status UseSelfGenerated() override;
  StatusOr<std::unique_ptr<Work>> Run() override;
  Status Merge(const Calibration& other) override;
  Status Save(io::Sink* sink) const override;
  const CalibrationData& data() const override { return *this; }

  // Null where nothing was observed.
  const InputStats* Find(uint32_t layer, model::LinearRole role,
                         uint32_t part = model::kNoPart) const;
  const StatsTable& stats() const { return stats_; }
  const std::vector<Sample>& held_out() const { return held_out_; }
  const ModelKey& key() const { return key_; }
  const Origin& origin() const { return origin_; }
  const CalibrationOptions& options() const { return options_; }
  Range InputRange(const InputStats& stats) const;
  observe::Report Describe() const;

  // Empty statistics for every linear input of the model, in order of execution.
  StatusOr<StatsTable> NewStats() const;
  // Whether a run would have something to do, and whether the model writes (some of) it.
  bool has_waiting() const { return !waiting_.empty() || want_self_generated_; }
  bool self_generates() const { return want_self_generated_; }
  // What the next run will run and hold out, by index into what waits; chosen by seed.
  struct Choice {
    std::vector<size_t> run, held_out;
  };
  Choice Choose() const;
  const std::vector<Sample>& waiting() const { return waiting_; }
  // Of what waits; 0 = nothing.
  uint64_t WaitingHash() const;
  // For calibration_run.cpp: takes what waits.
  std::vector<Sample> TakeSamples();
  // In place of a run: what an earlier one of the same samples has left. False if it is of other
  // weights or options.
  bool TakeOver(CalibrationData&& finished);
  // What a run starts from, for putting it back when the run fails.
  struct Feed {
    std::vector<Sample> waiting, held_out;
    bool want_self_generated = false;
  };
  Feed SaveFeed() const { return {waiting_, held_out_, want_self_generated_}; }
  void RestoreFeed(Feed feed);
  void AddGenerated(std::vector<Sample> samples, std::vector<Sample> held_out);
  // Makes a finished run's statistics part of this object.
  Status Commit(StatsTable stats, uint64_t samples, uint64_t tokens, bool self_generated);
  void set_running(bool running) { running_ = running; }
  // Bytes of hidden states that the next run holds at once; 0 = what the context's limit leaves.
  void set_hidden_budget(uint64_t bytes) { hidden_budget_ = bytes; }
  uint64_t hidden_budget() const { return hidden_budget_; }
  // Experts that it holds at once, where a budget of hidden states is set; 0 = all of a layer.
  void set_expert_window(uint32_t experts) { expert_window_ = experts; }
  uint32_t expert_window() const { return expert_window_; }
  // Where the next run keeps how far it is, and finds how far another was; outlives that run.
  void set_keeper(CalibrationKeeper* keeper) { keeper_ = keeper; }
  CalibrationKeeper* keeper() const { return keeper_; }
  // What runs have not done again: samples that the model had written, and samples that were
  // through a layer or the head.
  struct Reused {
    uint64_t samples = 0, steps = 0;
  };
  Reused* mutable_reused() { return &reused_; }
  const Reused& reused() const { return reused_; }

  const model::ModelSpec& spec() const { return spec_; }
  const std::shared_ptr<const format::Checkpoint>& checkpoint() const { return checkpoint_; }
  const exec::Context& context() const { return context_; }
  // The one that texts were cut with, or that was given; null before either.
  const std::shared_ptr<const SourceTokenizer>& tokenizer() const { return tokenizer_; }
  void set_tokenizer(std::shared_ptr<const SourceTokenizer> tokenizer) const {
    tokenizer_ = std::move(tokenizer);
  }
  // Gives up one that was made here.
  void ReleaseTokenizer() const {
    if (tokenizer_ != nullptr && tokenizer_->bytes() != 0) tokenizer_.reset();
  }

 private:
  friend StatusOr<std::shared_ptr<Calibration>> LoadCalibration(
      std::string_view bytes, const std::string& name,
      std::shared_ptr<const format::Checkpoint> checkpoint, const exec::Context& context);

  void Cut(absl::Span<const int32_t> tokens, int32_t bos);

  std::shared_ptr<const format::Checkpoint> checkpoint_;
  model::ModelSpec spec_;
  ModelKey key_;
  CalibrationOptions options_;
  exec::Context context_;
  StatsTable stats_;
  std::vector<Sample> waiting_, held_out_;
  Origin origin_;
  bool want_self_generated_ = false, running_ = false;
  uint64_t hidden_budget_ = 0;
  uint32_t expert_window_ = 0;
  CalibrationKeeper* keeper_ = nullptr;
  Reused reused_;
  mutable std::shared_ptr<const SourceTokenizer> tokenizer_;  // kept for further texts
};

StatusOr<ModelKey> MakeModelKey(const format::Checkpoint& checkpoint, const model::ModelSpec& spec);
Status ValidateCalibrationOptions(const CalibrationOptions& options);
// From the bytes of a calibration file.
StatusOr<std::shared_ptr<Calibration>> LoadCalibration(
    std::string_view bytes, const std::string& name,
    std::shared_ptr<const format::Checkpoint> checkpoint, const exec::Context& context);
std::string CalibrationBytes(const CalibrationData& data);

}  // namespace qinfer::quant
