// The allocator adapter and its accounting.
#include "core/memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "core/bad_alignment.h"
#include "core/sanitizer.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace qinfer {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Why the last Allocate of this thread has returned null: the host's block was not aligned.
thread_local bool misaligned = false;

// Fewer misses of the translation buffer while weights stream through; the system may say no.
void AdviseHugePages(void* ptr, size_t bytes) {
#if defined(__linux__)
  madvise(ptr, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#else
  (void)ptr, (void)bytes;
#endif
}

// Blocks of this size have pages of their own, so that what is released is the system's again at
// once. Sanitizers know nothing of such pages.
#if defined(__linux__) && !defined(QINFER_ADDRESS_SANITIZER)
constexpr size_t kOwnPages = 128 << 10;

size_t WholePages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void* AllocatePages(size_t bytes, size_t align) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (bytes > SIZE_MAX / 2 || align > SIZE_MAX / 4) return nullptr;
  const size_t size = WholePages(bytes), room = size + (align > page ? align - page : 0);
  void* const map = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<uint8_t*>(map);
  const size_t over = reinterpret_cast<uintptr_t>(begin) % std::max(align, page);
  const size_t before = over == 0 ? 0 : align - over, after = room - before - size;
  // Where the system refuses to give the ends back they stay, as addresses without memory.
  if (before != 0) munmap(begin, before);
  if (after != 0) munmap(begin + before + size, after);
  return begin + before;
}

void ReleasePages(void* ptr, size_t bytes) { munmap(ptr, WholePages(bytes)); }
#else
constexpr size_t kOwnPages = SIZE_MAX;
void* AllocatePages(size_t, size_t) { return nullptr; }
void ReleasePages(void*, size_t) {}
#endif

// Smaller blocks are aligned here: glibc before 2.38 gives the room around an aligned block to
// others and then cannot use the block again once it is released. A quantization that stayed within
// 4 MB by its own account grew by a third of a megabyte a tensor so.
constexpr size_t kMallocAlign = alignof(std::max_align_t);

void* AllocateAligned(size_t bytes, size_t align) {
  if (align <= kMallocAlign) return std::malloc(bytes);
  if (bytes > SIZE_MAX / 2 || align > SIZE_MAX / 4) return nullptr;
  void* const block = std::malloc(bytes + align);
  if (block == nullptr) return nullptr;
  auto* const begin = static_cast<uint8_t*>(block);
  // At least kMallocAlign bytes lie before the aligned block: where it comes from.
  uint8_t* const aligned = begin + align - reinterpret_cast<uintptr_t>(begin) % align;
  std::memcpy(aligned - sizeof(block), &block, sizeof(block));
  return aligned;
}

void ReleaseAligned(void* ptr, size_t align) {
  if (align > kMallocAlign) {
    void* block = nullptr;
    std::memcpy(&block, static_cast<uint8_t*>(ptr) - sizeof(block), sizeof(block));
    ptr = block;
  }
  std::free(ptr);
}

}  // namespace

bool Memory::Charge(std::atomic<uint64_t>* counter, uint64_t bytes) noexcept {
  // `total_` is the one number that the limit guards, so that two threads cannot both pass the
  // check.
  uint64_t total = total_.load(std::memory_order_relaxed);
  do {
    if (limit_ != 0 && (bytes > limit_ || total > limit_ - bytes)) return false;
  } while (!total_.compare_exchange_weak(total, total + bytes, std::memory_order_relaxed));
  counter->fetch_add(bytes, std::memory_order_relaxed);
  uint64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < total + bytes &&
         !peak_.compare_exchange_weak(peak, total + bytes, std::memory_order_relaxed)) {
  }
  return true;
}

void* Memory::Allocate(size_t bytes, size_t align, bool* over_limit) noexcept {
  if (over_limit != nullptr) *over_limit = false;
  misaligned = false;
  if (!Charge(&used_, bytes)) {
    if (over_limit != nullptr) *over_limit = true;
    return nullptr;
  }
  const size_t size = bytes == 0 ? 1 : bytes;
  void* ptr = nullptr;
  if (hooks_.alloc != nullptr) {
    ptr = hooks_.alloc(hooks_.user, size, align);
    if (reinterpret_cast<uintptr_t>(ptr) % align != 0) {
      hooks_.release(hooks_.user, ptr, size, align);
      ptr = nullptr;
      misaligned = true;
    }
  } else if (size >= kOwnPages) {
    ptr = AllocatePages(size, align);
  } else {
    ptr = AllocateAligned(size, align);
  }
  if (ptr == nullptr) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    total_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  return ptr;
}

void Memory::Release(void* ptr, size_t bytes, size_t align) noexcept {
  if (ptr == nullptr) return;
  const size_t size = bytes == 0 ? 1 : bytes;
  if (hooks_.alloc != nullptr) {
    hooks_.release(hooks_.user, ptr, size, align);
  } else if (size >= kOwnPages) {
    ReleasePages(ptr, size);
  } else {
    ReleaseAligned(ptr, align);
  }
  used_.fetch_sub(bytes, std::memory_order_relaxed);
  total_.fetch_sub(bytes, std::memory_order_relaxed);
}

Status Memory::ReserveMapped(uint64_t bytes) {
  if (Charge(&mapped_, bytes)) return OkStatus();
  return BudgetError(StrCat("mapping ", bytes, " bytes would exceed host_bytes_limit (", limit_,
                            " bytes, ", used_bytes() + mapped_bytes(), " in use)"));
}

void Memory::ReleaseMapped(uint64_t bytes) noexcept {
  mapped_.fetch_sub(bytes, std::memory_order_relaxed);
  total_.fetch_sub(bytes, std::memory_order_relaxed);
}

void* Memory::do_allocate(size_t bytes, size_t align) {
  bool over_limit = false;
  void* ptr = Allocate(bytes, align, &over_limit);
  if (ptr == nullptr && over_limit) throw BudgetExceeded();
  if (ptr == nullptr && misaligned) throw BadAlignment();
  if (ptr == nullptr) throw std::bad_alloc();
  return ptr;
}

StatusOr<Buffer> Buffer::Create(Memory* memory, size_t bytes, const char* what) {
  bool over_limit = false;
  // A host's allocator lays its memory out itself.
  const bool huge = bytes >= 2 * kHugePage && !memory->has_hooks();
  const size_t align = huge ? kHugePage : Memory::kAlign;
  void* ptr = memory->Allocate(bytes, align, &over_limit);
  if (ptr == nullptr && over_limit) {
    return BudgetError(StrCat(what, ": ", bytes, " bytes more would exceed host_bytes_limit (",
                              memory->limit_bytes(), " bytes, ",
                              memory->used_bytes() + memory->mapped_bytes(), " in use)"));
  }
  if (ptr == nullptr && misaligned) {
    return MisuseError(
        StrCat(what, " (", bytes, " bytes, align ", align, "): ", BadAlignment::kMessage));
  }
  if (ptr == nullptr) return NoMemoryError(StrCat("no memory for ", what, " (", bytes, " bytes)"));
  if (huge) AdviseHugePages(ptr, bytes);
  Buffer buffer;
  buffer.memory_ = memory;
  buffer.data_ = ptr;
  buffer.align_ = align;
  buffer.size_ = bytes;
  return buffer;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  if (memory_ != nullptr) memory_->Release(data_, size_, align_);
  memory_ = std::exchange(other.memory_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  align_ = other.align_;
  return *this;
}

Buffer::~Buffer() {
  if (memory_ != nullptr) memory_->Release(data_, size_, align_);
}

}  // namespace qinfer
