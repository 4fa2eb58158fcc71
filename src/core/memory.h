// All memory that grows with a model or a request: the host's allocator (or malloc) behind a hard
// byte limit, with current and peak figures that the memory plan is checked against. Small
// bookkeeping objects may use operator new instead.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <utility>

#include "core/status.h"

namespace qinfer {

// The two functions of the host's allocator; both null = aligned malloc.
struct AllocatorHooks {
  void* user = nullptr;
  void* (*alloc)(void* user, size_t size, size_t align) = nullptr;
  void (*release)(void* user, void* ptr, size_t size, size_t align) = nullptr;
};

// Thread-safe. As a std::pmr resource it throws std::bad_alloc, BudgetExceeded where the limit says
// no, or BadAlignment; all are caught at the edge of the API. Containers that grow with a model:
// std::pmr::vector<T> v(memory). Outlives everything allocated from it (the runtime's shared state
// owns it).
class Memory final : public std::pmr::memory_resource {
 public:
  static constexpr size_t kAlign = 64;

  explicit Memory(AllocatorHooks hooks = {}, uint64_t limit_bytes = 0)
      : hooks_(hooks), limit_(limit_bytes) {}

  // Null when the allocator (also by a misaligned block) or the limit says no: `*over_limit`.
  void* Allocate(size_t bytes, size_t align, bool* over_limit = nullptr) noexcept;
  void Release(void* ptr, size_t bytes, size_t align) noexcept;

  // File maps count against the same limit: BudgetError if it does not fit.
  Status ReserveMapped(uint64_t bytes);
  void ReleaseMapped(uint64_t bytes) noexcept;

  uint64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }      // allocated
  uint64_t mapped_bytes() const { return mapped_.load(std::memory_order_relaxed); }  // file maps
  uint64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }      // of the sum
  bool has_hooks() const { return hooks_.alloc != nullptr; }
  uint64_t limit_bytes() const { return limit_; }  // 0 = none
  void ResetPeak() { peak_.store(used_bytes() + mapped_bytes(), std::memory_order_relaxed); }

 private:
  bool Charge(std::atomic<uint64_t>* counter, uint64_t bytes) noexcept;
  void* do_allocate(size_t bytes, size_t align) override;
  void do_deallocate(void* ptr, size_t bytes, size_t align) override { Release(ptr, bytes, align); }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  AllocatorHooks hooks_;
  uint64_t limit_;
  std::atomic<uint64_t> total_{0}, used_{0}, mapped_{0}, peak_{0};
};

// An owned, 64-byte aligned block from a Memory; without a host's allocator one of 4 MiB or more
// begins on a huge page and asks the system for such pages. Move-only; contents start undefined.
class Buffer {
 public:
  Buffer() = default;
  // NoMemoryError, BudgetError or, of a misaligned block, MisuseError, with `what` and the size.
  static StatusOr<Buffer> Create(Memory* memory, size_t bytes, const char* what);
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() { return data_; }
  const void* data() const { return data_; }
  template <typename T>
  T* as() {
    return static_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  Memory* memory_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0, align_ = Memory::kAlign;
};

}  // namespace qinfer
