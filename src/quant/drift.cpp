// Hidden states of two models side by side: embedding, layers, comparison, and their state as
// bytes. The head is in drift_head.cpp.
#include "quant/drift.h"

#include <algorithm>
#include <cstring>

#include "exec/fp_mode.h"
#include "quant/hidden_states.h"

namespace qinfer::quant {
namespace {

exec::ForwardOptions ForwardOptionsFor(uint32_t longest, exec::Activations activations) {
  exec::ForwardOptions options;
  options.max_batch_tokens = longest;
  options.max_position = longest;
  options.activations = activations;
  return options;
}

}  // namespace

bool AllFloat(const format::Checkpoint& checkpoint, const model::ModelSpec& spec) {
  for (const model::LinearUse& use : model::LinearUses(spec)) {
    const format::TensorInfo* info = checkpoint.Find(use.weight.name);
    if (info == nullptr ||
        (info->dtype != DType::kF32 && info->dtype != DType::kF16 && info->dtype != DType::kBF16)) {
      return false;
    }
  }
  return true;
}

uint64_t Drift::PlanBytes(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                          uint64_t tokens, uint32_t longest, const exec::Context& context) {
  uint64_t bytes = tokens * spec.hidden_size * 2 * sizeof(float);
  bytes += exec::Forward::PlanLayerBytes(spec, ForwardOptionsFor(longest, exec::Activations::kAuto),
                                         context);
  if (!AllFloat(checkpoint, spec)) {
    bytes += exec::Forward::PlanLayerBytes(
        spec, ForwardOptionsFor(longest, exec::Activations::kFloat), context);
  }
  return bytes;
}

StatusOr<std::unique_ptr<Drift>> Drift::Create(std::shared_ptr<const format::Checkpoint> checkpoint,
                                               const model::ModelSpec& spec,
                                               std::vector<Sample> samples,
                                               const exec::Context& context) {
  auto drift = std::unique_ptr<Drift>(new Drift());
  drift->checkpoint_ = std::move(checkpoint);
  drift->spec_ = &spec;
  drift->context_ = context;
  drift->samples_ = std::move(samples);
  uint32_t longest = 1;
  for (const Sample& sample : drift->samples_) {
    drift->begins_.push_back(drift->tokens_);
    drift->tokens_ += sample.tokens.size();
    longest = std::max(longest, static_cast<uint32_t>(sample.tokens.size()));
  }
  QINFER_ASSIGN_OR_RETURN(drift->forward_,
                          exec::Forward::CreateForLayers(
                              spec, context, ForwardOptionsFor(longest, exec::Activations::kAuto),
                              *drift->checkpoint_));
  if (!AllFloat(*drift->checkpoint_, spec)) {
    QINFER_ASSIGN_OR_RETURN(
        drift->reference_forward_,
        exec::Forward::CreateForLayers(spec, context,
                                       ForwardOptionsFor(longest, exec::Activations::kFloat),
                                       *drift->checkpoint_));
  }
  QINFER_ASSIGN_OR_RETURN(
      drift->hidden_,
      Buffer::Create(context.memory, drift->tokens_ * spec.hidden_size * 2 * sizeof(float),
                     "hidden states of held-out samples"));
  std::memset(drift->hidden_.data(), 0, drift->hidden_.size());
  return drift;
}

Status Drift::EmbedReference(size_t sample) {
  return EmbedFromSource(*checkpoint_, *spec_, samples_[sample].tokens, context_,
                         hidden_.as<float>() + begins_[sample] * spec_->hidden_size);
}

Status Drift::EmbedPanels(const weights::Format& format, uint64_t rows, uint32_t begin,
                          uint32_t end, absl::Span<const uint8_t> panels) {
  const exec::ScopedFpMode mode;
  const uint64_t first = uint64_t{begin} * kernels::kPanelRows;
  const uint64_t last = std::min<uint64_t>(rows, uint64_t{end} * kernels::kPanelRows);
  const uint32_t n = spec_->hidden_size;
  QINFER_ASSIGN_OR_RETURN(const kernels::Matrix matrix,
                          weights::View(format, last - first, n, panels, spec_->embedding.name));
  float* quantized = hidden_.as<float>() + tokens_ * n;
  for (size_t s = 0; s < samples_.size(); ++s) {
    for (size_t t = 0; t < samples_[s].tokens.size(); ++t) {
      const uint64_t id = static_cast<uint64_t>(samples_[s].tokens[t]);
      if (id < first || id >= last) continue;
      float* out = quantized + (begins_[s] + t) * n;
      context_.kernels->decode_row(matrix, static_cast<uint32_t>(id - first), out);
      if (spec_->embedding_scale != 1.0f) {
        context_.kernels->scale(out, spec_->embedding_scale, n);
      }
    }
  }
  return OkStatus();
}

StatusOr<bool> Drift::StepLayer(exec::Forward* forward, const exec::LayerWeights& weights,
                                uint32_t layer, size_t first_row, size_t sample,
                                const Deadline& deadline) {
  if (!layer_begun_) {
    const uint32_t length = static_cast<uint32_t>(samples_[sample].tokens.size());
    QINFER_RETURN_IF_ERROR(forward->BeginLayer(
        weights, layer, {&length, 1},
        hidden_.as<float>() + (first_row + begins_[sample]) * spec_->hidden_size));
    layer_begun_ = true;
  }
  StatusOr<bool> done = forward->StepLayer(nullptr, deadline);
  if (!done.ok() || *done) layer_begun_ = false;
  return done;
}

StatusOr<bool> Drift::RunReference(const exec::LayerWeights& weights, uint32_t layer, size_t sample,
                                   const Deadline& deadline) {
  exec::Forward* forward =
      reference_forward_ != nullptr ? reference_forward_.get() : forward_.get();
  return StepLayer(forward, weights, layer, 0, sample, deadline);
}

StatusOr<bool> Drift::RunQuantized(const exec::LayerWeights& weights, uint32_t layer, size_t sample,
                                   const Deadline& deadline) {
  return StepLayer(forward_.get(), weights, layer, tokens_, sample, deadline);
}

// Sums are added row by row, so that they are the same however the rows are cut.
bool Drift::StepCompare(ErrorSums* sums) {
  constexpr size_t kUnitValues = 32 << 10;  // on each thread: about 0.1 ms
  const uint32_t n = spec_->hidden_size;
  const size_t rows = std::clamp<size_t>(kUnitValues * context_.executor->concurrency() / n, 1,
                                         tokens_ - compared_);
  if (compared_ == 0) *sums = ErrorSums();
  const float* reference = hidden_.as<const float>() + compared_ * n;
  AddRows(reference, reference + tokens_ * n, rows, n, n, context_.executor, sums);
  compared_ += rows;
  if (compared_ < tokens_) return false;
  compared_ = 0;
  return true;
}

absl::Span<const uint8_t> Drift::State() const {
  return absl::MakeConstSpan(hidden_.as<const uint8_t>(), hidden_.size());
}

Status Drift::SetState(std::string_view bytes) {
  if (bytes.size() != hidden_.size()) {
    return FormatError(StrCat("saved hidden states have ", bytes.size(), " bytes; ", hidden_.size(),
                              " are expected"));
  }
  std::memcpy(hidden_.data(), bytes.data(), bytes.size());
  return OkStatus();
}

}  // namespace qinfer::quant
