// What one rendering may spend, and the containers whose memory counts against it: texts, lists and
// shared objects ask the Meter for every byte before it is taken, so that nothing a template does
// can take more than its limit. Whatever grows with a template's values lives in these, temporaries
// too. The bytes come from a Memory, where there is one, and so from the host's allocator and
// limit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/memory.h"

namespace qinfer::tokenizer::jinja {

// Thrown where memory would pass the limit, after the meter has noted it. The evaluator catches it
// at the innermost expression or statement, and everything winds up from there.
class MemoryLimit : public std::bad_alloc {
 public:
  const char* what() const noexcept override { return "max_memory_bytes exceeded"; }
};

// Once `over()` is non-null everything winds up.
class Meter {
 public:
  // No machine has more memory than the bound here, below which sums of sizes cannot overflow.
  Meter(uint64_t max_steps, uint64_t max_bytes, Memory* memory)
      : max_steps_(max_steps),
        max_bytes_(std::min(max_bytes, uint64_t{1} << 46)),
        memory_(memory) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Counts work; false once a limit is passed.
  bool Step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > max_steps_ && over_ == nullptr) over_ = "max_steps";
    return over_ == nullptr;
  }
  // Work proportional to a number of bytes touched.
  bool StepBytes(uint64_t bytes) { return Step(bytes / 128); }

  // Throws MemoryLimit if so much more memory would not fit.
  void Require(uint64_t bytes) {
    if (bytes > max_bytes_ - bytes_) Refuse();
  }
  // count * unit, where that would fit; it may well be beyond 64 bits.
  uint64_t Require(uint64_t count, uint64_t unit) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, unit, &bytes)) Refuse();
    Require(bytes);
    return bytes;
  }
  void Take(uint64_t bytes) {
    Require(bytes);
    bytes_ += bytes;
  }
  void Give(uint64_t bytes) { bytes_ -= bytes; }
  // The bytes themselves, from the memory or the process. Throws what Memory throws.
  void* Allocate(size_t bytes, size_t align) {
    return memory_ == nullptr ? ::operator new(bytes) : memory_->allocate(bytes, align);
  }
  void Release(void* block, size_t bytes, size_t align) noexcept {
    memory_ == nullptr ? ::operator delete(block) : memory_->Release(block, bytes, align);
  }
  void Exceed(const char* limit) {
    if (over_ == nullptr) over_ = limit;
  }
  const char* over() const { return over_; }

 private:
  [[noreturn]] void Refuse() {
    Exceed("max_memory_bytes");
    throw MemoryLimit();
  }

  uint64_t max_steps_, max_bytes_;
  uint64_t steps_ = 0, bytes_ = 0;  // bytes_ <= max_bytes_
  Memory* const memory_;            // may be null
  const char* over_ = nullptr;
};

// The allocator of all that is counted. Without a meter, for constants, which belong to the
// template, nothing is. There is no default: a container that forgets its meter does not compile.
template <typename T>
class Counted {
 public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  Counted(Meter* meter) : meter_(meter) {}  // NOLINT: a container is made from its meter
  template <typename U>
  Counted(const Counted<U>& other) : meter_(other.meter()) {}  // NOLINT: as allocators convert

  T* allocate(size_t count) {
    if (meter_ == nullptr) return static_cast<T*>(::operator new(count* kEach));
    meter_->Require(Cost(count));
    T* block = static_cast<T*>(meter_->Allocate(count * kEach, alignof(T)));
    meter_->Take(Cost(count));
    return block;
  }
  void deallocate(T* block, size_t count) noexcept {
    if (meter_ == nullptr) return ::operator delete(block);
    meter_->Give(Cost(count));
    meter_->Release(block, count * kEach, alignof(T));
  }
  Meter* meter() const { return meter_; }

  template <typename U>
  bool operator==(const Counted<U>& other) const {
    return meter_ == other.meter();
  }

 private:
  static constexpr size_t kEach = sizeof(T);  // NOLINT(bugprone-sizeof-expression): or a pointer

  // With what malloc adds, which is much for small objects.
  static uint64_t Cost(size_t count) {
    return std::max<uint64_t>((count * kEach + 8 + 15) / 16 * 16, 32);
  }

  Meter* meter_;
};

using Text = std::basic_string<char, std::char_traits<char>, Counted<char>>;
template <typename T>
using CountedVector = std::vector<T, Counted<T>>;

// A shared object whose constructor takes the meter first.
template <typename T, typename... Args>
std::shared_ptr<T> MakeCounted(Meter* meter, Args&&... args) {
  return std::allocate_shared<T>(Counted<T>(meter), meter, std::forward<Args>(args)...);
}

}  // namespace qinfer::tokenizer::jinja
