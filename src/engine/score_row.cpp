// Selection by maxima: of groups first, then of panels, then by the values of the panels left.
#include "engine/score_row.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "core/checked.h"

namespace qinfer::engine {
namespace {

// The k-th largest of n values (1 <= k <= n), which are left in another order.
float KthOf(float* x, size_t n, size_t k) {
  if (k > 512) {
    std::nth_element(x, x + (k - 1), x + n, std::greater<float>());
    return x[k - 1];
  }
  std::make_heap(x, x + k, std::greater<float>());
  for (size_t i = k; i < n; ++i) {
    if (!(x[i] > x[0])) continue;
    std::pop_heap(x, x + k, std::greater<float>());
    x[k - 1] = x[i];
    std::push_heap(x, x + k, std::greater<float>());
  }
  return x[0];
}

}  // namespace

ScoreRow::ScoreRow(absl::Span<const float> logits, const float* maxima, SamplingScratch* scratch,
                   const kernels::Table* kernels)
    : logits_(logits.data()),
      size_(logits.size()),
      panels_(CeilDiv<size_t>(size_, kPanel)),
      groups_(CeilDiv<size_t>(panels_, kPanel)),
      maxima_(maxima),
      own_maxima_(scratch->maxima()),
      group_maxima_(scratch->group_maxima()),
      patched_(scratch->patched()),
      scores_(scratch->scores()),
      gathered_(scratch->weights()),
      ids_(scratch->ids()),
      kernels_(kernels) {}

float& ScoreRow::Patch(uint32_t token) {
  const uint32_t panel = token / kPanel;
  if (patches_ == 0) {
    std::memset(patched_, 0, panels_);
    if (maxima_ != own_maxima_) std::memcpy(own_maxima_, maxima_, panels_ * sizeof(float));
    maxima_ = own_maxima_;
  }
  if (patches_ == 0 || patched_[panel] == 0) {
    patched_[panel] = 1;
    ids_[patches_++] = panel;
    std::copy(logits_ + size_t{panel} * kPanel, logits_ + PanelEnd(panel),
              scores_ + size_t{panel} * kPanel);
  }
  return scores_[token];
}

void ScoreRow::Done() {
  for (size_t i = 0; i < patches_; ++i) {
    const size_t begin = size_t{ids_[i]} * kPanel;
    kernels_->panel_maxima(scores_ + begin, PanelEnd(ids_[i]) - begin, own_maxima_ + ids_[i]);
  }
  kernels_->panel_maxima(maxima_, panels_, group_maxima_);
}

void ScoreRow::SetTemperature(float temperature) {
  temperature_ = temperature;
  for (size_t i = 0; i < patches_; ++i) {
    const size_t end = PanelEnd(ids_[i]);
    for (size_t t = size_t{ids_[i]} * kPanel; t < end; ++t) scores_[t] /= temperature;
  }
  for (size_t g = 0; g < groups_; ++g) group_maxima_[g] /= temperature;
}

template <typename F>
void ScoreRow::ForPanels(float limit, F&& f) const {
  for (size_t g = 0; g < groups_; ++g) {
    if (!(group_maxima_[g] >= limit)) continue;
    const size_t end = std::min(panels_, (g + 1) * kPanel);
    for (size_t p = g * kPanel; p < end; ++p) {
      if (PanelMax(p) >= limit) f(p);
    }
  }
}

uint32_t ScoreRow::Best() const {
  const size_t group = kernels_->argmax(group_maxima_, groups_);
  const float top = group_maxima_[group];
  size_t panel = group * kPanel;
  while (panel + 1 < panels_ && PanelMax(panel) != top) ++panel;
  uint32_t token = static_cast<uint32_t>(panel * kPanel);
  while (token + 1 < size_ && Value(token) != top) ++token;
  return token;
}

float ScoreRow::KthLargest(size_t k) {
  // The k-th largest maximum is the value of some token, and k - 1 others have no less: whatever is
  // smaller is not among the k largest, nor is what lies in panels whose maximum is smaller.
  float limit = -std::numeric_limits<float>::infinity();
  if (k <= groups_) {
    std::copy(group_maxima_, group_maxima_ + groups_, gathered_);
    limit = KthOf(gathered_, groups_, k);
  }
  size_t count = 0;
  if (k <= panels_) {
    ForPanels(limit, [&](size_t panel) { gathered_[count++] = PanelMax(panel); });
    limit = KthOf(gathered_, count, k);
  }
  count = 0;
  ForPanels(limit, [&](size_t panel) {
    const size_t end = PanelEnd(panel);
    for (size_t t = panel * kPanel; t < end; ++t) {
      gathered_[count] = Value(static_cast<uint32_t>(t));
      count += gathered_[count] >= limit ? 1 : 0;
    }
  });
  return KthOf(gathered_, count, k);
}

size_t ScoreRow::Collect(float threshold) {
  const float limit = std::max(threshold, std::numeric_limits<float>::lowest());
  size_t count = 0;
  ForPanels(limit, [&](size_t panel) {
    const size_t end = PanelEnd(panel);
    for (size_t t = panel * kPanel; t < end; ++t) {
      const float value = scores_[t] = Value(static_cast<uint32_t>(t));
      ids_[count] = static_cast<uint32_t>(t);
      count += value >= limit ? 1 : 0;
    }
  });
  return count;
}

const float* ScoreRow::All() {
  if (all_) return scores_;
  const auto divide = [this](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) scores_[t] = logits_[t] / temperature_;
  };
  size_t begin = 0;
  for (size_t panel = 0; patches_ != 0 && panel < panels_; ++panel) {
    if (patched_[panel] == 0) continue;
    divide(begin, panel * kPanel);
    begin = PanelEnd(panel);
  }
  divide(begin, size_);
  all_ = true;
  return scores_;
}

}  // namespace qinfer::engine
