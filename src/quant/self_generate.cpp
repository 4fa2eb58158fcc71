// Sampling from a model by batches of sequences, each with its own stream of random numbers, so
// that the texts do not depend on the batch or on timing.
#include "quant/self_generate.h"

#include <algorithm>

#include "core/checked.h"
#include "quant/random.h"

namespace qinfer::quant {
namespace {

// Fewer tokens than this make no sample: a model that ends at once would fill the set with nothing.
constexpr uint32_t kShortest = 8;
// A model that always ends early is given up after this many attempts per sample.
constexpr uint64_t kAttemptsPerSample = 16;

exec::ForwardOptions ForwardOptionsFor(const SelfGenerateOptions& options) {
  exec::ForwardOptions forward;
  forward.max_batch_tokens = options.batch;
  forward.max_logit_rows = options.batch;
  forward.activations = exec::Activations::kFloat;
  forward.max_position = options.sample_tokens;
  return forward;
}

kv::CacheOptions CacheOptionsFor(const SelfGenerateOptions& options) {
  kv::CacheOptions cache;
  cache.k_type = cache.v_type = kernels::KvType::kF16;
  cache.max_tokens =
      uint64_t{options.batch} * RoundUp<uint64_t>(options.sample_tokens, kernels::kPageTokens);
  return cache;
}

class SelfGenerateImpl final : public SelfGenerateWork {
 public:
  SelfGenerateImpl(std::unique_ptr<exec::LoadWork> load, const SelfGenerateOptions& options,
                   const exec::Context& context)
      : load_(std::move(load)), options_(options), context_(context) {
    progress_.total = uint64_t{options.samples} * options.sample_tokens;
    progress_.phase = "read";
  }

  StatusOr<bool> Step(const Deadline& deadline) override {
    do {
      if (deadline.Cancelled()) return CancelledError();
      if (model_ == nullptr) {
        QINFER_ASSIGN_OR_RETURN(const bool loaded, load_->Step(deadline));
        if (!loaded) return false;
        QINFER_RETURN_IF_ERROR(Begin());
      }
      if (!in_flight_) {
        if (samples_.size() >= options_.samples) return Finish();
        QINFER_RETURN_IF_ERROR(StartBatch());
      }
      QINFER_ASSIGN_OR_RETURN(const bool done, forward_->Run(deadline));
      if (!done) return false;
      in_flight_ = false;
      QINFER_RETURN_IF_ERROR(EndBatch());
    } while (!deadline.Expired());
    if (deadline.Cancelled()) return CancelledError();
    return false;
  }

  std::vector<Sample> TakeSamples() override { return std::move(samples_); }

  WrittenSamples Written() const override {
    WrittenSamples written;
    written.samples = samples_;
    written.waiting = finished_;
    written.running = restart_;
    for (const Slot& slot : slots_) {
      if (slot.active) written.running.push_back(slot.stream);
    }
    std::sort(written.running.begin(), written.running.end());
    written.streams = attempts_;
    return written;
  }
  void Restore(WrittenSamples written) override {
    samples_ = std::move(written.samples);
    finished_ = std::move(written.waiting);
    restart_ = std::move(written.running);
    attempts_ = written.streams;
    progress_.done = finished() * options_.sample_tokens;
  }
  uint64_t finished() const override { return samples_.size() + finished_.size(); }

 private:
  struct Slot {
    std::unique_ptr<kv::Sequence> sequence;
    std::vector<int32_t> tokens;
    uint64_t stream = 0;
    bool active = false;
  };

  Status Begin() {
    model_ = load_->TakeModel();
    load_.reset();
    progress_.phase = "write samples";
    QINFER_ASSIGN_OR_RETURN(forward_,
                            exec::Forward::Create(model_, context_, ForwardOptionsFor(options_)));
    const kv::CacheOptions cache = CacheOptionsFor(options_);
    QINFER_ASSIGN_OR_RETURN(
        cache_, kv::Cache::Create(exec::CacheLayout(model_->spec(), cache.k_type, cache.v_type),
                                  cache, context_.memory));
    QINFER_ASSIGN_OR_RETURN(
        scratch_, Buffer::Create(context_.memory, model_->spec().vocab_size * sizeof(float),
                                 "scratch for sampling"));
    slots_.resize(options_.batch);
    return OkStatus();
  }

  StatusOr<bool> Finish() {
    forward_.reset();
    slots_.clear();
    cache_.reset();
    model_.reset();
    return true;
  }

  // Without a BOS a sample starts with a token drawn evenly.
  int32_t FirstToken(uint64_t stream) const {
    const tokenizer::Tokenizer* tokenizer = model_->tokenizer();
    const uint32_t vocab = model_->spec().vocab_size;
    if (tokenizer != nullptr && tokenizer->bos_id() >= 0 &&
        static_cast<uint32_t>(tokenizer->bos_id()) < vocab) {
      return tokenizer->bos_id();
    }
    return static_cast<int32_t>(RandomAt(options_.seed, stream, 0) % vocab);
  }

  Status Start(Slot* slot) {
    slot->sequence.reset();
    QINFER_ASSIGN_OR_RETURN(slot->sequence, cache_->NewSequence());
    if (restart_.empty()) {
      slot->stream = kFirstStream + attempts_++;
    } else {
      slot->stream = restart_.front();
      restart_.erase(restart_.begin());
    }
    slot->tokens.assign(1, FirstToken(slot->stream));
    slot->active = true;
    return OkStatus();
  }

  Status StartBatch() {
    segments_.clear();
    batch_.clear();
    for (Slot& slot : slots_) {
      // No more sequences than samples that are still missing.
      const uint64_t running = static_cast<uint64_t>(
          std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.active; }));
      if (!slot.active && samples_.size() + running < options_.samples) {
        if (restart_.empty() && attempts_ >= kAttemptsPerSample * options_.samples) break;
        QINFER_RETURN_IF_ERROR(Start(&slot));
      }
      if (!slot.active) continue;
      QINFER_RETURN_IF_ERROR(slot.sequence->Reserve(1));
      exec::BatchSegment segment;
      segment.sequence = slot.sequence.get();
      segment.tokens = absl::MakeConstSpan(&slot.tokens.back(), 1);
      segment.logits_from = 0;
      segment.rope_length = options_.sample_tokens;
      segments_.push_back(segment);
      batch_.push_back(&slot);
    }
    if (segments_.empty()) {
      return FormatError(StrCat(
          model_->checkpoint().name(),
          ": the model ends its texts at once, so it cannot write its own calibration samples; "
          "give a text instead"));
    }
    QINFER_RETURN_IF_ERROR(forward_->Begin(segments_));
    in_flight_ = true;
    return OkStatus();
  }

  Status EndBatch() {
    const std::vector<int32_t>& ends = model_->generation_defaults().eos_ids;
    for (size_t i = 0; i < batch_.size(); ++i) {
      Slot& slot = *batch_[i];
      slot.sequence->Commit(1);
      const double unit = RandomUnit(options_.seed, slot.stream, slot.tokens.size());
      const int32_t token = DrawToken(forward_->Logits(static_cast<uint32_t>(i)), unit,
                                      *context_.kernels, scratch_.as<float>());
      const bool end = std::find(ends.begin(), ends.end(), token) != ends.end();
      if (!end) slot.tokens.push_back(token);
      if (!end && slot.tokens.size() < options_.sample_tokens) continue;
      if (slot.tokens.size() >= std::min(kShortest, options_.sample_tokens)) {
        progress_.done += options_.sample_tokens;
        finished_.emplace_back(slot.stream, Sample{std::move(slot.tokens)});
      }
      slot.active = false;
      slot.sequence.reset();
    }
    return Collect();
  }

  // Finished sequences count in the order of their streams once all older ones have ended, so that
  // the set does not depend on the batch size.
  Status Collect() {
    std::sort(finished_.begin(), finished_.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    uint64_t oldest = restart_.empty() ? UINT64_MAX : restart_.front();
    for (const Slot& slot : slots_) {
      if (slot.active) oldest = std::min(oldest, slot.stream);
    }
    size_t taken = 0;
    while (taken < finished_.size() && finished_[taken].first < oldest) {
      if (samples_.size() < options_.samples) {
        samples_.push_back(std::move(finished_[taken].second));
      }
      ++taken;
    }
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(taken));
    return OkStatus();
  }

  static constexpr uint64_t kFirstStream = 1000;
  std::unique_ptr<exec::LoadWork> load_;
  const SelfGenerateOptions options_;
  const exec::Context context_;
  std::shared_ptr<const exec::Model> model_;
  std::unique_ptr<exec::Forward> forward_;
  std::shared_ptr<kv::Cache> cache_;
  Buffer scratch_;
  std::vector<Slot> slots_;
  std::vector<Slot*> batch_;
  std::vector<exec::BatchSegment> segments_;
  std::vector<std::pair<uint64_t, Sample>> finished_;
  std::vector<uint64_t> restart_;  // streams that an earlier run had begun, ascending
  std::vector<Sample> samples_;
  uint64_t attempts_ = 0;
  bool in_flight_ = false;
};

}  // namespace

int32_t DrawToken(absl::Span<const float> logits, double unit, const kernels::Table& kernels,
                  float* scratch) {
  float max = 0.0f;
  kernels.exp_sum(logits.data(), logits.size(), &max);
  kernels.exp_shift(logits.data(), max, logits.size(), scratch);
  double total = 0.0;
  for (size_t i = 0; i < logits.size(); ++i) total += scratch[i];
  const double target = unit * total;
  double sum = 0.0;
  int32_t last = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (scratch[i] <= 0.0f) continue;
    sum += scratch[i];
    last = static_cast<int32_t>(i);
    if (sum > target) return last;
  }
  return last;
}

StatusOr<std::unique_ptr<SelfGenerateWork>> SelfGenerateWork::Create(
    const std::shared_ptr<const format::Checkpoint>& checkpoint, const SelfGenerateOptions& options,
    const exec::Context& context, std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  SelfGenerateOptions checked = options;
  checked.batch = std::clamp(options.batch, 1u, std::max(1u, options.samples));
  // Loading does not change the checkpoint; its type only says that it is shared with the model.
  QINFER_ASSIGN_OR_RETURN(
      auto load, exec::LoadWork::Create(std::const_pointer_cast<format::Checkpoint>(checkpoint),
                                        context, std::move(tokenizer)));
  return std::unique_ptr<SelfGenerateWork>(
      std::make_unique<SelfGenerateImpl>(std::move(load), checked, context));
}

StatusOr<uint64_t> PlanSelfGenerateBytes(const format::Checkpoint& checkpoint,
                                         const model::ModelSpec& spec,
                                         const SelfGenerateOptions& options,
                                         std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                         const exec::Context& context) {
  exec::PlanOptions plan_options;
  plan_options.tokenizer = std::move(tokenizer);
  plan_options.context_tokens = CacheOptionsFor(options).max_tokens;
  plan_options.batch_tokens = options.batch;
  plan_options.logit_rows = options.batch;
  plan_options.k_type = plan_options.v_type = kernels::KvType::kF16;
  plan_options.activations = exec::Activations::kFloat;
  QINFER_ASSIGN_OR_RETURN(const exec::MemoryPlan plan,
                          exec::PlanMemory(checkpoint, spec, plan_options, context));
  // The opened checkpoint is in use already.
  return plan.total_bytes - plan.mapped_bytes - checkpoint.memory_bytes() +
         uint64_t{spec.vocab_size} * sizeof(float);
}

}  // namespace qinfer::quant
