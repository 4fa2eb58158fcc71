// Hashing runs of tokens, comparing what the hashes find, and counting votes.
#include "engine/ngram_index.h"

#include <algorithm>
#include <cstring>

namespace qinfer::engine {
namespace {

uint32_t SlotCount(uint64_t max_tokens) {
  uint32_t slots = 64;
  while (slots < NgramIndex::kMaxSlots && slots < max_tokens) slots *= 2;
  return slots;
}

// The vote of an occurrence: three times as much for each token more that is the same.
double Weight(uint32_t length) {
  static constexpr double kWeights[] = {1,   3,    9,    27,    81,    243,
                                        729, 2187, 6561, 19683, 59049, 177147};
  return kWeights[std::min<size_t>(length, std::size(kWeights)) - 1];
}

struct Candidate {
  int32_t token;
  uint32_t length;  // of its longest occurrence
  double votes;
};

}  // namespace

uint64_t NgramIndex::Bytes(uint64_t max_tokens) {
  return uint64_t{2 * kLengths.size()} * SlotCount(max_tokens) * sizeof(uint32_t);
}

StatusOr<NgramIndex> NgramIndex::Create(uint64_t max_tokens, Memory* memory) {
  NgramIndex index;
  index.slot_count_ = SlotCount(max_tokens);
  QINFER_ASSIGN_OR_RETURN(index.slots_,
                          Buffer::Create(memory, Bytes(max_tokens), "the prompt-lookup index"));
  std::memset(index.slots_.data(), 0, index.slots_.size());
  return index;
}

size_t NgramIndex::Slot(size_t kind, const int32_t* end) const {
  uint64_t hash = kLengths[kind];
  for (const int32_t* token = end - kLengths[kind]; token < end; ++token) {
    hash = (hash ^ static_cast<uint32_t>(*token)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return static_cast<uint32_t>(hash >> 16) & (slot_count_ - 1);
}

void NgramIndex::Add(absl::Span<const int32_t> tokens) {
  uint32_t* slots = slots_.as<uint32_t>();
  // The run at the very end stays out: nothing follows it yet.
  for (; indexed_ + 1 < tokens.size(); ++indexed_) {
    const uint32_t end = indexed_ + 1;
    for (size_t kind = 0; kind < kLengths.size(); ++kind) {
      if (kLengths[kind] > end) continue;
      uint32_t* latest = slots + Latest(kind) + Slot(kind, tokens.data() + end);
      slots[Before(kind) + (end & (slot_count_ - 1))] = *latest;
      *latest = end;
    }
  }
}

NgramIndex::Guess NgramIndex::Next(absl::Span<const int32_t> tokens,
                                   absl::Span<const int32_t> context) const {
  const uint32_t* slots = slots_.as<uint32_t>();
  std::array<Candidate, kLengths.size() * kVisited> candidates;
  size_t count = 0;
  double all = 0.0;
  for (size_t kind = 0; kind < kLengths.size(); ++kind) {
    if (kLengths[kind] > context.size()) continue;
    // Longer ones have voted already, with the longer kind.
    const uint32_t most = kind == 0 ? kCompared : kLengths[kind - 1] - 1;
    const uint32_t enough = std::min(kCompared, most + 1);  // to know whether it counts
    uint32_t end = slots[Latest(kind) + Slot(kind, context.data() + context.size())];
    for (uint32_t visited = 0; end != 0 && visited < kVisited; ++visited) {
      uint32_t same = 0;
      const uint32_t comparable =
          std::min<uint32_t>({end, enough, static_cast<uint32_t>(context.size())});
      while (same < comparable && tokens[end - 1 - same] == context[context.size() - 1 - same]) {
        ++same;
      }
      if (same >= kLengths[kind] && same <= most) {
        const int32_t token = tokens[end];
        Candidate* one = std::find_if(candidates.data(), candidates.data() + count,
                                      [token](const Candidate& c) { return c.token == token; });
        if (one == candidates.data() + count) candidates[count++] = {token, 0, 0.0};
        one->length = std::max(one->length, same);
        one->votes += Weight(same);
        all += Weight(same);
      }
      // What is further back than the table is long has been overwritten.
      if (indexed_ - end >= slot_count_) break;
      end = slots[Before(kind) + (end & (slot_count_ - 1))];
    }
  }
  if (count == 0) return {};
  const Candidate* best =
      std::max_element(candidates.data(), candidates.data() + count,
                       [](const Candidate& a, const Candidate& b) { return a.votes < b.votes; });
  return {best->token, best->length, best->votes / all};
}

}  // namespace qinfer::engine
