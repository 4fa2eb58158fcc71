// The Histogram observer: counts in bins, from which a range is chosen afterwards by percentile,
// squared error or KL divergence. The default for activations.
#include <algorithm>
#include <cmath>

#include "quant/bytes.h"
#include "quant/histogram.h"
#include "quant/observer.h"

namespace qinfer::quant {
namespace {

class HistogramObserver final : public Observer {
 public:
  explicit HistogramObserver(Memory* memory) : memory_(memory), histogram_(memory) {}
  ObserverKind kind() const override { return ObserverKind::kHistogram; }

  Status ObservePart(const Batch& batch, bool, Executor* executor) override {
    const Extremes e = FindExtremes(batch, executor);
    non_finite_ += e.non_finite;
    if (e.finite == 0) return OkStatus();
    histogram_.Grow(std::max(std::fabs(e.min), std::fabs(e.max)));
    // Counts are integers, so any cut of the rows gives the same sums.
    const uint32_t parts =
        std::clamp<uint32_t>(executor->concurrency(), 1, std::min<uint32_t>(16, batch.rows));
    QINFER_ASSIGN_OR_RETURN(
        Buffer scratch, Buffer::Create(memory_, size_t{parts} * Histogram::kBins * sizeof(uint32_t),
                                       "histogram counts"));
    uint32_t* counts = scratch.as<uint32_t>();
    const float to_bin = static_cast<float>(std::ldexp(Histogram::kBins / 2, -histogram_.exponent));
    const bool fast = std::isnormal(to_bin);
    ParallelFor(executor, parts, [&](uint32_t part) {
      uint32_t* mine = counts + size_t{part} * Histogram::kBins;
      std::fill_n(mine, Histogram::kBins, 0u);
      const uint32_t begin = static_cast<uint32_t>(uint64_t{batch.rows} * part / parts);
      const uint32_t end = static_cast<uint32_t>(uint64_t{batch.rows} * (part + 1) / parts);
      for (uint32_t r = begin; r < end; ++r) {
        const float* row = batch.x + r * batch.stride;
        for (uint32_t c = 0; c < batch.cols; ++c) {
          const float v = row[c];
          if (!std::isfinite(v)) continue;
          if (fast) {
            // The product is exact and within [-kBins/2, kBins/2): the same bin as BinOf.
            const int bin = static_cast<int>(std::floor(v * to_bin)) + int{Histogram::kBins / 2};
            ++mine[std::clamp(bin, 0, int{Histogram::kBins - 1})];
          } else {
            ++mine[histogram_.BinOf(v)];
          }
        }
      }
    });
    for (uint32_t part = 0; part < parts; ++part) {
      for (uint32_t j = 0; j < Histogram::kBins; ++j) {
        histogram_.bins[j] += counts[size_t{part} * Histogram::kBins + j];
      }
    }
    histogram_.total += e.finite;
    extremes_.min = values_ == 0 ? e.min : std::min<double>(extremes_.min, e.min);
    extremes_.max = values_ == 0 ? e.max : std::max<double>(extremes_.max, e.max);
    values_ += e.finite;
    return OkStatus();
  }

  Range range(const RangeOptions& options) const override {
    Range range = extremes_;
    double threshold = extremes_.Magnitude();
    switch (options.method) {
      case RangeMethod::kMinMax:
        return extremes_;
      case RangeMethod::kPercentile:
        range = PercentileRange(histogram_, options.percentile);
        break;
      case RangeMethod::kMse:
        threshold = MseThreshold(histogram_, options.levels);
        break;
      case RangeMethod::kKl:
        threshold = KlThreshold(histogram_, options.levels);
        break;
    }
    range.min = std::max({range.min, extremes_.min, -threshold});
    range.max = std::min({range.max, extremes_.max, threshold});
    return range;
  }

  Status Merge(const Observer& other) override {
    if (other.kind() != kind()) return MisuseError("observers of different kinds do not merge");
    const auto& that = static_cast<const HistogramObserver&>(other);
    non_finite_ += that.non_finite_;
    if (that.values_ == 0) return OkStatus();
    histogram_.Add(that.histogram_);
    extremes_.min = values_ == 0 ? that.extremes_.min : std::min(extremes_.min, that.extremes_.min);
    extremes_.max = values_ == 0 ? that.extremes_.max : std::max(extremes_.max, that.extremes_.max);
    values_ += that.values_;
    return OkStatus();
  }

  void Save(ByteWriter* out) const override {
    out->Put(values_);
    out->Put(extremes_.min);
    out->Put(extremes_.max);
    out->Put<int32_t>(histogram_.exponent);
    out->Put<uint32_t>(Histogram::kBins);
    out->PutBytes(histogram_.bins.data(), Histogram::kBins * sizeof(uint64_t));
  }
  Status Load(ByteReader* in) override {
    int32_t exponent = 0;
    uint32_t bins = 0;
    QINFER_RETURN_IF_ERROR(in->Get(&values_));
    QINFER_RETURN_IF_ERROR(in->Get(&extremes_.min));
    QINFER_RETURN_IF_ERROR(in->Get(&extremes_.max));
    QINFER_RETURN_IF_ERROR(in->Get(&exponent));
    QINFER_RETURN_IF_ERROR(in->Get(&bins));
    if (bins != Histogram::kBins || exponent < Histogram::kMinExponent ||
        exponent > Histogram::kMaxExponent || !std::isfinite(extremes_.min) ||
        !std::isfinite(extremes_.max) || extremes_.min > extremes_.max) {
      return FormatError(StrCat(std::string(in->name()), ": a histogram before byte ", in->offset(),
                                " has ", bins, " bins and exponent ", exponent, "; ",
                                Histogram::kBins, " bins are expected"));
    }
    QINFER_RETURN_IF_ERROR(
        in->GetBytes(histogram_.bins.data(), Histogram::kBins * sizeof(uint64_t)));
    uint64_t total = 0;
    for (uint64_t count : histogram_.bins) {
      if (__builtin_add_overflow(total, count, &total)) total = UINT64_MAX;
    }
    if (total != values_) {
      return FormatError(StrCat(std::string(in->name()), ": the counts of a histogram before byte ",
                                in->offset(), " do not add up to its total"));
    }
    histogram_.exponent = exponent;
    histogram_.total = total;
    return OkStatus();
  }

 private:
  Memory* memory_;
  Histogram histogram_;
  Range extremes_;
};

}  // namespace

StatusOr<std::unique_ptr<Observer>> CreateHistogramObserver(Memory* memory) {
  return std::unique_ptr<Observer>(std::make_unique<HistogramObserver>(memory));
}

uint64_t ObserverBytes(ObserverKind kind) {
  return kind == ObserverKind::kHistogram ? Histogram::kBins * sizeof(uint64_t) : 0;
}

}  // namespace qinfer::quant
