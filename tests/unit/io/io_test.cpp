// Sources and sinks: ranges, maps, files that shrink or are no files, host tables, and writing that
// leaves either a whole file or nothing.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/folder.h"
#include "io/reader.h"
#include "io/source.h"

namespace qinfer::io {
namespace {

class Io : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/qinfer_io_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t FilesInFolder() {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  static absl::Span<const uint8_t> Span(const std::string& s) {
    return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
  }
  static bool Mentions(const Status& status, const std::string& part) {
    return status.message().find(part) != absl::string_view::npos;
  }
  std::string folder_;
  Memory memory_;
};

TEST_F(Io, FileByMapAndByCopy) {
  const std::string path = Write("gr\xc3\xbc\xc3\x9f.bin", "0123456789");
  for (const Access access : {Access::kMap, Access::kCopy}) {
    const auto source = OpenFile(path, access, &memory_);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->size(), 10u);
    EXPECT_EQ((*source)->name(), path);
    uint8_t out[4];
    ASSERT_TRUE((*source)->ReadAt(6, out).ok());
    EXPECT_EQ(std::memcmp(out, "6789", 4), 0);
    EXPECT_EQ((*source)->ReadAt(7, out).code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE((*source)->ReadAt(UINT64_MAX, out).ok());
    EXPECT_EQ((*source)->Map() != nullptr, access == Access::kMap);
    EXPECT_EQ(memory_.mapped_bytes(), access == Access::kMap ? 10u : 0u);
    if (access == Access::kMap) {
      EXPECT_EQ(std::memcmp((*source)->Map(), "0123456789", 10), 0);
    }
  }
  EXPECT_EQ(memory_.mapped_bytes(), 0u);
}

TEST_F(Io, MapOverTheBudget) {
  const std::string path = Write("big", std::string(1000, 'x'));
  Memory small({}, 999);
  const auto source = OpenFile(path, Access::kMap, &small);
  EXPECT_EQ(source.status().code(), absl::StatusCode::kOutOfRange) << source.status();
  EXPECT_TRUE(Mentions(source.status(), path));
  EXPECT_TRUE(OpenFile(path, Access::kCopy, &small).ok());
}

TEST_F(Io, EmptyFile) {
  const auto source = OpenFile(Write("empty", ""), Access::kMap, &memory_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->size(), 0u);
  EXPECT_EQ((*source)->Map(), nullptr);
  EXPECT_TRUE((*source)->ReadAt(0, {}).ok());
}

TEST_F(Io, AFileThatShrinksIsAnErrorThatNamesTheOffset) {
  const std::string path = Write("shrinks", std::string(100, 'x'));
  for (const Access access : {Access::kCopy, Access::kMap}) {
    std::filesystem::resize_file(path, 100);
    const auto source = OpenFile(path, access, &memory_);
    ASSERT_TRUE(source.ok());
    std::filesystem::resize_file(path, 50);
    std::vector<uint8_t> out(100);
    const Status status = (*source)->ReadAt(0, absl::MakeSpan(out));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(Mentions(status, "at byte 50")) << status;
    EXPECT_TRUE(Mentions(status, path)) << status;
  }
}

TEST_F(Io, WhatIsNoFile) {
  EXPECT_TRUE(Mentions(OpenFile(folder_, Access::kMap, &memory_).status(), "folder"));
  const auto missing = OpenFile(folder_ + "/missing", Access::kMap, &memory_);
  EXPECT_TRUE(Mentions(missing.status(), "check the path")) << missing.status();
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_TRUE(Mentions(OpenFile(fifo, Access::kCopy, &memory_).status(), "not a regular file"));
  EXPECT_EQ(OpenFile("", Access::kMap, &memory_).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenFile(std::string("a\0b", 3), Access::kMap, &memory_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(Io, MemoryIsMappedOnlyIfAligned) {
  alignas(64) uint8_t bytes[128] = {1, 2, 3};
  EXPECT_EQ(BorrowMemory(bytes, "memory")->Map(), bytes);
  const auto odd = BorrowMemory(absl::MakeSpan(bytes + 1, 10), "memory");
  EXPECT_EQ(odd->Map(), nullptr);
  uint8_t out[2];
  ASSERT_TRUE(odd->ReadAt(0, out).ok());
  EXPECT_EQ(out[0], 2);
  EXPECT_FALSE(odd->ReadAt(9, out).ok());
}

struct Host {
  std::string bytes = "0123456789";
  int32_t fail_size = 0, fail_read = 0, fail_write = 0, fail_commit = 0;
  int drops = 0, abandons = 0, commits = 0;
};

HostIo Table(Host* host) {
  HostIo io;
  io.user = host;
  io.size = [](void* user, uint64_t* size) {
    *size = static_cast<Host*>(user)->bytes.size();
    return static_cast<Host*>(user)->fail_size;
  };
  io.read_at = [](void* user, uint64_t offset, void* dst, size_t n) {
    std::memcpy(dst, static_cast<Host*>(user)->bytes.data() + offset, n);
    return static_cast<Host*>(user)->fail_read;
  };
  io.drop = [](void* user) { ++static_cast<Host*>(user)->drops; };
  return io;
}

TEST_F(Io, HostTable) {
  Host host;
  {
    const auto source = WrapHostIo(Table(&host), "asset");
    ASSERT_TRUE(source.ok());
    uint8_t out[3];
    EXPECT_TRUE((*source)->ReadAt(7, out).ok());
    EXPECT_EQ(out[2], '9');
    EXPECT_FALSE((*source)->ReadAt(8, out).ok());  // never reaches the host
    host.fail_read = 7;
    EXPECT_TRUE(Mentions((*source)->ReadAt(0, out), "status 7 at byte 0"));
  }
  EXPECT_EQ(host.drops, 1);
  host.fail_size = 5;
  EXPECT_TRUE(Mentions(WrapHostIo(Table(&host), "asset").status(), "asset"));
  EXPECT_EQ(host.drops, 2);  // dropped on failure too
  HostIo incomplete = Table(&host);
  incomplete.read_at = nullptr;
  EXPECT_EQ(WrapHostIo(incomplete, "asset").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(host.drops, 3);
}

TEST_F(Io, HostMapIsUsedIfItWorksAndIsAligned) {
  alignas(64) static uint8_t memory[128];
  Host host;
  HostIo io = Table(&host);
  io.map = [](void*, uint64_t, uint64_t, const void** out) {
    *out = memory;
    return 0;
  };
  EXPECT_EQ((*WrapHostIo(io, "asset"))->Map(), memory);
  io.map = [](void*, uint64_t, uint64_t, const void** out) {
    *out = memory + 8;
    return 0;
  };
  EXPECT_EQ((*WrapHostIo(io, "asset"))->Map(), nullptr);
  io.map = [](void*, uint64_t, uint64_t, const void**) { return 1; };
  EXPECT_EQ((*WrapHostIo(io, "asset"))->Map(), nullptr);
}

TEST_F(Io, SinkAppearsWholeOrNotAtAll) {
  const std::string path = Write("out", "old");
  {
    const auto sink = CreateFile(path);
    ASSERT_TRUE(sink.ok()) << sink.status();
    ASSERT_TRUE((*sink)->WriteAt(3, Span("lo")).ok());
    ASSERT_TRUE((*sink)->WriteAt(0, Span("hel")).ok());
    EXPECT_EQ(Read(path), "old");
    EXPECT_EQ(FilesInFolder(), 2u);
    ASSERT_TRUE((*sink)->Commit().ok());
    EXPECT_EQ(Read(path), "hello");
    EXPECT_FALSE((*sink)->Commit().ok());
    EXPECT_FALSE((*sink)->WriteAt(0, Span("x")).ok());
  }
  EXPECT_EQ(FilesInFolder(), 1u);
  {
    const auto sink = CreateFile(path);
    ASSERT_TRUE((*sink)->WriteAt(0, Span("never seen")).ok());
  }
  EXPECT_EQ(Read(path), "hello");
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(Io, SinkPathsThatCannotBe) {
  EXPECT_TRUE(Mentions(CreateFile(folder_).status(), "folder"));
  EXPECT_TRUE(Mentions(CreateFile(folder_ + "/no/such").status(), "check the path"));
  EXPECT_TRUE(Mentions(CreateFile("/dev/full").status(), "not a regular file"));
  if (geteuid() != 0) {
    ASSERT_EQ(chmod(folder_.c_str(), 0500), 0);
    EXPECT_TRUE(Mentions(CreateFile(folder_ + "/out").status(), "permissions"));
    ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
  } else {
    // Root may write anywhere but into pseudo file systems.
    const Status status = CreateFile("/proc/qinfer-test-output").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  }
  EXPECT_EQ(FilesInFolder(), 0u);
}

TEST_F(Io, FullDiskIsAStatusAndLeavesNothing) {
  // A small file size limit stands for a full disk; it also sends SIGXFSZ, which must not end us.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const std::string path = folder_ + "/out";
  {
    const auto sink = CreateFile(path);
    ASSERT_TRUE(sink.ok());
    const rlimit small{64 << 10, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string megabyte(1 << 20, 'x');
    const Status status = (*sink)->WriteAt(0, Span(megabyte));
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(Mentions(status, path) && Mentions(status, "at byte 65536")) << status;
  }
  EXPECT_EQ(FilesInFolder(), 0u);
}

TEST_F(Io, HostSink) {
  Host host;
  HostWriteIo io;
  io.user = &host;
  io.write_at = [](void* user, uint64_t offset, const void* src, size_t n) {
    Host& h = *static_cast<Host*>(user);
    h.bytes.resize(std::max<size_t>(h.bytes.size(), offset + n));
    std::memcpy(h.bytes.data() + offset, src, n);
    return h.fail_write;
  };
  io.commit = [](void* user) {
    ++static_cast<Host*>(user)->commits;
    return static_cast<Host*>(user)->fail_commit;
  };
  io.abandon = [](void* user) { ++static_cast<Host*>(user)->abandons; };
  io.drop = [](void* user) { ++static_cast<Host*>(user)->drops; };
  {
    const auto sink = WrapHostWriteIo(io, "asset");
    EXPECT_TRUE((*sink)->WriteAt(10, Span("ab")).ok());
    EXPECT_TRUE((*sink)->Commit().ok());
  }
  EXPECT_EQ(host.bytes, "0123456789ab");
  EXPECT_EQ(host.commits, 1);
  EXPECT_EQ(host.abandons, 0);
  EXPECT_EQ(host.drops, 1);
  {
    const auto sink = WrapHostWriteIo(io, "asset");
    host.fail_write = 3;
    EXPECT_TRUE(Mentions((*sink)->WriteAt(0, Span("x")), "status 3"));
    host.fail_commit = 4;
    EXPECT_TRUE(Mentions((*sink)->Commit(), "status 4"));
  }
  EXPECT_EQ(host.abandons, 1);
  EXPECT_EQ(host.drops, 2);
}

TEST_F(Io, Folders) {
  Write("b", "12345");
  Write("a", "");
  EXPECT_EQ(*ListFolder(folder_, 10), (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(ListFolder(folder_, 1).ok());
  EXPECT_FALSE(ListFolder(folder_ + "/a", 10).ok());
  EXPECT_EQ(*KindOf(folder_), PathKind::kFolder);
  EXPECT_EQ(*KindOf(folder_ + "/a"), PathKind::kFile);
  EXPECT_EQ(*KindOf(folder_ + "/c"), PathKind::kMissing);
  EXPECT_EQ(*KindOf(folder_ + "/a/c"), PathKind::kMissing);
  EXPECT_EQ(*KindOf("/dev/null"), PathKind::kOther);
  EXPECT_EQ(*ReadSmallFile(folder_ + "/b", 5), "12345");
  EXPECT_EQ(ReadSmallFile(folder_ + "/b", 4).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(FolderOf("/a"), "/");
  EXPECT_EQ(FolderOf("a"), ".");
  EXPECT_EQ(FolderOf("/x/a"), "/x");
  EXPECT_EQ(NameOf("/x/a"), "a");
}

TEST(Reader, NeverLeavesItsBytes) {
  const uint8_t bytes[] = {1, 2, 3, 4, 5};
  Reader reader(bytes, 5, 100);
  uint32_t word = 0;
  ASSERT_TRUE(reader.Read(&word));
  EXPECT_EQ(word, 0x04030201u);
  EXPECT_FALSE(reader.Read(&word));
  EXPECT_EQ(reader.offset(), 104u);
  const uint8_t* rest = nullptr;
  EXPECT_FALSE(reader.Bytes(UINT64_MAX, &rest));
  EXPECT_FALSE(reader.Skip(2));
  EXPECT_TRUE(reader.Bytes(1, &rest));
  EXPECT_EQ(*rest, 5);
  EXPECT_EQ(reader.remaining(), 0u);
}

}  // namespace
}  // namespace qinfer::io
