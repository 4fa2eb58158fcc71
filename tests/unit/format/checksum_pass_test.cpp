// Comparing checksums a piece at a time.
#include "format/checksum_pass.h"

#include <gtest/gtest.h>

#include <vector>

#include "bytes.h"
#include "string_sink.h"

namespace qinfer::format {
namespace {

// A pass reads at most a piece at a time, takes no more memory than that, and goes on behind a
// tensor that has changed.
TEST(ChecksumPass, ReadsPieceByPiece) {
  std::string bytes;
  auto writer = QinferWriter::Create(std::make_unique<testing::StringSink>(&bytes));
  ASSERT_TRUE(writer.ok());
  const std::string large(3 * ChecksumPass::kPieceBytes + 100, 'x'), small(64, 'y');
  QinferWriter::Declaration declaration;
  declaration.name = "a";
  declaration.format = "bytes";
  declaration.bytes = large.size();
  declaration.shape = {large.size()};
  ASSERT_TRUE((*writer)->DeclareTensor(declaration).ok());
  ASSERT_TRUE((*writer)->DeclareSideFile("qinfer.side", small.size()).ok());
  ASSERT_TRUE((*writer)->Begin(0).ok());
  ASSERT_TRUE((*writer)->Write(0, 0, testing::Span(large)).ok());
  ASSERT_TRUE((*writer)->Write(1, 0, testing::Span(small)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  bytes[bytes.size() - 64 - 200] = '-';  // of the first tensor
  Memory memory;
  const auto file = QinferFile::Open(testing::Borrow(bytes), &memory);
  ASSERT_TRUE(file.ok()) << file.status();
  memory.ResetPeak();
  const uint64_t before = memory.used_bytes();
  auto pass = ChecksumPass::Create(file->get(), &memory);
  ASSERT_TRUE(pass.ok());
  int steps = 0;
  std::vector<size_t> failed_at;
  while (!(*pass)->finished()) {
    const uint64_t done = (*pass)->bytes_done();
    if (!(*pass)->Step().ok()) failed_at.push_back((*pass)->tensors_done());
    ++steps;
    EXPECT_GT((*pass)->bytes_done(), done);
    EXPECT_LE((*pass)->bytes_done(), done + ChecksumPass::kPieceBytes);
  }
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(failed_at, std::vector<size_t>{1});
  EXPECT_EQ((*pass)->bytes_done(), (*pass)->bytes_total());
  EXPECT_EQ(memory.peak_bytes(), before + ChecksumPass::kPieceBytes);
}

}  // namespace
}  // namespace qinfer::format
