// Where in a sequence the last few tokens occurred before: the index of prompt lookup. It grows
// with the sequence, costs the same for every token, and its size is fixed when it is made. Knows
// tokens and positions, nothing of models or sampling.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"

namespace qinfer::engine {

// Token sequences only grow: every call gets the tokens of the one before, and perhaps more.
class NgramIndex {
 public:
  static constexpr uint32_t kShortest = 2, kLongest = 4;  // lengths of the runs that are indexed
  static constexpr uint32_t kMaxSlots = 1u << 16;         // of each length

  struct Match {
    uint32_t end = 0;     // what followed it begins here; 0 = there is no match
    uint32_t length = 0;  // how many tokens before `end` equal the last ones, up to kCompared
  };
  static constexpr uint32_t kCompared = 32;

  NgramIndex() = default;
  // For sequences of about `max_tokens`; longer ones forget some of their older runs.
  static StatusOr<NgramIndex> Create(uint64_t max_tokens, Memory* memory);
  static uint64_t Bytes(uint64_t max_tokens);

  // The latest earlier occurrence of the last kLongest tokens; failing that of fewer, down to
  // kShortest.
  Match Find(absl::Span<const int32_t> tokens);
  // What followed the match, and then, where the sequence ends, what would follow if it went on
  // repeating itself. Writes `count` tokens.
  static void Continue(absl::Span<const int32_t> tokens, const Match& match, uint32_t count,
                       int32_t* out);

 private:
  uint32_t* Slot(absl::Span<const int32_t> tokens, uint32_t end, uint32_t length);

  // A slot holds the end of the latest run that hashes to it, whichever that is: a run that has
  // been displaced is not found, and what is found is compared.
  Buffer slots_;  // [kLongest - kShortest + 1][slot_count_]
  uint32_t slot_count_ = 0;
  uint32_t indexed_ = 0;  // runs that end at or before this are in
};

}  // namespace qinfer::engine
