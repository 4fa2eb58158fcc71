// What the tests of quantization share: the sample model, contexts, running a Work, temporary
// folders.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "format/checkpoint.h"
#include "kernels/kernels.h"
#include "quant/quantize.h"
#include "tests/unit/thread_sanitizer.h"

namespace qinfer::quant {

// Searching the scales of the sample model takes minutes under the thread sanitizer, which sees the
// search in smaller models (architectures_test.cpp).
inline constexpr bool kSearchSampleModel = !kThreadSanitizer;

inline std::string TinyPath() { return QINFER_SOURCE_DIR "/samples/models/tiny-llama"; }

inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct Host {
  explicit Host(uint32_t threads = 2, uint64_t limit = 0) : memory({}, limit) {
    executor = CreateThreadPool(threads).value();
    context = {&memory, executor.get(), kernels::SelectTable(kernels::Isa::kAuto)};
  }
  std::shared_ptr<format::Checkpoint> Open(const std::string& path,
                                           io::Access access = io::Access::kMap) {
    format::OpenOptions options;
    options.memory = &memory;
    options.access = access;
    auto checkpoint = format::OpenCheckpoint(path, options);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return checkpoint.ok() ? *checkpoint : nullptr;
  }
  Memory memory;
  std::unique_ptr<Executor> executor;
  exec::Context context;
};

inline Status Finish(Work* work) {
  for (;;) {
    StatusOr<bool> done = work->Step(Deadline{});
    if (!done.ok()) return done.status();
    if (*done) return OkStatus();
  }
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "qinfer-quant-XXXXXX").string();
    path_ = mkdtemp(path.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  size_t entries() const {
    size_t n = 0;
    for (auto it = std::filesystem::directory_iterator(path_); it != decltype(it)(); ++it) ++n;
    return n;
  }

 private:
  std::string path_;
};

// A calibration of the sample model on a little of its text.
inline std::shared_ptr<Calibration> Calibrated(Host* host,
                                               std::shared_ptr<format::Checkpoint> checkpoint,
                                               uint32_t samples, uint32_t sample_tokens) {
  CalibrationOptions options;
  options.samples = samples;
  options.sample_tokens = sample_tokens;
  auto calibration = Calibration::Create(checkpoint, options, host->context);
  EXPECT_TRUE(calibration.ok()) << calibration.status();
  const std::string text = ReadText(TinyPath() + "/tiny-calibration.txt");
  EXPECT_TRUE((*calibration)->AddText(text.substr(0, 60000)).ok());
  auto run = (*calibration)->Run();
  EXPECT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(Finish(run->get()).ok());
  return *calibration;
}

}  // namespace qinfer::quant
