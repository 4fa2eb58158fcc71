// Rotation angles: the frequencies of a rope with its scaling applied, and the cosines and sines of
// a position. Computed with our own functions, so that they are the same everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "model/spec.h"

namespace qinfer::exec {

class RopeTable {
 public:
  // `frequency_factors`: rope.dims / 2 divisors, or null.
  RopeTable(const model::RopeSpec& rope, const float* frequency_factors);
  uint32_t half() const { return static_cast<uint32_t>(frequencies_.size()); }
  bool interleaved() const { return interleaved_; }
  // Sequences longer than this turn by the long frequencies (longrope); UINT32_MAX = none do.
  uint32_t switch_length() const { return switch_length_; }
  // cos and sin: half() values each.
  void Fill(uint32_t position, bool is_long, float* cos, float* sin) const;

 private:
  std::vector<double> frequencies_;
  std::vector<double> long_frequencies_;  // longrope
  uint32_t switch_length_ = UINT32_MAX;
  double attention_factor_;
  bool interleaved_;
};

}  // namespace qinfer::exec
