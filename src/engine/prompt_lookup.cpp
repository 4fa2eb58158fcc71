// Costs of steps, chances of guesses, and the length that follows from both.
#include "engine/prompt_lookup.h"

#include <algorithm>

namespace qinfer::engine {
namespace {

// What a step of `rows` costs in steps of one, where nobody has measured it: weights are read once,
// the rest is done for each.
double Assumed(uint32_t rows) { return 1.0 + 0.1 * (rows - 1); }

}  // namespace

void StepCosts::Record(uint32_t rows, uint64_t ns) {
  ++steps_;
  if (rows == 0 || rows > kMaxRows || ns == 0) return;
  Figure& figure = figures_[rows];
  const double sample = static_cast<double>(ns);
  // Others on the machine only ever make a step look longer: what is longer counts for less, and an
  // outlier as no more than twice what was expected. A first figure that is too high would see to
  // it that there is no second one for long.
  if (!Known(rows)) {
    bool any = false;
    for (uint32_t other = 1; other <= kMaxRows; ++other) any = any || Known(other);
    figure.ns = any ? std::min(sample, 1.5 * Estimate(rows)) : sample;
  } else if (sample < figure.ns) {
    figure.ns += 0.4 * (sample - figure.ns);
  } else {
    figure.ns += 0.08 * (std::min(sample, 2.0 * figure.ns) - figure.ns);
  }
  figure.step = steps_;
}

bool StepCosts::Known(uint32_t rows) const {
  return figures_[rows].ns > 0.0 && steps_ - figures_[rows].step < kForgotten;
}

double StepCosts::Estimate(uint32_t rows) const {
  uint32_t below = std::min(rows, kMaxRows), above = rows;
  while (below > 0 && !Known(below)) --below;
  while (above <= kMaxRows && !Known(above)) ++above;
  const bool has_above = above <= kMaxRows;
  if (below == 0 && !has_above) return Assumed(rows);
  if (below == 0) return figures_[above].ns * (Assumed(rows) / Assumed(above));
  if (!has_above) return figures_[below].ns * (Assumed(rows) / Assumed(below));
  if (below == above) return figures_[below].ns;
  const double share = static_cast<double>(rows - below) / (above - below);
  return figures_[below].ns + share * (figures_[above].ns - figures_[below].ns);
}

double ExpectedAccepted(double probability, uint32_t length) {
  double sum = 0.0, all_right = 1.0;
  for (uint32_t i = 0; i < length; ++i) {
    all_right *= probability;
    sum += all_right;
  }
  return sum;
}

uint32_t BestDraftLength(const StepCosts& costs, uint32_t rows, double expected, double probability,
                         uint32_t most) {
  uint32_t best = 0;
  double best_rate = expected / costs.Estimate(rows);
  for (uint32_t length = 1; length <= most; ++length) {
    const double yield = expected + ExpectedAccepted(probability, length);
    const double rate = yield / costs.Estimate(rows + length);
    if (rate > best_rate) {
      best_rate = rate;
      best = length;
    }
  }
  return best;
}

// What long and short matches have been worth on text, counted as few trials.
AcceptanceRate::AcceptanceRate()
    : counts_{{{1.0, 1.0}, {1.2, 0.8}, {1.5, 0.5}, {1.7, 0.3}, {1.9, 0.1}}} {}

size_t AcceptanceRate::ClassOf(uint32_t match_length) {
  if (match_length <= 2) return 0;
  if (match_length <= 3) return 1;
  if (match_length <= 7) return 2;
  return match_length <= 15 ? 3 : 4;
}

double AcceptanceRate::Probability(uint32_t match_length) const {
  const Counts& counts = counts_[ClassOf(match_length)];
  return std::min(counts.right / (counts.right + counts.wrong), 0.99);
}

void AcceptanceRate::Record(uint32_t match_length, uint32_t right, bool then_wrong) {
  Counts& counts = counts_[ClassOf(match_length)];
  counts.right = 0.9 * counts.right + right;
  counts.wrong = 0.9 * counts.wrong + (then_wrong ? 1.0 : 0.0);
}

StatusOr<std::unique_ptr<PromptLookup>> PromptLookup::Create(uint64_t max_tokens, Memory* memory) {
  std::unique_ptr<PromptLookup> lookup(new PromptLookup);
  QINFER_ASSIGN_OR_RETURN(lookup->index_, NgramIndex::Create(max_tokens, memory));
  return lookup;
}

uint32_t PromptLookup::Propose(absl::Span<const int32_t> tokens, uint32_t most) {
  proposed_ = used_ = 0;
  if (off_ || tokens.empty()) return 0;
  const NgramIndex::Match match = index_.Find(tokens);
  if (match.end == 0) return 0;
  match_length_ = match.length;
  proposed_ = std::min(most, kMaxDraft);
  step_[0] = tokens.back();
  NgramIndex::Continue(tokens, match, proposed_, step_.data() + 1);
  return proposed_;
}

absl::Span<const int32_t> PromptLookup::Use(uint32_t count) {
  used_ = std::min(count, proposed_);
  return {step_.data(), size_t{1} + used_};
}

void PromptLookup::Observe(absl::Span<const int32_t> sampled) {
  ++counts_.steps;
  counts_.drafted += used_;
  if (used_ > 0 && sampled.size() > 1) counts_.accepted += sampled.size() - 1;
  uint32_t right = 0;
  while (right < std::min<size_t>(sampled.size(), proposed_) &&
         sampled[right] == step_[1 + right]) {
    ++right;
  }
  const bool wrong = right < proposed_ && right < sampled.size();
  if (right > 0 || wrong) acceptance_.Record(match_length_, right, wrong);
  proposed_ = used_ = 0;
}

}  // namespace qinfer::engine
