// From a row of logits to a token: processors and samplers in the order and with the meaning of
// transformers' logits processors; frequency and presence penalties as OpenAI defines them. The
// random numbers are a counter-based generator keyed by seed and position.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels/kernels.h"

namespace qinfer::engine {

struct SamplingOptions {
  bool greedy = false;  // the largest logit after penalties and bias
  float temperature = 1.0f;
  uint32_t top_k = 0;               // 0 = off
  float top_p = 1.0f;               // 1 = off
  float min_p = 0.0f;               // 0 = off
  float repetition_penalty = 1.0f;  // 1 = off
  float frequency_penalty = 0.0f, presence_penalty = 0.0f;
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint64_t seed = 0;
};
// MisuseError names the option and its range.
Status ValidateSampling(const SamplingOptions& options, uint32_t vocab_size);

}  // namespace qinfer::engine
