// From a row of logits to a token: processors and samplers in the order and with the meaning of
// transformers' logits processors; frequency and presence penalties as OpenAI defines them. The
// random numbers are a counter-based generator keyed by seed and position. Knows nothing of
// sessions, text or stopping.
//
// Order: logit bias (transformers' SequenceBias, which comes first there), repetition penalty (over
// prompt and generated tokens), frequency and presence penalties (over generated tokens),
// temperature, top-k, top-p, min-p. Ties: top-k keeps all that equal the k-th; where top-p cuts
// through equals, the lower ids stay (transformers leaves that to chance: its sort is not stable).
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels/kernels.h"

namespace qinfer::engine {

struct SamplingOptions {
  bool greedy = false;  // the largest logit after penalties and bias; the lowest id of equals
  float temperature = 1.0f;
  uint32_t top_k = 0;               // 0 = off
  float top_p = 1.0f;               // 1 = off; 0 = the best alone
  float min_p = 0.0f;               // 0 = off
  float repetition_penalty = 1.0f;  // 1 = off
  float frequency_penalty = 0.0f, presence_penalty = 0.0f;
  std::vector<std::pair<int32_t, float>> logit_bias;  // -infinity excludes a token
  uint64_t seed = 0;
  uint32_t min_keep = 1;  // top-k, top-p and min-p leave at least so many (min_tokens_to_keep)
};
// MisuseError names the option and its range.
Status ValidateSampling(const SamplingOptions& options, uint32_t vocab_size);

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0.0f;
};

// What samplers work in: one for all sequences that are sampled one after the other.
class SamplingScratch {
 public:
  SamplingScratch() = default;
  static StatusOr<SamplingScratch> Create(uint32_t vocab_size, Memory* memory);
  static uint64_t Bytes(uint32_t vocab_size);

  float* scores() { return buffer_.as<float>(); }
  float* weights() { return buffer_.as<float>() + stride_; }
  uint32_t* ids() { return buffer_.as<uint32_t>() + 2 * stride_; }
  float* maxima() { return buffer_.as<float>() + 3 * stride_; }  // of panels of 16 logits
  float* group_maxima() { return maxima() + stride_ / 16; }      // of 16 of those
  uint8_t* patched() { return reinterpret_cast<uint8_t*>(group_maxima() + stride_ / 256 + 1); }
  uint32_t vocab_size() const { return vocab_size_; }

 private:
  Buffer buffer_;
  size_t stride_ = 0;
  uint32_t vocab_size_ = 0;
};

class ScoreRow;

// What is left to draw from, by ascending token id. Weights are exp(score - largest score), not
// normalised. Points into the scratch.
struct Distribution {
  const uint32_t* ids = nullptr;  // null = all tokens: entry i is token i
  const float* weights = nullptr;
  size_t size = 0;
  uint32_t best = 0;  // the largest score's token
};

// The tokens that penalties look at, each once, with how often it was generated. Room for
// `max_tokens` is taken at the start.
class TokenHistory {
 public:
  struct Entry {
    int32_t token;
    uint32_t generated;
  };
  TokenHistory(size_t max_tokens, Memory* memory);
  void Add(int32_t token, bool generated);
  absl::Span<const Entry> entries() const { return {entries_.data(), entries_.size()}; }

 private:
  size_t SlotOf(int32_t token) const;

  std::pmr::vector<Entry> entries_;
  std::pmr::vector<uint32_t> slots_;  // open addressing: index into entries_ + 1, 0 = empty
};

// One generation's sampler. Not thread-safe.
class Sampler {
 public:
  // `prompt`: the tokens before the first one to be sampled; `max_new_tokens` bounds Accept calls
  // that need no allocation.
  static StatusOr<std::unique_ptr<Sampler>> Create(const SamplingOptions& options,
                                                   uint32_t vocab_size,
                                                   absl::Span<const int32_t> prompt,
                                                   size_t max_new_tokens, Memory* memory,
                                                   const kernels::Table* kernels);
  // The token for `position` (its index in the sequence). FormatError for a logit that is not
  // finite, MisuseError where logit_bias excludes every token. `maxima`, where there are some: of
  // the logits, as exec::Forward::LogitMaxima has them; the logits are then known to be finite.
  StatusOr<int32_t> Sample(absl::Span<const float> logits, uint64_t position,
                           SamplingScratch* scratch, absl::Span<const float> maxima = {}) const;
  void Accept(int32_t token);

  // The parts of Sample, for tests and diagnosis. Greedy options leave the best token alone.
  StatusOr<Distribution> Process(absl::Span<const float> logits, SamplingScratch* scratch,
                                 absl::Span<const float> maxima = {}) const;
  static int32_t Draw(const Distribution& distribution, double uniform);  // uniform in [0, 1)

 private:
  Sampler(const SamplingOptions& options, uint32_t vocab_size, const kernels::Table* kernels)
      : options_(options), vocab_size_(vocab_size), kernels_(kernels) {}
  bool Penalises() const;
  void Penalise(ScoreRow* scores) const;
  Distribution Filter(uint32_t best, ScoreRow* row, SamplingScratch* scratch) const;

  SamplingOptions options_;
  uint32_t vocab_size_;
  const kernels::Table* kernels_;
  std::unique_ptr<TokenHistory> history_;  // null where no penalty needs it
};

// Log-probabilities under the model itself: log-softmax of the raw logits, before penalties, bias,
// temperature and filters. out[0] is `chosen`, then the best `top` in descending order (`chosen`
// may be among them; the lower id first of equals). Replaces what `out` held.
void Logprobs(absl::Span<const float> logits, int32_t chosen, uint32_t top,
              const kernels::Table& table, SamplingScratch* scratch,
              std::vector<TokenLogprob>* out);

}  // namespace qinfer::engine
