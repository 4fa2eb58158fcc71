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
    const size_t at = RopeRow(r, token);
    const bool is_long =
        ws_.segments[ws_.segment_of[token]].rope_length > ropes_[r].switch_length();
    ropes_[r].Fill(ws_.positions[token], is_long, ws_.cosines + at, ws_.sines + at);
  }
}

void ForwardImpl::Rotate(float* head, uint32_t token) const {
  if (layer_spec_->attention.rope < 0) return;
  const size_t index = static_cast<size_t>(layer_spec_->attention.rope);
  const size_t at = RopeRow(index, token);
  kernels_->rope(head, ws_.cosines + at, ws_.sines + at, ropes_[index].half() * 2,
                 ropes_[index].interleaved());
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

// Codes of a normed hidden state, and codes of the rest where the input takes both. `rest`
// [hidden_size] is scratch.
void ForwardImpl::QuantizeHidden(const LinearInput& input, uint32_t row, float* rest) {
  if (!input.int8) return;
  const kernels::Activations& codes = input.codes;
  const float* x = input.x.row(row);
  const uint32_t first = codes.planes * row;
  Quantize(input, codes, x, spec_.hidden_size, first);
  if (codes.planes == 1) return;
  const int8_t* code = codes.codes + first * codes.code_stride;
  const float* scales = codes.scales + first * codes.scale_stride;
  for (uint32_t begin = 0; begin < spec_.hidden_size; begin += codes.block) {
    const uint32_t end = std::min(begin + codes.block, spec_.hidden_size);
    const float scale = scales[begin / codes.block];
    for (uint32_t i = begin; i < end; ++i) rest[i] = x[i] - scale * static_cast<float>(code[i]);
  }
  kernels_->quantize(rest, spec_.hidden_size, first + 1, codes);
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
  QuantizeHidden(out, token, ws_.branch.row(token));
}

}  // namespace qinfer::exec
