// By reading, not through the map: a file that was cut is then an error and not a signal.
#include "format/checksum_pass.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "format/tensor_table.h"

namespace qinfer::format {

struct ChecksumPass::Hash {
  XXH3_state_t state;
};

StatusOr<std::unique_ptr<ChecksumPass>> ChecksumPass::Create(const QinferFile* file,
                                                             Memory* memory) {
  QINFER_ASSIGN_OR_RETURN(Buffer piece, Buffer::Create(memory, kPieceBytes, "verifying checksums"));
  return std::unique_ptr<ChecksumPass>(new ChecksumPass(file, std::move(piece)));
}

ChecksumPass::ChecksumPass(const QinferFile* file, Buffer piece)
    : file_(file), piece_(std::move(piece)), hash_(std::make_unique<Hash>()) {
  for (const auto group : {file_->tensors(), file_->side_tensors()}) {
    for (const QinferTensor& tensor : group) bytes_total_ += tensor.stored_bytes;
  }
  XXH3_64bits_reset(&hash_->state);
}

ChecksumPass::~ChecksumPass() = default;

const QinferTensor& ChecksumPass::current() const {
  const size_t weights = file_->tensors().size();
  return tensor_ < weights ? file_->tensors()[tensor_] : file_->side_tensors()[tensor_ - weights];
}

Status ChecksumPass::Step() {
  const QinferTensor& tensor = current();
  const auto n = static_cast<size_t>(std::min(kPieceBytes, tensor.stored_bytes - at_));
  QINFER_RETURN_IF_ERROR(file_->source()->ReadAt(tensor.offset + at_, {piece_.as<uint8_t>(), n}));
  XXH3_64bits_update(&hash_->state, piece_.data(), n);
  at_ += n;
  bytes_done_ += n;
  if (at_ < tensor.stored_bytes) return OkStatus();
  const uint64_t found = XXH3_64bits_digest(&hash_->state);
  XXH3_64bits_reset(&hash_->state);
  at_ = 0;
  ++tensor_;
  if (found == tensor.checksum) return OkStatus();
  return FormatError(StrCat(file_->name(), ": the checksum of tensor ", Printable(tensor.name),
                            " is ", absl::Hex(found, absl::kZeroPad16), ", the header says ",
                            absl::Hex(tensor.checksum, absl::kZeroPad16), "; bytes ", tensor.offset,
                            " to ", tensor.offset + tensor.stored_bytes,
                            " have changed: fetch or make the file again"));
}

}  // namespace qinfer::format
