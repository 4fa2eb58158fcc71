// How many instructions kernels take, counted one by one: a child runs a kernel and its parent
// steps it through the marked part, so that the figures are exact, the same every time, and need
// neither counters of the processor nor a tool that knows its newest instructions. Times are
// kernels_bench's. usage: instructions [PART_OF_A_NAME]; prints tables of Markdown: of products per
// block (16 rows x 32 inputs x token), of attention per row and key.
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "bench_data.h"

namespace qinfer::kernels {
namespace {

constexpr Size kSize = {64, 768};  // as many panels as a unit of the forward pass has at least
constexpr uint32_t kTokens[] = {1, 4, 96};
constexpr const char* kTypes[] = {"f32", "f16", "int8"};

// What the child tells its parent.
enum class Part : int { kBefore, kCounted, kAfter };
volatile Part* part = nullptr;

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Instructions that f() takes. `prepare` gives f and runs in the child alone.
template <typename F>
uint64_t Count(F&& prepare) {
  *part = Part::kBefore;
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) Fail("fork");
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) Fail("ptrace");
    auto run = prepare();
    run();  // so that nothing is resolved or faulted in later
    raise(SIGSTOP);
    *part = Part::kCounted;
    run();
    *part = Part::kAfter;
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status)) Fail("the child did not begin");
  uint64_t count = 0;
  while (*part != Part::kAfter) {
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) Fail("ptrace");
    if (waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status)) Fail("the child ended early");
    // Whoever pauses the child has not made it go on.
    if (*part == Part::kCounted && WSTOPSIG(status) == SIGTRAP) ++count;
  }
  ptrace(PTRACE_CONT, child, nullptr, nullptr);
  waitpid(child, &status, 0);
  return count;
}

// What counting itself adds.
uint64_t Overhead() {
  static const uint64_t count = Count([] { return [] {}; });
  return count;
}

double PerBlock(const Table* table, const Format& format, uint32_t tokens) {
  const uint64_t count = Count([&] {
    auto product = std::make_shared<Product>(table, format, kSize, tokens, 1);
    return [product] { product->Run(0); };
  });
  return static_cast<double>(count - Overhead()) /
         (kSize.rows / double{kPanelRows} * (kSize.cols / 32.0) * tokens);
}

double PerRowAndKey(const Table* table, KvType type, uint32_t context, uint32_t tokens) {
  const uint64_t count = Count([&] {
    auto attending = std::make_shared<Attending>(table, type, context, tokens);
    return [attending] { attending->Run(); };
  });
  return static_cast<double>(count - Overhead()) / Attending::RowKeys(context, tokens);
}

bool Wanted(const std::string& name, const char* filter) {
  return filter == nullptr || name.find(filter) != std::string::npos;
}

void Print(const char* filter) {
  std::printf("| table | format | 1 token | 4 tokens | 96 tokens |\n|---|---|---|---|---|\n");
  for (const Table* table : TablesToMeasure()) {
    if (table == SelectTable(Isa::kRef)) continue;
    for (const Format& format : kFormats) {
      if (!Wanted(std::string(table->name) + "/" + format.name, filter)) continue;
      std::printf("| %s | %s |", table->name, format.name);
      for (const uint32_t tokens : kTokens) std::printf(" %.1f |", PerBlock(table, format, tokens));
      std::printf("\n");
    }
  }
  std::printf("\n| table | attention | 1 token at 1024 | 16 tokens at 256 |\n|---|---|---|---|\n");
  for (const Table* table : TablesToMeasure()) {
    if (table == SelectTable(Isa::kRef)) continue;
    for (int type = 0; type < 3; ++type) {
      if (!Wanted(std::string(table->name) + "/attention/" + kTypes[type], filter)) continue;
      const auto kv = static_cast<KvType>(type);
      std::printf("| %s | %s | %.2f | %.2f |\n", table->name, kTypes[type],
                  PerRowAndKey(table, kv, 1024, 1), PerRowAndKey(table, kv, 256, 16));
    }
  }
}

}  // namespace
}  // namespace qinfer::kernels

int main(int argc, char** argv) {
  using qinfer::kernels::part;
  using qinfer::kernels::Part;
  void* shared =
      mmap(nullptr, sizeof(Part), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) qinfer::kernels::Fail("mmap");
  part = static_cast<Part*>(shared);
  qinfer::kernels::Print(argc > 1 ? argv[1] : nullptr);
  return 0;
}
