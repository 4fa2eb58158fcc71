// Observes what a phase of a layer shows, in pieces of about 0.1 ms; meanwhile the layer waits, and
// its workspace stays as it is. However rows are cut, statistics come out the same.
#pragma once

#include <cstddef>
#include <vector>

#include "exec/forward.h"
#include "quant/calibration_data.h"

namespace qinfer::quant {

class TapObserver {
 public:
  void Show(const exec::TapInput& input) { inputs_.push_back(input); }
  bool empty() const { return next_ == inputs_.size(); }
  // The next rows of what was shown, where it is not empty. FormatError for values that are not
  // finite; `name` is the checkpoint's.
  Status Step(StatsTable* stats, const std::string& name, Executor* executor);

 private:
  std::vector<exec::TapInput> inputs_;
  size_t next_ = 0;
  uint32_t row_ = 0;  // of the next input
};

}  // namespace qinfer::quant
