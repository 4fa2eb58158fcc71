// Batches of a whole model: begin, run phase by phase, suspend and go on.
#include "exec/forward.h"

#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "exec/forward_impl.h"

namespace qinfer::exec {
static_assert(PhaseTimes::kPhases == static_cast<uint32_t>(Phase::kDone));
namespace {

Status CheckOptions(const model::ModelSpec& spec, const ForwardOptions& options) {
  QINFER_RETURN_IF_ERROR(model::ValidateSpec(spec));
  constexpr uint32_t kMost = 1u << 20;
  if (options.max_batch_tokens == 0 || options.max_batch_tokens > kMost) {
    return MisuseError(StrCat("max_batch_tokens is ", options.max_batch_tokens, "; 1 to ", kMost,
                              " are possible"));
  }
  if (options.max_logit_rows > kMost) {
    return MisuseError(
        StrCat("max_logit_rows is ", options.max_logit_rows, "; up to ", kMost, " are possible"));
  }
  return OkStatus();
}

}  // namespace

const char* PhaseTimes::Name(uint32_t phase) {
  static constexpr const char* kNames[kPhases] = {"embed",        "attention norm",
                                                  "q, k, v",      "query norm",
                                                  "query up",     "absorb",
                                                  "rope, write",  "attention",
                                                  "value up",     "expand ready",
                                                  "expand",       "attention quantize",
                                                  "out",          "feed-forward norm",
                                                  "router",       "route",
                                                  "gather",       "experts up",
                                                  "experts down", "combine",
                                                  "gate, up",     "activate",
                                                  "down",         "final norm",
                                                  "head"};
  return phase < kPhases ? kNames[phase] : "";
}

uint64_t Forward::PlanBytes(const model::ModelSpec& spec, const ForwardOptions& options,
                            const Context& context) {
  return Workspace().Cut(spec, options, context, false, nullptr);
}

uint64_t Forward::PlanLayerBytes(const model::ModelSpec& spec, const ForwardOptions& options,
                                 const Context& context) {
  return Workspace().Cut(spec, options, context, true, nullptr);
}

StatusOr<std::unique_ptr<Forward>> Forward::Create(std::shared_ptr<const Model> model,
                                                   const Context& context,
                                                   const ForwardOptions& options) {
  auto forward = std::make_unique<ForwardImpl>(context, options);
  const model::ModelSpec& spec = model->spec();
  QINFER_RETURN_IF_ERROR(forward->Init(spec, std::move(model)));
  return std::unique_ptr<Forward>(std::move(forward));
}

StatusOr<std::unique_ptr<Forward>> Forward::CreateForLayers(const model::ModelSpec& spec,
                                                            const Context& context,
                                                            const ForwardOptions& options,
                                                            const format::Checkpoint& checkpoint) {
  auto forward = std::make_unique<ForwardImpl>(context, options);
  QINFER_RETURN_IF_ERROR(forward->Init(spec, nullptr));
  QINFER_RETURN_IF_ERROR(forward->ReadRopeFactors(checkpoint));
  return std::unique_ptr<Forward>(std::move(forward));
}

Status ForwardImpl::ReadRopeFactors(const format::Checkpoint& checkpoint) {
  for (size_t r = 0; r < spec_.ropes.size(); ++r) {
    const model::RopeSpec& rope = spec_.ropes[r];
    if (!rope.frequency_factors.present()) continue;
    const format::TensorInfo* info = checkpoint.Find(rope.frequency_factors.name);
    if (info == nullptr || info->elements() != rope.dims / 2) {
      return FormatError(StrCat(checkpoint.name(), ": tensor ", rope.frequency_factors.name,
                                " must hold ", rope.dims / 2, " frequency factors"));
    }
    std::vector<uint8_t> bytes(info->bytes);
    std::vector<float> factors(info->elements());
    QINFER_RETURN_IF_ERROR(checkpoint.Read(*info, 0, absl::MakeSpan(bytes)));
    QINFER_RETURN_IF_ERROR(
        weights::DecodeToFloat(info->dtype, bytes, factors.size(), factors.data()));
    ropes_[r] = RopeTable(rope, factors.data());
  }
  return OkStatus();
}

Status ForwardImpl::Init(const model::ModelSpec& spec, std::shared_ptr<const Model> model) {
  QINFER_RETURN_IF_ERROR(CheckOptions(spec, options_));
  model_ = std::move(model);
  spec_ = spec;
  max_position_ = options_.max_position != 0 ? options_.max_position : spec.max_context;
  groups_ = CacheLayout(spec_, kernels::KvType::kF32, kernels::KvType::kF32);
  group_of_.resize(spec_.layers.size());
  index_in_group_.resize(spec_.layers.size());
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    for (uint32_t i = 0; i < groups_[g].layers.size(); ++i) {
      group_of_[groups_[g].layers[i]] = g;
      index_in_group_[groups_[g].layers[i]] = i;
    }
  }
  for (size_t r = 0; r < spec_.ropes.size(); ++r) {
    const float* factors = model_ == nullptr ? nullptr : model_->ends().rope_factors[r];
    ropes_.emplace_back(spec_.ropes[r], factors);
  }
  const bool layers_only = model_ == nullptr;
  const size_t bytes = ws_.Cut(spec_, options_, context_, layers_only, nullptr);
  QINFER_ASSIGN_OR_RETURN(Buffer block,
                          Buffer::Create(context_.memory, bytes, "forward workspace"));
  ws_.Cut(spec_, options_, context_, layers_only, block.as<uint8_t>());
  ws_.block = std::move(block);
  return OkStatus();
}

Status ForwardImpl::Begin(absl::Span<const BatchSegment> segments) {
  if (model_ == nullptr) return MisuseError("this forward pass has no model, only layers");
  if (phase_ != Phase::kDone) return MisuseError("a batch is already in flight");
  uint64_t tokens = 0, rows = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    const BatchSegment& segment = segments[s];
    const size_t count = segment.tokens.size();
    if (segment.sequence == nullptr || count == 0) {
      return MisuseError(StrCat("segment ", s, " of the batch has no sequence or no tokens"));
    }
    for (size_t other = 0; other < s; ++other) {
      if (segments[other].sequence == segment.sequence) {
        return MisuseError(StrCat("segments ", other, " and ", s, " are of the same sequence"));
      }
    }
    tokens += count;
    if (tokens > options_.max_batch_tokens) {
      return MisuseError(StrCat("the batch has more than max_batch_tokens (",
                                options_.max_batch_tokens, ") tokens"));
    }
    if (segment.sequence->length() + uint64_t{count} > max_position_) {
      return MisuseError(StrCat("segment ", s, " reaches position ",
                                segment.sequence->length() + uint64_t{count}, "; the limit is ",
                                max_position_));
    }
    const uint64_t end = segment.sequence->length() + uint64_t{count};
    const uint32_t variant =
        model::RopeVariant(spec_, std::max<uint64_t>(end, segment.rope_length));
    if (segment.sequence->length() > 0 && segment.sequence->variant() != variant) {
      return MisuseError(StrCat("segment ", s,
                                " makes its sequence long enough for other rotations ",
                                "of all its keys: truncate it to 0 tokens and compute it anew"));
    }
    segment.sequence->set_variant(variant);
    if (segment.logits_from < count) rows += count - segment.logits_from;
    const absl::Span<const kv::GroupLayout> groups = segment.sequence->cache().groups();
    bool fits = groups.size() == groups_.size();
    for (size_t g = 0; fits && g < groups.size(); ++g) {
      const kv::GroupLayout &has = groups[g], &needs = groups_[g];
      fits = has.layers == needs.layers && has.kv_heads == needs.kv_heads &&
             has.head_dim == needs.head_dim && has.v_head_dim == needs.v_head_dim &&
             has.latent == needs.latent && has.window == needs.window;
    }
    if (!fits) return MisuseError(StrCat("segment ", s, " has a KV cache of another model"));
    for (const int32_t token : segment.tokens) {
      if (token < 0 || static_cast<uint32_t>(token) >= spec_.vocab_size) {
        return MisuseError(
            StrCat("token id ", token, " is outside the vocabulary of ", spec_.vocab_size));
      }
    }
  }
  if (tokens == 0) return MisuseError("the batch is empty");
  if (rows > options_.max_logit_rows) {
    return MisuseError(StrCat("logits of ", rows, " tokens are wanted, max_logit_rows is ",
                              options_.max_logit_rows));
  }
  tokens_ = segments_ = logit_rows_ = 0;
  for (const BatchSegment& from : segments) {
    Segment& segment = ws_.segments[segments_];
    segment = Segment();
    segment.sequence = from.sequence;
    segment.first_token = tokens_;
    segment.tokens = static_cast<uint32_t>(from.tokens.size());
    segment.position = from.sequence->length();
    segment.rope_length = std::max(from.rope_length, segment.position + segment.tokens);
    for (uint32_t t = 0; t < segment.tokens; ++t) {
      ws_.tokens[tokens_] = from.tokens[t];
      ws_.positions[tokens_] = segment.position + t;
      ws_.segment_of[tokens_] = segments_;
      if (t >= from.logits_from) ws_.logit_tokens[logit_rows_++] = tokens_;
      ++tokens_;
    }
    ++segments_;
  }
  segment_begin_ = token_begin_ = 0;
  segment_end_ = segments_;
  token_end_ = tokens_;
  own_pages_ = false;
  pending_ = false;
  not_finite_ = false;
  layer_ = 0;
  units_.Reset();
  phase_ = Phase::kEmbed;
  return OkStatus();
}

StatusOr<bool> ForwardImpl::Run(const Deadline& deadline) {
  if (phase_ == Phase::kDone) return MisuseError("no batch is in flight");
  for (;;) {
    const uint64_t begin = options_.times == nullptr ? 0 : NowNs();
    const bool complete = RunPhase(deadline);
    if (options_.times != nullptr) {
      options_.times->ns[static_cast<uint8_t>(phase_)] += NowNs() - begin;
    }
    if (complete) {
      NextPhase();
      if (phase_ == Phase::kDone) break;
    }
    if (deadline.Cancelled()) {
      Abandon();
      return CancelledError();
    }
    if (!complete || deadline.Expired()) return false;
  }
  if (not_finite_) {
    return FormatError(
        "the model's logits are not finite: its weights are corrupt, or its activations overflow");
  }
  return true;
}

void ForwardImpl::SetLayer(const LayerWeights& weights, uint32_t layer) {
  layer_ = layer;
  weights_ = &weights;
  layer_spec_ = &spec_.layers[layer];
  expanded_ = Expands();
  expanded_head_ = 0;
}

// Sets phase_ to the next that this layer has.
void ForwardImpl::NextPhase() {
  const auto go = [&](Phase phase) { phase_ = phase; };
  const auto attended = [&] {
    go(CodeBlock({&weights_->attention.o}) == 0 ? Phase::kOut : Phase::kAttentionQuantize);
  };
  switch (phase_) {
    case Phase::kEmbed:
      SetLayer(model_->layer(0), 0);
      pending_ = false;
      return go(Phase::kAttentionNorm);
    case Phase::kQkv:
      return go(PhaseAfterQkv());
    case Phase::kQueryUp:
      return go(PhaseOfQueries());
    case Phase::kRope:
      return go(expanded_ ? Phase::kExpandReady : Phase::kAttention);
    case Phase::kExpand:
      return go(Phase::kAttention);
    case Phase::kAttention:
      if (expanded_) {
        expanded_head_ += HeadsAtHand();
        if (expanded_head_ == layer_spec_->attention.heads) return attended();
        return go(Phase::kExpandReady);
      }
      if (layer_spec_->attention.kind == model::AttentionKind::kLatent) {
        return go(Phase::kValueUp);
      }
      return attended();
    case Phase::kValueUp:
      return attended();
    case Phase::kOut:
      pending_ = true;
      pending_norm_ = weights_->post_attention_norm;
      return go(Phase::kFeedForwardNorm);
    case Phase::kFeedForwardNorm:
      return go(HasExperts() ? Phase::kRouter : Phase::kGateUp);
    case Phase::kRoute:
      Dispatch();
      return go(gathers_ ? Phase::kGather : Phase::kExpertsUp);
    case Phase::kExpertsDown:
      if (window_end_ == jobs_) return go(Phase::kCombine);
      NextWindow();
      return go(gathers_ ? Phase::kGather : Phase::kExpertsUp);
    case Phase::kGateUp:
      return go(FusesGateUp() ? Phase::kDown : Phase::kActivate);
    case Phase::kCombine:
    case Phase::kDown:
      pending_ = true;
      pending_norm_ = weights_->post_feed_forward_norm;
      if (layer_ + 1 == spec_.layers.size()) return go(Phase::kFinalNorm);
      SetLayer(model_->layer(layer_ + 1), layer_ + 1);
      return go(Phase::kAttentionNorm);
    default:
      return go(static_cast<Phase>(static_cast<uint8_t>(phase_) + 1));
  }
}

bool ForwardImpl::RunPhase(const Deadline& deadline) {
  switch (phase_) {
    case Phase::kEmbed:
      return RunTokens(tokens_, deadline, [&](uint32_t token) { EmbedToken(token); });
    case Phase::kAttentionNorm: {
      const LinearInput input = AttentionInput();
      return RunTokens(tokens_, deadline,
                       [&](uint32_t token) { NormToken(weights_->attention_norm, input, token); });
    }
    case Phase::kQkv: {
      const AttentionWeights& w = weights_->attention;
      LinearPhase phase;
      phase.input = AttentionInput();
      if (layer_spec_->attention.kind == model::AttentionKind::kLatent) {
        phase.jobs[0] = w.q_a.present() ? LinearJob{&w.q_a, ws_.q_a} : LinearJob{&w.q, ws_.q};
        phase.jobs[1] = {&w.kv_a, ws_.k};
        phase.job_count = 2;
      } else {
        phase.jobs[0] = {&w.q, ws_.q};
        phase.jobs[1] = {&w.k, ws_.k};
        phase.jobs[2] = {&w.v, ws_.v};
        phase.job_count = 3;
      }
      return RunLinear(&phase, deadline);
    }
    case Phase::kQueryNorm: {
      const LinearInput input = Input(ws_.q_a, ws_.q_a_codes, {&weights_->attention.q});
      const uint32_t rank = layer_spec_->attention.q_rank;
      return RunTokens(tokens_, deadline, [&](uint32_t token) {
        float* x = ws_.q_a.row(token);
        kernels_->rms_norm(x, weights_->attention.q_a_norm, rank, spec_.norm_epsilon, x);
        if (input.int8) Quantize(input, input.codes, x, rank, token);
      });
    }
    case Phase::kQueryUp: {
      LinearPhase phase;
      phase.input = Input(ws_.q_a, ws_.q_a_codes, {&weights_->attention.q});
      phase.jobs[0] = {&weights_->attention.q, ws_.q};
      phase.job_count = 1;
      return RunLinear(&phase, deadline);
    }
    case Phase::kAbsorb:
      return RunHeads(weights_->attention.k_b, deadline, true);
    case Phase::kValueUp:
      return RunHeads(weights_->attention.v_b, deadline, false);
    case Phase::kExpandReady:
      return RunExpandReady(deadline);
    case Phase::kExpand:
      return RunExpand(deadline);
    case Phase::kRope:
      return RunRope(deadline);
    case Phase::kAttention:
      return RunAttention(deadline);
    case Phase::kAttentionQuantize: {
      const LinearInput input = Input(Attended(), ws_.attention_codes, {&weights_->attention.o});
      const uint32_t width = layer_spec_->attention.heads * layer_spec_->attention.v_head_dim;
      return RunTokens(tokens_, deadline, [&](uint32_t token) {
        Quantize(input, input.codes, input.x.row(token), width, token);
      });
    }
    case Phase::kOut: {
      LinearPhase phase;
      phase.input = Input(Attended(), ws_.attention_codes, {&weights_->attention.o});
      phase.jobs[0] = {&weights_->attention.o, ws_.branch};
      phase.job_count = 1;
      return RunLinear(&phase, deadline);
    }
    case Phase::kFeedForwardNorm: {
      const LinearInput input = HasExperts() ? ExpertInput() : FeedForwardInput();
      return RunTokens(tokens_, deadline, [&](uint32_t token) {
        NormToken(weights_->feed_forward_norm, input, token);
      });
    }
    case Phase::kRouter:
      return RunRouter(deadline);
    case Phase::kRoute:
      return RunTokens(tokens_, deadline, [&](uint32_t token) { RouteToken(token); });
    case Phase::kGather:
      return RunGather(deadline);
    case Phase::kExpertsUp:
      return RunExperts(deadline, true);
    case Phase::kExpertsDown:
      return RunExperts(deadline, false);
    case Phase::kCombine:
      return RunTokens(tokens_, deadline, [&](uint32_t token) { CombineToken(token); });
    case Phase::kGateUp:
      return RunGateUp(deadline);
    case Phase::kActivate: {
      const LinearInput down = Input(ws_.gate, ws_.down_codes, {&weights_->feed_forward.down});
      const model::FeedForwardSpec& f = layer_spec_->feed_forward;
      return RunTokens(tokens_, deadline, [&](uint32_t token) {
        float* gate = ws_.gate.row(token);
        Activate(gate, ws_.up.row(token), f.intermediate);
        if (down.int8) Quantize(down, down.codes, gate, f.intermediate, token);
      });
    }
    case Phase::kDown: {
      LinearPhase phase;
      phase.input = Input(ws_.gate, ws_.down_codes, {&weights_->feed_forward.down});
      phase.jobs[0] = {&weights_->feed_forward.down, ws_.branch};
      phase.job_count = 1;
      return RunLinear(&phase, deadline);
    }
    case Phase::kFinalNorm: {
      const EndWeights& ends = model_->ends();
      const LinearInput input = WithPlanes(Input(ws_.head_x, ws_.head_codes, {&ends.head}));
      return RunTokens(logit_rows_, deadline, [&](uint32_t row) {
        const uint32_t token = ws_.logit_tokens[row];
        FinishBranch(pending_norm_, token);
        kernels_->rms_norm(ws_.hidden.row(token), ends.final_norm, spec_.hidden_size,
                           spec_.norm_epsilon, input.x.row(row));
        QuantizeHidden(input, row, ws_.branch.row(token));
      });
    }
    case Phase::kHead: {
      if (logit_rows_ == 0) return true;
      const EndWeights& ends = model_->ends();
      return RunHead(ends.head, WithPlanes(Input(ws_.head_x, ws_.head_codes, {&ends.head})),
                     logit_rows_, ws_.logits, deadline);
    }
    case Phase::kDone:
      break;
  }
  return true;
}

absl::Span<const float> ForwardImpl::Logits(uint32_t row) const {
  if (row >= logit_rows_) return {};
  return absl::MakeConstSpan(ws_.logits + size_t{row} * spec_.vocab_size, spec_.vocab_size);
}

absl::Span<const float> ForwardImpl::LogitMaxima(uint32_t row) const {
  if (row >= logit_rows_) return {};
  const size_t panels = CeilDiv(spec_.vocab_size, kernels::kPanelRows);
  return absl::MakeConstSpan(ws_.logit_maxima + row * panels, panels);
}

}  // namespace qinfer::exec
