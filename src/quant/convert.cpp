// The Work of a conversion: every tensor repacked without loss into a .qinfer file, one after
// another.
#include <optional>
#include <utility>

#include "quant/group_work.h"
#include "quant/model_writer.h"
#include "quant/quantize_report.h"
#include "quant/tensor_stream.h"

namespace qinfer::quant {
namespace {

class ConvertImpl final : public ConvertWork {
 public:
  ConvertImpl(std::shared_ptr<const format::Checkpoint> checkpoint, std::unique_ptr<io::Sink> sink,
              const exec::Context& context, std::shared_ptr<const tokenizer::Tokenizer> tokenizer)
      : checkpoint_(std::move(checkpoint)),
        sink_(std::move(sink)),
        context_(context),
        tokenizer_(std::move(tokenizer)) {}

  Status Begin() {
    if (sink_ == nullptr) return MisuseError("convert needs a sink");
    QINFER_ASSIGN_OR_RETURN(spec_, model::SpecFromCheckpoint(*checkpoint_));
    QINFER_RETURN_IF_ERROR(model::ValidateSpec(spec_));
    QINFER_RETURN_IF_ERROR(model::ValidateTensors(spec_, *checkpoint_));
    QINFER_ASSIGN_OR_RETURN(resolved_, ResolveRecipe(spec_, *checkpoint_, KeepRecipe()));
    groups_ = MakeGroups(resolved_, static_cast<uint32_t>(spec_.layers.size()));
    progress_.phase = "convert";
    for (const TensorPlan& plan : resolved_.tensors) progress_.total += plan.bytes;
    return OkStatus();
  }

  StatusOr<bool> Step(const Deadline& deadline) override {
    do {
      if (deadline.Cancelled()) return Fail(CancelledError());
      StatusOr<bool> done = StepOnce(deadline);
      if (!done.ok()) return Fail(done.status());
      if (*done) return true;
    } while (!deadline.Expired() && !waits_next());
    if (deadline.Cancelled()) return Fail(CancelledError());
    return false;
  }

  bool waits_next() const override { return header_written_; }

  observe::Report TakeReport() override { return std::move(report_); }

 private:
  Status Fail(Status status) {
    group_.reset();
    documents_.reset();
    writer_.reset();
    sink_.reset();
    return status;
  }

  StatusOr<bool> StepOnce(const Deadline& deadline) {
    if (writer_ == nullptr) {
      if (documents_ == nullptr) {
        documents_ =
            std::make_unique<Documents>(*checkpoint_, std::move(tokenizer_), context_.memory);
      }
      QINFER_ASSIGN_OR_RETURN(const bool found, documents_->Step());
      if (!found) return false;
      QINFER_ASSIGN_OR_RETURN(writer_, ModelWriter::Create(std::move(sink_), *checkpoint_,
                                                           resolved_, {}, std::move(documents_)));
      shared_.checkpoint = checkpoint_;
      shared_.spec = &spec_;
      shared_.resolved = &resolved_;
      shared_.recipe = &recipe_;
      shared_.calibration_options = &options_;
      shared_.writer = writer_.get();
      shared_.context = context_;
      return false;
    }
    if (!documents_written_) {
      QINFER_ASSIGN_OR_RETURN(documents_written_, writer_->WriteDocuments());
      return false;
    }
    if (reports_.size() == groups_.size()) {
      if (header_written_) {
        QINFER_RETURN_IF_ERROR(writer_->Commit());
        writer_.reset();
        header_written_ = false;
        return true;
      }
      if (summarized_) {
        QINFER_RETURN_IF_ERROR(writer_->WriteHeader());
        header_written_ = true;
        progress_.phase = "sync";
        return false;
      }
      ReportInputs inputs;
      inputs.checkpoint = checkpoint_.get();
      inputs.resolved = &resolved_;
      inputs.groups = &reports_;
      inputs.file_bytes = writer_->file_bytes();
      report_ = BuildReport(inputs);
      QINFER_RETURN_IF_ERROR(writer_->SetReport(Summary(report_).ToJson(-1)));
      summarized_ = true;
      return false;
    }
    const Group& group = groups_[reports_.size()];
    if (group_ == nullptr) {
      QINFER_ASSIGN_OR_RETURN(group_, GroupWork::Create(shared_, group));
    }
    QINFER_ASSIGN_OR_RETURN(const bool done, group_->Step(deadline));
    if (!done) return false;
    reports_.push_back(group_->report());
    group_.reset();
    for (size_t i = group.begin; i < group.end; ++i) {
      progress_.done += resolved_.tensors[i].bytes;
    }
    return false;
  }

  std::shared_ptr<const format::Checkpoint> checkpoint_;
  std::unique_ptr<io::Sink> sink_;
  const exec::Context context_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;  // until the documents have it
  const Recipe recipe_ = KeepRecipe();
  const CalibrationOptions options_;
  model::ModelSpec spec_;
  ResolvedRecipe resolved_;
  std::vector<Group> groups_;
  std::unique_ptr<Documents> documents_;
  std::unique_ptr<ModelWriter> writer_;
  bool documents_written_ = false, summarized_ = false, header_written_ = false;
  GroupShared shared_;
  std::unique_ptr<GroupWork> group_;
  std::vector<observe::Report> reports_;
  observe::Report report_;
};

}  // namespace

StatusOr<std::unique_ptr<ConvertWork>> ConvertWork::Create(
    std::shared_ptr<const format::Checkpoint> checkpoint, std::unique_ptr<io::Sink> sink,
    const exec::Context& context, std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  if (checkpoint->tensors().empty()) {
    return MisuseError(checkpoint->name() +
                       ": a configuration without weights cannot be converted");
  }
  auto work = std::make_unique<ConvertImpl>(std::move(checkpoint), std::move(sink), context,
                                            std::move(tokenizer));
  QINFER_RETURN_IF_ERROR(work->Begin());
  return std::unique_ptr<ConvertWork>(std::move(work));
}

}  // namespace qinfer::quant
