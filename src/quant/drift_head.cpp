// What the drift of the hidden states means for predictions: slices of both heads are multiplied
// and folded into running sums per scored position, from which perplexity, KL divergence and the
// agreement of top tokens follow. Windows are scored as evaluate::PerplexityWork does: the second
// half of each.
#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "exec/activation_block.h"
#include "exec/fp_mode.h"
#include "exec/units.h"
#include "kernels/layout.h"
#include "quant/drift.h"
#include "quant/hidden_states.h"
#include "quant/histogram.h"

namespace qinfer::quant {
namespace {

constexpr uint32_t kTile = 32;  // scored positions multiplied at once
constexpr uint32_t kMaxLanes = 64;

uint32_t Lanes(const exec::Context& context) {
  return std::clamp<uint32_t>(context.executor->concurrency(), 1, kMaxLanes);
}
// Scored positions of a window of n tokens: [n/2, n-1) predict their successors.
uint32_t ScoredBegin(size_t tokens) { return static_cast<uint32_t>(tokens / 2); }
uint32_t ScoredEnd(size_t tokens) { return tokens == 0 ? 0 : static_cast<uint32_t>(tokens - 1); }
uint64_t CodeStride(uint32_t cols) {
  return RoundUp<uint64_t>(RoundUp<uint64_t>(cols, kernels::kInputGranule), 64);
}
// Enough for any format of a head this wide.
uint64_t ScratchBytes(uint32_t hidden_size) {
  kernels::Matrix widest;
  widest.rows = kernels::kPanelRows;
  widest.cols = hidden_size;
  widest.kind = kernels::WeightKind::kInt6;
  widest.scale = kernels::ScaleKind::kSub8;
  widest.group_size = 16;
  widest.super_group = 256;
  return RoundUp<uint64_t>(kernels::MatmulScratchBytes(widest, kTile), 64);
}

double Percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0.0;
  const double at = share * static_cast<double>(sorted.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

uint64_t Drift::HeadBytes(uint64_t rows_scored, uint64_t slice_rows, uint32_t hidden_size,
                          const exec::Context& context) {
  const uint64_t inputs = rows_scored * hidden_size * 2 * sizeof(float);
  const uint64_t logits = uint64_t{kTile} * slice_rows * 2 * sizeof(float) +
                          uint64_t{Lanes(context)} * kHeadBlock * sizeof(float);
  const uint64_t codes =
      kTile * (CodeStride(hidden_size) + CodeStride(hidden_size) / 32 * sizeof(float) +
               CodeStride(hidden_size) / 16 * sizeof(int32_t));
  return inputs + logits + Lanes(context) * ScratchBytes(hidden_size) + codes;
}

Status Drift::BeginHead() {
  const uint32_t n = spec_->hidden_size;
  targets_.clear();
  for (const Sample& sample : samples_) {
    for (uint32_t t = ScoredBegin(sample.tokens.size()); t < ScoredEnd(sample.tokens.size()); ++t) {
      targets_.push_back(sample.tokens[t + 1]);
    }
  }
  rows_.assign(targets_.size(), Row());
  QINFER_ASSIGN_OR_RETURN(
      head_inputs_,
      Buffer::Create(context_.memory, std::max<size_t>(targets_.size() * n * 2 * sizeof(float), 1),
                     "inputs of the head"));
  return OkStatus();
}

Status Drift::HeadInputs(size_t sample) {
  const exec::ScopedFpMode mode;
  const uint32_t n = spec_->hidden_size;
  QINFER_ASSIGN_OR_RETURN(Buffer norm,
                          Buffer::Create(context_.memory, n * sizeof(float), "the final norm"));
  QINFER_RETURN_IF_ERROR(ReadSmall(*checkpoint_, spec_->final_norm, n, spec_->norm_weight_offset,
                                   context_, norm.as<float>()));
  size_t row = 0;
  for (size_t s = 0; s < sample; ++s) {
    const size_t size = samples_[s].tokens.size();
    row += std::max(ScoredEnd(size), ScoredBegin(size)) - ScoredBegin(size);
  }
  const size_t size = samples_[sample].tokens.size();
  for (uint32_t t = ScoredBegin(size); t < ScoredEnd(size); ++t, ++row) {
    for (size_t side = 0; side < 2; ++side) {
      const float* x = hidden_.as<float>() + (side * tokens_ + begins_[sample] + t) * n;
      float* out = head_inputs_.as<float>() + (side * targets_.size() + row) * n;
      context_.kernels->rms_norm(x, norm.as<float>(), n, spec_->norm_epsilon, out);
    }
  }
  return OkStatus();
}

// out[t][row of the slice] for a tile of inputs, in units of a few panels from slice_next_ on.
bool Drift::Multiply(const exec::Linear& linear, const float* x, uint32_t count, float* out,
                     const Deadline& deadline) {
  const uint32_t n = spec_->hidden_size, lanes = Lanes(context_);
  const uint64_t scratch_bytes = ScratchBytes(n);
  uint8_t* codes_begin = head_scratch_.as<uint8_t>() + lanes * scratch_bytes;
  kernels::Activations codes;
  const bool int8 = !kernels::layout::IsFloat(linear.matrix.kind);
  if (int8) {
    const uint64_t stride = CodeStride(n);
    codes.codes = reinterpret_cast<int8_t*>(codes_begin);
    codes.scales = reinterpret_cast<float*>(codes_begin + kTile * stride);
    codes.sums = reinterpret_cast<int32_t*>(codes.scales + kTile * (stride / 32));
    codes.code_stride = stride;
    codes.scale_stride = stride / 32;
    codes.sum_stride = stride / 16;
    codes.block = linear.activation_block;
    const exec::ScopedFpMode mode;
    for (uint32_t t = 0; slice_next_ == 0 && t < count; ++t) {
      exec::QuantizeRow(*context_.kernels, x + size_t{t} * n, n, t, linear.activation_scale, codes);
    }
  }
  const uint32_t panels = linear.matrix.panels();
  const uint64_t panel_work = uint64_t{kernels::kPanelRows} * n * count;
  const uint32_t each = static_cast<uint32_t>(
      std::clamp<uint64_t>((int8 ? exec::kUnitCodes : exec::kUnitFloats) / panel_work, 1, panels));
  return exec::RunUnits(context_.executor, lanes, deadline, CeilDiv(panels, each), &slice_next_,
                        [&](uint32_t lane, uint32_t unit) {
                          const uint32_t begin = unit * each, end = std::min(panels, begin + each);
                          void* scratch = head_scratch_.as<uint8_t>() + lane * scratch_bytes;
                          if (int8) {
                            context_.kernels->matmul_int8(linear.matrix, begin, end, codes, count,
                                                          out, slice_rows_, scratch);
                          } else {
                            context_.kernels->matmul_float(linear.matrix, begin, end, x, n, count,
                                                           out, slice_rows_, scratch);
                          }
                        });
}

Status Drift::PrepareSlice(uint32_t rows) {
  const uint32_t n = spec_->hidden_size, lanes = Lanes(context_);
  slice_rows_ = rows;
  head_logits_ = Buffer();
  head_scratch_ = Buffer();
  QINFER_ASSIGN_OR_RETURN(head_logits_,
                          Buffer::Create(context_.memory,
                                         uint64_t{kTile} * rows * 2 * sizeof(float) +
                                             uint64_t{lanes} * kHeadBlock * sizeof(float),
                                         "logits of held-out samples"));
  QINFER_ASSIGN_OR_RETURN(
      head_scratch_,
      Buffer::Create(
          context_.memory,
          lanes * ScratchBytes(n) + kTile * (CodeStride(n) + CodeStride(n) / 32 * sizeof(float) +
                                             CodeStride(n) / 16 * sizeof(int32_t)),
          "scratch of the head"));
  return OkStatus();
}

StatusOr<bool> Drift::HeadSlice(const exec::Linear& reference, const exec::Linear& quantized,
                                uint64_t first_row, const Deadline& deadline) {
  const uint32_t n = spec_->hidden_size, rows = reference.matrix.rows, lanes = Lanes(context_);
  if (quantized.matrix.rows != rows || first_row % kHeadBlock != 0) {
    return InternalError("slices of the two heads do not fit together");
  }
  if (head_logits_.empty() || slice_rows_ < rows) QINFER_RETURN_IF_ERROR(PrepareSlice(rows));
  float* logits = head_logits_.as<float>();
  float* other = logits + uint64_t{kTile} * slice_rows_;
  float* powers = other + uint64_t{kTile} * slice_rows_;
  while (slice_first_ < targets_.size()) {
    const size_t first = slice_first_;
    const float* x = head_inputs_.as<float>() + first * n;
    const uint32_t count = static_cast<uint32_t>(std::min<size_t>(kTile, targets_.size() - first));
    bool complete = false;
    switch (slice_phase_) {
      case SlicePhase::kReference:
        complete = Multiply(reference, x, count, logits, deadline);
        if (complete) slice_phase_ = SlicePhase::kQuantized;
        break;
      case SlicePhase::kQuantized:
        complete = Multiply(quantized, x + targets_.size() * n, count, other, deadline);
        if (complete) slice_phase_ = SlicePhase::kScore;
        break;
      case SlicePhase::kScore:
        complete = exec::RunUnits(context_.executor, lanes, deadline, count, &slice_next_,
                                  [&](uint32_t lane, uint32_t t) {
                                    ScoreRow(logits + t * slice_rows_, other + t * slice_rows_,
                                             first_row, rows, targets_[first + t],
                                             powers + size_t{lane} * kHeadBlock, &rows_[first + t]);
                                  });
        if (!complete) break;
        slice_phase_ = SlicePhase::kReference;
        slice_first_ += kTile;
        break;
    }
    if (complete) slice_next_ = 0;
    if (slice_first_ < targets_.size() && (!complete || deadline.Expired())) return false;
  }
  slice_first_ = 0;
  return true;
}

// Blocks of a fixed size at fixed places, so that the sums do not depend on the slices.
void Drift::ScoreRow(float* a, float* b, uint64_t first_row, uint32_t rows, int32_t target,
                     float* powers, Row* row) const {
  for (float* x : {a, b}) {
    if (spec_->logit_scale != 1.0f) context_.kernels->scale(x, spec_->logit_scale, rows);
    if (spec_->logit_softcap != 0.0f) context_.kernels->softcap(x, spec_->logit_softcap, rows);
  }
  const uint64_t id = static_cast<uint64_t>(target);
  if (id >= first_row && id < first_row + rows) {
    row->target = a[id - first_row];
    row->other_target = b[id - first_row];
  }
  for (uint32_t begin = 0; begin < rows; begin += kHeadBlock) {
    const uint32_t size = std::min(kHeadBlock, rows - begin);
    float* x = a + begin;
    float* y = b + begin;
    const uint32_t best = context_.kernels->argmax(x, size);
    const uint32_t other_best = context_.kernels->argmax(y, size);
    if (!row->started || x[best] > row->best) {
      row->best = x[best];
      row->best_id = static_cast<uint32_t>(first_row) + begin + best;
    }
    if (!row->started || y[other_best] > row->other_best) {
      row->other_best = y[other_best];
      row->other_best_id = static_cast<uint32_t>(first_row) + begin + other_best;
    }
    const double max = row->started ? std::max<double>(row->max, x[best]) : x[best];
    const double keep = row->started ? Power(row->max - max) : 0.0;
    context_.kernels->exp_shift(x, static_cast<float>(max), size, powers);
    double sum = 0.0, weighted = 0.0;
    for (uint32_t i = 0; i < size; ++i) {
      sum += powers[i];
      weighted += static_cast<double>(powers[i]) * (static_cast<double>(x[i]) - y[i]);
    }
    row->sum = row->sum * keep + sum;
    row->weighted = row->weighted * keep + weighted;
    row->max = max;
    const double other_max =
        row->started ? std::max<double>(row->other_max, y[other_best]) : y[other_best];
    const double other_keep = row->started ? Power(row->other_max - other_max) : 0.0;
    context_.kernels->exp_shift(y, static_cast<float>(other_max), size, powers);
    sum = 0.0;
    for (uint32_t i = 0; i < size; ++i) sum += powers[i];
    row->other_sum = row->other_sum * other_keep + sum;
    row->other_max = other_max;
    row->started = true;
  }
}

double Drift::Power(double x) const {
  const float in = static_cast<float>(x);
  float out = 0.0f;
  context_.kernels->exp_shift(&in, 0.0f, 1, &out);
  return out;
}

Status Drift::FinishHead(observe::Report* report) const {
  std::vector<double> divergences;
  double loss = 0.0, other_loss = 0.0, sum = 0.0;
  uint64_t same = 0;
  for (const Row& row : rows_) {
    const double normal = row.max + NaturalLog(row.sum);
    const double other_normal = row.other_max + NaturalLog(row.other_sum);
    const double divergence = std::max(0.0, row.weighted / row.sum - normal + other_normal);
    loss += normal - row.target;
    other_loss += other_normal - row.other_target;
    if (!std::isfinite(divergence) || !std::isfinite(other_loss)) {
      return FormatError(
          "the quantized model's predictions on the held-out samples are not finite");
    }
    divergences.push_back(divergence);
    sum += divergence;
    if (row.best_id == row.other_best_id) ++same;
  }
  std::sort(divergences.begin(), divergences.end());
  const double count = static_cast<double>(std::max<size_t>(rows_.size(), 1));
  (*report)["windows"] = static_cast<uint64_t>(samples_.size());
  (*report)["tokens"] = static_cast<uint64_t>(rows_.size());
  (*report)["reference_perplexity"] = std::exp(loss / count);
  (*report)["perplexity"] = std::exp(other_loss / count);
  (*report)["kl_mean"] = sum / count;
  (*report)["kl_median"] = Percentile(divergences, 0.5);
  (*report)["kl_p99"] = Percentile(divergences, 0.99);
  (*report)["kl_p999"] = Percentile(divergences, 0.999);
  (*report)["kl_max"] = divergences.empty() ? 0.0 : divergences.back();
  (*report)["top1"] = static_cast<double>(same) / count;
  return OkStatus();
}

}  // namespace qinfer::quant
