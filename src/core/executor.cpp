// Our thread pool: one loop at a time, indices handed out by a counter, workers that park when
// there is nothing to do. What runs in the loops, and the host's own job system, are elsewhere.
//
// The counter and the loop's number share one 64-bit word, claimed by compare-and-swap, and the
// word is closed before the next loop's body is written. So a worker that wakes late, or is
// descheduled between reading the loop and claiming an index, can never pair an index with another
// loop's body, and nobody ever waits for sleeping workers: a loop ends when its indices are done.
#include "core/executor.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "core/work.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace qinfer {
namespace {

constexpr uint32_t kMaxThreads = 1024;
// After a loop the next one usually follows within microseconds, and waking a parked thread costs
// more than that; while a loop still runs the next one is certain to be near.
constexpr uint64_t kSpinInLoopNs = 50'000;

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A new thread inherits the creator's rounding and flush modes, which belong to the host.
inline void ResetFloatModes() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_setcsr(0x1f80);
#elif defined(__aarch64__)
  const uint64_t zero = 0;
  asm volatile("msr fpcr, %0" ::"r"(zero));
#endif
}

class ThreadPool final : public Executor {
 public:
  ThreadPool(uint32_t threads, uint32_t spin_us)
      : concurrency_(threads),
        spin_(spin_us != 0 && threads <= DefaultThreads()),
        spin_after_loop_ns_(uint64_t{1000} * spin_us) {}

  Status Start();
  ~ThreadPool() override;

  uint32_t concurrency() const override { return concurrency_; }
  void ParallelFor(uint32_t count, void (*body)(void*, uint32_t), void* context) override;

 private:
  using Body = void (*)(void*, uint32_t);

  static constexpr uint32_t kClosed =
      UINT32_MAX;  // below no count: such a loop has no indices left

  static uint32_t LoopOf(uint64_t state) { return static_cast<uint32_t>(state >> 32); }
  static uint32_t NextOf(uint64_t state) { return static_cast<uint32_t>(state); }

  static void* Enter(void* self) {
    ResetFloatModes();
    static_cast<ThreadPool*>(self)->WorkerMain();
    return nullptr;
  }
  void WorkerMain();
  // Runs indices of the current loop until none is left.
  void RunIndices();
  // Waits until a loop other than `seen` begins; false = the pool is being destroyed.
  bool AwaitLoop(uint32_t seen);
  void AwaitFinish(uint32_t count);

  const uint32_t concurrency_;
  const bool spin_;  // spinning where threads share processors only delays the one that works
  const uint64_t spin_after_loop_ns_;
  std::vector<pthread_t> threads_;

  alignas(64) std::atomic<uint64_t> state_{kClosed};  // loop number << 32 | next index
  std::atomic<Body> body_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<uint32_t> count_{0};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<uint32_t> done_{0};  // finished indices of the current loop
  alignas(64) std::atomic<uint32_t> parked_{0};
  std::atomic<bool> caller_parked_{false};
  std::atomic<bool> busy_{false};  // a loop is running: a nested one runs inline

  std::mutex mutex_;
  std::condition_variable work_, finished_;
};

Status ThreadPool::Start() {
  threads_.reserve(concurrency_ - 1);
  // Workers take no signals: the host's handlers run on the host's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (uint32_t i = 1; i < concurrency_ && error == 0; ++i) {
    pthread_t thread;
    error = pthread_create(&thread, nullptr, &ThreadPool::Enter, this);
    if (error != 0) break;
    threads_.push_back(thread);
#if defined(__linux__)
    char name[16] = "qinfer-";  // no allocation: nothing may fail while the signals are blocked
    *std::to_chars(name + 7, name + sizeof(name) - 1, i).ptr = '\0';
    pthread_setname_np(thread, name);
#endif
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return OkStatus();
  return NoMemoryError(StrCat("cannot start thread ", threads_.size() + 1, " of ", concurrency_,
                              " (", std::strerror(error),
                              "); ask for fewer threads or raise the process's limits"));
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_.store(true);
    work_.notify_all();
  }
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
}

void ThreadPool::ParallelFor(uint32_t count, Body body, void* context) {
  if (count == 0) return;
  if (count == 1 || threads_.empty() || busy_.exchange(true, std::memory_order_acquire)) {
    for (uint32_t i = 0; i < count; ++i) body(context, i);
    return;
  }
  // The word is closed, and whoever reads a new value here also sees that it is: claims fail.
  body_.store(body, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  count_.store(count, std::memory_order_release);
  done_.store(0, std::memory_order_relaxed);
  const uint32_t loop = LoopOf(state_.load(std::memory_order_relaxed)) + 1;
  state_.store(static_cast<uint64_t>(loop) << 32);  // seq_cst: against parked_ in AwaitLoop
  const uint32_t parked = parked_.load();
  if (parked != 0) {
    const uint32_t useful = count - 1;  // the caller takes one index at least
    { std::lock_guard<std::mutex> lock(mutex_); }
    if (useful >= parked) {
      work_.notify_all();
    } else {
      for (uint32_t i = 0; i < useful; ++i) work_.notify_one();
    }
  }
  RunIndices();
  AwaitFinish(count);
  state_.store(static_cast<uint64_t>(loop) << 32 | kClosed, std::memory_order_relaxed);
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::RunIndices() {
  uint64_t state = state_.load(std::memory_order_acquire);
  const uint32_t loop = LoopOf(state);
  const Body body = body_.load(std::memory_order_acquire);
  void* const context = context_.load(std::memory_order_acquire);
  const uint32_t count = count_.load(std::memory_order_acquire);
  uint32_t mine = 0;
  // These three belong to `loop` wherever a claim below succeeds: they are only rewritten after the
  // word was closed, and then its claims fail.
  while (LoopOf(state) == loop && NextOf(state) < count) {
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      continue;
    }
    body(context, NextOf(state));
    ++mine;
    state = state_.load(std::memory_order_acquire);
  }
  if (mine == 0) return;
  if (done_.fetch_add(mine) + mine == count && caller_parked_.load()) {
    std::lock_guard<std::mutex> lock(mutex_);
    finished_.notify_all();
  }
}

void ThreadPool::AwaitFinish(uint32_t count) {
  if (spin_) {
    const uint64_t until = NowNs() + kSpinInLoopNs;
    do {
      for (int i = 0; i < 16; ++i) {
        if (done_.load(std::memory_order_acquire) == count) return;
        Pause();
      }
    } while (NowNs() < until);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  caller_parked_.store(true);
  finished_.wait(lock, [&] { return done_.load() == count; });
  caller_parked_.store(false);
}

bool ThreadPool::AwaitLoop(uint32_t seen) {
  if (spin_) {
    const uint64_t begin = NowNs();
    uint64_t loop_ended = 0;
    for (;;) {
      for (int i = 0; i < 16; ++i) {
        if (LoopOf(state_.load(std::memory_order_acquire)) != seen) return true;
        Pause();
      }
      const uint64_t now = NowNs();
      if (loop_ended == 0 &&
          done_.load(std::memory_order_relaxed) == count_.load(std::memory_order_relaxed)) {
        loop_ended = now;
      }
      if (loop_ended != 0 ? now - loop_ended > spin_after_loop_ns_ : now - begin > kSpinInLoopNs)
        break;
    }
  }
  std::unique_lock<std::mutex> lock(mutex_);
  parked_.fetch_add(1);
  work_.wait(lock, [&] { return stop_.load() || LoopOf(state_.load()) != seen; });
  parked_.fetch_sub(1);
  return !stop_.load();
}

void ThreadPool::WorkerMain() {
  uint32_t seen = 0;
  while (AwaitLoop(seen)) {
    seen = LoopOf(state_.load(std::memory_order_acquire));
    RunIndices();
  }
}

}  // namespace

StatusOr<std::unique_ptr<Executor>> CreateThreadPool(uint32_t threads, uint32_t spin_us) {
  if (threads == 0) threads = std::min(DefaultThreads(), kMaxThreads);
  if (threads > kMaxThreads) {
    return MisuseError(StrCat(threads, " threads asked for; at most ", kMaxThreads,
                              " (0 = one per processor that this process may use)"));
  }
  auto pool = std::make_unique<ThreadPool>(threads, spin_us);
  QINFER_RETURN_IF_ERROR(pool->Start());
  return std::unique_ptr<Executor>(std::move(pool));
}

}  // namespace qinfer
