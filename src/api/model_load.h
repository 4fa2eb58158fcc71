// The work of a load task: opening, verifying where that is asked for, and loading, in steps.
#pragma once

#include <memory>
#include <utility>

#include "api/model.h"
#include "api/source.h"
#include "core/work.h"
#include "exec/model.h"
#include "format/checksum_pass.h"

namespace qinfer::api {

class ModelLoadWork final : public Work {
 public:
  ModelLoadWork(std::shared_ptr<RuntimeState> runtime, SourceParts source, const LoadChoice& choice)
      : state_(std::make_shared<ModelState>(std::move(runtime))),
        source_(std::move(source)),
        choice_(choice) {}
  StatusOr<bool> Step(const Deadline& deadline) override;
  // Documents lie in the runtime's memory, which may go with the model.
  std::shared_ptr<ModelState> TakeModel() {
    source_ = SourceParts();
    return std::move(state_);
  }

 private:
  enum class Phase : uint8_t { kOpen, kVerify, kParts, kWeights, kDone };

  // A unit; what it leaves to do is said by phase_.
  Status StepOnce(const Deadline& deadline);
  Status Open();
  Status Verify();
  Status BeginParts();
  Status OpenTokenizer();
  StatusOr<bool> IsTokenizerJson() const;
  void Report() const;

  std::shared_ptr<ModelState> state_;
  SourceParts source_;
  LoadChoice choice_;
  Phase phase_ = Phase::kOpen;
  std::unique_ptr<format::ChecksumPass> checksums_;
  std::unique_ptr<exec::LoadWork> load_;
};

}  // namespace qinfer::api
