// Prompt lookup: guessing the next tokens of a generation from what its own prompt and output say
// elsewhere, so that one step can check several. Here is what to guess and how much of it pays;
// whether a guess was right is decided by sampling (scheduler.cpp), never here. Guesses and their
// lengths change how long things take, and nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "engine/ngram_index.h"

namespace qinfer::engine {

// Guessed tokens of one sequence in one step, at most.
constexpr uint32_t kMaxDraft = 15;

// What steps that only decode take, by how many tokens they compute. Follows changes (other
// lengths, other load). Where little has been measured it leans on what steps of other sizes cost:
// one slow step must not be the last of its size.
class StepCosts {
 public:
  static constexpr uint32_t kMaxRows = 64;

  void Record(uint32_t rows, uint64_t ns);
  // In nanoseconds, or, while nothing has been measured, in units of a step of one.
  double Estimate(uint32_t rows) const;

 private:
  struct Figure {
    double ns = 0.0;
    double samples = 0.0;  // those of long ago count for little
    uint64_t step = 0;     // of the last one
  };
  double Samples(uint32_t rows) const;
  double Scale() const;

  std::array<Figure, kMaxRows + 1> figures_;
  uint64_t steps_ = 0;
};

// Tokens that a draft yields on average, beside the one that every step yields: each guess is right
// with its probability where those before it were.
double ExpectedAccepted(absl::Span<const double> probabilities);
// How many of the guesses are worth computing: what makes the most tokens a second of a step that
// without them computes `rows` tokens and yields `expected`.
uint32_t BestDraftLength(const StepCosts& costs, uint32_t rows, double expected,
                         absl::Span<const double> probabilities);

// How often guesses have been right lately, by how many tokens before them were the same and how
// far the places where these stand agree.
class AcceptanceRate {
 public:
  AcceptanceRate();
  static uint32_t ClassOf(const NgramIndex::Guess& guess);
  double Probability(uint32_t guess_class) const;
  void Record(uint32_t guess_class, bool right);

 private:
  struct Counts {
    double right, wrong;
  };
  static constexpr size_t kLengths = 5, kShares = 5;
  std::array<Counts, kLengths * kShares> counts_;
};

struct LookupCounts {
  uint64_t drafted = 0;   // guessed tokens that were computed
  uint64_t accepted = 0;  // of them, those that became output
  uint64_t steps = 0;     // steps that decoded, with and without guesses
};

// The guesses of one generation. Per step: Propose, Use, and, when the step is done, Observe.
class PromptLookup {
 public:
  static StatusOr<std::unique_ptr<PromptLookup>> Create(uint64_t max_tokens, Memory* memory);

  // Guesses what may follow `tokens`, at most `most`, one after the other, as if those before were
  // right. Returns how many there are; it ends after one that is right next to never.
  uint32_t Propose(absl::Span<const int32_t> tokens, uint32_t most);
  absl::Span<const int32_t> proposal() const { return {step_.data() + 1, proposed_}; }
  // Of each, to be right where those before it are.
  absl::Span<const double> probabilities() const { return {probabilities_.data(), proposed_}; }
  // The proposal may be cut before a token that would be the last anyway.
  void Shorten(uint32_t count) { proposed_ = count < proposed_ ? count : proposed_; }
  // The last token and the first `count` of the proposal, as a step computes them. Stays where it
  // is until the next Propose.
  absl::Span<const int32_t> Use(uint32_t count);
  // What the step has sampled. Proposals that were not used teach as well.
  void Observe(absl::Span<const int32_t> sampled);

  // After a step with guesses has failed: none any more. It may have been their fault.
  void TurnOff() { off_ = true; }
  const LookupCounts& counts() const { return counts_; }

 private:
  PromptLookup() = default;

  NgramIndex index_;
  AcceptanceRate acceptance_;
  std::array<int32_t, 1 + kMaxDraft> step_ = {};
  std::array<double, kMaxDraft> probabilities_ = {};
  std::array<uint32_t, kMaxDraft> classes_ = {};
  uint32_t proposed_ = 0, used_ = 0;
  bool off_ = false;
  LookupCounts counts_;
};

}  // namespace qinfer::engine
