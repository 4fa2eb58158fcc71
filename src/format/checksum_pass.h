// Comparing the checksums of a .qinfer file's tensors with their bytes, a bounded piece at a time,
// so that whoever steps it can stop between pieces. What a difference means is the caller's
// business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/memory.h"
#include "core/status.h"
#include "format/qinfer_file.h"

namespace qinfer::format {

class ChecksumPass {
 public:
  // What a pass reads at a time, and all that it takes from the Memory.
  static constexpr uint64_t kPieceBytes = 256 << 10;

  // Of all weights, then of all side files, each sorted by name. `file` outlives the pass.
  static StatusOr<std::unique_ptr<ChecksumPass>> Create(const QinferFile* file, Memory* memory);
  ~ChecksumPass();

  // Reads the next piece. FormatError where it ends a tensor whose bytes have changed; a further
  // call goes on with the next tensor. Not called once finished.
  Status Step();
  bool finished() const { return tensor_ == count(); }
  size_t tensors_done() const { return tensor_; }
  uint64_t bytes_done() const { return bytes_done_; }  // padding included
  uint64_t bytes_total() const { return bytes_total_; }

 private:
  struct Hash;  // of xxHash
  ChecksumPass(const QinferFile* file, Buffer piece);
  size_t count() const { return file_->tensors().size() + file_->side_tensors().size(); }
  const QinferTensor& current() const;

  const QinferFile* file_;
  Buffer piece_;
  std::unique_ptr<Hash> hash_;
  size_t tensor_ = 0;
  uint64_t at_ = 0;  // of the current tensor
  uint64_t bytes_done_ = 0, bytes_total_ = 0;
};

}  // namespace qinfer::format
