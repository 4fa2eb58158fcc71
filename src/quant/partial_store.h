// The folder OUT.partial/ in which a quantization keeps its state: the output file as far as it is
// written, a journal of finished groups of tensors, and the small files that a resumed run needs.
// Knows files and checksums, not what groups mean.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "core/status.h"
#include "io/source.h"

namespace qinfer::quant {

class PartialStore {
 public:
  // Opens or makes `output_path`.partial. With `resume` and a journal of the same fingerprint, its
  // finished groups are kept; a journal of another fingerprint is a MisuseError. Without `resume`
  // an earlier run's state is removed. A folder is ours if it is empty or has a journal of ours:
  // MisuseError where that name is anything else, or where a file has a second name; FormatError
  // where its journal is none; BusyError if another process works there.
  static StatusOr<std::unique_ptr<PartialStore>> Open(const std::string& output_path,
                                                      uint64_t fingerprint, bool resume);
  // Removes the folder, unless kept or committed (then it is gone already).
  virtual ~PartialStore() = default;

  // Records of finished groups, in order. A record that a crash has cut is not among them.
  virtual const std::vector<std::string>& groups() const = 0;
  // Makes what was written durable, and then the record.
  virtual Status AppendGroup(std::string_view record) = 0;
  // Forgets the records after the first `count` of `groups`; before any is appended.
  virtual Status KeepGroups(size_t count) = 0;

  // The output file as a sink; Commit ends the file where its last byte was written, makes it
  // durable, renames it to the output path and removes the folder. One sink at a time; the store
  // outlives it.
  virtual std::unique_ptr<io::Sink> OpenSink() = 0;
  // Bytes of the output file that an earlier group has written; false where it ends before.
  virtual StatusOr<bool> ReadBack(uint64_t offset, absl::Span<uint8_t> out) const = 0;

  // Files beside it; written under another name first, in pieces until an empty one.
  using NextPiece = std::function<absl::Span<const uint8_t>()>;
  virtual Status SaveFile(const std::string& name, const NextPiece& next) = 0;
  Status SaveFile(const std::string& name, absl::Span<const uint8_t> bytes);
  virtual StatusOr<std::string> LoadFile(const std::string& name) const = 0;  // empty = absent
  virtual StatusOr<uint64_t> FileSize(const std::string& name) const = 0;     // 0 = absent
  virtual Status ReadFile(const std::string& name, uint64_t offset,
                          absl::Span<uint8_t> out) const = 0;
  virtual void RemoveFile(const std::string& name) = 0;

  // What happens to the folder when the store is destroyed before Commit.
  virtual void set_keep(bool keep) = 0;
};

}  // namespace qinfer::quant
