// The KV cache: pools of 16-token pages, and the page tables of sequences. Knows sizes and
// ownership, not what attention does with the contents (planes are described in kernels/kernels.h).
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels/kernels.h"

namespace qinfer::kv {

// Layers that share page tables: the same attention kind, width and window. A page covers all
// layers of its group.
struct GroupLayout {
  std::vector<uint32_t> layers;  // model layers in this group
  uint32_t kv_heads = 0, head_dim = 0, v_head_dim = 0;
  bool latent = false;    // values are the beginnings of keys: one plane, of the keys' type
  uint32_t window = 0;    // 0 = all; else pages wholly outside are recycled
  size_t page_bytes = 0;  // data of one page, all layers
  // Byte offsets inside a page of (index of the layer within the group, kv head).
  size_t KOffset(uint32_t layer_index, uint32_t head) const;
  size_t VOffset(uint32_t layer_index, uint32_t head) const;
  size_t k_plane_bytes = 0, v_plane_bytes = 0;
};

struct CacheOptions {
  kernels::KvType k_type = kernels::KvType::kInt8, v_type = kernels::KvType::kInt8;
  uint64_t max_tokens = 0;  // over all sequences together: what the pools are sized for
  // Sequences at once; each may leave one page partly filled, and a window keeps at most its own
  // pages of each. 0 = 1 partly filled page, and no smaller pools for windows.
  uint32_t max_sequences = 0;
  uint32_t max_reserve = 512;  // tokens that one Reserve asks for (sizes the pools of windows)
};

// Headers are in an array of their own, apart from the data.
struct alignas(64) PageHeader {
  uint32_t ref_count = 0;
  uint16_t token_count = 0;  // ≤ 16
  uint8_t state = 0;         // free, used, shared
  uint8_t dtype = 0;
  uint64_t prefix_hash = 0;
  uint32_t owner = 0, epoch = 0;
  uint64_t last_use = 0;
  uint32_t next = 0, previous = 0;  // free list and, later, recency
  uint8_t initialized = 0;          // every byte has been written once
  uint8_t reserved[15] = {};
};
static_assert(sizeof(PageHeader) == 64);

class Cache;

// One sequence's pages in every group. Not thread-safe; its Cache outlives it (shared).
class Sequence {
 public:
  virtual ~Sequence() = default;
  virtual const Cache& cache() const = 0;
  virtual uint32_t length() const = 0;  // committed tokens
  // How keys were computed, where that is not a matter of the tokens alone (ropes that depend on
  // the whole length): a number of the forward pass's, which a fork inherits. Set at length 0 only.
  virtual uint32_t variant() const = 0;
  virtual void set_variant(uint32_t variant) = 0;
  // Makes room for positions [length, length + count); nothing is committed. BudgetError when the
  // pool is full, and then nothing has changed. Shared pages that would be written are copied
  // first.
  virtual Status Reserve(uint32_t count) = 0;
  virtual void Commit(uint32_t count) = 0;  // length += count, recycles pages outside windows
  virtual void Rollback() = 0;              // drops what was reserved and not committed
  // Keeps the first `length` tokens. MisuseError where a window has already recycled what they
  // would need.
  virtual Status Truncate(uint32_t length) = 0;
  // A second sequence with the same tokens, sharing all pages until one of them is written.
  virtual StatusOr<std::unique_ptr<Sequence>> Fork() const = 0;
  // Pages of a group from `first_page` on, as kernels take them, reserved ones included.
  virtual absl::Span<const uint8_t* const> Pages(uint32_t group, uint32_t* first_page) const = 0;
  // For writing position `position` (reserved, not committed).
  virtual uint8_t* PageForWrite(uint32_t group, uint32_t position) = 0;
};

class Cache {
 public:
  virtual ~Cache() = default;
  static StatusOr<std::shared_ptr<Cache>> Create(std::vector<GroupLayout> groups,
                                                 const CacheOptions& options, Memory* memory);
  // Bytes that Create would allocate.
  static uint64_t PlanBytes(absl::Span<const GroupLayout> groups, const CacheOptions& options);
  virtual StatusOr<std::unique_ptr<Sequence>> NewSequence() = 0;
  virtual absl::Span<const GroupLayout> groups() const = 0;
  virtual const CacheOptions& options() const = 0;
  virtual uint64_t free_pages(uint32_t group) const = 0;
};

}  // namespace qinfer::kv
