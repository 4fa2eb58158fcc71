// The state machine that takes one or two models through the windows of a text and gathers scores.
// The arithmetic of a row is in row_score.cpp.
#include "evaluate/perplexity.h"

#include <algorithm>
#include <cmath>

#include "evaluate/row_score.h"
#include "exec/fp_mode.h"
#include "kv/cache.h"

namespace qinfer::evaluate {
namespace {

// Rows of logits kept at once take about this much.
constexpr uint64_t kLogitBytes = 16u << 20;
constexpr uint32_t kMaxBatch = 512;

// A model with a cache for one window.
class Runner {
 public:
  static StatusOr<std::unique_ptr<Runner>> Create(std::shared_ptr<const exec::Model> model,
                                                  const exec::Context& context,
                                                  const PerplexityOptions& options,
                                                  exec::Activations activations,
                                                  uint32_t batch_tokens, uint32_t rows) {
    auto runner = std::make_unique<Runner>();
    kv::CacheOptions cache;
    cache.k_type = options.k_type;
    cache.v_type = options.v_type;
    cache.max_tokens = options.context;
    cache.max_sequences = 1;
    cache.max_reserve = batch_tokens;
    QINFER_ASSIGN_OR_RETURN(
        runner->cache_,
        kv::Cache::Create(exec::CacheLayout(model->spec(), options.k_type, options.v_type), cache,
                          context.memory));
    exec::ForwardOptions forward;
    forward.max_batch_tokens = batch_tokens;
    forward.max_logit_rows = rows;
    forward.activations = activations;
    forward.max_position = options.context;
    runner->forward_length_ = static_cast<uint32_t>(options.context);
    QINFER_ASSIGN_OR_RETURN(runner->forward_,
                            exec::Forward::Create(std::move(model), context, forward));
    return runner;
  }

  Status StartWindow() {
    sequence_.reset();  // first, so that its pages are free
    QINFER_ASSIGN_OR_RETURN(sequence_, cache_->NewSequence());
    return OkStatus();
  }

  // Goes on with `tokens` as the next positions of the window; true when they are done.
  StatusOr<bool> Run(absl::Span<const int32_t> tokens, bool wants_logits,
                     const Deadline& deadline) {
    if (!in_flight_) {
      QINFER_RETURN_IF_ERROR(sequence_->Reserve(static_cast<uint32_t>(tokens.size())));
      exec::BatchSegment segment;
      segment.sequence = sequence_.get();
      segment.tokens = tokens;
      if (wants_logits) segment.logits_from = 0;
      segment.rope_length = forward_length_;
      QINFER_RETURN_IF_ERROR(forward_->Begin({&segment, 1}));
      in_flight_ = true;
    }
    StatusOr<bool> done = forward_->Run(deadline);
    if (!done.ok()) in_flight_ = false;
    if (!done.ok() || !*done) return done;
    in_flight_ = false;
    sequence_->Commit(static_cast<uint32_t>(tokens.size()));
    return true;
  }

  void Stop() {
    if (in_flight_) forward_->Abandon();
    in_flight_ = false;
    if (sequence_ != nullptr) sequence_->Rollback();
  }
  ~Runner() { Stop(); }
  absl::Span<const float> Logits(uint32_t row) const { return forward_->Logits(row); }

 private:
  std::shared_ptr<kv::Cache> cache_;
  std::unique_ptr<kv::Sequence> sequence_;
  std::unique_ptr<exec::Forward> forward_;
  uint32_t forward_length_ = 0;  // of a window
  bool in_flight_ = false;
};

// Of sorted values, between neighbours in proportion.
double Percentile(const std::pmr::vector<double>& sorted, double fraction) {
  if (sorted.empty()) return 0.0;
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return (1.0 - part) * sorted[below] + part * sorted[above];
}

// Sum and sum of squares of what is averaged.
struct Mean {
  double sum = 0.0, squares = 0.0;
  uint64_t count = 0;
  void Add(double x) {
    sum += x;
    squares += x * x;
    ++count;
  }
  double mean() const { return count == 0 ? 0.0 : sum / static_cast<double>(count); }
  double standard_error() const {
    if (count < 2) return 0.0;
    const double variance = squares / static_cast<double>(count) - mean() * mean();
    return variance > 0.0 ? std::sqrt(variance / static_cast<double>(count - 1)) : 0.0;
  }
};

class PerplexityImpl final : public PerplexityWork {
 public:
  PerplexityImpl(std::vector<int32_t> tokens, const PerplexityOptions& options,
                 const exec::Context& context)
      : tokens_(std::move(tokens)), options_(options), context_(context), kl_(context.memory) {}

  Status Init(std::shared_ptr<const exec::Model> model,
              std::shared_ptr<const exec::Model> reference) {
    const uint32_t vocab_size = model->spec().vocab_size;
    windows_ = tokens_.size() / options_.context;
    if (options_.max_windows != 0) windows_ = std::min<uint64_t>(windows_, options_.max_windows);
    tokens_.resize(windows_ * options_.context);
    first_scored_ = options_.context / 2;
    const uint32_t scored = options_.context - 1 - first_scored_;
    rows_ = static_cast<uint32_t>(
        std::clamp<uint64_t>(kLogitBytes / (sizeof(float) * uint64_t{vocab_size}), 8, 256));
    rows_ = std::min(rows_, scored);
    batch_tokens_ = std::max(rows_, std::min(options_.context, kMaxBatch));
    if (model->tokenizer() != nullptr && model->tokenizer()->adds_bos()) {
      bos_ = model->tokenizer()->bos_id();
    }
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i] < 0 || static_cast<uint32_t>(tokens_[i]) >= vocab_size) {
        return MisuseError(StrCat("token ", i, " of the text is ", tokens_[i],
                                  "; the vocabulary has ids 0 to ", vocab_size - 1));
      }
    }
    QINFER_ASSIGN_OR_RETURN(model_, Runner::Create(std::move(model), context_, options_,
                                                   options_.activations, batch_tokens_, rows_));
    if (reference != nullptr) {
      QINFER_ASSIGN_OR_RETURN(reference_,
                              Runner::Create(std::move(reference), context_, options_,
                                             options_.reference_activations, batch_tokens_, rows_));
      kl_.reserve(windows_ * scored);
    }
    scores_.resize(rows_);
    progress_.phase = "evaluate";
    progress_.total = windows_;
    return OkStatus();
  }

  StatusOr<bool> Step(const Deadline& deadline) override {
    const exec::ScopedFpMode fp_mode;
    do {
      const Status status = deadline.Cancelled() ? CancelledError() : Advance(deadline);
      if (!status.ok()) {
        model_->Stop();
        if (reference_ != nullptr) reference_->Stop();
        return status;
      }
      if (window_ == windows_) return true;
    } while (!deadline.Expired() || deadline.Cancelled());
    return false;
  }

  observe::Report TakeReport() override {
    observe::Report report;
    const double perplexity = std::exp(nll_.mean());
    report["perplexity"] = perplexity;
    report["perplexity_stderr"] = nll_.standard_error() * perplexity;
    report["nll"] = nll_.mean();
    report["tokens"] = nll_.count;
    report["windows"] = windows_;
    report["context"] = options_.context;
    if (reference_ == nullptr) return report;
    std::sort(kl_.begin(), kl_.end());
    report["reference_perplexity"] = std::exp(reference_nll_.mean());
    report["kl_mean"] = kl_mean_.mean();
    report["kl_stderr"] = kl_mean_.standard_error();
    report["kl_median"] = Percentile(kl_, 0.5);
    report["kl_p99"] = Percentile(kl_, 0.99);
    report["kl_p999"] = Percentile(kl_, 0.999);
    report["kl_max"] = kl_.empty() ? 0.0 : kl_.back();
    report["top1"] = kl_.empty() ? 0.0 : static_cast<double>(same_top_) / kl_.size();
    return report;
  }

 private:
  enum class Phase : uint8_t { kStart, kModel, kReference, kScore };

  // One unit or more of the current phase.
  Status Advance(const Deadline& deadline) {
    switch (phase_) {
      case Phase::kStart:
        return Start();
      case Phase::kModel: {
        QINFER_ASSIGN_OR_RETURN(const bool done, model_->Run(Batch(), scoring(), deadline));
        if (done) phase_ = reference_ != nullptr ? Phase::kReference : Phase::kScore;
        return OkStatus();
      }
      case Phase::kReference: {
        QINFER_ASSIGN_OR_RETURN(const bool done, reference_->Run(Batch(), scoring(), deadline));
        if (done) phase_ = Phase::kScore;
        return OkStatus();
      }
      case Phase::kScore:
        return scoring() ? Score() : NextBatch();
    }
    return OkStatus();
  }

  bool scoring() const { return position_ >= first_scored_; }

  absl::Span<const int32_t> Batch() const { return {window_tokens() + position_, batch_size()}; }
  uint32_t batch_size() const {
    return scoring() ? std::min(rows_, options_.context - 1 - position_)
                     : std::min(batch_tokens_, first_scored_ - position_);
  }
  const int32_t* window_tokens() const { return tokens_.data() + window_ * options_.context; }

  Status Start() {
    // The replaced token is nobody's target: scoring starts further on.
    if (bos_ >= 0) tokens_[window_ * options_.context] = bos_;
    position_ = 0;
    scored_rows_ = 0;
    QINFER_RETURN_IF_ERROR(model_->StartWindow());
    if (reference_ != nullptr) QINFER_RETURN_IF_ERROR(reference_->StartWindow());
    phase_ = Phase::kModel;
    return OkStatus();
  }

  // As many rows as threads at a time, so that a deadline is seen soon.
  Status Score() {
    const uint32_t end =
        std::min(batch_size(), scored_rows_ + std::max(1u, context_.executor->concurrency()));
    const uint32_t begin = scored_rows_;
    ParallelFor(context_.executor, end - begin, [&](uint32_t i) {
      const exec::ScopedFpMode fp_mode;
      const uint32_t row = begin + i;
      const auto reference =
          reference_ != nullptr ? reference_->Logits(row) : absl::Span<const float>();
      scores_[row] = ScoreRow(model_->Logits(row), reference, window_tokens()[position_ + row + 1],
                              *context_.kernels);
    });
    for (uint32_t row = begin; row < end; ++row) {
      if (options_.sink != nullptr) {
        QINFER_RETURN_IF_ERROR(options_.sink(options_.sink_user, model_->Logits(row)));
      }
      nll_.Add(scores_[row].nll);
      if (reference_ == nullptr) continue;
      reference_nll_.Add(scores_[row].reference_nll);
      kl_mean_.Add(scores_[row].kl);
      kl_.push_back(scores_[row].kl);
      same_top_ += scores_[row].same_top ? 1 : 0;
    }
    scored_rows_ = end;
    return scored_rows_ == batch_size() ? NextBatch() : OkStatus();
  }

  Status NextBatch() {
    position_ += batch_size();
    scored_rows_ = 0;
    phase_ = Phase::kModel;
    if (position_ < options_.context - 1) return OkStatus();
    ++window_;
    progress_.done = window_;
    phase_ = Phase::kStart;
    return OkStatus();
  }

  std::vector<int32_t> tokens_;
  const PerplexityOptions options_;
  const exec::Context context_;
  std::unique_ptr<Runner> model_, reference_;
  int32_t bos_ = -1;
  uint64_t windows_ = 0, window_ = 0;
  uint32_t first_scored_ = 0, rows_ = 0, batch_tokens_ = 0;

  Phase phase_ = Phase::kStart;
  uint32_t position_ = 0;     // in the window: where the current batch begins
  uint32_t scored_rows_ = 0;  // of the current batch
  std::vector<RowScore> scores_;
  Mean nll_, reference_nll_, kl_mean_;
  std::pmr::vector<double> kl_;
  uint64_t same_top_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<PerplexityWork>> PerplexityWork::Create(
    std::shared_ptr<const exec::Model> model, std::shared_ptr<const exec::Model> reference,
    std::vector<int32_t> tokens, const PerplexityOptions& options, const exec::Context& context) {
  const auto fits = [&](const exec::Model& m) {
    return m.spec().max_context == 0 || options.context <= m.spec().max_context;
  };
  if (options.context < 4 || !fits(*model) || (reference != nullptr && !fits(*reference))) {
    return MisuseError(
        StrCat("context is ", options.context,
               "; a window has at least 4 tokens, and at most those that the model was made for: ",
               (reference != nullptr && fits(*model) ? *reference : *model).spec().max_context));
  }
  if (tokens.size() < options.context) {
    return MisuseError(StrCat("the text has ", tokens.size(), " tokens, less than one window of ",
                              options.context, "; use a longer text or a smaller context"));
  }
  if (reference != nullptr && reference->spec().vocab_size != model->spec().vocab_size) {
    return MisuseError(StrCat("the reference has a vocabulary of ", reference->spec().vocab_size,
                              " tokens, the model one of ", model->spec().vocab_size));
  }
  auto work = std::make_unique<PerplexityImpl>(std::move(tokens), options, context);
  QINFER_RETURN_IF_ERROR(work->Init(std::move(model), std::move(reference)));
  return std::unique_ptr<PerplexityWork>(std::move(work));
}

}  // namespace qinfer::evaluate
