// Allocation of pages inside a group's pool. All memory is taken in Init.
#include "kv/page_pool.h"

#include <cstring>
#include <new>

#include "core/checked.h"

namespace qinfer::kv {
namespace {
constexpr uint8_t kFree = 0, kUsed = 1, kShared = 2;
}  // namespace

bool PagePool::PlanBytes(uint64_t pages, uint64_t page_bytes, uint64_t* bytes) {
  uint64_t data = 0, headers = 0;
  return CheckedMul(pages, page_bytes, &data) &&
         CheckedMul<uint64_t>(pages, sizeof(PageHeader), &headers) &&
         CheckedAdd(data, headers, bytes);
}

Status PagePool::Init(uint32_t pages, size_t page_bytes, uint8_t dtype, Memory* memory) {
  QINFER_ASSIGN_OR_RETURN(data_, Buffer::Create(memory, pages * page_bytes, "KV pages"));
  QINFER_ASSIGN_OR_RETURN(headers_,
                          Buffer::Create(memory, pages * sizeof(PageHeader), "KV page headers"));
  page_bytes_ = page_bytes;
  dtype_ = dtype;
  free_count_ = pages;
  first_free_ = pages == 0 ? kNone : 0;
  for (uint32_t i = 0; i < pages; ++i) {
    PageHeader* header = new (headers_.as<PageHeader>() + i) PageHeader();
    header->next = i + 1 < pages ? i + 1 : kNone;
    header->dtype = dtype;
  }
  return OkStatus();
}

uint32_t PagePool::Take() {
  const uint32_t page = first_free_;
  PageHeader& h = header(page);
  first_free_ = h.next;
  --free_count_;
  const uint8_t initialized = h.initialized;
  h = PageHeader();
  h.initialized = initialized;
  h.ref_count = 1;
  h.state = kUsed;
  h.dtype = dtype_;
  h.next = kNone;
  return page;
}

void PagePool::Initialize(uint32_t page) {
  PageHeader& h = header(page);
  if (h.initialized != 0) return;
  std::memset(data(page), 0, page_bytes_);
  h.initialized = 1;
}

void PagePool::AddReference(uint32_t page) {
  PageHeader& h = header(page);
  ++h.ref_count;
  h.state = kShared;
}

void PagePool::DropReference(uint32_t page) {
  PageHeader& h = header(page);
  if (--h.ref_count > 0) {
    if (h.ref_count == 1) h.state = kUsed;
    return;
  }
  h.state = kFree;
  h.token_count = 0;
  h.next = first_free_;
  first_free_ = page;
  ++free_count_;
}

uint32_t PagePool::Copy(uint32_t page) {
  const uint32_t copy = Take();
  std::memcpy(data(copy), data(page), page_bytes_);
  header(copy).token_count = header(page).token_count;
  header(copy).initialized = header(page).initialized;
  DropReference(page);
  return copy;
}

}  // namespace qinfer::kv
