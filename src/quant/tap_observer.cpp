// Rows of one input after the other into its moments and its observer.
#include "quant/tap_observer.h"

#include <algorithm>

namespace qinfer::quant {
namespace {

// Values that are observed at once on each thread.
constexpr uint64_t kUnitValues = 24 << 10;

}  // namespace

Status TapObserver::Step(StatsTable* stats, const std::string& name, Executor* executor) {
  const exec::TapInput& input = inputs_[next_];
  const model::LinearRole role = InputOf(input.role);
  InputStats* found = FindStats(*stats, input.layer, role, input.part);
  bool last = found == nullptr || input.tokens == 0;
  if (!last) {
    if (found->moments.channels() != input.cols) {
      return InternalError("a tapped input has an unexpected width");
    }
    const uint64_t unit = kUnitValues * executor->concurrency() / std::max(1u, input.cols);
    const auto rows = static_cast<uint32_t>(std::clamp<uint64_t>(unit, 1, input.tokens - row_));
    const Batch batch{input.x + row_ * input.stride, input.stride, rows, input.cols};
    last = row_ + rows == input.tokens;
    QINFER_RETURN_IF_ERROR(found->observer->ObservePart(batch, last, executor));
    if (found->observer->non_finite() != 0) {
      return FormatError(
          StrCat(name, ": the input of ", std::string(model::RoleName(role)),
                 input.layer == UINT32_MAX ? std::string() : StrCat(" in layer ", input.layer),
                 " is not finite; the model's weights are damaged or overflow"));
    }
    found->moments.Observe(batch, row_ == 0 ? 1 : 0, executor);
    row_ += rows;
  }
  if (!last) return OkStatus();
  row_ = 0;
  if (++next_ < inputs_.size()) return OkStatus();
  inputs_.clear();
  next_ = 0;
  return OkStatus();
}

}  // namespace qinfer::quant
