// The rows that reports have for every tensor of a file, kept small: a file of a few megabytes may
// name hundreds of thousands of them.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "core/memory.h"
#include "format/checkpoint.h"
#include "format/tensor_table.h"
#include "observe/report.h"

namespace qinfer::api {

// What reading all of them has found: {"name", "bytes", "checksum", "ok"[, "problem"]}.
class VerifiedTensors final : public observe::ReportRows {
 public:
  // Room for all of `tensors`, which are added in any order.
  VerifiedTensors(Memory* memory, absl::Span<const format::TensorInfo> tensors);
  void Add(std::string_view name, uint64_t bytes, uint64_t checksum, std::string_view problem);
  uint64_t problems() const { return problems_; }

  size_t size() const override { return rows_.size(); }
  observe::Report Row(size_t index) const override;
  std::string_view Text(size_t index, std::string_view member) const override;
  std::string_view Key(size_t index, size_t member) const override;

 private:
  struct Entry {
    std::string_view name, problem;
    uint64_t bytes;
    char checksum[16];
  };
  format::StringArena strings_;
  std::pmr::vector<Entry> rows_;
  uint64_t problems_ = 0;
};

// What a checkpoint's table says of them:
// {"name", "shape", "type", "format", "bytes", "import"[, "checksum"]}.
class ListedTensors final : public observe::ReportRows {
 public:
  ListedTensors(Memory* memory, const format::Checkpoint& checkpoint);

  size_t size() const override { return rows_.size(); }
  observe::Report Row(size_t index) const override;
  std::string_view Text(size_t index, std::string_view member) const override;
  std::string_view Key(size_t index, size_t member) const override;

 private:
  struct Entry {
    std::string_view name, type, format;
    uint64_t shape[4];
    uint64_t bytes;
    uint32_t rank, import;
    bool has_checksum;
    char checksum[16];
  };
  // One copy of a word that many tensors share.
  std::string_view Word(std::string_view word);

  format::StringArena strings_;
  std::pmr::vector<std::string_view> words_;
  std::pmr::vector<Entry> rows_;
};

}  // namespace qinfer::api
