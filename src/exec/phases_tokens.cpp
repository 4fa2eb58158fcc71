// Phases with one unit a token: embedding, norms, residual sums, quantization of activations.
#include <algorithm>

#include "exec/forward_impl.h"

namespace qinfer::exec {

// hidden += branch, through the post norm where the model has one.
void ForwardImpl::FinishBranch(const float* post_norm, uint32_t token) {
  float* branch = ws_.branch.row(token);
  if (post_norm != nullptr) {
    kernels_->rms_norm(branch, post_norm, spec_.hidden_size, spec_.norm_epsilon, branch);
  }
  kernels_->add(ws_.hidden.row(token), branch, spec_.hidden_size);
}

void ForwardImpl::FillRopes(uint32_t token) {
  for (size_t r = 0; r < ropes_.size(); ++r) {
    const size_t at = (r * options_.max_batch_tokens + token) * ws_.rope_stride;
    const bool is_long =
        ws_.segments[ws_.segment_of[token]].rope_length > ropes_[r].switch_length();
    ropes_[r].Fill(ws_.positions[token], is_long, ws_.cosines + at, ws_.sines + at);
  }
}

void ForwardImpl::EmbedToken(uint32_t token) {
  float* hidden = ws_.hidden.row(token);
  kernels_->decode_row(model_->ends().embedding.matrix, static_cast<uint32_t>(ws_.tokens[token]),
                       hidden);
  if (spec_.embedding_scale != 1.0f) {
    kernels_->scale(hidden, spec_.embedding_scale, spec_.hidden_size);
  }
  FillRopes(token);
}

// Without a weight the branch takes the hidden state as it is.
void ForwardImpl::NormToken(const float* weight, const LinearInput& out, uint32_t token) {
  if (pending_) FinishBranch(pending_norm_, token);
  const float* hidden = ws_.hidden.row(token);
  if (weight != nullptr) {
    kernels_->rms_norm(hidden, weight, spec_.hidden_size, spec_.norm_epsilon, out.x.row(token));
  } else {
    std::copy(hidden, hidden + spec_.hidden_size, out.x.row(token));
  }
  if (out.int8) kernels_->quantize(out.x.row(token), spec_.hidden_size, token, out.codes);
}

}  // namespace qinfer::exec
