// The EMA observer: exponential moving averages of each batch's minimum and maximum, for streams
// whose rare extremes should fade. Depends on the order of batches by its nature.
#include <algorithm>
#include <cmath>
#include <utility>

#include "quant/bytes.h"
#include "quant/observer.h"

namespace qinfer::quant {
namespace {

class EmaObserver final : public Observer {
 public:
  explicit EmaObserver(double alpha) : alpha_(alpha) {}
  ObserverKind kind() const override { return ObserverKind::kEma; }

  // The first batch sets the average, so that it is not pulled to zero.
  Status ObservePart(const Batch& rows, bool last, Executor* executor) override {
    batch_.Add(FindExtremes(rows, executor));
    if (!last) {
      non_finite_ += std::exchange(batch_.non_finite, 0);
      return OkStatus();
    }
    const Extremes e = std::exchange(batch_, {});
    non_finite_ += e.non_finite;
    if (e.finite == 0) return OkStatus();
    if (batches_ == 0) {
      range_ = {e.min, e.max};
    } else {
      range_.min = alpha_ * range_.min + (1.0 - alpha_) * e.min;
      range_.max = alpha_ * range_.max + (1.0 - alpha_) * e.max;
    }
    values_ += e.finite;
    ++batches_;
    return OkStatus();
  }
  Range range(const RangeOptions&) const override { return range_; }

  // Two averages cannot be replayed as one stream: they are averaged by their numbers of batches.
  Status Merge(const Observer& other) override {
    if (other.kind() != kind()) return MisuseError("observers of different kinds do not merge");
    const auto& that = static_cast<const EmaObserver&>(other);
    non_finite_ += that.non_finite_;
    if (that.batches_ == 0) return OkStatus();
    const double mine = static_cast<double>(batches_), theirs = static_cast<double>(that.batches_);
    range_.min = (mine * range_.min + theirs * that.range_.min) / (mine + theirs);
    range_.max = (mine * range_.max + theirs * that.range_.max) / (mine + theirs);
    batches_ += that.batches_;
    values_ += that.values_;
    return OkStatus();
  }

  void Save(ByteWriter* out) const override {
    out->Put(values_);
    out->Put(range_.min);
    out->Put(range_.max);
    out->Put(alpha_);
    out->Put(batches_);
  }
  Status Load(ByteReader* in) override {
    QINFER_RETURN_IF_ERROR(in->Get(&values_));
    QINFER_RETURN_IF_ERROR(in->Get(&range_.min));
    QINFER_RETURN_IF_ERROR(in->Get(&range_.max));
    QINFER_RETURN_IF_ERROR(in->Get(&alpha_));
    QINFER_RETURN_IF_ERROR(in->Get(&batches_));
    if (!std::isfinite(range_.min) || !std::isfinite(range_.max) || range_.min > range_.max ||
        !(alpha_ >= 0.0 && alpha_ < 1.0)) {
      return FormatError(StrCat(std::string(in->name()), ": a moving average before byte ",
                                in->offset(), " is out of range"));
    }
    return OkStatus();
  }

 private:
  double alpha_;
  Range range_;
  uint64_t batches_ = 0;
  Extremes batch_;  // of the part of a batch that has been seen
};

}  // namespace

std::unique_ptr<Observer> CreateEmaObserver(double alpha) {
  return std::make_unique<EmaObserver>(alpha);
}

}  // namespace qinfer::quant
