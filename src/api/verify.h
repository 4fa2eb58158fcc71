// Reading all of a checkpoint to see whether it is sound.
#pragma once

#include <memory>

#include "api/model.h"
#include "core/work.h"
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
  VerifyWork(std::shared_ptr<ModelState> model, Buffer bytes, Buffer floats);
  // Reads the next chunk of the current tensor.
  Status ReadChunk();
  // A problem with the chunk's values, or empty.
  std::string CheckValues(absl::Span<const uint8_t> chunk);
  // A whole tensor of a .qinfer file, against its checksum.
  Status VerifyPacked();
  void FinishTensor(uint64_t checksum);

  std::shared_ptr<ModelState> model_;
  Buffer bytes_, floats_;
  std::unique_ptr<Hash> hash_;
  observe::Report report_;
  size_t tensor_ = 0;
  uint64_t at_ = 0;  // bytes of the tensor that are done
  std::string problem_;
  uint64_t problems_ = 0;
};

}  // namespace qinfer::api
