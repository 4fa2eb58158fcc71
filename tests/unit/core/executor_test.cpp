// The thread pool: every index exactly once whatever the counts, no lost wake-ups, nested loops, no
// signals, no processor time while idle, failures that are statuses.
#include "core/executor.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "core/cpu_quota.h"
#include "core/log.h"

namespace {

// How many more threads may be started: the linker sends the pool's calls of pthread_create through
// __wrap_pthread_create (CMakeLists.txt here), which works the same under sanitizers and emulation.
constexpr int kNoLimit = INT_MAX;
std::atomic<int> threads_allowed{kNoLimit};

}  // namespace

extern "C" {
int __real_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                          void* (*start)(void*), void* argument) {
  if (threads_allowed.load() == 0) return EAGAIN;
  if (threads_allowed.load() != kNoLimit) threads_allowed.fetch_sub(1);
  return __real_pthread_create(thread, attributes, start, argument);
}
}

namespace qinfer {
namespace {

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (const uint32_t threads : {1u, 2u, 3u, 5u, 8u}) {
    auto pool = CreateThreadPool(threads);
    ASSERT_TRUE(pool.ok()) << pool.status();
    EXPECT_EQ((*pool)->concurrency(), threads);
    for (const uint32_t count : {0u, 1u, 2u, 3u, 7u, 8u, 9u, 1000u}) {
      std::vector<std::atomic<uint32_t>> hits(count);
      ParallelFor(pool->get(), count, [&](uint32_t i) { hits[i].fetch_add(1); });
      for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(hits[i].load(), 1u) << threads << " " << i;
    }
  }
}

TEST(ThreadPool, PlainMemoryIsVisibleAcrossManyShortLoops) {
  auto pool = CreateThreadPool(4);
  ASSERT_TRUE(pool.ok());
  std::vector<uint32_t> values(8, 0);  // not atomic: the loop's end orders them
  for (uint32_t round = 0; round < 3000; ++round) {
    const uint32_t count = round % 9;
    ParallelFor(pool->get(), count, [&](uint32_t i) { values[i] += i + round; });
    if (round % 500 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // let them park
  }
  std::vector<uint32_t> expected(8, 0);
  for (uint32_t round = 0; round < 3000; ++round) {
    for (uint32_t i = 0; i < round % 9; ++i) expected[i] += i + round;
  }
  EXPECT_EQ(values, expected);
}

TEST(ThreadPool, UsesSeveralThreadsAtOnce) {
  auto pool = CreateThreadPool(3);
  ASSERT_TRUE(pool.ok());
  // Three bodies that wait for each other: only a pool that really runs three at once passes. (Only
  // a test may do this: other executors are allowed to run bodies one after another.)
  std::atomic<uint32_t> arrived{0};
  ParallelFor(pool->get(), 3, [&](uint32_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 3u);
}

TEST(ThreadPool, NestedLoopRunsInline) {
  auto pool = CreateThreadPool(3);
  ASSERT_TRUE(pool.ok());
  std::atomic<uint32_t> sum{0};
  ParallelFor(pool->get(), 5, [&](uint32_t i) {
    ParallelFor(pool->get(), 4, [&](uint32_t j) { sum.fetch_add(i * 4 + j); });
  });
  EXPECT_EQ(sum.load(), 190u);
}

TEST(ThreadPool, WorkersTakeNoSignalsAndCallerKeepsItsMask) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  auto pool = CreateThreadPool(3);
  ASSERT_TRUE(pool.ok());
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
  const pthread_t caller = pthread_self();
  std::atomic<uint32_t> arrived{0}, blocked{0};
  ParallelFor(pool->get(), 3, [&](uint32_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 3) std::this_thread::yield();
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, nullptr, &mine);
    if (pthread_equal(pthread_self(), caller) == 0 && sigismember(&mine, SIGTERM) == 1 &&
        sigismember(&mine, SIGALRM) == 1) {
      blocked.fetch_add(1);
    }
  });
  EXPECT_EQ(blocked.load(), 2u);
}

TEST(ThreadPool, IdleCostsNoProcessorTime) {
  auto pool = CreateThreadPool(4);
  ASSERT_TRUE(pool.ok());
  ParallelFor(pool->get(), 100, [](uint32_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const int64_t used_us =
      (after.tv_sec - before.tv_sec) * 1'000'000 + (after.tv_nsec - before.tv_nsec) / 1000;
  EXPECT_LT(used_us, 5000);  // three spinning workers would have used 600,000
}

TEST(ThreadPool, TooManyThreadsIsMisuse) {
  EXPECT_EQ(CreateThreadPool(1025).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ThreadPool, ZeroIsTheDefault) {
  auto pool = CreateThreadPool(0);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->concurrency(), DefaultThreads());
  EXPECT_GE(DefaultThreads(), 1u);
}

// The threads of this process, as the system counts them.
size_t ThreadCount() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(threads), end(threads)));
}

TEST(ThreadPool, FailureToStartAThreadIsAStatus) {
  ASSERT_TRUE(CreateThreadPool(2).ok());  // a sanitizer's own thread is there from now on
  const size_t before = ThreadCount();    // it may still count a thread that was joined just now
  threads_allowed = 30;
  const auto pool = CreateThreadPool(1000);
  EXPECT_EQ(threads_allowed.load(), 0);  // 30 were started
  threads_allowed = kNoLimit;
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(pool.status().message().find("thread 31 of 1000"), absl::string_view::npos)
      << pool.status();
  // The thirty are joined; the system may take a moment more to forget them.
  for (int wait = 0; wait < 1000 && ThreadCount() > before; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(ThreadCount(), before);
  EXPECT_TRUE(CreateThreadPool(2).ok());
}

class CgroupTree : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/qinfer_cgroup_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + "/" + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::string root_;
};

TEST_F(CgroupTree, Version2TakesTheSmallestOfTheAncestors) {
  Write("cpu.max", "max 100000\n");
  Write("a/cpu.max", "150000 100000\n");
  Write("a/b/cpu.max", "800000 100000\n");
  EXPECT_EQ(CgroupCpuLimit("0::/a/b\n", root_), 2u);
  EXPECT_EQ(CgroupCpuLimit("0::/\n", root_), 0u);
  EXPECT_EQ(CgroupCpuLimit("0::/not/there\n", root_), 0u);
}

TEST_F(CgroupTree, Version1AndContainersWithTheirOwnRoot) {
  Write("cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
  Write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpuLimit("4:memory:/x\n3:cpu,cpuacct:/docker/abc\n", root_), 3u);
  Write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(CgroupCpuLimit("3:cpu,cpuacct:/docker/abc\n", root_), 0u);
}

TEST_F(CgroupTree, NonsenseIsNoLimit) {
  Write("cpu.max", "banana\n");
  EXPECT_EQ(CgroupCpuLimit("0::/\n::\nx\n:", root_), 0u);
  EXPECT_EQ(CgroupCpuLimit("0::/../../etc\n", root_), 0u);
  EXPECT_EQ(CgroupCpuLimit("", root_), 0u);
}

TEST(Log, SilentByDefaultAndFilteredByLevel) {
  Log().Write(LogLevel::kError, "nobody hears this");
  std::vector<std::string> heard;
  const Log log(
      [](void* user, LogLevel, const char* text, size_t length) {
        static_cast<std::vector<std::string>*>(user)->emplace_back(text, length);
      },
      &heard, LogLevel::kWarning);
  log.Write(LogLevel::kWarning, "heard");
  log.Write(LogLevel::kInfo, "not heard");
  EXPECT_EQ(heard, std::vector<std::string>{"heard"});
}

}  // namespace
}  // namespace qinfer
