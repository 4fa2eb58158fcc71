// The counting operators; nothing here may be inlined into what allocates.
#include "allocation_count.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace qinfer::tokenizer {
namespace {

std::atomic<int64_t> g_live{0}, g_peak{0};

void* Allocate(std::size_t size) {
  void* block = std::malloc(size == 0 ? 1 : size);
  if (block == nullptr) return nullptr;
  const auto bytes = static_cast<int64_t>(malloc_usable_size(block));
  const int64_t live = g_live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = g_peak.load(std::memory_order_relaxed);
  while (live > peak && !g_peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  return block;
}

void Release(void* block) {
  g_live.fetch_sub(static_cast<int64_t>(malloc_usable_size(block)), std::memory_order_relaxed);
  std::free(block);
}

}  // namespace

int64_t RestartPeak() {
  const int64_t live = g_live.load(std::memory_order_relaxed);
  g_peak.store(live, std::memory_order_relaxed);
  return live;
}
int64_t PeakBytes() { return g_peak.load(std::memory_order_relaxed); }

}  // namespace qinfer::tokenizer

void* operator new(std::size_t size) {
  void* block = qinfer::tokenizer::Allocate(size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return qinfer::tokenizer::Allocate(size);
}
void operator delete(void* block) noexcept { qinfer::tokenizer::Release(block); }
void operator delete(void* block, std::size_t /*size*/) noexcept {
  qinfer::tokenizer::Release(block);
}
void operator delete(void* block, const std::nothrow_t& /*tag*/) noexcept {
  qinfer::tokenizer::Release(block);
}
