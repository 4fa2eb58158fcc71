// What a calibration run leaves in OUT.partial/ now and then, so that a run after a kill goes on
// from there: the samples that the model has written so far, and, once samples are run, the
// statistics, the hidden states of the samples in work, and where it was.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "quant/calibration_data.h"
#include "quant/partial_store.h"

namespace qinfer::quant {

// Samples that the model writes itself, between two of its steps.
struct WrittenSamples {
  std::vector<Sample> samples;                       // in their final order
  std::vector<std::pair<uint64_t, Sample>> waiting;  // finished before an older stream
  std::vector<uint64_t> running;                     // streams that are not finished, ascending
  uint64_t streams = 0;                              // begun so far
  bool complete = false;
};

struct CalibrationPosition {
  enum class In : uint8_t { kWriting, kBetweenPasses, kLayer, kHead };
  In in = In::kWriting;
  // Samples [begin, end) are in work, of which those before `at` are through this layer or head.
  uint64_t begin = 0, end = 0, at = 0;
  uint32_t layer = 0;
};

// Writes by time, and so seldom that it takes a twentieth of the time at most, however large the
// state is. A state is the small file that names the others: it is replaced in one go, after what
// it names is complete.
class CalibrationKeeper {
 public:
  // The store outlives the keeper. `interval_ns`: the least time between two; 0 = whenever asked.
  CalibrationKeeper(PartialStore* store, uint64_t interval_ns);

  bool Due() const;
  Status Save(const WrittenSamples& written, const CalibrationPosition& position,
              const StatsTable& stats, absl::Span<const uint8_t> hidden);

  // Reads what an earlier run has left; false where there is nothing, or nothing whole.
  StatusOr<bool> Find(uint32_t vocab_size);
  const CalibrationPosition& position() const { return position_; }
  WrittenSamples TakeWritten() { return std::move(written_); }
  // The rest of what Find has found. False where it is damaged or of other sizes.
  StatusOr<bool> LoadStats(StatsTable* stats);
  StatusOr<bool> LoadHidden(absl::Span<uint8_t> hidden);

  // Once the calibration itself is kept.
  void Remove();

 private:
  Status SaveStats(const StatsTable& stats);

  PartialStore* const store_;
  const uint64_t interval_ns_;
  uint64_t next_ns_;
  uint32_t turn_ = 0;  // files of two names take turns
  // What Find has found, or Save has written last.
  WrittenSamples written_;
  CalibrationPosition position_;
  uint64_t stats_hash_ = 0, stats_bytes_ = 0, hidden_hash_ = 0, hidden_bytes_ = 0;
};

}  // namespace qinfer::quant
