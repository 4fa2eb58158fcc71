// Feeding, choosing and merging: everything about a Calibration but running it and its file.
#include <algorithm>
#include <utility>

#include "quant/bytes.h"
#include "quant/calibration_data.h"
#include "quant/fingerprint.h"
#include "quant/random.h"
#include "quant/source_tokenizer.h"

namespace qinfer::quant {
namespace {

constexpr uint32_t kMaxSampleTokens = 1u << 20;
constexpr uint32_t kMaxSamples = 1u << 20;

// How many tokens the experts of each layer have seen: where none, weights are searched without
// regard to their inputs.
void DescribeExperts(const StatsTable& stats, observe::Report* report) {
  uint64_t experts = 0, uncovered = 0, least = UINT64_MAX, most = 0;
  for (size_t i = 0; i < stats.size();) {
    uint64_t in_layer = 0, without = 0, fewest = UINT64_MAX;
    const uint32_t layer = stats[i].layer;
    for (; i < stats.size() && stats[i].layer == layer; ++i) {
      if (stats[i].role != model::LinearRole::kExpertGate) continue;
      const uint64_t tokens = stats[i].moments.tokens();
      ++in_layer;
      without += tokens == 0 ? 1 : 0;
      fewest = std::min(fewest, tokens);
      most = std::max(most, tokens);
    }
    if (in_layer == 0) continue;
    experts += in_layer;
    uncovered += without;
    least = std::min(least, fewest);
    observe::Report& item = (*report)["expert_coverage"]["layers"].Append();
    item["layer"] = layer;
    item["experts"] = in_layer;
    item["without_tokens"] = without;
    item["least_tokens"] = fewest;
  }
  if (experts == 0) return;
  (*report)["expert_activations"] = ObserverName(ObserverKind::kMinMax);
  observe::Report& all = (*report)["expert_coverage"];
  all["experts"] = experts;
  all["without_tokens"] = uncovered;
  all["least_tokens"] = least;
  all["most_tokens"] = most;
}

}  // namespace

model::LinearRole InputOf(model::LinearRole role) {
  switch (role) {
    case model::LinearRole::kK:
    case model::LinearRole::kV:
      return model::LinearRole::kQ;
    case model::LinearRole::kUp:
      return model::LinearRole::kGate;
    case model::LinearRole::kKvA:
      return model::LinearRole::kQA;
    case model::LinearRole::kExpertUp:
      return model::LinearRole::kExpertGate;
    default:
      return role;
  }
}

Status ValidateCalibrationOptions(const CalibrationOptions& options) {
  if (options.samples == 0 || options.samples > kMaxSamples) {
    return MisuseError(StrCat("calibration samples is ", options.samples, "; 1 to ", kMaxSamples,
                              " are possible, 128 is usual"));
  }
  if (options.sample_tokens < 2 || options.sample_tokens > kMaxSampleTokens) {
    return MisuseError(StrCat("calibration sample_tokens is ", options.sample_tokens, "; 2 to ",
                              kMaxSampleTokens, " are possible, 512 is usual"));
  }
  if (!(options.percentile > 50.0 && options.percentile <= 100.0)) {
    return MisuseError(StrCat("calibration percentile is ", options.percentile,
                              "; it must be above 50 and at most 100"));
  }
  SerialExecutor serial;
  Memory memory;
  StatusOr<std::unique_ptr<Observer>> observer =
      CreateObserver(options.activations, {options.ema_alpha}, &memory);
  if (!observer.ok()) return observer.status();
  return CreateObserver(options.weights, {options.ema_alpha}, &memory).status();
}

StatusOr<ModelKey> MakeModelKey(const format::Checkpoint& checkpoint,
                                const model::ModelSpec& spec) {
  ModelKey key;
  key.architecture = spec.architecture;
  key.hidden_size = spec.hidden_size;
  key.vocab_size = spec.vocab_size;
  key.layers = static_cast<uint32_t>(spec.layers.size());
  key.shape = ShapeFingerprint(spec);
  QINFER_ASSIGN_OR_RETURN(key.weights, WeightsFingerprint(checkpoint));
  return key;
}

StatusOr<std::shared_ptr<Calibration>> Calibration::Create(
    std::shared_ptr<const format::Checkpoint> checkpoint, const CalibrationOptions& options,
    const exec::Context& context, std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  QINFER_RETURN_IF_ERROR(ValidateCalibrationOptions(options));
  QINFER_ASSIGN_OR_RETURN(model::ModelSpec spec, model::SpecFromCheckpoint(*checkpoint));
  QINFER_RETURN_IF_ERROR(model::ValidateSpec(spec));
  QINFER_RETURN_IF_ERROR(model::ValidateTensors(spec, *checkpoint));
  QINFER_ASSIGN_OR_RETURN(ModelKey key, MakeModelKey(*checkpoint, spec));
  auto made = std::make_shared<CalibrationData>(std::move(checkpoint), std::move(spec),
                                                std::move(key), options, context);
  if (tokenizer != nullptr) made->set_tokenizer(SourceTokenizer::Of(std::move(tokenizer)));
  return std::shared_ptr<Calibration>(std::move(made));
}

CalibrationData::CalibrationData(std::shared_ptr<const format::Checkpoint> checkpoint,
                                 model::ModelSpec spec, ModelKey key,
                                 const CalibrationOptions& options, const exec::Context& context)
    : checkpoint_(std::move(checkpoint)),
      spec_(std::move(spec)),
      key_(std::move(key)),
      options_(options),
      context_(context) {
  options_.sample_tokens = std::min(options_.sample_tokens, std::max(2u, spec_.max_context));
}

Status CalibrationData::AddText(std::string_view text) {
  if (running_) return BusyError("a run of this calibration is in progress");
  if (tokenizer_ == nullptr) {
    QINFER_ASSIGN_OR_RETURN(tokenizer_, SourceTokenizer::Make(*checkpoint_, context_.memory));
  }
  const tokenizer::Tokenizer* const tokenizer = tokenizer_->get().get();
  if (tokenizer == nullptr) {
    return MisuseError(StrCat(checkpoint_->name(),
                              " has no tokenizer: calibrate it with token ids instead of text"));
  }
  std::pmr::vector<int32_t> ids(context_.memory);
  tokenizer::EncodeOptions encode;
  encode.add_special = false;
  QINFER_RETURN_IF_ERROR(tokenizer->Encode(text, encode, &ids));
  Cut(ids, tokenizer->adds_bos() ? tokenizer->bos_id() : -1);
  ++origin_.texts;
  origin_.text_bytes += text.size();
  return OkStatus();
}

Status CalibrationData::AddTokens(absl::Span<const int32_t> tokens) {
  if (running_) return BusyError("a run of this calibration is in progress");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= spec_.vocab_size) {
      return MisuseError(StrCat("token ", i, " of the calibration is ", tokens[i],
                                "; the vocabulary has ", spec_.vocab_size, " tokens"));
    }
  }
  Cut(tokens, -1);
  ++origin_.token_lists;
  return OkStatus();
}

// Whole windows of a long stream; a short stream is one sample. With a BOS it takes the place of a
// window's first token (as the evaluation does), or stands before a short stream.
void CalibrationData::Cut(absl::Span<const int32_t> tokens, int32_t bos) {
  const size_t window = options_.sample_tokens;
  if (tokens.size() < window) {
    Sample sample;
    if (bos >= 0) sample.tokens.push_back(bos);
    sample.tokens.insert(sample.tokens.end(), tokens.begin(), tokens.end());
    if (sample.tokens.size() > 1) waiting_.push_back(std::move(sample));
    return;
  }
  for (size_t begin = 0; begin + window <= tokens.size(); begin += window) {
    Sample sample;
    sample.tokens.assign(tokens.begin() + begin, tokens.begin() + begin + window);
    if (bos >= 0) sample.tokens[0] = bos;
    waiting_.push_back(std::move(sample));
  }
}

Status CalibrationData::UseSelfGenerated() {
  if (running_) return BusyError("a run of this calibration is in progress");
  want_self_generated_ = true;
  return OkStatus();
}

void CalibrationData::AddGenerated(std::vector<Sample> samples, std::vector<Sample> held_out) {
  for (Sample& sample : samples) waiting_.push_back(std::move(sample));
  for (Sample& sample : held_out) {
    if (held_out_.size() < kHeldOut) held_out_.push_back(std::move(sample));
  }
  want_self_generated_ = false;
}

CalibrationData::Choice CalibrationData::Choose() const {
  // A seeded shuffle; the first `samples` are run, some of the rest are held out. Where there are
  // too few, an eighth is held out.
  const size_t all = waiting_.size();
  std::vector<size_t> order(all);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size(); i > 1; --i) {
    const uint64_t pick = RandomAt(options_.seed, /*stream=*/1, i) % i;
    std::swap(order[i - 1], order[pick]);
  }
  const size_t wanted = held_out_.size() < kHeldOut ? kHeldOut - held_out_.size() : 0;
  const size_t held = std::min<size_t>(
      wanted, all > options_.samples ? std::max<size_t>(all - options_.samples, all / 8) : all / 8);
  const size_t run = std::min<size_t>(options_.samples, all - held);
  Choice choice;
  choice.run.assign(order.begin(), order.begin() + static_cast<ptrdiff_t>(run));
  choice.held_out.assign(order.begin() + static_cast<ptrdiff_t>(run),
                         order.begin() + static_cast<ptrdiff_t>(run + held));
  // In the order of the text, so that reading them is pleasant and stable.
  std::sort(choice.run.begin(), choice.run.end());
  std::sort(choice.held_out.begin(), choice.held_out.end());
  return choice;
}

std::vector<Sample> CalibrationData::TakeSamples() {
  const Choice choice = Choose();
  std::vector<Sample> all = std::move(waiting_);
  waiting_.clear();
  for (size_t i : choice.held_out) held_out_.push_back(std::move(all[i]));
  std::vector<Sample> samples;
  samples.reserve(choice.run.size());
  for (size_t i : choice.run) samples.push_back(std::move(all[i]));
  return samples;
}

uint64_t CalibrationData::WaitingHash() const {
  if (!has_waiting()) return 0;
  ByteWriter out;
  out.Put(static_cast<uint8_t>(want_self_generated_ ? 1 : 0));
  for (const Sample& sample : waiting_) {
    out.Put(static_cast<uint64_t>(sample.tokens.size()));
    out.PutBytes(sample.tokens.data(), sample.tokens.size() * sizeof(int32_t));
  }
  return HashText(out.bytes());
}

bool CalibrationData::TakeOver(CalibrationData&& finished) {
  if (running_ || finished.key_.weights != key_.weights || finished.key_.shape != key_.shape ||
      finished.options_.activations != options_.activations) {
    return false;
  }
  stats_ = std::move(finished.stats_);
  held_out_ = std::move(finished.held_out_);
  origin_ = finished.origin_;
  waiting_.clear();
  want_self_generated_ = false;
  return true;
}

void CalibrationData::RestoreFeed(Feed feed) {
  waiting_ = std::move(feed.waiting);
  held_out_ = std::move(feed.held_out);
  want_self_generated_ = feed.want_self_generated;
}

std::vector<LinearInputKey> LinearInputs(const model::ModelSpec& spec) {
  using model::LinearRole;
  std::vector<LinearInputKey> inputs;
  for (const model::LinearUse& use : model::LinearUses(spec)) {
    if (use.role == LinearRole::kHead) continue;
    const LinearRole role = InputOf(use.role);
    // q_a and kv_a share an input, and so do gate and up: the first of them stands for both.
    const bool second = use.role != role && (use.role != LinearRole::kKvA ||
                                             spec.layers[use.layer].attention.q_a.present());
    if (second) continue;
    const bool expert = model::IsExpertRole(role);
    if (expert && use.part == model::kNoPart) {
      for (uint32_t p = 0; p < use.parts; ++p) inputs.push_back({use.layer, role, p, use.cols});
    } else {
      inputs.push_back({use.layer, role, expert ? use.part : model::kNoPart, use.cols});
    }
  }
  inputs.push_back({UINT32_MAX, LinearRole::kHead, model::kNoPart, spec.hidden_size});
  return inputs;
}

StatusOr<StatsTable> CalibrationData::NewStats() const {
  StatsTable table;
  for (const LinearInputKey& input : LinearInputs(spec_)) {
    table.emplace_back(input.layer, input.role, input.part, input.cols, context_.memory);
    QINFER_ASSIGN_OR_RETURN(table.back().observer,
                            CreateObserver(ObserverFor(options_.activations, input.part),
                                           {options_.ema_alpha}, context_.memory));
  }
  return table;
}

const InputStats* CalibrationData::Find(uint32_t layer, model::LinearRole role,
                                        uint32_t part) const {
  return FindStats(stats_, layer, InputOf(role), part);
}

Range CalibrationData::InputRange(const InputStats& stats) const {
  RangeOptions range;
  range.method = options_.range;
  range.percentile = options_.percentile;
  return stats.observer->range(range);
}

Status CalibrationData::Commit(StatsTable stats, uint64_t samples, uint64_t tokens,
                               bool self_generated) {
  if (stats_.empty()) {
    stats_ = std::move(stats);
  } else {
    for (size_t i = 0; i < stats_.size(); ++i) {
      QINFER_RETURN_IF_ERROR(stats_[i].observer->Merge(*stats[i].observer));
      stats_[i].moments.Merge(stats[i].moments);
    }
  }
  origin_.samples += samples;
  origin_.tokens += tokens;
  origin_.self_generated = origin_.self_generated || self_generated;
  return OkStatus();
}

Status CalibrationData::Merge(const Calibration& other) {
  const CalibrationData& that = other.data();
  if (running_ || that.running_) return BusyError("a run of this calibration is in progress");
  if (&that == this) return MisuseError("a calibration cannot be merged with itself");
  if (that.key_.shape != key_.shape || that.key_.weights != key_.weights) {
    return MisuseError(StrCat("calibrations of different models do not merge: ", key_.architecture,
                              " with ", key_.layers, " layers here, ", that.key_.architecture,
                              " with ", that.key_.layers, " layers there",
                              that.key_.shape == key_.shape ? " (same shape, other weights)" : ""));
  }
  if (that.options_.activations != options_.activations) {
    return MisuseError(StrCat("calibrations with different observers do not merge: ",
                              std::string(ObserverName(options_.activations)), " here, ",
                              std::string(ObserverName(that.options_.activations)), " there"));
  }
  if (that.stats_.empty()) return OkStatus();
  if (stats_.empty()) {
    QINFER_ASSIGN_OR_RETURN(stats_, NewStats());
  }
  for (size_t i = 0; i < stats_.size(); ++i) {
    QINFER_RETURN_IF_ERROR(stats_[i].observer->Merge(*that.stats_[i].observer));
    stats_[i].moments.Merge(that.stats_[i].moments);
  }
  for (const Sample& sample : that.held_out_) {
    if (held_out_.size() < kHeldOut) held_out_.push_back(sample);
  }
  origin_.texts += that.origin_.texts;
  origin_.text_bytes += that.origin_.text_bytes;
  origin_.token_lists += that.origin_.token_lists;
  origin_.samples += that.origin_.samples;
  origin_.tokens += that.origin_.tokens;
  origin_.self_generated = origin_.self_generated || that.origin_.self_generated;
  return OkStatus();
}

observe::Report CalibrationData::Describe() const {
  observe::Report report;
  report["source"] = origin_.self_generated
                         ? (origin_.texts + origin_.token_lists > 0 ? "texts and self-generated"
                                                                    : "self-generated")
                         : (origin_.texts > 0 ? "text" : "tokens");
  report["self_generated"] = origin_.self_generated;
  report["samples"] = origin_.samples;
  report["tokens"] = origin_.tokens;
  report["held_out_samples"] = static_cast<uint64_t>(held_out_.size());
  report["sample_tokens"] = options_.sample_tokens;
  report["seed"] = static_cast<int64_t>(options_.seed);
  report["activations"] = ObserverName(options_.activations);
  report["weights"] = ObserverName(options_.weights);
  report["range"] = RangeMethodName(options_.range);
  DescribeExperts(stats_, &report);
  return report;
}

}  // namespace qinfer::quant
