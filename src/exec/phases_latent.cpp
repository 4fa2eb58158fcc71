// Latent attention beside attention itself: queries go through their head's part of kv_b into the
// latent space before it, sums of latents come back after it. Keys and values of heads never exist
// (in the absorbed form: phases_expand.cpp has the other).
#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "exec/forward_impl.h"

namespace qinfer::exec {

LinearInput ForwardImpl::AttentionInput() const {
  const AttentionWeights& w = weights_->attention;
  if (layer_spec_->attention.kind == model::AttentionKind::kLatent) {
    return Input(ws_.x, ws_.x_codes, {w.q_a.present() ? &w.q_a : &w.q, &w.kv_a});
  }
  return WithPlanes(Input(ws_.x, ws_.x_codes, {&w.q, &w.k, &w.v}));
}

Phase ForwardImpl::PhaseAfterQkv() const {
  if (layer_spec_->attention.kind != model::AttentionKind::kLatent) return Phase::kRope;
  return weights_->attention.q_a.present() ? Phase::kQueryNorm : PhaseOfQueries();
}

ForwardImpl::HeadPhase ForwardImpl::PlanHeads(const std::vector<Linear>& weights) const {
  const uint32_t heads = static_cast<uint32_t>(weights.size());
  const kernels::Matrix& matrix = weights[0].matrix;
  const uint64_t work = uint64_t{matrix.padded_cols()} * matrix.panels() * kernels::kPanelRows;
  const uint64_t unit = TakesCodes(weights[0]) ? kUnitCodes : kUnitFloats;
  HeadPhase phase;
  phase.token_tile = std::min(tokens_, kMaxTokenTile);
  phase.tiles = CeilDiv(tokens_, phase.token_tile);
  const uint64_t by_work = std::max<uint64_t>(1, unit / (work * phase.token_tile));
  const uint32_t by_lanes = ws_.lanes == 1 ? heads : CeilDiv(heads * phase.tiles, ws_.lanes * 4);
  phase.heads_per_unit = static_cast<uint32_t>(
      std::min<uint64_t>(heads, std::max<uint64_t>(1, std::min<uint64_t>(by_work, by_lanes))));
  phase.chunks = CeilDiv(heads, phase.heads_per_unit);
  return phase;
}

// What one head's weight reads in a unit, whose tokens are counted from 0 here: `x` floats, and the
// lane's codes.
LinearInput ForwardImpl::HeadInput(const Linear& weight, const float* x, size_t stride,
                                   uint32_t lane) const {
  return Input({const_cast<float*>(x), stride},
               FromToken(ws_.head_tile_codes, lane * kMaxTokenTile), {&weight});
}

// The rotated part of a query, to where attention reads it.
void ForwardImpl::RotateQuery(uint32_t token, uint32_t head) {
  const model::AttentionSpec& a = layer_spec_->attention;
  const float* from = ws_.q.row(token) + head * a.head_dim + (a.head_dim - a.rope_dim);
  float* to = ws_.absorbed.row(token) + head * (a.latent_dim + a.rope_dim) + a.latent_dim;
  std::memcpy(to, from, a.rope_dim * sizeof(float));
  Rotate(to, token);
}

void ForwardImpl::AbsorbHead(uint32_t lane, uint32_t head, uint32_t first_token, uint32_t count) {
  const model::AttentionSpec& a = layer_spec_->attention;
  const Linear& weight = weights_->attention.k_b[head];
  const LinearInput input =
      HeadInput(weight, ws_.q.row(first_token) + head * a.head_dim, ws_.q.stride, lane);
  for (uint32_t t = 0; t < count; ++t) {
    if (input.int8) Quantize(input, input.codes, input.x.row(t), a.head_dim - a.rope_dim, t);
    RotateQuery(first_token + t, head);
  }
  const Workspace::Rows out = {ws_.absorbed.row(first_token) + head * (a.latent_dim + a.rope_dim),
                               ws_.absorbed.stride};
  Multiply(weight, input, 0, weight.matrix.panels(), 0, count, out, lane);
}

void ForwardImpl::ValueHead(uint32_t lane, uint32_t head, uint32_t first_token, uint32_t count) {
  const model::AttentionSpec& a = layer_spec_->attention;
  const Linear& weight = weights_->attention.v_b[head];
  const LinearInput input = HeadInput(weight, ws_.latent_out.row(first_token) + head * a.latent_dim,
                                      ws_.latent_out.stride, lane);
  for (uint32_t t = 0; input.int8 && t < count; ++t) {
    Quantize(input, input.codes, input.x.row(t), a.latent_dim, t);
  }
  const Workspace::Rows out = {ws_.attention.row(first_token) + head * a.v_head_dim,
                               ws_.attention.stride};
  Multiply(weight, input, 0, weight.matrix.panels(), 0, count, out, lane);
}

bool ForwardImpl::RunHeads(const std::vector<Linear>& weights, const Deadline& deadline,
                           bool absorb) {
  const HeadPhase phase = PlanHeads(weights);
  const uint32_t heads = static_cast<uint32_t>(weights.size());
  return units_.Run(context_.executor, ws_.lanes, deadline, phase.chunks * phase.tiles,
                    [&](uint32_t lane, uint32_t unit) {
                      const uint32_t first = unit / phase.chunks * phase.token_tile;
                      const uint32_t count = std::min(phase.token_tile, tokens_ - first);
                      const uint32_t begin = unit % phase.chunks * phase.heads_per_unit;
                      const uint32_t end = std::min(heads, begin + phase.heads_per_unit);
                      for (uint32_t head = begin; head < end; ++head) {
                        if (absorb) {
                          AbsorbHead(lane, head, first, count);
                        } else {
                          ValueHead(lane, head, first, count);
                        }
                      }
                    });
}

}  // namespace qinfer::exec
