// Second moments of a linear layer's input, per channel: what weights the search for scales. Sums
// are in double and in the order of tokens, so they do not depend on threads or on how samples were
// cut into runs.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "core/executor.h"
#include "core/memory.h"
#include "quant/observer.h"

namespace qinfer::quant {

class Moments {
 public:
  Moments(uint32_t channels, Memory* memory) : sums_(channels, 0.0, memory) {}

  // Adds the squares of rows [skip, rows): the first token of a sample draws attention sinks whose
  // huge values say nothing about the rest.
  void Observe(const Batch& batch, uint32_t skip, Executor* executor);
  void Merge(const Moments& other);
  uint32_t channels() const { return static_cast<uint32_t>(sums_.size()); }
  uint64_t tokens() const { return tokens_; }
  const std::pmr::vector<double>& sums() const { return sums_; }
  std::pmr::vector<double>* mutable_sums() { return &sums_; }
  void set_tokens(uint64_t tokens) { tokens_ = tokens; }

  // out[channels]: E[x^2] over its mean, kept within [1e-6, 1e6], so that no channel is free and no
  // group divides by zero. All 1 where nothing was seen.
  void Importance(float* out) const;

 private:
  std::pmr::vector<double> sums_;
  uint64_t tokens_ = 0;
};

}  // namespace qinfer::quant
