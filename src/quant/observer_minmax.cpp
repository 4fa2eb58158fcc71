// The MinMax observer: the smallest and the largest value ever seen. The default for weights.
#include <algorithm>
#include <cmath>

#include "quant/bytes.h"
#include "quant/observer.h"

namespace qinfer::quant {
namespace {

class MinMaxObserver final : public Observer {
 public:
  ObserverKind kind() const override { return ObserverKind::kMinMax; }

  Status ObservePart(const Batch& batch, bool, Executor* executor) override {
    const Extremes e = FindExtremes(batch, executor);
    if (e.finite != 0) Add({e.min, e.max}, e.finite);
    non_finite_ += e.non_finite;
    return OkStatus();
  }
  Range range(const RangeOptions&) const override { return range_; }

  Status Merge(const Observer& other) override {
    if (other.kind() != kind()) return MisuseError("observers of different kinds do not merge");
    const auto& that = static_cast<const MinMaxObserver&>(other);
    if (that.values_ != 0) Add(that.range_, that.values_);
    non_finite_ += that.non_finite_;
    return OkStatus();
  }

  void Save(ByteWriter* out) const override {
    out->Put(values_);
    out->Put(range_.min);
    out->Put(range_.max);
  }
  Status Load(ByteReader* in) override {
    QINFER_RETURN_IF_ERROR(in->Get(&values_));
    QINFER_RETURN_IF_ERROR(in->Get(&range_.min));
    QINFER_RETURN_IF_ERROR(in->Get(&range_.max));
    if (!std::isfinite(range_.min) || !std::isfinite(range_.max) || range_.min > range_.max) {
      return FormatError(StrCat(std::string(in->name()), ": a range before byte ", in->offset(),
                                " is not finite or not ordered"));
    }
    return OkStatus();
  }

 private:
  void Add(const Range& range, uint64_t count) {
    range_.min = values_ == 0 ? range.min : std::min(range_.min, range.min);
    range_.max = values_ == 0 ? range.max : std::max(range_.max, range.max);
    values_ += count;
  }
  Range range_;
};

}  // namespace

std::unique_ptr<Observer> CreateMinMaxObserver() { return std::make_unique<MinMaxObserver>(); }

}  // namespace qinfer::quant
