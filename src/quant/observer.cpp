// The table of observers and range methods, and the scan that several observers share.
#include "quant/observer.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace qinfer::quant {
namespace {

struct KindRow {
  ObserverKind kind;
  std::string_view name;
};
constexpr std::array<KindRow, 3> kKinds = {{{ObserverKind::kMinMax, "minmax"},
                                            {ObserverKind::kHistogram, "histogram"},
                                            {ObserverKind::kEma, "ema"}}};
struct MethodRow {
  RangeMethod method;
  std::string_view name;
};
constexpr std::array<MethodRow, 4> kMethods = {{{RangeMethod::kMinMax, "minmax"},
                                                {RangeMethod::kPercentile, "percentile"},
                                                {RangeMethod::kMse, "mse"},
                                                {RangeMethod::kKl, "kl"}}};

}  // namespace

std::string_view ObserverName(ObserverKind kind) {
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return row.name;
  }
  return "?";
}

StatusOr<ObserverKind> ParseObserver(std::string_view name) {
  for (const KindRow& row : kKinds) {
    if (row.name == name) return row.kind;
  }
  return UnsupportedError(
      StrCat("observer \"", std::string(name), "\" is not one of minmax, histogram, ema"));
}

std::string_view RangeMethodName(RangeMethod method) {
  for (const MethodRow& row : kMethods) {
    if (row.method == method) return row.name;
  }
  return "?";
}

StatusOr<RangeMethod> ParseRangeMethod(std::string_view name) {
  for (const MethodRow& row : kMethods) {
    if (row.name == name) return row.method;
  }
  return UnsupportedError(
      StrCat("range method \"", std::string(name), "\" is not one of minmax, percentile, mse, kl"));
}

StatusOr<std::unique_ptr<Observer>> CreateObserver(ObserverKind kind,
                                                   const ObserverOptions& options, Memory* memory) {
  switch (kind) {
    case ObserverKind::kMinMax:
      return CreateMinMaxObserver();
    case ObserverKind::kEma:
      if (!(options.ema_alpha >= 0.0 && options.ema_alpha < 1.0)) {
        return MisuseError(
            StrCat("ema_alpha is ", options.ema_alpha, "; it must be in [0, 1), 0.95 is usual"));
      }
      return CreateEmaObserver(options.ema_alpha);
    case ObserverKind::kHistogram:
      return CreateHistogramObserver(memory);
  }
  return MisuseError("unknown observer kind");
}

Extremes FindExtremes(const Batch& batch, Executor* executor) {
  // Minimum, maximum and counts come out the same however the rows are cut.
  constexpr uint32_t kMaxParts = 64;
  std::array<Extremes, kMaxParts> parts;
  const uint32_t count =
      std::clamp<uint32_t>(executor->concurrency() * 2, 1, std::min(kMaxParts, batch.rows + 1));
  ParallelFor(executor, count, [&](uint32_t part) {
    Extremes e;
    const uint32_t begin = static_cast<uint32_t>(uint64_t{batch.rows} * part / count);
    const uint32_t end = static_cast<uint32_t>(uint64_t{batch.rows} * (part + 1) / count);
    for (uint32_t r = begin; r < end; ++r) {
      const float* row = batch.x + r * batch.stride;
      for (uint32_t c = 0; c < batch.cols; ++c) {
        const float v = row[c];
        if (!std::isfinite(v)) {
          ++e.non_finite;
          continue;
        }
        if (e.finite == 0 || v < e.min) e.min = v;
        if (e.finite == 0 || v > e.max) e.max = v;
        ++e.finite;
      }
    }
    parts[part] = e;
  });
  Extremes all;
  for (uint32_t part = 0; part < count; ++part) all.Add(parts[part]);
  return all;
}

void Extremes::Add(const Extremes& more) {
  if (more.finite != 0) {
    if (finite == 0 || more.min < min) min = more.min;
    if (finite == 0 || more.max > max) max = more.max;
  }
  finite += more.finite;
  non_finite += more.non_finite;
}

}  // namespace qinfer::quant
