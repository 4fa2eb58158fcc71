// Reading all of a checkpoint to see whether it is sound.
#pragma once

#include <memory>

#include "api/model.h"
#include "api/tensor_rows.h"
#include "core/work.h"
#include "format/checksum_pass.h"
#include "observe/report.h"

namespace qinfer::api {

// One chunk of a tensor per unit.
class VerifyWork final : public Work {
 public:
  static StatusOr<std::unique_ptr<VerifyWork>> Create(std::shared_ptr<ModelState> model);
  ~VerifyWork() override;
  StatusOr<bool> Step(const Deadline& deadline) override;
  observe::Report TakeReport() { return std::move(report_); }

 private:
  struct Hash;  // of xxHash
  explicit VerifyWork(std::shared_ptr<ModelState> model);
  Status Begin();
  // Reads the next chunk of the current tensor.
  Status ReadChunk();
  // A problem with the chunk's values, or empty.
  std::string CheckValues(absl::Span<const uint8_t> chunk);
  // The next piece of a .qinfer file's tensors, against their checksums.
  Status StepPacked();
  void FinishTensor(uint64_t checksum);

  std::shared_ptr<ModelState> model_;
  std::unique_ptr<format::ChecksumPass> pass_;  // of a .qinfer file
  Buffer bytes_, floats_;                       // of others
  std::unique_ptr<Hash> hash_;
  observe::Report report_;
  std::shared_ptr<VerifiedTensors> tensors_;  // until they are in the report
  size_t tensor_ = 0;
  uint64_t at_ = 0;  // bytes of the tensor that are done
  std::string problem_;
};

}  // namespace qinfer::api
