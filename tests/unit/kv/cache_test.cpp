// Sequences and pools: random operations against a plain model of what each position holds, and the
// edges one by one.
#include "kv/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace qinfer::kv {
namespace {

constexpr uint32_t kPage = kernels::kPageTokens;

GroupLayout Group(uint32_t window) {
  GroupLayout group;
  group.layers = {0, 1};
  group.kv_heads = 2;
  group.head_dim = group.v_head_dim = 4;
  group.window = window;
  group.k_plane_bytes = group.v_plane_bytes = 64;
  group.page_bytes = 2 * 2 * 128;
  return group;
}

CacheOptions Options(uint64_t tokens, uint32_t sequences = 0) {
  CacheOptions options;
  options.max_tokens = tokens;
  options.max_sequences = sequences;
  options.max_reserve = 64;
  return options;
}

// Marks a position's slot in a page of a group.
void Write(Sequence* sequence, uint32_t group, uint32_t position, uint32_t value) {
  uint8_t* page = sequence->PageForWrite(group, position);
  std::memcpy(page + position % kPage * 4, &value, 4);
}

uint32_t ReadSlot(const Sequence& sequence, uint32_t group, uint32_t position) {
  uint32_t first = 0, value = 0;
  const auto pages = sequence.Pages(group, &first);
  std::memcpy(&value, pages[position / kPage - first] + position % kPage * 4, 4);
  return value;
}

void AppendTokens(Sequence* sequence, uint32_t groups, uint32_t count, uint32_t value) {
  const uint32_t begin = sequence->length();
  ASSERT_TRUE(sequence->Reserve(count).ok());
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t g = 0; g < groups; ++g) Write(sequence, g, begin + i, value + i);
  }
  sequence->Commit(count);
}

TEST(Cache, OffsetsDoNotOverlap) {
  const GroupLayout group = Group(0);
  std::vector<size_t> offsets;
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (uint32_t head = 0; head < 2; ++head) {
      offsets.push_back(group.KOffset(layer, head));
      offsets.push_back(group.VOffset(layer, head));
    }
  }
  std::sort(offsets.begin(), offsets.end());
  for (size_t i = 0; i < offsets.size(); ++i) EXPECT_EQ(offsets[i], i * 64);
  EXPECT_EQ(offsets.size() * 64, group.page_bytes);
}

TEST(Cache, PlanIsWhatCreateTakes) {
  for (const uint32_t sequences : {0u, 1u, 7u}) {
    Memory memory;
    const std::vector<GroupLayout> groups = {Group(0), Group(20)};
    auto cache = Cache::Create(groups, Options(1000, sequences), &memory);
    ASSERT_TRUE(cache.ok());
    EXPECT_EQ(memory.used_bytes(), Cache::PlanBytes(groups, Options(1000, sequences)));
    cache->reset();
    EXPECT_EQ(memory.used_bytes(), 0u);
  }
}

TEST(Cache, WindowsGetSmallerPools) {
  Memory memory;
  auto cache = Cache::Create({Group(0), Group(20)}, Options(4096, 2), &memory);
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ((*cache)->free_pages(0), 257u);
  EXPECT_EQ((*cache)->free_pages(1), 2u * ((20 + 64 + 15) / 16 + 2));
}

TEST(Cache, FullPoolChangesNothing) {
  Memory memory;
  auto cache = Cache::Create({Group(0), Group(0)}, Options(64), &memory);
  ASSERT_TRUE(cache.ok());
  auto sequence = (*cache)->NewSequence();
  ASSERT_TRUE(sequence.ok());
  AppendTokens(sequence->get(), 2, 40, 1);
  const uint64_t free = (*cache)->free_pages(0);
  EXPECT_EQ(free, 1u);
  EXPECT_EQ((*sequence)->Reserve(25).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ((*cache)->free_pages(0), free);
  EXPECT_EQ((*cache)->free_pages(1), free);
  EXPECT_TRUE((*sequence)->Reserve(24).ok());
  EXPECT_EQ((*cache)->free_pages(0), 0u);
  (*sequence)->Rollback();
  EXPECT_EQ((*cache)->free_pages(0), free);
  EXPECT_EQ((*sequence)->length(), 40u);
}

TEST(Cache, ForkCopiesOnWriteOnly) {
  Memory memory;
  auto cache = Cache::Create({Group(0)}, Options(256), &memory);
  ASSERT_TRUE(cache.ok());
  auto a = (*cache)->NewSequence();
  ASSERT_TRUE(a.ok());
  AppendTokens(a->get(), 1, 20, 100);
  const uint64_t free = (*cache)->free_pages(0);
  auto b = (*a)->Fork();
  ASSERT_TRUE(b.ok());
  EXPECT_EQ((*cache)->free_pages(0), free);
  AppendTokens(b->get(), 1, 1, 900);
  EXPECT_EQ((*cache)->free_pages(0), free - 1);  // the half full page only
  AppendTokens(a->get(), 1, 1, 800);             // b let go of it: no copy
  EXPECT_EQ((*cache)->free_pages(0), free - 1);
  EXPECT_EQ(ReadSlot(**a, 0, 20), 800u);
  EXPECT_EQ(ReadSlot(**b, 0, 20), 900u);
  EXPECT_EQ(ReadSlot(**b, 0, 19), 119u);
  uint32_t first = 0;
  EXPECT_EQ((*a)->Pages(0, &first)[0], (*b)->Pages(0, &first)[0]);
  a->reset();
  EXPECT_EQ(ReadSlot(**b, 0, 3), 103u);
  b->reset();
  EXPECT_EQ((*cache)->free_pages(0), 16u);
}

TEST(Cache, SequencesOutliveTheHandleOfTheirCache) {
  Memory memory;
  std::unique_ptr<Sequence> kept;
  {
    auto cache = Cache::Create({Group(0)}, Options(64), &memory);
    ASSERT_TRUE(cache.ok());
    kept = *(*cache)->NewSequence();
  }
  AppendTokens(kept.get(), 1, 17, 5);
  EXPECT_EQ(ReadSlot(*kept, 0, 16), 21u);
  kept.reset();
  EXPECT_EQ(memory.used_bytes(), 0u);
}

TEST(Cache, WindowsRecyclePagesAndRefuseToGoBack) {
  Memory memory;
  auto cache = Cache::Create({Group(20), Group(0)}, Options(256, 1), &memory);
  ASSERT_TRUE(cache.ok());
  auto sequence = (*cache)->NewSequence();
  ASSERT_TRUE(sequence.ok());
  for (int i = 0; i < 4; ++i) AppendTokens(sequence->get(), 2, 25, 25u * i);
  uint32_t first = 0;
  (*sequence)->Pages(0, &first);
  EXPECT_EQ(first, (100u - 20 + 1) / kPage);  // position 100 sees 81 and later
  EXPECT_EQ(ReadSlot(**sequence, 0, 81), 81u);
  (*sequence)->Pages(1, &first);
  EXPECT_EQ(first, 0u);
  EXPECT_EQ((*sequence)->Truncate(98).code(), absl::StatusCode::kInvalidArgument);  // sees 79
  EXPECT_EQ((*sequence)->length(), 100u);
  EXPECT_TRUE((*sequence)->Truncate(99).ok());
  EXPECT_EQ(ReadSlot(**sequence, 1, 98), 98u);
  EXPECT_EQ((*sequence)->Truncate(101).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Cache, RefusesNonsense) {
  Memory memory;
  EXPECT_FALSE(Cache::Create({Group(0)}, Options(0), &memory).ok());
  EXPECT_FALSE(Cache::Create({Group(0)}, Options(UINT64_MAX), &memory).ok());
  GroupLayout huge = Group(0);
  huge.page_bytes = SIZE_MAX / 4;
  EXPECT_FALSE(Cache::Create({huge}, Options(1000), &memory).ok());
  EXPECT_EQ(Cache::PlanBytes(std::vector<GroupLayout>{huge}, Options(1000)), UINT64_MAX);
  Memory small({}, 1000);
  EXPECT_EQ(Cache::Create({Group(0)}, Options(1000), &small).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(small.used_bytes(), 0u);
}

// A host allocator that fails from its n-th call on.
struct Failing {
  int left = 0;
  static void* Alloc(void* user, size_t size, size_t align) {
    auto* self = static_cast<Failing*>(user);
    if (self->left-- <= 0) return nullptr;
    return std::aligned_alloc(align, (size + align - 1) / align * align);
  }
  static void Free(void*, void* ptr, size_t, size_t) { std::free(ptr); }
};

TEST(Cache, EveryAllocationMayFail) {
  int failures = 0;
  for (int calls = 0;; ++calls) {
    Failing failing{calls};
    Memory memory({&failing, Failing::Alloc, Failing::Free});
    const bool done = [&] {
      auto cache = Cache::Create({Group(0), Group(20)}, Options(1024), &memory);
      if (!cache.ok()) return false;
      auto a = (*cache)->NewSequence();
      if (!a.ok()) return false;
      for (int i = 0; i < 10; ++i) {
        const uint64_t free = (*cache)->free_pages(0);
        if (!(*a)->Reserve(40).ok()) {
          EXPECT_EQ((*cache)->free_pages(0), free);
          EXPECT_EQ((*a)->length(), 40u * i);
          return false;
        }
        (*a)->Commit(40);
      }
      return (*a)->Fork().ok();
    }();
    EXPECT_EQ(memory.used_bytes(), 0u);
    if (done) break;
    ++failures;
  }
  EXPECT_GT(failures, 6);
}

// Random operations on several sequences; the model is a vector of the values each one wrote.
TEST(Cache, RandomOperationsAgainstAPlainModel) {
  struct Model {
    std::unique_ptr<Sequence> sequence;
    std::vector<uint32_t> values;
  };
  const uint32_t windows[] = {0, 1, 16, 33};
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    Memory memory;
    std::vector<GroupLayout> groups;
    for (const uint32_t window : windows) groups.push_back(Group(window));
    auto cache = Cache::Create(groups, Options(700, seed % 2 == 0 ? 0 : 8), &memory);
    ASSERT_TRUE(cache.ok());
    std::vector<uint64_t> all;
    for (uint32_t g = 0; g < groups.size(); ++g) all.push_back((*cache)->free_pages(g));
    std::vector<Model> models;
    uint32_t next_value = 1;
    for (int step = 0; step < 600; ++step) {
      const uint32_t what = random() % 100;
      if (models.empty() || (what < 5 && models.size() < 8)) {
        models.push_back({*(*cache)->NewSequence(), {}});
        continue;
      }
      Model& model = models[random() % models.size()];
      if (what < 60) {
        const uint32_t count = 1 + random() % 40;
        const uint32_t length = model.sequence->length();
        const Status status = model.sequence->Reserve(count);
        if (!status.ok()) {
          ASSERT_EQ(status.code(), absl::StatusCode::kOutOfRange);
          if (models.size() > 1) models.erase(models.begin());
          continue;
        }
        for (uint32_t i = 0; i < count; ++i) {
          for (uint32_t g = 0; g < groups.size(); ++g) {
            Write(model.sequence.get(), g, length + i, next_value + i);
          }
        }
        if (random() % 5 == 0) {
          model.sequence->Rollback();
        } else {
          const uint32_t kept = random() % 4 == 0 ? random() % (count + 1) : count;
          model.sequence->Commit(kept);
          if (kept < count) model.sequence->Rollback();
          for (uint32_t i = 0; i < kept; ++i) model.values.push_back(next_value + i);
        }
        next_value += count;
      } else if (what < 75) {
        const uint32_t length =
            model.values.empty() ? 0 : random() % static_cast<uint32_t>(model.values.size() + 1);
        bool possible = true;
        for (uint32_t g = 0; g < groups.size(); ++g) {
          uint32_t first = 0;
          model.sequence->Pages(g, &first);
          const uint32_t window = windows[g];
          const uint32_t needs = window == 0 || length < window ? 0 : length - window + 1;
          possible = possible && (length == model.values.size() || needs / kPage >= first);
        }
        ASSERT_EQ(model.sequence->Truncate(length).ok(), possible);
        if (possible) model.values.resize(length);
      } else if (what < 90 && models.size() < 8) {
        auto fork = model.sequence->Fork();
        ASSERT_TRUE(fork.ok());
        std::vector<uint32_t> values = model.values;
        models.push_back({*std::move(fork), std::move(values)});
      } else if (what >= 95) {
        models.erase(models.begin() + static_cast<long>(random() % models.size()));
      }
      for (const Model& each : models) {
        ASSERT_EQ(each.sequence->length(), each.values.size());
        for (uint32_t g = 0; g < groups.size(); ++g) {
          const uint32_t length = each.sequence->length();
          const uint32_t window = windows[g];
          const uint32_t begin = window == 0 || length < window ? 0 : length - window + 1;
          for (uint32_t p = begin; p < length; ++p) {
            ASSERT_EQ(ReadSlot(*each.sequence, g, p), each.values[p])
                << "seed " << seed << " step " << step << " group " << g << " position " << p;
          }
        }
      }
    }
    models.clear();
    for (uint32_t g = 0; g < groups.size(); ++g) EXPECT_EQ((*cache)->free_pages(g), all[g]);
  }
}

// Attention reads whole pages. What it reads past the last token has been written before, whatever
// the memory held that the pool was given.
TEST(Cache, PagesThatAreReadBeforeTheyAreFullHoldSomething) {
  AllocatorHooks hooks;
  hooks.alloc = [](void*, size_t bytes, size_t align) -> void* {
    void* block = std::aligned_alloc(align, (bytes + align - 1) / align * align);
    if (block != nullptr) std::memset(block, 0xAB, bytes);
    return block;
  };
  hooks.release = [](void*, void* block, size_t, size_t) { std::free(block); };
  Memory memory(hooks);
  const GroupLayout group = Group(0);
  auto cache = Cache::Create({group}, Options(64), &memory);
  ASSERT_TRUE(cache.ok());
  const auto past = [&](const Sequence& sequence) {
    uint32_t first = 0;
    const auto pages = sequence.Pages(0, &first);
    const uint8_t* page = pages[pages.size() - 1];
    return std::vector<uint8_t>(page, page + group.page_bytes);
  };
  const std::vector<uint8_t> zeros(group.page_bytes, 0);
  auto sequence = *(*cache)->NewSequence();
  ASSERT_TRUE(sequence->Reserve(5).ok());
  EXPECT_EQ(past(*sequence), zeros);
  Write(sequence.get(), 0, 4, 77);
  sequence->Commit(5);
  ASSERT_TRUE(sequence->Reserve(3).ok());
  EXPECT_EQ(ReadSlot(*sequence, 0, 4), 77u);
  sequence->Commit(3);
  // A page in the middle, which its tokens fill, and a last one.
  ASSERT_TRUE(sequence->Reserve(3 * kPage - 9).ok());
  EXPECT_EQ(past(*sequence), zeros);
  // What was reserved to be filled and then was not, is as new.
  sequence->Rollback();
  ASSERT_TRUE(sequence->Reserve(2 * kPage - 8).ok());
  sequence->Rollback();
  auto other = *(*cache)->NewSequence();
  ASSERT_TRUE(other->Reserve(1).ok());
  EXPECT_EQ(past(*other), zeros);
  // A fork's own copy of a page that is not full.
  auto fork = *sequence->Fork();
  ASSERT_TRUE(fork->Reserve(1).ok());
  EXPECT_EQ(ReadSlot(*fork, 0, 4), 77u);
  EXPECT_EQ(past(*fork)[group.page_bytes - 1], 0);
}

}  // namespace
}  // namespace qinfer::kv
