// Runs every scenario again and again, failing the N-th allocation (of the host's allocator, or of
// operator new) or the N-th read, for N = 1, 2, ... until nothing fails any more; with "-on" also
// everything after the N-th, until the scenario has ended. Each failure must give the right status
// and leave nothing behind, and a retry afterwards must work.
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "scenarios.h"

namespace {

// The one countdown: the call that brings it to zero fails, once, or with all that follow.
struct Countdown {
  long left = 0;  // 0 = off
  long seen = 0;
  bool stays = false, failing = false;
  bool Fails() {
    ++seen;
    if (left > 0 && --left == 0) failing = true;
    if (!failing) return false;
    failing = stays;
    return true;
  }
};
Countdown g_new, g_allocator, g_read;
bool g_watch_new = false;
bool g_made_do = false;  // who asks without exceptions may do without: std::stable_sort does
long g_live_new = 0, g_live_blocks = 0, g_drops = 0, g_opens = 0;

}  // namespace

// Counted while a scenario runs; one thread, so plain numbers do.
void* operator new(std::size_t size) {
  if (g_watch_new) {
    if (g_new.Fails()) throw std::bad_alloc();
  }
  void* block = std::malloc(size == 0 ? 1 : size);
  if (block == nullptr) throw std::bad_alloc();
  ++g_live_new;
  return block;
}
void* operator new(std::size_t size, std::align_val_t align) {
  if (g_watch_new) {
    if (g_new.Fails()) throw std::bad_alloc();
  }
  void* block = nullptr;
  if (posix_memalign(&block, static_cast<std::size_t>(align), size == 0 ? 1 : size) != 0) {
    throw std::bad_alloc();
  }
  ++g_live_new;
  return block;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  if (g_watch_new && g_new.Fails()) {
    g_made_do = true;
    return nullptr;
  }
  void* block = std::malloc(size == 0 ? 1 : size);
  if (block != nullptr) ++g_live_new;
  return block;
}
void operator delete(void* block) noexcept {
  if (block == nullptr) return;
  --g_live_new;
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept { operator delete(block); }
void operator delete(void* block, std::align_val_t) noexcept { operator delete(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  operator delete(block);
}

namespace {

void* Allocate(void*, size_t size, size_t align) {
  if (g_allocator.Fails()) return nullptr;
  void* block = nullptr;
  if (posix_memalign(&block, align < sizeof(void*) ? sizeof(void*) : align, size) != 0) {
    return nullptr;
  }
  ++g_live_blocks;
  return block;
}
void Release(void*, void* block, size_t, size_t) {
  --g_live_blocks;
  std::free(block);
}

qinfer_status Size(void* user, uint64_t* out) {
  *out = static_cast<const std::string*>(user)->size();
  return QINFER_OK;
}
qinfer_status ReadAt(void* user, uint64_t offset, void* dst, size_t n) {
  if (g_read.Fails()) return EIO;
  const std::string& bytes = *static_cast<const std::string*>(user);
  if (offset > bytes.size() || n > bytes.size() - offset) return EINVAL;
  std::memcpy(dst, bytes.data() + offset, n);
  return QINFER_OK;
}
void Drop(void*) { ++g_drops; }
qinfer_io Open(const std::string* bytes) {
  ++g_opens;
  qinfer_io io = QINFER_IO_INIT;
  io.user = const_cast<std::string*>(bytes);
  io.size = Size;
  io.read_at = ReadAt;
  io.drop = Drop;
  return io;
}

struct Outcome {
  qinfer_status status;
  qinfer_error err = QINFER_ERROR_INIT;
};

Outcome RunOnce(const fault::NamedScenario& scenario, const fault::Files& files,
                const fault::Hooks& hooks, Countdown* which, long n, bool stays) {
  g_new = g_allocator = g_read = Countdown();
  which->left = n;
  which->stays = stays;
  Outcome outcome;
  g_made_do = false;
  g_watch_new = true;
  outcome.status = scenario.run(files, hooks, &outcome.err);
  g_watch_new = false;
  return outcome;
}

int g_failures = 0;
void Complain(const char* scenario, long n, const char* what, const Outcome& outcome) {
  std::fprintf(stderr, "%s, failure %ld: %s (%s: %s)\n", scenario, n, what,
               qinfer_status_name(outcome.status), outcome.err.message);
  ++g_failures;
}

}  // namespace

int main(int argc, char** argv) {
  std::string kind = argc > 1 ? argv[1] : "";
  const bool stays = kind.size() > 3 && kind.compare(kind.size() - 3, 3, "-on") == 0;
  if (stays) kind.resize(kind.size() - 3);
  const char* const only = argc > 2 ? argv[2] : "all";
  const long single = argc > 3 ? std::atol(argv[3]) : 0;
  Countdown* which = nullptr;
  if (kind == "new") which = &g_new;
  if (kind == "allocator") which = &g_allocator;
  if (kind == "read") which = &g_read;
  if (which == nullptr) {
    std::fprintf(stderr,
                 "usage: fault_injection new|allocator|read[-on] [SCENARIO, as it begins|all [N-TH "
                 "ALONE]]\n");
    return 2;
  }
  fault::Files files;
  if (!fault::LoadFiles(&files)) return 1;
  qinfer_allocator allocator = QINFER_ALLOCATOR_INIT;
  allocator.alloc = Allocate;
  allocator.release = Release;
  const fault::Hooks hooks{&allocator, Open};
  long total = 0;
  for (const fault::NamedScenario& scenario : fault::Scenarios()) {
    if (std::strcmp(only, "all") != 0 &&
        std::strncmp(only, scenario.name, std::strlen(only)) != 0) {
      continue;
    }
    // Once without failures: what there is to fail, and anything that is made once and kept.
    const auto begin = std::chrono::steady_clock::now();
    Outcome clean = RunOnce(scenario, files, hooks, which, 0, false);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (clean.status < 0) {
      Complain(scenario.name, 0, "fails by itself", clean);
      continue;
    }
    const long points = which->seen;
    long injected = 0;
    for (long n = single > 0 ? single : 1; n <= (single > 0 ? single : points); ++n) {
      const long live_new = g_live_new, live_blocks = g_live_blocks;
      Outcome outcome = RunOnce(scenario, files, hooks, which, n, stays);
      ++injected;
      const qinfer_status expected = which == &g_read ? QINFER_E_IO : QINFER_E_NOMEM;
      if (outcome.status != expected && !(g_made_do && outcome.status >= QINFER_OK))
        Complain(scenario.name, n, "wrong status", outcome);
      if (outcome.status < 0 && outcome.err.message[0] == 0) {
        Complain(scenario.name, n, "no message", outcome);
      }
      if (g_live_new != live_new) Complain(scenario.name, n, "leak of operator new", outcome);
      if (g_live_blocks != live_blocks)
        Complain(scenario.name, n, "leak of the allocator", outcome);
      if (g_drops != g_opens)
        Complain(scenario.name, n, "an io table was not dropped once", outcome);
      g_drops = g_opens = 0;
      if (g_failures > 20) return 1;
    }
    clean = RunOnce(scenario, files, hooks, which, 0, false);
    if (clean.status < 0) Complain(scenario.name, injected, "no retry", clean);
    g_drops = g_opens = 0;
    std::printf("%-12s %6ld of %6ld points of %s failed, %.4f s a run\n", scenario.name, injected,
                points, kind.c_str(), seconds);
    std::fflush(stdout);
    total += injected;
  }
  std::printf("%ld failures injected, %d problems\n", total, g_failures);
  return g_failures != 0;
}
