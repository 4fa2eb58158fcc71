// The scores of a row of logits after bias, penalties and temperature, of which few are ever
// computed: panels of 16 whose largest logit is known are passed over unless they have something to
// give, and bias and penalties change the panels of the tokens they name and no others. Which
// tokens are wanted is decided by the sampler.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "engine/sampling.h"

namespace qinfer::engine {

// Lives in a sampler's scratch, whose weights are free for others between calls. Values are logits,
// or numbers that Patch made of them (infinities too, never NaN), divided by the temperature. A
// division keeps the order, so that the largest of a panel is divided and not found again.
class ScoreRow {
 public:
  // `maxima`: of the logits, as kernels::Table::panel_maxima has them. Both stay where they are.
  ScoreRow(absl::Span<const float> logits, const float* maxima, SamplingScratch* scratch,
           const kernels::Table* kernels);

  // First what changes logits, each call good until the next; then Done, then the temperature.
  float& Patch(uint32_t token);
  void Done();
  void SetTemperature(float temperature);

  float Value(uint32_t token) const {
    return all_ || Patched(token / kPanel) ? scores_[token] : logits_[token] / temperature_;
  }
  // The largest value's token, the lowest of equals.
  uint32_t Best() const;
  // The k-th largest value, 1 <= k <= all.
  float KthLargest(size_t k);
  // Tokens of at least `threshold`, in ascending order, to the scratch's ids, and their values to
  // its scores; excluded ones (-infinity) never. Returns how many.
  size_t Collect(float threshold);
  // All values, in the scratch's scores.
  const float* All();

 private:
  static constexpr uint32_t kPanel = kernels::kPanelRows;

  bool Patched(size_t panel) const { return patches_ != 0 && patched_[panel] != 0; }
  size_t PanelEnd(size_t panel) const { return std::min(size_, (panel + 1) * kPanel); }
  float PanelMax(size_t panel) const { return maxima_[panel] / temperature_; }
  // f(panel) for those whose maximum is at least `limit`, in order.
  template <typename F>
  void ForPanels(float limit, F&& f) const;

  const float* const logits_;
  const size_t size_, panels_, groups_;
  const float* maxima_;        // of panels, before the temperature
  float* const own_maxima_;    // where patches make a copy of them
  float* const group_maxima_;  // of 16 panels, after the temperature
  uint8_t* const patched_;     // whether a panel is in scores_
  float* const scores_;
  float* const gathered_;
  uint32_t* const ids_;  // until Collect: the patched panels
  const kernels::Table* const kernels_;
  size_t patches_ = 0;
  float temperature_ = 1.0f;
  bool all_ = false;
};

}  // namespace qinfer::engine
