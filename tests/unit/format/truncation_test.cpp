// Real files cut anywhere: the shipped model at every byte of its header and every 16 KiB after, a
// vocabulary every few hundred bytes. Always a status that names the file, in bounded memory.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "bytes.h"
#include "format/checkpoint.h"

namespace qinfer::format {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void ExpectRefused(const std::string& file, size_t bytes) {
  Memory memory;
  {
    OpenOptions options;
    options.memory = &memory;
    const auto source =
        io::BorrowMemory({reinterpret_cast<const uint8_t*>(file.data()), bytes}, "the file");
    const Status status = OpenCheckpoint(source, {}, options).status();
    ASSERT_FALSE(status.ok()) << "cut to " << bytes << " bytes";
    EXPECT_NE(status.message().find("the file"), absl::string_view::npos) << status;
  }
  EXPECT_LT(memory.peak_bytes(), bytes + (1u << 20));
  EXPECT_EQ(memory.used_bytes(), 0u);
}

TEST(Truncation, Safetensors) {
  const std::string file =
      ReadAll(QINFER_SOURCE_DIR "/samples/models/tiny-llama/model.safetensors");
  ASSERT_GT(file.size(), 8u);
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  ASSERT_LT(header, file.size());
  for (size_t n = 0; n <= header + 8; ++n) ExpectRefused(file, n);
  for (size_t n = header + 8; n < file.size(); n += 16 << 10) ExpectRefused(file, n);
  ExpectRefused(file, file.size() - 1);
}

TEST(Truncation, Gguf) {
  const std::string file = ReadAll(QINFER_SHARED_DIR "/data/tokenizer/ggml-vocab-llama-spm.gguf");
  if (file.empty()) GTEST_SKIP() << "no vocabulary in " QINFER_SHARED_DIR;
  for (size_t n = 0; n < 4096; ++n) ExpectRefused(file, n);
  for (size_t n = 4096; n < file.size(); n += 997) ExpectRefused(file, n);
}

}  // namespace
}  // namespace qinfer::format
