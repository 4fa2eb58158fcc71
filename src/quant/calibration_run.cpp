// Running a calibration: samples go through the model one layer at a time, and a tap on every
// linear input feeds moments and observers. Holds one layer and the hidden states of as many
// samples as the memory limit allows (of a layer that is larger than the limit, some experts at a
// time, read anew for each sample); more samples mean further passes over the layers, with the
// same result to the bit, since every statistic takes its samples in the same order.
#include <algorithm>

#include "quant/calibration_data.h"
#include "quant/hidden_states.h"
#include "quant/self_generate.h"
#include "quant/tap_observer.h"

namespace qinfer::quant {
namespace {

class CalibrationRun final : public Work {
 public:
  CalibrationRun(std::shared_ptr<CalibrationData> data, bool self_generate)
      : data_(std::move(data)),
        before_(data_->SaveFeed()),
        keeper_(data_->keeper()),
        self_generate_(self_generate) {
    *data_->mutable_reused() = {};
    if (keeper_ != nullptr) progress_.phase = "sync";
  }
  // A run that did not finish leaves the calibration as it was.
  ~CalibrationRun() override {
    if (!committed_) data_->RestoreFeed(std::move(before_));
    data_->set_hidden_budget(0);
    data_->set_expert_window(0);
    data_->set_keeper(nullptr);
    data_->set_running(false);
  }

  StatusOr<bool> Step(const Deadline& deadline) override {
    do {
      StatusOr<bool> done = StepOnce(deadline);
      if (!done.ok() || *done) return done;
    } while (!deadline.Expired() && !waits_next());
    if (deadline.Cancelled()) return CancelledError();
    return false;
  }

  bool waits_next() const override {
    return phase_ == Phase::kSave || (phase_ == Phase::kTakeUp && keeper_ != nullptr) ||
           (phase_ == Phase::kChoose && found_);
  }

 private:
  using In = CalibrationPosition::In;
  enum class Phase : uint8_t {
    kTakeUp,
    kGenerate,
    kChoose,
    kEmbed,
    kLoad,
    kLayer,
    kHead,
    kSave,
    kDone
  };

  StatusOr<bool> StepOnce(const Deadline& deadline) {
    if (deadline.Cancelled()) return CancelledError();
    switch (phase_) {
      case Phase::kTakeUp:
        QINFER_RETURN_IF_ERROR(TakeUp());
        return false;
      case Phase::kGenerate:
        QINFER_RETURN_IF_ERROR(Generate(deadline));
        return false;
      case Phase::kChoose:
        QINFER_RETURN_IF_ERROR(Choose());
        return false;
      case Phase::kEmbed:
        QINFER_RETURN_IF_ERROR(EmbedOne());
        return false;
      case Phase::kLoad:
        QINFER_RETURN_IF_ERROR(LoadLayer(deadline));
        return false;
      case Phase::kLayer:
        QINFER_RETURN_IF_ERROR(RunOne(deadline));
        return false;
      case Phase::kHead:
        QINFER_RETURN_IF_ERROR(HeadOne());
        return false;
      case Phase::kSave:
        QINFER_RETURN_IF_ERROR(Save());
        return false;
      case Phase::kDone:
        QINFER_RETURN_IF_ERROR(
            data_->Commit(std::move(stats_), samples_.size(), tokens_, self_generate_));
        committed_ = true;
        return true;
    }
    return InternalError("calibration is in no phase");
  }

  // What an earlier run has left: samples here, statistics and hidden states in Choose.
  Status TakeUp() {
    phase_ = self_generate_ ? Phase::kGenerate : Phase::kChoose;
    if (keeper_ == nullptr) return OkStatus();
    progress_.phase = "calibrate";
    QINFER_ASSIGN_OR_RETURN(found_, keeper_->Find(data_->spec().vocab_size));
    if (!found_) return OkStatus();
    written_ = keeper_->TakeWritten();
    found_ = keeper_->position().in != In::kWriting;
    if (found_) progress_.phase = "sync";
    data_->mutable_reused()->samples = written_.samples.size() + written_.waiting.size();
    if (!self_generate_ || !written_.complete) return OkStatus();
    data_->AddGenerated(written_.samples, {});
    phase_ = Phase::kChoose;
    return OkStatus();
  }

  // Between two samples.
  void Kept() {
    if (keeper_ == nullptr || phase_ == Phase::kDone || !keeper_->Due()) return;
    after_save_ = phase_;
    doing_ = progress_.phase.exchange("sync");
    phase_ = Phase::kSave;
  }

  Status Save() {
    phase_ = after_save_;
    progress_.phase = doing_;
    CalibrationPosition position{In::kWriting, chunk_begin_, chunk_end_, at_, layer_};
    switch (phase_) {
      case Phase::kEmbed:
        position.in = In::kBetweenPasses;
        position.end = position.begin;
        break;
      case Phase::kLoad:
      case Phase::kLayer:
        position.in = In::kLayer;
        break;
      case Phase::kHead:
        position.in = In::kHead;
        break;
      default:
        return keeper_->Save(generation_ != nullptr ? generation_->Written() : written_, position,
                             {}, {});
    }
    absl::Span<const uint8_t> hidden;
    if (position.in != In::kBetweenPasses) hidden = {hidden_.as<uint8_t>(), hidden_.size()};
    return keeper_->Save(written_, position, stats_, hidden);
  }

  Status Generate(const Deadline& deadline) {
    if (generation_ == nullptr) {
      progress_.phase = "write samples";
      SelfGenerateOptions options;
      options.samples = data_->options().samples + CalibrationData::kHeldOut;
      options.sample_tokens = data_->options().sample_tokens;
      options.seed = data_->options().seed;
      QINFER_ASSIGN_OR_RETURN(
          generation_, SelfGenerateWork::Create(data_->checkpoint(), options, data_->context(),
                                                Share(data_->tokenizer())));
      generation_->Restore(std::move(written_));
      finished_ = generation_->finished();
    }
    QINFER_ASSIGN_OR_RETURN(const bool done, generation_->Step(deadline));
    progress_.total = generation_->progress().total.load();
    progress_.done = generation_->progress().done.load();
    if (!done) {
      if (std::exchange(finished_, generation_->finished()) != finished_) Kept();
      return OkStatus();
    }
    written_ = WrittenSamples();
    written_.samples = generation_->TakeSamples();
    written_.complete = true;
    data_->AddGenerated(written_.samples, {});
    if (keeper_ == nullptr) written_ = WrittenSamples();
    generation_.reset();
    phase_ = Phase::kChoose;
    Kept();
    return OkStatus();
  }

  Status Choose() {
    samples_ = data_->TakeSamples();
    if (samples_.empty()) {
      return MisuseError(
          "the calibration has nothing to run: give it text or token ids of at least two tokens, "
          "or "
          "let the model write samples itself");
    }
    uint32_t longest = 0;
    for (const Sample& sample : samples_) {
      tokens_ += sample.tokens.size();
      longest = std::max(longest, static_cast<uint32_t>(sample.tokens.size()));
    }
    QINFER_ASSIGN_OR_RETURN(stats_, data_->NewStats());
    exec::ForwardOptions options;
    options.max_batch_tokens = longest;
    options.max_position = longest;
    options.activations = exec::Activations::kFloat;
    QINFER_ASSIGN_OR_RETURN(forward_,
                            exec::Forward::CreateForLayers(data_->spec(), data_->context(), options,
                                                           *data_->checkpoint()));
    layers_ = static_cast<uint32_t>(data_->spec().layers.size());
    progress_.phase = "calibrate";
    progress_.done = 0;
    progress_.total = samples_.size() * (layers_ + 1);
    QINFER_RETURN_IF_ERROR(DivideBudget(longest));
    if (std::exchange(found_, false)) {
      QINFER_ASSIGN_OR_RETURN(const bool restored, Restore());
      if (restored) return OkStatus();
      QINFER_ASSIGN_OR_RETURN(stats_, data_->NewStats());
      chunk_begin_ = chunk_end_ = 0;
      progress_.done = 0;
    }
    return NextChunk();
  }

  // Goes on where an earlier run was. False where its state is not whole, or its pass is too large
  // for this run's limit.
  StatusOr<bool> Restore() {
    const CalibrationPosition& position = keeper_->position();
    const bool between = position.in == In::kBetweenPasses;
    if (position.begin > position.end || position.end > samples_.size()) return false;
    if (between != (position.begin == position.end)) return false;
    if (!between && (position.at < position.begin || position.at >= position.end)) return false;
    if (position.in == In::kLayer && position.layer >= layers_) return false;
    QINFER_ASSIGN_OR_RETURN(const bool whole, keeper_->LoadStats(&stats_));
    if (!whole) return false;
    const uint64_t length = position.end - position.begin;
    progress_.done = position.begin * (layers_ + 1);
    chunk_begin_ = chunk_end_ = position.begin;
    if (between) {
      QINFER_RETURN_IF_ERROR(NextChunk());
    } else {
      uint64_t tokens = 0, before = 0;
      for (size_t i = position.begin; i < position.end; ++i) {
        if (i == position.at) before = tokens;
        tokens += samples_[i].tokens.size();
      }
      const uint64_t bytes = tokens * data_->spec().hidden_size * sizeof(float);
      if (length > 1 && bytes > chunk_limit_) return false;
      QINFER_RETURN_IF_ERROR(MakeHidden(bytes));
      QINFER_ASSIGN_OR_RETURN(const bool there,
                              keeper_->LoadHidden({hidden_.as<uint8_t>(), hidden_.size()}));
      if (!there) return false;
      chunk_end_ = position.end;
      at_ = position.at;
      row_ = before;
      layer_ = position.in == In::kHead ? layers_ : position.layer;
      phase_ = position.in == In::kHead ? Phase::kHead : Phase::kLoad;
      progress_.done += length * layer_ + (position.at - position.begin);
    }
    data_->mutable_reused()->steps = progress_.done;
    return true;
  }

  Status MakeHidden(uint64_t bytes) {
    hidden_ = Buffer();
    QINFER_ASSIGN_OR_RETURN(hidden_, Buffer::Create(data_->context().memory, bytes,
                                                    "hidden states of calibration samples"));
    return OkStatus();
  }

  // What is left of the limit once a layer is loaded is for hidden states; without a limit a
  // moderate amount, since more would only save loads. Where a layer leaves no room its experts
  // take turns.
  Status DivideBudget(uint32_t longest) {
    constexpr uint64_t kComfortable = 256ull << 20;
    chunk_limit_ = data_->hidden_budget() != 0 ? data_->hidden_budget() : kComfortable;
    window_ = data_->expert_window();
    const exec::Context& context = data_->context();
    const Memory& memory = *context.memory;
    if (data_->hidden_budget() != 0 || memory.limit_bytes() == 0) return OkStatus();
    const uint64_t used = memory.used_bytes() + memory.mapped_bytes();
    QINFER_ASSIGN_OR_RETURN(uint64_t layer,
                            exec::LargestLayerBytes(*data_->checkpoint(), data_->spec(), context));
    const uint64_t free = memory.limit_bytes() > used ? memory.limit_bytes() - used : 0;
    const uint64_t least = uint64_t{longest} * data_->spec().hidden_size * sizeof(float);
    const uint64_t all = least * samples_.size();
    const auto reserve = [&] { return layer + layer / 16 + (1u << 20); };
    for (const uint64_t hidden : {std::min(all, kComfortable), least}) {
      if (reserve() + least <= free) break;
      const uint64_t spare = hidden + (2u << 20);
      if (spare >= free) continue;
      QINFER_ASSIGN_OR_RETURN(const uint32_t window,
                              exec::FindExpertWindow(*data_->checkpoint(), data_->spec(), context,
                                                     (free - spare) / 17 * 16));
      if (window == UINT32_MAX) continue;
      window_ = window;
      QINFER_ASSIGN_OR_RETURN(
          layer, exec::LargestLayerBytes(*data_->checkpoint(), data_->spec(), context, window));
    }
    chunk_limit_ = std::min(kComfortable, free > reserve() ? free - reserve() : 0);
    return OkStatus();
  }

  // The next samples whose hidden states fit; at least one.
  Status NextChunk() {
    hidden_ = Buffer();
    chunk_begin_ = chunk_end_;
    if (chunk_begin_ == samples_.size()) {
      phase_ = Phase::kDone;
      forward_.reset();
      return OkStatus();
    }
    const uint64_t row_bytes = uint64_t{data_->spec().hidden_size} * sizeof(float);
    uint64_t bytes = 0;
    while (chunk_end_ < samples_.size()) {
      const uint64_t more = samples_[chunk_end_].tokens.size() * row_bytes;
      if (chunk_end_ > chunk_begin_ && bytes + more > chunk_limit_) break;
      bytes += more;
      ++chunk_end_;
    }
    QINFER_RETURN_IF_ERROR(MakeHidden(bytes));
    Rewind();
    phase_ = Phase::kEmbed;
    layer_ = 0;
    return OkStatus();
  }

  void Rewind() {
    at_ = chunk_begin_;
    row_ = 0;
  }
  bool Advance() {
    row_ += samples_[at_].tokens.size();
    ++at_;
    if (at_ < chunk_end_) return false;
    Rewind();
    return true;
  }
  float* HiddenOfCurrent() { return hidden_.as<float>() + row_ * data_->spec().hidden_size; }

  Status EmbedOne() {
    QINFER_RETURN_IF_ERROR(EmbedFromSource(*data_->checkpoint(), data_->spec(),
                                           samples_[at_].tokens, data_->context(),
                                           HiddenOfCurrent()));
    if (Advance()) phase_ = Phase::kLoad;
    return OkStatus();
  }

  Status LoadLayer(const Deadline& deadline) {
    if (store_ == nullptr) {
      QINFER_ASSIGN_OR_RETURN(store_, exec::OpenLayer(*data_->checkpoint(), data_->spec(), layer_,
                                                      data_->context(), window_));
    }
    QINFER_ASSIGN_OR_RETURN(const bool done, store_->Step(deadline));
    if (done) phase_ = Phase::kLayer;
    return OkStatus();
  }

  Status Observe() {
    return taps_.Step(&stats_, data_->checkpoint()->name(), data_->context().executor);
  }

  Status RunOne(const Deadline& deadline) {
    if (!taps_.empty()) return Observe();
    if (!begun_) {
      const uint32_t length = static_cast<uint32_t>(samples_[at_].tokens.size());
      QINFER_RETURN_IF_ERROR(
          forward_->BeginLayer(store_->weights(), layer_, {&length, 1}, HiddenOfCurrent()));
      begun_ = true;
    }
    Deadline until_tap = deadline;
    const exec::Tap tap = [&](const exec::TapInput& input) {
      taps_.Show(input);
      until_tap.until_ns = 0;
    };
    QINFER_ASSIGN_OR_RETURN(const bool done, forward_->StepLayer(tap, until_tap));
    if (!done) return OkStatus();
    if (!taps_.empty()) return InternalError("a layer shows an input after its end");
    begun_ = false;
    ++progress_.done;
    if (Advance()) {
      store_.reset();
      phase_ = ++layer_ == layers_ ? Phase::kHead : Phase::kLoad;
    }
    Kept();
    return OkStatus();
  }

  // The head's input is the last hidden state after the final norm; the head itself is not needed.
  Status HeadOne() {
    if (taps_.empty()) {
      const model::ModelSpec& spec = data_->spec();
      const uint32_t length = static_cast<uint32_t>(samples_[at_].tokens.size());
      float* hidden = HiddenOfCurrent();
      QINFER_RETURN_IF_ERROR(
          ApplyFinalNorm(*data_->checkpoint(), spec, data_->context(), length, hidden));
      taps_.Show({UINT32_MAX, model::LinearRole::kHead, hidden, spec.hidden_size, length,
                  spec.hidden_size});
      return OkStatus();
    }
    QINFER_RETURN_IF_ERROR(Observe());
    if (!taps_.empty()) return OkStatus();
    ++progress_.done;
    if (Advance()) QINFER_RETURN_IF_ERROR(NextChunk());
    Kept();
    return OkStatus();
  }

  std::shared_ptr<CalibrationData> data_;
  CalibrationData::Feed before_;
  bool committed_ = false;
  bool begun_ = false;               // a layer on the current sample
  CalibrationKeeper* const keeper_;  // null: nothing is kept
  const bool self_generate_;
  Phase phase_ = Phase::kTakeUp, after_save_ = Phase::kTakeUp;
  const char* doing_ = "";  // for the time after a save
  bool found_ = false;      // statistics of an earlier run
  WrittenSamples written_;  // of an earlier run, or all of them
  uint64_t finished_ = 0;   // samples that the model has written
  TapObserver taps_;
  std::unique_ptr<SelfGenerateWork> generation_;
  std::vector<Sample> samples_;
  uint64_t tokens_ = 0, chunk_limit_ = 0;
  StatsTable stats_;
  std::unique_ptr<exec::Forward> forward_;
  std::unique_ptr<exec::LayerStore> store_;
  Buffer hidden_;
  size_t chunk_begin_ = 0, chunk_end_ = 0, at_ = 0, row_ = 0;
  uint32_t layer_ = 0, layers_ = 0;
  uint32_t window_ = 0;  // experts at a time; 0 = all
};

}  // namespace

StatusOr<std::unique_ptr<Work>> CalibrationData::Run() {
  if (running_) return BusyError("a run of this calibration is in progress");
  if (waiting_.empty() && !want_self_generated_) {
    return MisuseError(
        "the calibration has nothing to run: give it text or token ids of at least two tokens, or "
        "let the model write samples itself");
  }
  running_ = true;
  return std::unique_ptr<Work>(
      std::make_unique<CalibrationRun>(shared_from_this(), want_self_generated_));
}

}  // namespace qinfer::quant
