// Memory: accounting, limits, and what happens when the host's allocator says no.
#include "core/memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace qinfer {
namespace {

TEST(Memory, CountsAndRemembersThePeak) {
  Memory memory;
  {
    auto a = Buffer::Create(&memory, 1000, "a");
    ASSERT_TRUE(a.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data()) % Memory::kAlign, 0u);
    std::pmr::vector<int> v(100, &memory);
    EXPECT_EQ(memory.used_bytes(), 1400u);
  }
  EXPECT_EQ(memory.used_bytes(), 0u);
  EXPECT_EQ(memory.peak_bytes(), 1400u);
}

TEST(Memory, LimitIsABudgetErrorThatNamesWhatAndHowMuch) {
  Memory memory({}, 1000);
  auto a = Buffer::Create(&memory, 600, "weights");
  ASSERT_TRUE(a.ok());
  auto b = Buffer::Create(&memory, 401, "KV pages");
  ASSERT_FALSE(b.ok());
  EXPECT_EQ(b.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(b.status().message().find("KV pages needs 401 bytes"), absl::string_view::npos);
  EXPECT_FALSE(memory.ReserveMapped(401).ok());
  EXPECT_TRUE(memory.ReserveMapped(400).ok());
  memory.ReleaseMapped(400);
  EXPECT_THROW(std::pmr::vector<char>(500, &memory), BudgetExceeded);
  EXPECT_EQ(memory.used_bytes(), 600u);
}

TEST(Memory, HostAllocatorRefusalIsNoMemory) {
  AllocatorHooks hooks;
  hooks.alloc = [](void*, size_t, size_t) -> void* { return nullptr; };
  hooks.release = [](void*, void*, size_t, size_t) {};
  Memory memory(hooks);
  auto a = Buffer::Create(&memory, 10, "x");
  EXPECT_EQ(a.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.used_bytes(), 0u);
}

}  // namespace
}  // namespace qinfer
