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
  // Of a position in a sequence that is `length` tokens long in the end. cos and sin: half() values
  // each.
  void Fill(uint32_t position, uint32_t length, float* cos, float* sin) const;

 private:
  std::vector<double> frequencies_;
  std::vector<double> long_frequencies_;  // longrope
  uint32_t switch_length_ = UINT32_MAX;   // longer sequences turn by the long frequencies
  // Dynamic: longer sequences than the original context turn by frequencies of a larger theta.
  bool dynamic_ = false;
  double theta_, factor_;
  uint32_t original_context_;
  double attention_factor_;
  bool interleaved_;
};

}  // namespace qinfer::exec
