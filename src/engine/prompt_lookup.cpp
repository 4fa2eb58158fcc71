// Costs of steps, chances of guesses, and the length that follows from both.
#include "engine/prompt_lookup.h"

#include <algorithm>
#include <cmath>

namespace qinfer::engine {
namespace {

// A draft ends where it is right throughout less often than this.
constexpr double kHopeless = 0.02;

// What a step of `rows` costs in steps of one, where nobody has measured it: up to four tokens most
// of the time goes into reading weights, then into products.
double Assumed(uint32_t rows) {
  if (rows <= 4) return 1.0 + 0.11 * (rows - 1);
  return 1.33 + 0.23 * (rows - 4);
}

// Beside its first sample an assumption counts as much, beside many next to nothing.
constexpr double kAssumedSamples = 2.0;
// Figures follow changes as the average of so many samples.
constexpr double kMostSamples = 12.0;
// After so many steps a sample counts half.
constexpr double kHalfLife = 64.0;

}  // namespace

double StepCosts::Samples(uint32_t rows) const {
  const Figure& figure = figures_[rows];
  if (figure.samples == 0.0) return 0.0;
  return figure.samples * std::exp2(-static_cast<double>(steps_ - figure.step) / kHalfLife);
}

// What all that was measured says of the cost of a step of one, if the assumed proportions hold;
// 0 where nothing was.
double StepCosts::Scale() const {
  double sum = 0.0, weights = 0.0;
  for (uint32_t rows = 1; rows <= kMaxRows; ++rows) {
    const double samples = Samples(rows);
    if (samples == 0.0) continue;
    sum += samples * figures_[rows].ns / Assumed(rows);
    weights += samples;
  }
  return weights > 0.0 ? sum / weights : 0.0;
}

void StepCosts::Record(uint32_t rows, uint64_t ns) {
  ++steps_;
  if (rows == 0 || rows > kMaxRows || ns == 0) return;
  const double expected = Scale() > 0.0 ? Estimate(rows) : static_cast<double>(ns);
  // Whatever else the machine does shows in single steps: one moves a figure only so far.
  const double sample = std::clamp(static_cast<double>(ns), 0.5 * expected, 1.5 * expected);
  Figure& figure = figures_[rows];
  const double before = std::min(Samples(rows), kMostSamples - 1.0);
  figure.ns = (before * figure.ns + sample) / (before + 1.0);
  figure.samples = before + 1.0;
  figure.step = steps_;
}

double StepCosts::Estimate(uint32_t rows) const {
  const double scale = Scale();
  const double assumed = (scale > 0.0 ? scale : 1.0) * Assumed(rows);
  if (rows > kMaxRows) return assumed;
  const double samples = Samples(rows);
  const double weight = kAssumedSamples / (1.0 + samples * samples);
  return (samples * figures_[rows].ns + weight * assumed) / (samples + weight);
}

double ExpectedAccepted(absl::Span<const double> probabilities) {
  double sum = 0.0, all_right = 1.0;
  for (const double probability : probabilities) {
    all_right *= probability;
    sum += all_right;
  }
  return sum;
}

uint32_t BestDraftLength(const StepCosts& costs, uint32_t rows, double expected,
                         absl::Span<const double> probabilities) {
  uint32_t best = 0;
  double best_rate = expected / costs.Estimate(rows);
  double yield = expected, all_right = 1.0;
  for (uint32_t length = 1; length <= probabilities.size(); ++length) {
    all_right *= probabilities[length - 1];
    yield += all_right;
    const double rate = yield / costs.Estimate(rows + length);
    if (rate > best_rate) {
      best_rate = rate;
      best = length;
    }
  }
  return best;
}

// What guesses have been worth in summaries (SmolLM2, 26 articles), counted as few trials.
AcceptanceRate::AcceptanceRate() {
  constexpr double kMeasured[kLengths][kShares] = {{0.14, 0.19, 0.27, 0.46, 0.48},
                                                   {0.21, 0.45, 0.64, 0.69, 0.80},
                                                   {0.30, 0.45, 0.68, 0.79, 0.85},
                                                   {0.30, 0.50, 0.70, 0.80, 0.91},
                                                   {0.30, 0.50, 0.80, 0.92, 0.98}};
  constexpr double kTrials = 8.0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const double rate = kMeasured[i / kShares][i % kShares];
    counts_[i] = {kTrials * rate, kTrials * (1.0 - rate)};
  }
}

uint32_t AcceptanceRate::ClassOf(const NgramIndex::Guess& guess) {
  constexpr uint32_t kFrom[kLengths] = {0, 2, 6, 12, 20};
  size_t length = kLengths - 1;
  while (guess.length < kFrom[length]) --length;
  const size_t share = guess.share > 0.999 ? kShares - 1 : static_cast<size_t>(guess.share * 4.0);
  return static_cast<uint32_t>(length * kShares + std::min(share, kShares - 1));
}

double AcceptanceRate::Probability(uint32_t guess_class) const {
  const Counts& counts = counts_[guess_class];
  return std::min(counts.right / (counts.right + counts.wrong), 0.99);
}

void AcceptanceRate::Record(uint32_t guess_class, bool right) {
  constexpr double kKept = 0.97;  // what was long ago counts less
  Counts& counts = counts_[guess_class];
  counts.right = kKept * counts.right + (right ? 1.0 : 0.0);
  counts.wrong = kKept * counts.wrong + (right ? 0.0 : 1.0);
}

StatusOr<std::unique_ptr<PromptLookup>> PromptLookup::Create(uint64_t max_tokens, Memory* memory) {
  std::unique_ptr<PromptLookup> lookup(new PromptLookup);
  QINFER_ASSIGN_OR_RETURN(lookup->index_, NgramIndex::Create(max_tokens, memory));
  return lookup;
}

uint32_t PromptLookup::Propose(absl::Span<const int32_t> tokens, uint32_t most) {
  proposed_ = used_ = 0;
  if (off_ || tokens.empty()) return 0;
  index_.Add(tokens);
  step_[0] = tokens.back();
  std::array<int32_t, NgramIndex::kCompared + kMaxDraft> context;
  size_t size = std::min<size_t>(tokens.size(), NgramIndex::kCompared);
  std::copy_n(tokens.end() - size, size, context.begin());
  double all_right = 1.0;
  while (proposed_ < std::min(most, kMaxDraft)) {
    const NgramIndex::Guess guess = index_.Next(tokens, {context.data(), size});
    if (guess.length == 0) break;
    const uint32_t guess_class = AcceptanceRate::ClassOf(guess);
    classes_[proposed_] = guess_class;
    probabilities_[proposed_] = acceptance_.Probability(guess_class);
    all_right *= probabilities_[proposed_];
    step_[++proposed_] = context[size++] = guess.token;
    if (all_right < kHopeless) break;  // there is always one, to learn from
  }
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
  for (uint32_t i = 0; i < std::min<size_t>(sampled.size(), proposed_); ++i) {
    const bool right = sampled[i] == step_[1 + i];
    acceptance_.Record(classes_[i], right);
    if (!right) break;
  }
  proposed_ = used_ = 0;
}

}  // namespace qinfer::engine
