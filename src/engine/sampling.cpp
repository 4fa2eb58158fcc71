// Options, penalties, the draw and log-probabilities. Which tokens top-k, top-p and min-p leave is
// decided in sampling_filter.cpp.
#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/checked.h"
#include "engine/philox.h"
#include "engine/score_row.h"
#include "kernels/ref/math.h"

namespace qinfer::engine {
namespace {

Status OutOfRange(const char* option, double value, const char* range) {
  return MisuseError(StrCat(option, " is ", value, "; it must be ", range));
}

// The sum of up to kDrawBlock weights in 8 lanes and a fixed tree.
constexpr size_t kDrawBlock = 256;
double BlockSum(const float* weights, size_t n) {
  double lane[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (size_t k = 0; k < 8; ++k) lane[k] += static_cast<double>(weights[i + k]);
  }
  for (size_t k = 0; i < n; ++i, ++k) lane[k] += static_cast<double>(weights[i]);
  for (size_t width = 4; width > 0; width /= 2) {
    for (size_t k = 0; k < width; ++k) lane[k] += lane[k + width];
  }
  return lane[0];
}

Distribution Only(uint32_t token, SamplingScratch* scratch) {
  scratch->ids()[0] = token;
  scratch->weights()[0] = 1.0f;
  return {scratch->ids(), scratch->weights(), 1, token};
}

}  // namespace

Status ValidateSampling(const SamplingOptions& options, uint32_t vocab_size) {
  if (!(options.temperature > 0.0f) || !std::isfinite(options.temperature)) {
    return OutOfRange("temperature", options.temperature,
                      "above 0 and finite (for the most likely token, use greedy)");
  }
  if (!(options.top_p >= 0.0f && options.top_p <= 1.0f)) {
    return OutOfRange("top_p", options.top_p, "from 0 to 1");
  }
  if (!(options.min_p >= 0.0f && options.min_p <= 1.0f)) {
    return OutOfRange("min_p", options.min_p, "from 0 to 1");
  }
  if (!(options.repetition_penalty > 0.0f) || !std::isfinite(options.repetition_penalty)) {
    return OutOfRange("repetition_penalty", options.repetition_penalty, "above 0 and finite");
  }
  if (!(options.frequency_penalty >= -2.0f && options.frequency_penalty <= 2.0f)) {
    return OutOfRange("frequency_penalty", options.frequency_penalty, "from -2 to 2");
  }
  if (!(options.presence_penalty >= -2.0f && options.presence_penalty <= 2.0f)) {
    return OutOfRange("presence_penalty", options.presence_penalty, "from -2 to 2");
  }
  std::vector<int32_t> biased;
  biased.reserve(options.logit_bias.size());
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocab_size) {
      return MisuseError(StrCat("logit_bias names token ", token, "; the vocabulary has ids 0 to ",
                                vocab_size - 1));
    }
    if (std::isnan(bias) || bias > std::numeric_limits<float>::max()) {
      return MisuseError(StrCat("logit_bias of token ", token, " is ", bias,
                                "; it must be finite or minus infinity"));
    }
    biased.push_back(token);
  }
  std::sort(biased.begin(), biased.end());
  const auto twice = std::adjacent_find(biased.begin(), biased.end());
  if (twice != biased.end()) {
    return MisuseError(StrCat("logit_bias names token ", *twice, " twice"));
  }
  return OkStatus();
}

StatusOr<SamplingScratch> SamplingScratch::Create(uint32_t vocab_size, Memory* memory) {
  SamplingScratch scratch;
  scratch.vocab_size_ = vocab_size;
  scratch.stride_ = RoundUp<size_t>(vocab_size, 16);
  QINFER_ASSIGN_OR_RETURN(scratch.buffer_,
                          Buffer::Create(memory, Bytes(vocab_size), "the sampler's workspace"));
  return scratch;
}

uint64_t SamplingScratch::Bytes(uint32_t vocab_size) {
  const uint64_t stride = RoundUp<uint64_t>(vocab_size, 16), panels = stride / 16;
  return sizeof(float) * (3 * stride + panels + panels / 16 + 1) + panels;
}

TokenHistory::TokenHistory(size_t max_tokens, Memory* memory) : entries_(memory), slots_(memory) {
  size_t slots = 16;
  while (slots < 2 * max_tokens) slots *= 2;
  slots_.assign(slots, 0);
  entries_.reserve(max_tokens);
}

// Where `token` is, or the empty slot where it belongs.
size_t TokenHistory::SlotOf(int32_t token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = (static_cast<uint32_t>(token) * 0x9E3779B1u) & mask;
  while (slots_[slot] != 0 && entries_[slots_[slot] - 1].token != token) slot = (slot + 1) & mask;
  return slot;
}

void TokenHistory::Add(int32_t token, bool generated) {
  size_t slot = SlotOf(token);
  if (slots_[slot] == 0) {
    if (2 * (entries_.size() + 1) > slots_.size()) {
      slots_.assign(2 * slots_.size(), 0);
      for (size_t i = 0; i < entries_.size(); ++i) {
        slots_[SlotOf(entries_[i].token)] = static_cast<uint32_t>(i + 1);
      }
      slot = SlotOf(token);
    }
    entries_.push_back({token, 0});
    slots_[slot] = static_cast<uint32_t>(entries_.size());
  }
  if (generated) ++entries_[slots_[slot] - 1].generated;
}

bool Sampler::Penalises() const {
  return options_.repetition_penalty != 1.0f || options_.frequency_penalty != 0.0f ||
         options_.presence_penalty != 0.0f;
}

StatusOr<std::unique_ptr<Sampler>> Sampler::Create(const SamplingOptions& options,
                                                   uint32_t vocab_size,
                                                   absl::Span<const int32_t> prompt,
                                                   size_t max_new_tokens, Memory* memory,
                                                   const kernels::Table* kernels) {
  QINFER_RETURN_IF_ERROR(ValidateSampling(options, vocab_size));
  std::unique_ptr<Sampler> sampler(new Sampler(options, vocab_size, kernels));
  if (sampler->Penalises()) {
    const size_t tokens = std::min<size_t>(vocab_size, prompt.size() + max_new_tokens);
    sampler->history_ = std::make_unique<TokenHistory>(tokens, memory);
    for (const int32_t token : prompt) sampler->history_->Add(token, /*generated=*/false);
  }
  return sampler;
}

void Sampler::Accept(int32_t token) {
  if (history_ != nullptr) history_->Add(token, /*generated=*/true);
}

void Sampler::Penalise(ScoreRow* scores) const {
  for (const auto& [token, bias] : options_.logit_bias) {
    scores->Patch(static_cast<uint32_t>(token)) += bias;
  }
  if (history_ == nullptr) return;
  const float repetition = options_.repetition_penalty;
  for (const TokenHistory::Entry& entry : history_->entries()) {
    if (entry.token < 0 || static_cast<uint32_t>(entry.token) >= vocab_size_) continue;
    if (repetition == 1.0f && entry.generated == 0) continue;
    float& score = scores->Patch(static_cast<uint32_t>(entry.token));
    // Zero stays zero and what a bias excludes stays excluded, also where the penalty is so small
    // that it counts as zero.
    if (score == -std::numeric_limits<float>::infinity()) continue;
    if (repetition != 1.0f && score != 0.0f) {
      score = score < 0.0f ? score * repetition : score / repetition;
    }
    if (entry.generated != 0 && std::isfinite(score)) {
      score -= static_cast<float>(entry.generated) * options_.frequency_penalty;
      score -= options_.presence_penalty;
    }
  }
}

StatusOr<Distribution> Sampler::Process(absl::Span<const float> logits, SamplingScratch* scratch,
                                        absl::Span<const float> maxima) const {
  const size_t panels = CeilDiv<size_t>(vocab_size_, kernels::kPanelRows);
  if (logits.size() != vocab_size_ || scratch->vocab_size() != vocab_size_ ||
      (!maxima.empty() && maxima.size() != panels)) {
    return InternalError(StrCat("sampler for ", vocab_size_, " tokens got ", logits.size(),
                                " logits, ", maxima.size(), " maxima and a workspace for ",
                                scratch->vocab_size()));
  }
  if (maxima.empty()) {
    if (!kernels_->panel_maxima(logits.data(), logits.size(), scratch->maxima())) {
      const auto* bad = std::find_if(logits.begin(), logits.end(),
                                     [](float logit) { return !std::isfinite(logit); });
      return FormatError(StrCat("the logit of token ", bad - logits.begin(), " is not finite"));
    }
    maxima = absl::MakeConstSpan(scratch->maxima(), panels);
  }
  ScoreRow row(logits, maxima.data(), scratch, kernels_);
  Penalise(&row);
  row.Done();
  uint32_t best = row.Best();
  if (row.Value(best) == -std::numeric_limits<float>::infinity()) {
    return MisuseError("logit_bias and the penalties exclude every token");
  }
  // A penalty or bias may overflow to +infinity: then that token is certain.
  if (options_.greedy || row.Value(best) > std::numeric_limits<float>::max()) {
    return Only(best, scratch);
  }
  if (options_.temperature != 1.0f) {
    const uint32_t greedy = best;
    row.SetTemperature(options_.temperature);
    best = row.Best();
    // A temperature so small that the best score has no value any more: the limit is greedy.
    if (!std::isfinite(row.Value(best)) || !std::isfinite(row.Value(greedy))) {
      return Only(greedy, scratch);
    }
  }
  return Filter(best, &row, scratch);
}

int32_t Sampler::Draw(const Distribution& distribution, double uniform) {
  double total = 0.0;
  for (size_t i = 0; i < distribution.size; i += kDrawBlock) {
    total += BlockSum(distribution.weights + i, std::min(kDrawBlock, distribution.size - i));
  }
  const double target = uniform * total;
  // The last token with any weight stands in where rounding would walk past the end.
  uint32_t chosen = distribution.best;
  double below = 0.0;
  const auto token_at = [&](size_t i) {
    return distribution.ids != nullptr ? distribution.ids[i] : static_cast<uint32_t>(i);
  };
  for (size_t i = 0; i < distribution.size; i += kDrawBlock) {
    const size_t n = std::min(kDrawBlock, distribution.size - i);
    const double sum = BlockSum(distribution.weights + i, n);
    if (below + sum <= target) {
      below += sum;
      continue;
    }
    for (size_t j = i; j < i + n; ++j) {
      if (distribution.weights[j] <= 0.0f) continue;
      chosen = token_at(j);
      below += static_cast<double>(distribution.weights[j]);
      if (below > target) break;
    }
    return static_cast<int32_t>(chosen);
  }
  for (size_t i = distribution.size; i > 0; --i) {
    if (distribution.weights[i - 1] > 0.0f) return static_cast<int32_t>(token_at(i - 1));
  }
  return static_cast<int32_t>(chosen);
}

StatusOr<int32_t> Sampler::Sample(absl::Span<const float> logits, uint64_t position,
                                  SamplingScratch* scratch, absl::Span<const float> maxima) const {
  QINFER_ASSIGN_OR_RETURN(const Distribution distribution, Process(logits, scratch, maxima));
  if (distribution.size == 1) return static_cast<int32_t>(distribution.best);
  return Draw(distribution, UniformAt(options_.seed, position));
}

void Logprobs(absl::Span<const float> logits, int32_t chosen, uint32_t top,
              const kernels::Table& table, SamplingScratch* scratch,
              std::vector<TokenLogprob>* out) {
  float max = 0.0f;
  const float sum = table.exp_sum(logits.data(), logits.size(), &max);
  const double log_sum = static_cast<double>(max) + kernels::math::LogD(static_cast<double>(sum));
  const auto logprob = [&](uint32_t token) {
    return TokenLogprob{static_cast<int32_t>(token),
                        static_cast<float>(static_cast<double>(logits[token]) - log_sum)};
  };
  const size_t count = std::min<size_t>(top, logits.size());
  out->clear();
  out->reserve(count + 1);
  out->push_back(logprob(static_cast<uint32_t>(chosen)));
  if (count == 0) return;
  // A heap of the best so far with the worst of them on top.
  uint32_t* heap = scratch->ids();
  const auto better = [&](uint32_t a, uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  for (uint32_t i = 0; i < count; ++i) heap[i] = i;
  std::make_heap(heap, heap + count, better);
  for (uint32_t i = static_cast<uint32_t>(count); i < logits.size(); ++i) {
    if (!(logits[i] > logits[heap[0]])) continue;
    std::pop_heap(heap, heap + count, better);
    heap[count - 1] = i;
    std::push_heap(heap, heap + count, better);
  }
  std::sort_heap(heap, heap + count, better);
  for (size_t i = 0; i < count; ++i) out->push_back(logprob(heap[i]));
}

}  // namespace qinfer::engine
