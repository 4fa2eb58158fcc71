// The pages of one sequence in one group, from the first that has not been recycled: indices for
// the pool, pointers for kernels. Grows by doubling, through Memory.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/memory.h"
#include "core/status.h"

namespace qinfer::kv {

class PageTable {
 public:
  uint32_t first_page() const { return first_page_; }
  uint32_t count() const { return count_; }
  uint32_t end_page() const { return first_page_ + count_; }
  // `page` is an absolute index, in [first_page, end_page).
  uint32_t id(uint32_t page) const { return ids()[page - first_page_]; }
  const uint8_t* const* pointers() const { return pointers_.as<const uint8_t*>(); }

  // Room for `count` pages in all; what is there stays there.
  Status Grow(uint32_t count, Memory* memory) {
    if (count <= capacity_) return OkStatus();
    uint32_t capacity = capacity_ < 16 ? 16 : capacity_;
    while (capacity < count) capacity *= 2;
    QINFER_ASSIGN_OR_RETURN(Buffer new_ids,
                            Buffer::Create(memory, capacity * sizeof(uint32_t), "KV page table"));
    QINFER_ASSIGN_OR_RETURN(
        Buffer new_pointers,
        Buffer::Create(memory, capacity * sizeof(const uint8_t*), "KV page table"));
    if (count_ > 0) {
      std::memcpy(new_ids.data(), ids_.data(), count_ * sizeof(uint32_t));
      std::memcpy(new_pointers.data(), pointers_.data(), count_ * sizeof(const uint8_t*));
    }
    ids_ = std::move(new_ids);
    pointers_ = std::move(new_pointers);
    capacity_ = capacity;
    return OkStatus();
  }
  // Grow has made room.
  void Append(uint32_t id, const uint8_t* data) {
    ids_.as<uint32_t>()[count_] = id;
    pointers_.as<const uint8_t*>()[count_] = data;
    ++count_;
  }
  void Replace(uint32_t page, uint32_t id, const uint8_t* data) {
    ids_.as<uint32_t>()[page - first_page_] = id;
    pointers_.as<const uint8_t*>()[page - first_page_] = data;
  }
  void RemoveLast() { --count_; }
  // Forgets the first `pages`; tables of windows are short, so moving the rest is cheap.
  void RemoveFirst(uint32_t pages) {
    count_ -= pages;
    first_page_ += pages;
    std::memmove(ids_.data(), ids() + pages, count_ * sizeof(uint32_t));
    std::memmove(pointers_.data(), pointers_.as<const uint8_t*>() + pages,
                 count_ * sizeof(const uint8_t*));
  }
  // An empty table starts at any page.
  void StartAt(uint32_t page) { first_page_ = page; }

 private:
  const uint32_t* ids() const { return ids_.as<uint32_t>(); }

  Buffer ids_, pointers_;
  uint32_t capacity_ = 0, count_ = 0, first_page_ = 0;
};

}  // namespace qinfer::kv
