// The Work of a quantization: runs the calibration where samples wait, then streams group after
// group into the output, remembering each finished one so that a killed run can go on, and writes
// the report.
#include <algorithm>
#include <utility>

#include "quant/bytes.h"
#include "quant/calibration_data.h"
#include "quant/calibration_stage.h"
#include "quant/drift.h"
#include "quant/fingerprint.h"
#include "quant/group_work.h"
#include "quant/memory_plan.h"
#include "quant/model_writer.h"
#include "quant/partial_store.h"
#include "quant/quantize_report.h"
#include "quant/replay.h"
#include "quant/source_tokenizer.h"

namespace qinfer::quant {
namespace {

std::string HiddenFile(size_t group) { return StrCat("hidden-", group % 2); }

class QuantizeImpl final : public QuantizeWork {
 public:
  QuantizeImpl(std::shared_ptr<const format::Checkpoint> checkpoint, QuantizeOptions options,
               const exec::Context& context)
      : checkpoint_(std::move(checkpoint)),
        options_(std::move(options)),
        context_(context),
        calibration_(checkpoint_, options_.calibration, context_) {}

  // Pieces that use the store go before it.
  ~QuantizeImpl() override {
    group_.reset();
    calibration_.Stop();
    replay_.reset();
    writer_.reset();
    store_.reset();
  }

  Status Begin() {
    if (options_.output_path.empty() == (options_.sink == nullptr)) {
      return MisuseError("quantize needs either output_path or a sink");
    }
    if (options_.resume && options_.output_path.empty()) {
      return MisuseError("resume needs output_path: a sink cannot be read back");
    }
    QINFER_RETURN_IF_ERROR(ValidateCalibrationOptions(options_.calibration_options));
    QINFER_ASSIGN_OR_RETURN(spec_, model::SpecFromCheckpoint(*checkpoint_));
    QINFER_RETURN_IF_ERROR(model::ValidateSpec(spec_));
    QINFER_RETURN_IF_ERROR(model::ValidateTensors(spec_, *checkpoint_));
    QINFER_ASSIGN_OR_RETURN(resolved_, ResolveRecipe(spec_, *checkpoint_, options_.recipe));
    if (data() != nullptr) {
      const CalibrationData& given = *data();
      if (given.key().shape != ShapeFingerprint(spec_)) {
        return MisuseError(
            StrCat("the calibration is of another model than ", checkpoint_->name()));
      }
      if (given.stats().empty() && !given.has_waiting()) {
        return MisuseError(
            "the calibration has neither statistics nor samples: add texts to it, or let the model "
            "write its own");
      }
      options_.calibration_options = given.options();
    } else if (!options_.calibrate && options_.recipe.static_activations) {
      return MisuseError("static activations need a calibration");
    }
    QINFER_ASSIGN_OR_RETURN(tokenizer_, FindTokenizer(*checkpoint_, options_, context_.memory));
    if (data() != nullptr) data()->ReleaseTokenizer();  // it is kept here, until it is written
    QINFER_ASSIGN_OR_RETURN(
        sizes_, PlanWork(*checkpoint_, spec_, resolved_, options_, tokenizer_, context_));
    groups_ = MakeGroups(resolved_, static_cast<uint32_t>(spec_.layers.size()));
    recipe_json_ = RecipeReport(options_.recipe).ToJson(-1);
    if (!options_.output_path.empty()) {
      QINFER_ASSIGN_OR_RETURN(const uint64_t fingerprint, Fingerprint());
      QINFER_ASSIGN_OR_RETURN(
          store_, PartialStore::Open(options_.output_path, fingerprint, options_.resume));
      // A killed process leaves the state in any case; an orderly end only where it was asked for.
      store_->set_keep(options_.resume);
    }
    progress_.total = TotalBytes();
    progress_.phase = "calibrate";
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

  bool waits_next() const override {
    return phase_ == Phase::kSaveGroup || phase_ == Phase::kCommit ||
           (phase_ == Phase::kCalibrate && calibration_.waits_next());
  }

  observe::Report TakeReport() override { return std::move(report_); }

 private:
  enum class Phase : uint8_t {
    kCalibrate,
    kDocuments,
    kWriteDocuments,
    kReplay,
    kGroup,
    kSaveGroup,
    kReport,
    kHeader,
    kCommit,
    kDone
  };

  // Gives back everything, so that nothing of a failed run stays but what resume asked for.
  Status Fail(Status status) {
    group_.reset();
    calibration_.Stop();
    tokenizer_.reset();
    drift_.reset();
    documents_.reset();
    replay_.reset();
    writer_.reset();
    store_.reset();
    options_.sink.reset();
    return status;
  }

  StatusOr<bool> StepOnce(const Deadline& deadline) {
    switch (phase_) {
      case Phase::kCalibrate:
        QINFER_RETURN_IF_ERROR(Calibrate(deadline));
        return false;
      case Phase::kDocuments:
        QINFER_RETURN_IF_ERROR(FindDocuments());
        return false;
      case Phase::kWriteDocuments:
        QINFER_RETURN_IF_ERROR(WriteDocuments());
        return false;
      case Phase::kReplay:
        QINFER_RETURN_IF_ERROR(StepReplay());
        return false;
      case Phase::kGroup:
        QINFER_RETURN_IF_ERROR(StepGroup(deadline));
        return false;
      case Phase::kSaveGroup:
        QINFER_RETURN_IF_ERROR(SaveGroup());
        return false;
      case Phase::kReport:
        QINFER_RETURN_IF_ERROR(MakeReport());
        phase_ = Phase::kHeader;
        return false;
      case Phase::kHeader:
        QINFER_RETURN_IF_ERROR(writer_->WriteHeader());
        progress_.phase = "sync";
        phase_ = Phase::kCommit;
        return false;
      case Phase::kCommit:
        QINFER_RETURN_IF_ERROR(Commit());
        phase_ = Phase::kDone;
        return true;
      case Phase::kDone:
        return true;
    }
    return InternalError("a quantization is in no phase");
  }

  uint64_t TotalBytes() const {
    uint64_t bytes = 0;
    for (const TensorPlan& plan : resolved_.tensors) bytes += plan.bytes;
    return bytes;
  }

  // Everything that the output depends on.
  StatusOr<uint64_t> Fingerprint() const {
    ByteWriter out;
    out.PutString("qinfer quantize 2");
    QINFER_ASSIGN_OR_RETURN(const uint64_t weights, WeightsFingerprint(*checkpoint_));
    out.Put(weights);
    out.PutString(model::SpecToJson(resolved_.spec));
    out.PutString(recipe_json_);
    const CalibrationOptions& c = options_.calibration_options;
    out.Put(c.samples);
    out.Put(c.sample_tokens);
    out.Put(c.seed);
    for (uint8_t value : {static_cast<uint8_t>(c.activations), static_cast<uint8_t>(c.weights),
                          static_cast<uint8_t>(c.range)}) {
      out.Put(value);
    }
    out.Put(c.ema_alpha);
    out.Put(c.percentile);
    // A calibration may come with statistics, with samples that wait, or with nothing: then the
    // model writes its own, as it does where that is all that waits.
    const CalibrationData* given = data();
    const bool statistics = given != nullptr && !given->stats().empty();
    out.PutString(statistics ? CalibrationBytes(*given) : std::string());
    out.Put(given != nullptr ? given->waiting().size() : size_t{0});
    out.Put(given != nullptr && !given->waiting().empty() ? given->WaitingHash() : uint64_t{0});
    out.Put(static_cast<uint8_t>(
        (given != nullptr ? given->self_generates() : options_.calibrate) ? 1 : 0));
    out.Put(static_cast<uint8_t>(options_.evaluate ? 1 : 0));
    out.Put(sizes_.evaluation_samples);
    return HashText(out.bytes());
  }

  const CalibrationData* data() const { return calibration_.data(); }

  Status Calibrate(const Deadline& deadline) {
    const CalibrationStage::Needs needs = {&options_, &sizes_, tokenizer_, store_.get()};
    QINFER_ASSIGN_OR_RETURN(const bool done, calibration_.Step(needs, deadline, &progress_));
    if (done) phase_ = Phase::kDocuments;
    return OkStatus();
  }

  Status FindDocuments() {
    if (documents_ == nullptr) {
      progress_.phase = "quantize";
      progress_.done = 0;
      progress_.total = TotalBytes();
      documents_ = std::make_unique<Documents>(*checkpoint_, Share(tokenizer_), context_.memory);
    }
    QINFER_ASSIGN_OR_RETURN(const bool found, documents_->Step());
    if (!found) return OkStatus();
    std::unique_ptr<io::Sink> sink =
        store_ != nullptr ? store_->OpenSink() : std::move(options_.sink);
    QINFER_ASSIGN_OR_RETURN(writer_, ModelWriter::Create(std::move(sink), *checkpoint_, resolved_,
                                                         recipe_json_, std::move(documents_)));
    phase_ = Phase::kWriteDocuments;
    return OkStatus();
  }

  // What is compared takes memory once the documents are gone.
  Status WriteDocuments() {
    QINFER_ASSIGN_OR_RETURN(const bool written, writer_->WriteDocuments());
    if (!written) return OkStatus();
    tokenizer_.reset();
    if (options_.evaluate && data() != nullptr && sizes_.evaluation_samples > 0) {
      std::vector<Sample> samples = data()->held_out();
      samples.resize(std::min<size_t>(samples.size(), sizes_.evaluation_samples));
      if (!samples.empty()) {
        QINFER_ASSIGN_OR_RETURN(drift_,
                                Drift::Create(checkpoint_, spec_, std::move(samples), context_));
      }
    }
    shared_.checkpoint = checkpoint_;
    shared_.spec = &spec_;
    shared_.resolved = &resolved_;
    shared_.recipe = &options_.recipe;
    shared_.calibration_options = &options_.calibration_options;
    shared_.calibration = data();
    shared_.writer = writer_.get();
    shared_.drift = drift_.get();
    shared_.head_slice_panels = sizes_.head_slice_panels;
    shared_.context = context_;
    phase_ = Phase::kReplay;
    return OkStatus();
  }

  Status StepReplay() {
    if (store_ == nullptr) return EndReplay();
    if (replay_ == nullptr) {
      replay_ = std::make_unique<Replay>(store_.get(), writer_.get(), &resolved_, &groups_,
                                         options_.output_path, context_.memory);
    }
    QINFER_ASSIGN_OR_RETURN(const bool done, replay_->Step(&reports_, &progress_));
    return done ? EndReplay() : OkStatus();
  }

  // Groups are computed again from the first on that has changed, or whose hidden states are gone:
  // those of the last two are kept.
  Status EndReplay() {
    if (store_ != nullptr && drift_ != nullptr && reports_.size() < groups_.size()) {
      bool found = false;
      for (size_t tries = 0; !reports_.empty() && !found; ++tries) {
        std::string state;
        const std::string file = HiddenFile(reports_.size() - 1);
        QINFER_ASSIGN_OR_RETURN(const uint64_t size, store_->FileSize(file));
        if (tries < 2 && size == drift_->State().size()) {
          QINFER_ASSIGN_OR_RETURN(state, store_->LoadFile(file));
        }
        found = !state.empty() && HashText(state) == replay_->state_hash(reports_.size() - 1);
        if (found) {
          QINFER_RETURN_IF_ERROR(drift_->SetState(state));
        } else {
          replay_->DropLast(&reports_, &progress_);
        }
      }
    }
    reused_ = reports_.size();
    if (store_ != nullptr) QINFER_RETURN_IF_ERROR(store_->KeepGroups(reused_));
    replay_.reset();
    phase_ = reused_ == groups_.size() ? Phase::kReport : Phase::kGroup;
    return OkStatus();
  }

  Status StepGroup(const Deadline& deadline) {
    const size_t index = reports_.size();
    if (group_ == nullptr) {
      progress_.phase = groups_[index].embedding ? "quantize embedding"
                        : groups_[index].head    ? "quantize head"
                                                 : "quantize layer";
      QINFER_ASSIGN_OR_RETURN(group_, GroupWork::Create(shared_, groups_[index]));
    }
    QINFER_ASSIGN_OR_RETURN(const bool done, group_->Step(deadline));
    if (!done) return OkStatus();
    // By way of text in any case, so that a resumed run reads what this one has kept.
    group_text_ = group_->report().ToJson(-1);
    group_.reset();
    QINFER_ASSIGN_OR_RETURN(observe::Report report, observe::Report::FromJson(group_text_));
    reports_.push_back(std::move(report));
    for (size_t i = groups_[index].begin; i < groups_[index].end; ++i) {
      progress_.done += resolved_.tensors[i].bytes;
    }
    if (store_ == nullptr) return NextGroup();
    progress_.phase = "sync";
    phase_ = Phase::kSaveGroup;
    return OkStatus();
  }

  Status SaveGroup() {
    const size_t index = reports_.size() - 1;
    uint64_t hash = 0;
    if (drift_ != nullptr) {
      const absl::Span<const uint8_t> state = drift_->State();
      hash = HashBytes(state.data(), state.size());
      QINFER_RETURN_IF_ERROR(store_->SaveFile(HiddenFile(index), state));
    }
    GroupRecord record;
    record.group = index;
    record.state_hash = hash;
    record.data_hash = GroupHash(*writer_, groups_[index]);
    record.report = group_text_;
    QINFER_RETURN_IF_ERROR(store_->AppendGroup(record.ToBytes()));
    return NextGroup();
  }

  Status NextGroup() {
    group_text_.clear();
    phase_ = reports_.size() == groups_.size() ? Phase::kReport : Phase::kGroup;
    return OkStatus();
  }

  Status MakeReport() {
    progress_.phase = "write";
    drift_.reset();
    ReportInputs inputs;
    inputs.checkpoint = checkpoint_.get();
    inputs.resolved = &resolved_;
    inputs.recipe = &options_.recipe;
    inputs.calibration = data();
    inputs.groups = &reports_;
    inputs.file_bytes = writer_->file_bytes();
    report_ = BuildReport(inputs);
    if (drift_wanted_without_samples()) {
      report_["evaluation_skipped"] =
          "no held-out samples: calibrate with a text of more than one sample";
    }
    QINFER_RETURN_IF_ERROR(writer_->SetReport(Summary(report_).ToJson(-1)));
    if (options_.recipe.static_activations && data() != nullptr) {
      const observe::Report ranges = ActivationRanges(resolved_, *data());
      QINFER_RETURN_IF_ERROR(writer_->SetRanges(ranges.size() == 0 ? "{}" : ranges.ToJson(-1)));
    }
    return OkStatus();
  }

  Status Commit() {
    QINFER_RETURN_IF_ERROR(writer_->Commit());
    observe::Report& memory = report_["memory"];
    memory["plan_total_bytes"] = sizes_.plan.total_bytes;
    memory["plan_work_bytes"] = sizes_.plan.work_bytes;
    memory["minimum_bytes"] = sizes_.plan.minimum_bytes;
    observe::Report& resume = report_["resume"];
    const auto layers = [&](size_t begin, size_t end) {
      return static_cast<uint64_t>(
          std::count_if(groups_.begin() + static_cast<ptrdiff_t>(begin),
                        groups_.begin() + static_cast<ptrdiff_t>(end),
                        [](const Group& group) { return group.layer != UINT32_MAX; }));
    };
    resume["layers_reused"] = layers(0, reused_);
    resume["layers_done"] = layers(reused_, groups_.size());
    resume["calibration_reused"] = calibration_.reused();
    resume["calibration_steps_reused"] = calibration_.resumed().steps;
    resume["samples_reused"] = calibration_.resumed().samples;
    writer_.reset();
    store_.reset();
    return OkStatus();
  }

  bool drift_wanted_without_samples() const {
    return options_.evaluate && shared_.drift == nullptr;
  }

  std::shared_ptr<const format::Checkpoint> checkpoint_;
  QuantizeOptions options_;
  const exec::Context context_;
  model::ModelSpec spec_;
  ResolvedRecipe resolved_;
  std::shared_ptr<const SourceTokenizer> tokenizer_;  // until the documents are written
  CalibrationStage calibration_;
  WorkSizes sizes_;
  std::vector<Group> groups_;
  std::string recipe_json_;
  std::unique_ptr<PartialStore> store_;
  std::unique_ptr<Documents> documents_;
  std::unique_ptr<ModelWriter> writer_;
  std::unique_ptr<Drift> drift_;
  GroupShared shared_;
  std::unique_ptr<GroupWork> group_;
  std::vector<observe::Report> reports_;
  std::string group_text_;  // the report of a finished group, until it is saved
  std::unique_ptr<Replay> replay_;
  size_t reused_ = 0;
  observe::Report report_;
  Phase phase_ = Phase::kCalibrate;
};

}  // namespace

StatusOr<std::unique_ptr<QuantizeWork>> QuantizeWork::Create(
    std::shared_ptr<const format::Checkpoint> checkpoint, QuantizeOptions options,
    const exec::Context& context) {
  auto work = std::make_unique<QuantizeImpl>(std::move(checkpoint), std::move(options), context);
  QINFER_RETURN_IF_ERROR(work->Begin());
  return std::unique_ptr<QuantizeWork>(std::move(work));
}

}  // namespace qinfer::quant
