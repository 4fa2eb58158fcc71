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
  if (model_ != nullptr) return MisuseError("RunLayer needs a pass made by CreateForLayers");
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
    return MisuseError(StrCat("RunLayer got ", tokens, " tokens; 1 to ", options_.max_batch_tokens,
                              " are possible"));
  }
  SetLayer(weights, layer);
  tokens_ = segments_ = 0;
  own_pages_ = true;
  ws_.hidden = {hidden, spec_.hidden_size};
  const model::AttentionSpec& a = layer_spec_->attention;
  const KvShape kv = KvShapeOf(a);
  size_t page_bytes = kernels::KPlaneBytes(kernels::KvType::kF32, kv.key_dim);
  if (!kv.latent) page_bytes += kernels::VPlaneBytes(kernels::KvType::kF32, kv.value_dim);
  page_bytes *= kv.heads;
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
  const Deadline never;
  const auto run = [&](Phase phase) {
    phase_ = phase;
    next_ = 0;
    RunPhase(never);
  };
  const auto show = [&](model::LinearRole role, const Workspace::Rows& x, uint32_t cols) {
    if (tap) tap(TapInput{layer, role, x.data, x.stride, tokens_, cols});
  };
  next_ = 0;
  if (a.rope >= 0) RunTokens(tokens_, never, [&](uint32_t token) { FillRopes(token); });
  pending_ = false;
  run(Phase::kAttentionNorm);
  show(weights.attention.q_a.present() ? model::LinearRole::kQA : model::LinearRole::kQ, ws_.x,
       spec_.hidden_size);
  run(Phase::kQkv);
  if (kv.latent) {
    if (weights.attention.q_a.present()) {
      run(Phase::kQueryNorm);
      show(model::LinearRole::kQ, ws_.q_a, a.q_rank);
      run(Phase::kQueryUp);
    }
    const uint32_t nope = a.head_dim - a.rope_dim;
    for (uint32_t h = 0; h < a.heads; ++h) {
      show(model::LinearRole::kKB, {ws_.q.data + h * a.head_dim, ws_.q.stride}, nope);
    }
    run(Phase::kAbsorb);
  }
  for (uint32_t s = 0; s < segments_; ++s) {
    segment_begin_ = s;
    segment_end_ = s + 1;
    token_begin_ = ws_.segments[s].first_token;
    token_end_ = token_begin_ + ws_.segments[s].tokens;
    run(Phase::kRope);
    run(Phase::kAttention);
  }
  if (kv.latent) {
    for (uint32_t h = 0; h < a.heads; ++h) {
      show(model::LinearRole::kVB, {ws_.latent_out.data + h * a.latent_dim, ws_.latent_out.stride},
           a.latent_dim);
    }
    run(Phase::kValueUp);
  }
  show(model::LinearRole::kO, ws_.attention, a.heads * a.v_head_dim);
  if (CodeBlock({&weights.attention.o}) != 0) run(Phase::kAttentionQuantize);
  run(Phase::kOut);
  pending_ = true;
  pending_norm_ = weights.post_attention_norm;
  run(Phase::kFeedForwardNorm);
  const uint32_t wide = layer_spec_->feed_forward.intermediate;
  if (wide > 0) show(model::LinearRole::kGate, ws_.x, spec_.hidden_size);
  if (HasExperts()) {
    run(Phase::kRouter);
    run(Phase::kRoute);
    Dispatch();
    if (gathers_) run(Phase::kGather);
    const auto show_experts = [&](model::LinearRole role, bool middle, uint32_t cols) {
      for (uint32_t j = 0; tap && j < jobs_; ++j) {
        const ExpertJob& job = ws_.jobs[j];
        if (job.expert == model::kNoPart) continue;
        const Workspace::Rows& x = middle ? job.middle.x : job.x.x;
        tap(TapInput{layer, role, x.data, x.stride, job.tokens, cols, job.expert});
      }
    };
    show_experts(model::LinearRole::kExpertGate, false, spec_.hidden_size);
    run(Phase::kExpertsUp);
    if (wide > 0) show(model::LinearRole::kDown, ws_.gate, wide);
    show_experts(model::LinearRole::kExpertDown, true,
                 layer_spec_->feed_forward.expert_intermediate);
    run(Phase::kExpertsDown);
    run(Phase::kCombine);
  } else {
    run(Phase::kGateUp);
    if (!FusesGateUp()) run(Phase::kActivate);
    show(model::LinearRole::kDown, ws_.gate, wide);
    run(Phase::kDown);
  }
  next_ = 0;
  RunTokens(tokens_, never,
            [&](uint32_t token) { FinishBranch(weights.post_feed_forward_norm, token); });
  phase_ = Phase::kDone;
  return OkStatus();
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
  for (uint32_t first = 0; first < tokens; first += options_.max_batch_tokens) {
    const uint32_t count = std::min(options_.max_batch_tokens, tokens - first);
    const LinearInput input = WithPlanes(Input(ws_.x, ws_.x_codes, {&ends.head}));
    next_ = 0;
    RunTokens(count, Deadline(), [&](uint32_t t) {
      kernels_->rms_norm(hidden + size_t{first + t} * spec_.hidden_size, ends.final_norm,
                         spec_.hidden_size, spec_.norm_epsilon, input.x.row(t));
      QuantizeHidden(input, t, ws_.branch.row(t));
    });
    if (tap) {
      tap(TapInput{UINT32_MAX, model::LinearRole::kHead, input.x.data, input.x.stride, count,
                   spec_.hidden_size});
    }
    next_ = 0;
    RunHead(ends.head, input, count, logits + size_t{first} * spec_.vocab_size, Deadline());
  }
  if (not_finite_) {
    return FormatError(
        "the model's logits are not finite: its weights are corrupt, or its activations overflow");
  }
  return OkStatus();
}

}  // namespace qinfer::exec
