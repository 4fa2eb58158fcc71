// What watches values go by and says afterwards which range they had: the interface, its table of
// kinds, and the bytes in which calibration files keep an observer's state. One kind per file;
// where the values come from is not known here.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "core/executor.h"
#include "core/memory.h"
#include "core/status.h"
#include "quant/quantize.h"

namespace qinfer::quant {

class ByteReader;
class ByteWriter;

struct Range {
  double min = 0.0, max = 0.0;
  // The scale magnitude of symmetric codes: the larger of the two ends.
  double Magnitude() const { return -min > max ? -min : max; }
  bool operator==(const Range&) const = default;
};

struct RangeOptions {
  RangeMethod method = RangeMethod::kMse;
  double percentile = 99.99;
  uint32_t levels = 127;  // positive codes of the symmetric quantizer that MSE and KL assume
};

struct ObserverOptions {
  double ema_alpha = 0.95;
};

// One batch: [rows][cols] with a stride. Values that are not finite are counted and left out.
struct Batch {
  const float* x = nullptr;
  size_t stride = 0;
  uint32_t rows = 0, cols = 0;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual ObserverKind kind() const = 0;
  // The result does not depend on how many threads `executor` has. `memory` may be used for
  // scratch.
  Status Observe(const Batch& batch, Executor* executor) {
    return ObservePart(batch, /*last=*/true, executor);
  }
  // The next rows of a batch, which ends with the `last` of them; with the same result, however it
  // is cut.
  virtual Status ObservePart(const Batch& rows, bool last, Executor* executor) = 0;
  virtual Range range(const RangeOptions& options) const = 0;
  virtual Status Merge(const Observer& other) = 0;  // MisuseError for another kind
  virtual void Save(ByteWriter* out) const = 0;
  virtual Status Load(ByteReader* in) = 0;
  uint64_t values() const { return values_; }
  uint64_t non_finite() const { return non_finite_; }

 protected:
  uint64_t values_ = 0, non_finite_ = 0;
};

StatusOr<std::unique_ptr<Observer>> CreateObserver(ObserverKind kind,
                                                   const ObserverOptions& options, Memory* memory);
// "minmax", "histogram", "ema"; "minmax", "percentile", "mse", "kl". UnsupportedError lists them.
std::string_view ObserverName(ObserverKind kind);
StatusOr<ObserverKind> ParseObserver(std::string_view name);
std::string_view RangeMethodName(RangeMethod method);
StatusOr<RangeMethod> ParseRangeMethod(std::string_view name);
// Bytes that an observer of this kind takes from Memory.
uint64_t ObserverBytes(ObserverKind kind);

std::unique_ptr<Observer> CreateMinMaxObserver();
std::unique_ptr<Observer> CreateEmaObserver(double alpha);
StatusOr<std::unique_ptr<Observer>> CreateHistogramObserver(Memory* memory);

// Smallest and largest finite value, count of the others; the same for any number of threads.
struct Extremes {
  float min = 0.0f, max = 0.0f;
  uint64_t finite = 0, non_finite = 0;
  void Add(const Extremes& more);
};
Extremes FindExtremes(const Batch& batch, Executor* executor);

}  // namespace qinfer::quant
