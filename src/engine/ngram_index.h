// Where in a sequence the last few tokens occurred before, and what followed there: the index of
// prompt lookup. It grows with the sequence, costs about the same for every token, and its size is
// fixed when it is made. Knows tokens and positions, nothing of models or sampling.
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"

namespace qinfer::engine {

// Token sequences only grow: every call gets the tokens of the one before, and perhaps more.
class NgramIndex {
 public:
  static constexpr std::array<uint32_t, 3> kLengths = {4, 2, 1};  // of the runs that are indexed
  static constexpr uint32_t kMaxSlots = 1u << 16;                 // of each length
  static constexpr uint32_t kVisited = 48;   // occurrences of a run that are looked at, the latest
  static constexpr uint32_t kCompared = 32;  // tokens before an occurrence that are compared

  struct Guess {
    int32_t token = -1;
    uint32_t length = 0;  // how many tokens before its best occurrence are the same; 0 = no guess
    double share = 0.0;   // of the votes of all occurrences: 1 = nothing else ever followed
  };

  NgramIndex() = default;
  // For sequences of about `max_tokens`; longer ones forget their older runs.
  static StatusOr<NgramIndex> Create(uint64_t max_tokens, Memory* memory);
  static uint64_t Bytes(uint64_t max_tokens);

  // Indexes what has no entry yet, up to all runs that something follows.
  void Add(absl::Span<const int32_t> tokens);
  // What has followed `context` in the tokens that were added: each occurrence of its end votes for
  // what came next, and a longer one outvotes many shorter ones. Of equals the longer wins, then
  // the latest.
  Guess Next(absl::Span<const int32_t> tokens, absl::Span<const int32_t> context) const;

 private:
  size_t Slot(size_t kind, const int32_t* end) const;
  size_t Latest(size_t kind) const { return 2 * kind * slot_count_; }
  size_t Before(size_t kind) const { return Latest(kind) + slot_count_; }

  // A slot holds the end of the latest run that hashes to it, whichever that is; the one before it
  // with the same hash is at [end % slot_count_] of `before`, which later tokens overwrite. What is
  // found is compared, so that neither matters.
  Buffer slots_;  // [kLengths][latest, before][slot_count_]
  uint32_t slot_count_ = 0;
  uint32_t indexed_ = 0;  // runs that end at or before this are in
};

}  // namespace qinfer::engine
