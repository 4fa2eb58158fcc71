// Sums of what lives at the same time, phase by phase.
#include "quant/memory_plan.h"

#include <algorithm>

#include "quant/drift.h"
#include "quant/group_work.h"
#include "quant/hidden_states.h"
#include "quant/histogram.h"
#include "quant/model_writer.h"
#include "quant/self_generate.h"
#include "quant/tensor_stream.h"

namespace qinfer::quant {
namespace {

constexpr uint64_t kComfortableHidden = 256ull << 20;
constexpr uint32_t kSlicePanels = 64, kLeastSlicePanels = Drift::kHeadBlock / kernels::kPanelRows;

class Planner {
 public:
  Planner(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
          const ResolvedRecipe& resolved, const QuantizeOptions& options,
          const std::shared_ptr<const SourceTokenizer>& tokenizer, const exec::Context& context)
      : checkpoint_(checkpoint),
        spec_(spec),
        resolved_(resolved),
        options_(options),
        tokenizer_(tokenizer),
        context_(context),
        data_(options.calibration == nullptr ? nullptr : &options.calibration->data()) {}

  StatusOr<WorkSizes> Plan() {
    QINFER_ASSIGN_OR_RETURN(layer_load_, exec::LargestLayerBytes(checkpoint_, spec_, context_));
    QINFER_ASSIGN_OR_RETURN(ends_, EndBytes(checkpoint_, spec_));
    const Memory& memory = *context_.memory;
    in_use_ = memory.used_bytes() + memory.mapped_bytes() - tokenizer_->bytes();
    QINFER_ASSIGN_OR_RETURN(
        documents_, Documents::MeasureBytes(checkpoint_, Share(tokenizer_), context_.memory));
    uint64_t limit = options_.memory_limit_bytes;
    if (memory.limit_bytes() != 0) {
      const uint64_t left = memory.limit_bytes() > in_use_ ? memory.limit_bytes() - in_use_ : 0;
      limit = limit == 0 ? left : std::min(limit, left);
    }
    FindSamples();
    if (self_generates()) {
      SelfGenerateOptions generate;
      generate.samples = options().samples + CalibrationData::kHeldOut;
      generate.sample_tokens = longest_;
      QINFER_ASSIGN_OR_RETURN(writing_, PlanSelfGenerateBytes(checkpoint_, spec_, generate,
                                                              Share(tokenizer_), context_));
    }
    const uint32_t all = static_cast<uint32_t>(samples_.size());
    WorkSizes least;
    QINFER_RETURN_IF_ERROR(UseWindow(may_window() ? 1 : 0));
    QINFER_ASSIGN_OR_RETURN(least, Sizes(std::min(all, 1u), kLeastSlicePanels, LongestHidden()));
    if (limit != 0 && least.plan.work_bytes > limit) {
      return BudgetError(
          StrCat("quantizing ", checkpoint_.name(), " needs at least ", least.plan.work_bytes,
                 " bytes beside the model's file (one layer, the states of one sample, workspaces, "
                 "and the "
                 "tokenizer while it is compiled); ",
                 limit, " are allowed by ",
                 options_.memory_limit_bytes != 0 ? "memory_limit_bytes" : "host_bytes_limit",
                 options_.evaluate ? "; without evaluation it needs less" : "",
                 self_generates() && least.plan.calibrate_bytes == least.plan.work_bytes
                     ? "; with a calibration made from a text the model need not be loaded to "
                       "write its own"
                     : ""));
    }
    QINFER_RETURN_IF_ERROR(FindWindow(limit));
    // Fewer samples to compare, thinner slices, more passes: in this order of what they cost.
    uint64_t hidden = std::min(AllHidden(), kComfortableHidden);
    uint32_t slice = kSlicePanels, samples = all;
    WorkSizes sizes;
    for (;;) {
      QINFER_ASSIGN_OR_RETURN(sizes, Sizes(samples, slice, hidden));
      if (limit == 0 || sizes.plan.work_bytes <= limit) break;
      const uint64_t most = sizes.plan.work_bytes;
      const bool more_passes = hidden > LongestHidden(), thinner = slice > kLeastSlicePanels;
      const bool fewer = samples > 1;
      if (more_passes && (sizes.plan.calibrate_bytes == most || (!thinner && !fewer))) {
        hidden = std::max(LongestHidden(), hidden / 2);
      } else if (thinner && (sizes.plan.head_bytes == most || !fewer)) {
        slice /= 2;
      } else if (fewer) {
        --samples;
      } else {
        break;
      }
    }
    sizes.plan.minimum_bytes = least.plan.work_bytes;
    return sizes;
  }

 private:
  // Where a calibration has no room for a whole layer its experts take turns. A model that writes
  // its samples is loaded as a whole anyway.
  bool may_window() const { return will_calibrate() && !self_generates(); }
  Status UseWindow(uint32_t experts) {
    expert_window_ = experts;
    QINFER_ASSIGN_OR_RETURN(calibrate_load_,
                            exec::LargestLayerBytes(checkpoint_, spec_, context_, experts));
    return OkStatus();
  }
  Status FindWindow(uint64_t limit) {
    QINFER_RETURN_IF_ERROR(UseWindow(0));
    if (limit == 0 || !may_window()) return OkStatus();
    for (const uint64_t hidden : {std::min(AllHidden(), kComfortableHidden), LongestHidden()}) {
      const uint64_t needed = CalibrateBytes(hidden);
      if (needed <= limit) return OkStatus();
      const uint64_t rest = needed - calibrate_load_;
      if (rest >= limit) continue;
      QINFER_ASSIGN_OR_RETURN(const uint32_t window,
                              exec::FindExpertWindow(checkpoint_, spec_, context_, limit - rest));
      if (window != UINT32_MAX) return UseWindow(window);
    }
    return UseWindow(1);
  }

  // As the work will have it: a calibration of its own is one that the model writes the samples of.
  bool will_calibrate() const {
    return data_ == nullptr ? options_.calibrate : data_->has_waiting();
  }
  bool self_generates() const {
    return data_ == nullptr ? options_.calibrate : data_->self_generates();
  }
  const CalibrationOptions& options() const {
    return data_ == nullptr ? options_.calibration_options : data_->options();
  }

  // Lengths of the samples that will be run, and of those that will be compared.
  void FindSamples() {
    longest_ = std::min(options().sample_tokens, std::max(2u, spec_.max_context));
    const auto length = [](const Sample& sample) {
      return static_cast<uint32_t>(sample.tokens.size());
    };
    if (data_ != nullptr) {
      for (const Sample& sample : data_->held_out()) samples_.push_back(length(sample));
    }
    if (self_generates()) {
      // Which of them end early is not known.
      run_.assign(options().samples, longest_);
      samples_.resize(CalibrationData::kHeldOut, longest_);
    } else if (will_calibrate()) {
      const CalibrationData::Choice choice = data_->Choose();
      for (size_t i : choice.run) run_.push_back(length(data_->waiting()[i]));
      for (size_t i : choice.held_out) samples_.push_back(length(data_->waiting()[i]));
      longest_ = 1;
      for (uint32_t tokens : run_) longest_ = std::max(longest_, tokens);
    }
    if (!options_.evaluate) samples_.clear();
  }
  uint64_t RowBytes() const { return uint64_t{spec_.hidden_size} * sizeof(float); }
  uint64_t LongestHidden() const { return longest_ * RowBytes(); }
  uint64_t AllHidden() const {
    uint64_t tokens = 0;
    for (uint32_t sample : run_) tokens += sample;
    return std::max(tokens * RowBytes(), LongestHidden());
  }

  uint64_t StatisticsBytes() const {
    if (!will_calibrate()) return 0;  // a given calibration is in use already
    uint64_t bytes = 0;
    for (const LinearInputKey& input : LinearInputs(spec_)) {
      bytes += uint64_t{input.cols} * sizeof(double) +
               ObserverBytes(ObserverFor(options().activations, input.part));
    }
    return bytes;
  }

  // Statistics come after the writing.
  uint64_t CalibrateBytes(uint64_t hidden) const {
    if (!will_calibrate()) return 0;
    exec::ForwardOptions forward;
    forward.max_batch_tokens = forward.max_position = longest_;
    forward.activations = exec::Activations::kFloat;
    const uint64_t scratch = uint64_t{std::min(16u, context_.executor->concurrency())} *
                             Histogram::kBins * sizeof(uint32_t);
    const uint64_t running = StatisticsBytes() + ends_ + calibrate_load_ + hidden + scratch +
                             exec::Forward::PlanLayerBytes(spec_, forward, context_);
    return tokenizer_->bytes() + std::max(writing_, running);
  }

  StatusOr<WorkSizes> Sizes(uint32_t samples, uint32_t slice, uint64_t hidden) const {
    WorkSizes sizes;
    sizes.evaluation_samples = samples;
    sizes.head_slice_panels = slice;
    sizes.calibration_hidden = hidden;
    sizes.expert_window = expert_window_;
    QuantizeMemoryPlan& plan = sizes.plan;
    uint64_t tokens = 0, scored = 0;
    uint32_t longest = 1;
    for (uint32_t i = 0; i < samples; ++i) {
      tokens += samples_[i];
      scored += samples_[i] == 0 ? 0 : samples_[i] - 1 - samples_[i] / 2;
      longest = std::max(longest, samples_[i]);
    }
    const bool evaluate = samples > 0;
    const uint64_t drift =
        evaluate ? Drift::PlanBytes(checkpoint_, spec_, tokens, longest, context_) : 0;
    const uint64_t always = StatisticsBytes() + (evaluate ? ends_ : 0);
    plan.document_bytes =
        std::max(tokenizer_->peak_bytes(), StatisticsBytes() + tokenizer_->bytes() + documents_);
    plan.calibrate_bytes = CalibrateBytes(hidden);
    for (const Group& group : MakeGroups(resolved_, static_cast<uint32_t>(spec_.layers.size()))) {
      QINFER_ASSIGN_OR_RETURN(const uint64_t bytes, GroupBytes(group, evaluate, slice));
      if (group.layer != UINT32_MAX) {
        const uint64_t replay = options_.resume ? kReplayBytes : 0;
        plan.layer_bytes =
            std::max({plan.layer_bytes, always + drift + bytes, always + drift + replay,
                      evaluate ? always + drift + layer_load_ : 0});
      } else {
        uint64_t head = always + drift + bytes;
        if (group.head && evaluate) {
          QINFER_ASSIGN_OR_RETURN(const uint64_t slices, SliceBytes(scored, slice));
          head += slices;
        }
        plan.head_bytes = std::max(plan.head_bytes, head);
      }
    }
    plan.work_bytes =
        std::max({plan.document_bytes, plan.calibrate_bytes, plan.layer_bytes, plan.head_bytes});
    plan.in_use_bytes = in_use_;
    plan.total_bytes = in_use_ + plan.work_bytes;
    return sizes;
  }

  // The streams of a group, one at a time, over what a layer keeps.
  StatusOr<uint64_t> GroupBytes(const Group& group, bool evaluate, uint32_t slice) const {
    uint64_t kept = 0, largest = 0;
    for (size_t i = group.begin; i < group.end; ++i) {
      const TensorPlan& plan = resolved_.tensors[i];
      const bool keep = evaluate && IsLayerMatrix(plan);
      const bool sliced = evaluate && plan.packed() && plan.use == TensorUse::kHead;
      QINFER_ASSIGN_OR_RETURN(
          const uint64_t stream,
          TensorStream::PlanBytes(checkpoint_, plan, keep, sliced ? slice : 0, context_));
      if (keep) kept += plan.bytes;
      largest = std::max(largest, kept + stream + SettingsBytes(plan));
    }
    if (group.layer == UINT32_MAX || !evaluate) return largest;
    return std::max(largest, kept + GroupWork::VectorBytes(spec_, group.layer));
  }

  // What says how a tensor is packed: the importance of its inputs, and an observer of its values.
  uint64_t SettingsBytes(const TensorPlan& plan) const {
    if (plan.action != TensorAction::kPack) return 0;
    uint64_t bytes = 0;
    if ((data_ != nullptr || options_.calibrate) &&
        (plan.use == TensorUse::kLinear || HeadPlan(resolved_) == &plan)) {
      const bool stack = plan.use == TensorUse::kLinear && model::IsExpertRole(plan.role) &&
                         plan.part == model::kNoPart;
      bytes += uint64_t{stack ? plan.parts : 1} * plan.cols * sizeof(float);
    }
    if (options().weights != ObserverKind::kMinMax) bytes += ObserverBytes(options().weights);
    return bytes;
  }

  // Beside the stream of an untied head: the reference's slices, and what scores them. A tied one
  // is packed again.
  StatusOr<uint64_t> SliceBytes(uint64_t scored, uint32_t slice) const {
    const TensorPlan* head = HeadPlan(resolved_);
    if (head == nullptr) return uint64_t{0};
    QINFER_ASSIGN_OR_RETURN(const TensorPlan reference, ReferencePlan(*head, checkpoint_));
    QINFER_ASSIGN_OR_RETURN(uint64_t bytes,
                            TensorPacker::PlanBytes(checkpoint_, reference, context_));
    const uint64_t panels =
        std::min<uint64_t>(slice, (head->rows + kernels::kPanelRows - 1) / kernels::kPanelRows);
    bytes += panels * reference.panel_bytes;
    bytes += Drift::HeadBytes(scored, std::min<uint64_t>(panels * kernels::kPanelRows, head->rows),
                              spec_.hidden_size, context_);
    if (head->use == TensorUse::kEmbedding) {
      bytes += SettingsBytes(*head);
      QINFER_ASSIGN_OR_RETURN(const uint64_t packer,
                              TensorPacker::PlanBytes(checkpoint_, *head, context_));
      bytes += packer + panels * head->panel_bytes;
    }
    return bytes;
  }

  const format::Checkpoint& checkpoint_;
  const model::ModelSpec& spec_;
  const ResolvedRecipe& resolved_;
  const QuantizeOptions& options_;
  const std::shared_ptr<const SourceTokenizer>& tokenizer_;
  const exec::Context& context_;
  const CalibrationData* data_;
  std::vector<uint32_t> run_, samples_;  // tokens of those to be run, and to be compared
  uint32_t longest_ = 2;                 // of those to be run
  uint32_t expert_window_ = 0;
  uint64_t calibrate_load_ = 0;  // the largest layer as a calibration loads it
  uint64_t layer_load_ = 0, documents_ = 0, ends_ = 0, writing_ = 0, in_use_ = 0;
};

}  // namespace

StatusOr<std::shared_ptr<const SourceTokenizer>> FindTokenizer(const format::Checkpoint& checkpoint,
                                                               const QuantizeOptions& options,
                                                               Memory* memory) {
  const CalibrationData* const data =
      options.calibration == nullptr ? nullptr : &options.calibration->data();
  // A file of ours has a compiled one, which is used and copied as it is.
  if (options.tokenizer != nullptr || checkpoint.qinfer() != nullptr) {
    if (data != nullptr) data->ReleaseTokenizer();
    return SourceTokenizer::Of(options.tokenizer);
  }
  if (data != nullptr && data->tokenizer() != nullptr) return data->tokenizer();
  return SourceTokenizer::Make(checkpoint, memory);
}

StatusOr<WorkSizes> PlanWork(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                             const ResolvedRecipe& resolved, const QuantizeOptions& options,
                             const std::shared_ptr<const SourceTokenizer>& tokenizer,
                             const exec::Context& context) {
  return Planner(checkpoint, spec, resolved, options, tokenizer, context).Plan();
}

StatusOr<QuantizeMemoryPlan> PlanQuantizeMemory(const format::Checkpoint& checkpoint,
                                                const QuantizeOptions& options,
                                                const exec::Context& context) {
  QINFER_RETURN_IF_ERROR(ValidateCalibrationOptions(options.calibration_options));
  QINFER_ASSIGN_OR_RETURN(const model::ModelSpec spec, model::SpecFromCheckpoint(checkpoint));
  QINFER_RETURN_IF_ERROR(model::ValidateSpec(spec));
  QINFER_RETURN_IF_ERROR(model::ValidateTensors(spec, checkpoint));
  QINFER_ASSIGN_OR_RETURN(const ResolvedRecipe resolved,
                          ResolveRecipe(spec, checkpoint, options.recipe));
  QINFER_ASSIGN_OR_RETURN(const std::shared_ptr<const SourceTokenizer> tokenizer,
                          FindTokenizer(checkpoint, options, context.memory));
  QINFER_ASSIGN_OR_RETURN(const WorkSizes sizes,
                          PlanWork(checkpoint, spec, resolved, options, tokenizer, context));
  return sizes.plan;
}

}  // namespace qinfer::quant
