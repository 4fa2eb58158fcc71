// Hashing runs of tokens, and comparing what the hashes find.
#include "engine/ngram_index.h"

#include <algorithm>
#include <cstring>

namespace qinfer::engine {
namespace {

uint32_t SlotCount(uint64_t max_tokens) {
  uint32_t slots = 64;
  while (slots < NgramIndex::kMaxSlots && slots < 4 * max_tokens) slots *= 2;
  return slots;
}

}  // namespace

uint64_t NgramIndex::Bytes(uint64_t max_tokens) {
  return uint64_t{kLongest - kShortest + 1} * SlotCount(max_tokens) * sizeof(uint32_t);
}

StatusOr<NgramIndex> NgramIndex::Create(uint64_t max_tokens, Memory* memory) {
  NgramIndex index;
  index.slot_count_ = SlotCount(max_tokens);
  QINFER_ASSIGN_OR_RETURN(index.slots_,
                          Buffer::Create(memory, Bytes(max_tokens), "the prompt-lookup index"));
  std::memset(index.slots_.data(), 0, index.slots_.size());
  return index;
}

uint32_t* NgramIndex::Slot(absl::Span<const int32_t> tokens, uint32_t end, uint32_t length) {
  uint64_t hash = length;
  for (uint32_t i = end - length; i < end; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  const uint32_t slot = static_cast<uint32_t>(hash >> 16) & (slot_count_ - 1);
  return slots_.as<uint32_t>() + size_t{length - kShortest} * slot_count_ + slot;
}

NgramIndex::Match NgramIndex::Find(absl::Span<const int32_t> tokens) {
  const uint32_t size = static_cast<uint32_t>(tokens.size());
  // The run at the very end stays out: it would only find itself.
  for (; indexed_ + 1 < size; ++indexed_) {
    const uint32_t end = indexed_ + 1;
    for (uint32_t n = kShortest; n <= std::min(kLongest, end); ++n) *Slot(tokens, end, n) = end;
  }
  for (uint32_t n = std::min(kLongest, size); n >= kShortest; --n) {
    const uint32_t end = *Slot(tokens, size, n);
    if (end == 0) continue;
    uint32_t same = 0;
    while (same < std::min(end, kCompared) && tokens[end - 1 - same] == tokens[size - 1 - same]) {
      ++same;
    }
    if (same >= n) return {end, same};
  }
  return {};
}

void NgramIndex::Continue(absl::Span<const int32_t> tokens, const Match& match, uint32_t count,
                          int32_t* out) {
  const uint32_t known = static_cast<uint32_t>(tokens.size()) - match.end;
  for (uint32_t i = 0; i < count; ++i) {
    out[i] = i < known ? tokens[match.end + i] : out[i - known];
  }
}

}  // namespace qinfer::engine
