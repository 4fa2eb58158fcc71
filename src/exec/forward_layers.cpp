// Layers, embedding and head on their own: the phases of a batch, with a look at the inputs of
// linear weights in between. Keys and values of a sequence live in F32 pages of the workspace for
// the length of its attention.
#include <algorithm>
#include <numeric>

#include "core/checked.h"
#include "exec/forward_impl.h"

namespace qinfer::exec {

Status ForwardImpl::RunLayer(const LayerWeights& weights, uint32_t layer,
                             absl::Span<const uint32_t> sequence_lengths, float* hidden,
                             const Tap& tap) {
  QINFER_RETURN_IF_ERROR(BeginLayer(weights, layer, sequence_lengths, hidden));
  return StepLayer(tap, Deadline()).status();
}

Status ForwardImpl::BeginLayer(const LayerWeights& weights, uint32_t layer,
                               absl::Span<const uint32_t> sequence_lengths, float* hidden) {
  if (model_ != nullptr)
    return MisuseError("a layer on its own needs a pass made by CreateForLayers");
  if (layer >= spec_.layers.size()) return MisuseError(StrCat("there is no layer ", layer));
  uint64_t tokens = 0;
  for (const uint32_t length : sequence_lengths) {
    if (length == 0 || length > max_position_) {
      return MisuseError(
          StrCat("a sequence of ", length, " tokens; 1 to ", max_position_, " are possible"));
    }
    tokens += length;
  }
  if (tokens == 0 || tokens > options_.max_batch_tokens) {
    return MisuseError(StrCat("a layer got ", tokens, " tokens; 1 to ", options_.max_batch_tokens,
                              " are possible"));
  }
  SetLayer(weights, layer);
  tokens_ = segments_ = 0;
  own_pages_ = true;
  ws_.hidden = {hidden, spec_.hidden_size};
  const model::AttentionSpec& a = layer_spec_->attention;
  const size_t page_bytes = FloatPageBytes(KvShapeOf(a));
  for (uint32_t p = 0; p < ws_.page_count; ++p) ws_.page_table[p] = ws_.pages + p * page_bytes;
  for (const uint32_t length : sequence_lengths) {
    Segment& segment = ws_.segments[segments_];
    segment = Segment();
    segment.first_token = tokens_;
    segment.tokens = segment.rope_length = length;
    for (uint32_t t = 0; t < length; ++t, ++tokens_) {
      ws_.positions[tokens_] = t;
      ws_.segment_of[tokens_] = segments_;
    }
    ++segments_;
  }
  phase_ = Phase::kEmbed;
  units_.Reset();
  pending_ = false;
  return OkStatus();
}

StatusOr<bool> ForwardImpl::StepLayer(const Tap& tap, const Deadline& deadline) {
  if (model_ != nullptr || phase_ == Phase::kDone) {
    return MisuseError("StepLayer without BeginLayer");
  }
  do {
    if (phase_ == Phase::kExpertsUp && weights_->windows != nullptr) {
      QINFER_ASSIGN_OR_RETURN(const bool loaded, LoadWindow(deadline));
      if (!loaded) return false;
    }
    if (!RunLayerPhase(deadline)) return false;
    NextLayerPhase(tap);
    if (phase_ == Phase::kDone) return true;
  } while (!deadline.Expired());
  return false;
}

// The experts of the next jobs.
StatusOr<bool> ForwardImpl::LoadWindow(const Deadline& deadline) {
  const uint32_t expert = ws_.jobs[window_begin_].expert;
  if (expert == model::kNoPart) return true;  // no more than the shared ones
  return weights_->windows->Load(expert, deadline);
}

bool ForwardImpl::RunLayerPhase(const Deadline& deadline) {
  switch (phase_) {
    case Phase::kEmbed:
      if (layer_spec_->attention.rope < 0) return true;
      return RunTokens(tokens_, deadline, [&](uint32_t token) { FillRopes(token); });
    case Phase::kFinalNorm:
      return RunTokens(tokens_, deadline, [&](uint32_t token) {
        FinishBranch(weights_->post_feed_forward_norm, token);
      });
    default:
      return RunPhase(deadline);
  }
}

// Attention works on one sequence at a time: they share the pages of the workspace.
void ForwardImpl::AttendTo(uint32_t segment) {
  segment_begin_ = segment;
  segment_end_ = segment + 1;
  token_begin_ = ws_.segments[segment].first_token;
  token_end_ = token_begin_ + ws_.segments[segment].tokens;
}

// As NextPhase, for one layer, and with a look at what linear weights take.
void ForwardImpl::NextLayerPhase(const Tap& tap) {
  using model::LinearRole;
  const auto go = [&](Phase phase) { phase_ = phase; };
  const auto show = [&](LinearRole role, const Workspace::Rows& x, uint32_t cols) {
    if (tap) tap(TapInput{layer_, role, x.data, x.stride, tokens_, cols});
  };
  const model::AttentionSpec& a = layer_spec_->attention;
  const uint32_t wide = layer_spec_->feed_forward.intermediate;
  switch (phase_) {
    case Phase::kAttentionNorm:
      show(weights_->attention.q_a.present() ? LinearRole::kQA : LinearRole::kQ, ws_.x,
           spec_.hidden_size);
      return go(Phase::kQkv);
    case Phase::kQueryNorm:
      show(LinearRole::kQ, ws_.q_a, a.q_rank);
      return go(Phase::kQueryUp);
    case Phase::kQkv:
    case Phase::kQueryUp: {
      const Phase next = phase_ == Phase::kQkv ? PhaseAfterQkv() : Phase::kAbsorb;
      if (next == Phase::kAbsorb) {
        for (uint32_t h = 0; h < a.heads; ++h) {
          show(LinearRole::kKB, {ws_.q.data + h * a.head_dim, ws_.q.stride},
               a.head_dim - a.rope_dim);
        }
      }
      AttendTo(0);
      return go(next);
    }
    case Phase::kAttention:
      if (segment_end_ < segments_) {
        AttendTo(segment_end_);
        return go(Phase::kRope);
      }
      if (a.kind != model::AttentionKind::kLatent) return LayerAttended(tap);
      for (uint32_t h = 0; h < a.heads; ++h) {
        show(LinearRole::kVB, {ws_.latent_out.data + h * a.latent_dim, ws_.latent_out.stride},
             a.latent_dim);
      }
      return go(Phase::kValueUp);
    case Phase::kValueUp:
      return LayerAttended(tap);
    case Phase::kOut:
      pending_ = true;
      pending_norm_ = weights_->post_attention_norm;
      return go(Phase::kFeedForwardNorm);
    case Phase::kFeedForwardNorm:
      if (wide > 0) show(LinearRole::kGate, ws_.x, spec_.hidden_size);
      return go(HasExperts() ? Phase::kRouter : Phase::kGateUp);
    case Phase::kRoute:
      Dispatch();
      if (gathers_) return go(Phase::kGather);
      [[fallthrough]];
    case Phase::kGather:
      ShowExperts(tap, LinearRole::kExpertGate);
      return go(Phase::kExpertsUp);
    case Phase::kExpertsUp:
      if (wide > 0 && window_end_ == jobs_) show(LinearRole::kDown, ws_.gate, wide);
      ShowExperts(tap, LinearRole::kExpertDown);
      return go(Phase::kExpertsDown);
    case Phase::kExpertsDown:
      if (window_end_ == jobs_) return go(Phase::kCombine);
      NextWindow();
      if (gathers_) return go(Phase::kGather);
      ShowExperts(tap, LinearRole::kExpertGate);
      return go(Phase::kExpertsUp);
    case Phase::kGateUp:
      if (!FusesGateUp()) return go(Phase::kActivate);
      [[fallthrough]];
    case Phase::kActivate:
      show(LinearRole::kDown, ws_.gate, wide);
      return go(Phase::kDown);
    case Phase::kCombine:
    case Phase::kDown:
      return go(Phase::kFinalNorm);
    case Phase::kFinalNorm:
      return go(Phase::kDone);
    default:
      return go(static_cast<Phase>(static_cast<uint8_t>(phase_) + 1));
  }
}

void ForwardImpl::LayerAttended(const Tap& tap) {
  const model::AttentionSpec& a = layer_spec_->attention;
  if (tap) {
    tap(TapInput{layer_, model::LinearRole::kO, ws_.attention.data, ws_.attention.stride, tokens_,
                 a.heads * a.v_head_dim});
  }
  const bool codes = CodeBlock({&weights_->attention.o}) != 0;
  phase_ = codes ? Phase::kAttentionQuantize : Phase::kOut;
}

// What the experts at work take, each its own tokens.
void ForwardImpl::ShowExperts(const Tap& tap, model::LinearRole role) {
  const bool middle = role == model::LinearRole::kExpertDown;
  const uint32_t cols = middle ? layer_spec_->feed_forward.expert_intermediate : spec_.hidden_size;
  for (uint32_t j = window_begin_; tap && j < window_end_; ++j) {
    const ExpertJob& job = ws_.jobs[j];
    if (job.expert == model::kNoPart) continue;
    const Workspace::Rows& x = middle ? job.middle.x : job.x.x;
    tap(TapInput{layer_, role, x.data, x.stride, job.tokens, cols, job.expert});
  }
}

Status ForwardImpl::Embed(const EndWeights& ends, absl::Span<const int32_t> tokens, float* hidden) {
  for (const int32_t token : tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= spec_.vocab_size) {
      return MisuseError(
          StrCat("token id ", token, " is outside the vocabulary of ", spec_.vocab_size));
    }
  }
  uint32_t next = 0;
  RunUnits(context_.executor, ws_.lanes, Deadline(), static_cast<uint32_t>(tokens.size()), &next,
           [&](uint32_t, uint32_t t) {
             float* row = hidden + size_t{t} * spec_.hidden_size;
             kernels_->decode_row(ends.embedding.matrix, static_cast<uint32_t>(tokens[t]), row);
             if (spec_.embedding_scale != 1.0f) {
               kernels_->scale(row, spec_.embedding_scale, spec_.hidden_size);
             }
           });
  return OkStatus();
}

Status ForwardImpl::Head(const EndWeights& ends, const float* hidden, uint32_t tokens,
                         float* logits, const Tap& tap) {
  if (model_ != nullptr) return MisuseError("Head needs a pass made by CreateForLayers");
  not_finite_ = false;
  units_.Reset();
  for (uint32_t first = 0; first < tokens; first += options_.max_batch_tokens) {
    const uint32_t count = std::min(options_.max_batch_tokens, tokens - first);
    const LinearInput input = WithPlanes(Input(ws_.x, ws_.x_codes, {&ends.head}));
    RunTokens(count, Deadline(), [&](uint32_t t) {
      kernels_->rms_norm(hidden + size_t{first + t} * spec_.hidden_size, ends.final_norm,
                         spec_.hidden_size, spec_.norm_epsilon, input.x.row(t));
      QuantizeHidden(input, t, ws_.branch.row(t));
    });
    if (tap) {
      tap(TapInput{UINT32_MAX, model::LinearRole::kHead, input.x.data, input.x.stride, count,
                   spec_.hidden_size});
    }
    RunHead(ends.head, input, count, logits + size_t{first} * spec_.vocab_size, Deadline());
  }
  if (not_finite_) {
    return FormatError(
        "the model's logits are not finite: its weights are corrupt, or its activations overflow");
  }
  return OkStatus();
}

}  // namespace qinfer::exec
