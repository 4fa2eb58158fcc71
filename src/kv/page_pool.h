// One group's pages: data, headers, and the list of free ones. Counts references; what a page
// holds, and for whom, is not its business.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/memory.h"
#include "core/status.h"
#include "kv/cache.h"

namespace qinfer::kv {

class PagePool {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  Status Init(uint32_t pages, size_t page_bytes, uint8_t dtype, Memory* memory);
  static bool PlanBytes(uint64_t pages, uint64_t page_bytes, uint64_t* bytes);

  uint32_t free_pages() const { return free_count_; }
  uint8_t* data(uint32_t page) { return data_.as<uint8_t>() + page * page_bytes_; }
  PageHeader& header(uint32_t page) { return headers_.as<PageHeader>()[page]; }

  // The page that was freed last, with one reference; the caller has checked free_pages(). Holds
  // what it held before, or nothing yet.
  uint32_t Take();
  // Gives a page that was just taken contents, where it has never had any: attention reads whole
  // pages, also those that are not full yet.
  void Initialize(uint32_t page);
  void AddReference(uint32_t page);
  // The last reference returns the page to the free list.
  void DropReference(uint32_t page);
  // A private copy of a shared page in exchange for one of its references.
  uint32_t Copy(uint32_t page);

 private:
  Buffer data_, headers_;
  size_t page_bytes_ = 0;
  uint32_t free_count_ = 0, first_free_ = kNone;
  uint8_t dtype_ = 0;
};

}  // namespace qinfer::kv
