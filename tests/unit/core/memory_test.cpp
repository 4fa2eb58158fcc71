// Memory: accounting, limits, and what happens when the host's allocator says no.
#include "core/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/bad_alignment.h"
#include "core/sanitizer.h"

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
  EXPECT_NE(b.status().message().find("KV pages: 401 bytes more"), absl::string_view::npos);
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

// An allocator that takes no notice of `align` is named, and gets its block back.
TEST(Memory, MisalignedBlocksOfTheHostAreRefused) {
  struct Blocks {
    std::vector<char> room = std::vector<char>(4096);
    int live = 0;
    size_t offset = 16;
  } blocks;
  AllocatorHooks hooks;
  hooks.user = &blocks;
  hooks.alloc = [](void* user, size_t, size_t) -> void* {
    auto* b = static_cast<Blocks*>(user);
    ++b->live;
    const auto begin = reinterpret_cast<uintptr_t>(b->room.data());
    return b->room.data() + (256 - begin % 256) + b->offset;
  };
  hooks.release = [](void* user, void*, size_t, size_t) { --static_cast<Blocks*>(user)->live; };
  Memory memory(hooks);
  auto a = Buffer::Create(&memory, 100, "weights");
  EXPECT_TRUE(absl::IsInvalidArgument(a.status())) << a.status();
  EXPECT_NE(a.status().message().find("host's allocator"), absl::string_view::npos) << a.status();
  blocks.offset = 4;
  EXPECT_THROW(std::pmr::vector<double>(5, &memory), BadAlignment);
  EXPECT_EQ(blocks.live, 0);
  EXPECT_EQ(memory.used_bytes(), 0u);
  blocks.offset = 64;
  EXPECT_TRUE(Buffer::Create(&memory, 100, "weights").ok());
}

// The one keeps what is released, the other takes memory of its own for all that is touched.
#if !defined(QINFER_ADDRESS_SANITIZER) && !defined(QINFER_THREAD_SANITIZER)

// Bytes of memory of this process's own; 0 where the system does not say.
uint64_t OwnBytes() {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("RssAnon:", 0) == 0) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

// As a quantization does it: for each tensor blocks of some sizes, all written to and released, and
// a little that stays. What the account calls free has to be free.
TEST(Memory, ReleasedBlocksDoNotStayWithTheProcess) {
  if (OwnBytes() == 0) GTEST_SKIP() << "the system does not say what a process takes";
  Memory memory;
  std::vector<std::unique_ptr<char[]>> kept;
  // Scratch and panels of a matrix that is twice as wide as high, of one that is the other way, ...
  const std::vector<std::vector<size_t>> sizes = {
      {1204224, 122880}, {344064, 34816}, {1204224, 28672, 122880}, {344064, 8192, 34816}};
  const auto tensor = [&](size_t i) {
    std::vector<Buffer> buffers;
    for (const size_t bytes : sizes[i % sizes.size()]) {
      auto buffer = Buffer::Create(&memory, bytes, "scratch");
      ASSERT_TRUE(buffer.ok());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % Memory::kAlign, 0u);
      std::fill_n(buffer->as<char>(), bytes, static_cast<char>(i));
      buffers.push_back(std::move(*buffer));
    }
    for (size_t bytes = 16; bytes < 160; bytes += 4)
      kept.push_back(std::make_unique<char[]>(bytes));
  };
  for (size_t i = 0; i < 20; ++i) tensor(i);
  const uint64_t before = OwnBytes();
  for (size_t i = 0; i < 400; ++i) tensor(i);
  EXPECT_LT(OwnBytes(), before + (8 << 20));
  EXPECT_EQ(memory.used_bytes(), 0u);
}

#endif

TEST(Memory, LargeBlocksBeginOnAHugePage) {
  Memory memory;
  std::vector<Buffer> buffers;
  for (const size_t bytes : {size_t{4} << 20, (size_t{9} << 20) + 1}) {
    auto buffer = Buffer::Create(&memory, bytes, "weights");
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (2 << 20), 0u);
    std::fill_n(buffer->as<char>(), bytes, 'x');
    buffers.push_back(std::move(*buffer));
  }
}

}  // namespace
}  // namespace qinfer
