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
  // kRead: of a tokenizer.json alone.
  enum class Phase : uint8_t { kOpen, kVerify, kParts, kText, kWeights, kRead, kDone };

  // A unit; what it leaves to do is said by phase_.
  Status StepOnce(const Deadline& deadline);
  Status Open();
  Status Verify();
  Status BeginParts();
  Status StepText();
  Status OpenTokenizer();
  Status ReadTokenizer();
  StatusOr<bool> IsTokenizerJson() const;
  void Report() const;
  void ReportDefaults(const Log& log) const;

  std::shared_ptr<ModelState> state_;
  SourceParts source_;
  LoadChoice choice_;
  Phase phase_ = Phase::kOpen;
  std::unique_ptr<format::ChecksumPass> checksums_;
  std::unique_ptr<exec::LoadWork> load_;
  std::shared_ptr<format::Checkpoint> json_files_;  // a tokenizer.json, and what lies beside it
  std::unique_ptr<exec::TextWork> text_;
  // A tokenizer.json, and what of it is read.
  std::shared_ptr<io::Source> json_source_;
  Buffer json_;
  uint64_t json_bytes_ = 0;
};

}  // namespace qinfer::api
