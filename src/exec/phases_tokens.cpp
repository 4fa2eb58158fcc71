// Phases with one unit a token: embedding, norms, residual sums, quantization of activations.
#include <algorithm>
#include <cmath>

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
    const uint32_t length = ws_.segments[ws_.segment_of[token]].rope_length;
    ropes_[r].Fill(ws_.positions[token], length, ws_.cosines + at, ws_.sines + at);
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

namespace {

// A block of the second plane holds what the first leaves over where the block's scale, which
// bounds that, is at least this many times the root mean square of the row's scales: outliers,
// about a sixth of all blocks and most of the error (docs/performance.md). The others are zero, and
// kernels pass over them.
constexpr float kRestFrom = 1.0f;

}  // namespace

// Codes of a normed hidden state, and codes of the rest where the input takes both. `rest`
// [hidden_size] is scratch.
void ForwardImpl::QuantizeHidden(const LinearInput& input, uint32_t row, float* rest) {
  if (!input.int8) return;
  const kernels::Activations& codes = input.codes;
  const float* x = input.x.row(row);
  const uint32_t cols = spec_.hidden_size, first = codes.planes * row;
  Quantize(input, codes, x, cols, first);
  if (codes.planes == 1) return;
  const int8_t* code = codes.codes + first * codes.code_stride;
  const float* scales = codes.scales + first * codes.scale_stride;
  const uint32_t blocks = (cols + codes.block - 1) / codes.block;
  const uint32_t padded =
      (cols + kernels::kInputGranule - 1) / kernels::kInputGranule * kernels::kInputGranule;
  kernels::Activations second = codes;
  second.codes += (first + 1) * codes.code_stride;
  second.scales += (first + 1) * codes.scale_stride;
  second.sums += (first + 1) * codes.sum_stride;
  std::fill_n(second.codes, padded, int8_t{0});
  std::fill_n(second.scales, blocks, 0.0f);
  std::fill_n(second.sums, padded / 16, 0);
  float squares = 0.0f;
  for (uint32_t b = 0; b < blocks; ++b) squares += scales[b] * scales[b];
  const float least = kRestFrom * std::sqrt(squares / static_cast<float>(blocks));
  for (uint32_t b = 0, begin = 0; b < blocks; ++b, begin += codes.block) {
    if (!(scales[b] >= least)) continue;
    const uint32_t size = std::min(codes.block, cols - begin);
    for (uint32_t i = 0; i < size; ++i)
      rest[i] = x[begin + i] - scales[b] * static_cast<float>(code[begin + i]);
    kernels::Activations block = second;
    block.codes += begin;
    block.scales += b;
    block.sums += begin / 16;
    kernels_->quantize(rest, size, 0, block);
  }
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
