// A layer as it will run: views of the packed tensors that a group has kept, with norms and biases
// read from the source.
#include "exec/activation_block.h"
#include "quant/group_work.h"
#include "quant/hidden_states.h"

namespace qinfer::quant {

StatusOr<const float*> GroupWork::MakeVector(const model::TensorRef& ref, uint32_t n, bool norm) {
  if (!ref.present()) return static_cast<const float*>(nullptr);
  QINFER_ASSIGN_OR_RETURN(
      Buffer vector, Buffer::Create(shared_.context.memory, n * sizeof(float), "a norm or bias"));
  QINFER_RETURN_IF_ERROR(ReadSmall(*shared_.checkpoint, ref, n,
                                   norm ? shared_.spec->norm_weight_offset : 0.0f, shared_.context,
                                   vector.as<float>()));
  vectors_.push_back(std::move(vector));
  return static_cast<const float*>(vectors_.back().as<float>());
}

StatusOr<exec::Linear> GroupWork::MakeLinear(const model::TensorRef& weight,
                                             const model::TensorRef& bias, model::LinearRole role) {
  exec::Linear linear;
  if (!weight.present()) return linear;
  for (size_t i = group_.begin; i < group_.end; ++i) {
    const TensorPlan& plan = shared_.resolved->tensors[i];
    if (plan.name != weight.name) continue;
    const Buffer& kept = kept_[i - group_.begin];
    // A range of rows of a fused tensor starts at a panel, or kernels cannot take it in place.
    const uint64_t rows = weight.rows != 0 ? weight.rows : plan.rows;
    if (weight.row_begin % kernels::kPanelRows != 0 || weight.row_begin + rows > plan.rows) {
      return UnsupportedError(StrCat("rows ", weight.row_begin, " to ", weight.row_begin + rows,
                                     " of tensor \"", plan.name,
                                     "\" do not start at a multiple of 16"));
    }
    const uint64_t begin = weight.row_begin / kernels::kPanelRows * plan.panel_bytes;
    const uint64_t bytes =
        (rows + kernels::kPanelRows - 1) / kernels::kPanelRows * plan.panel_bytes;
    linear.format = plan.format;
    linear.activation_block = exec::DefaultActivationBlock(role, plan.format);
    QINFER_ASSIGN_OR_RETURN(
        linear.matrix,
        weights::View(plan.format, rows, plan.cols,
                      absl::MakeConstSpan(kept.as<const uint8_t>() + begin, bytes), plan.name));
    QINFER_ASSIGN_OR_RETURN(linear.bias, MakeVector(bias, static_cast<uint32_t>(rows), false));
    return linear;
  }
  return InternalError(StrCat("tensor \"", weight.name, "\" is not in its layer's group"));
}

Status GroupWork::BuildLayer() {
  const model::LayerSpec& layer = shared_.spec->layers[group_.layer];
  const model::AttentionSpec& a = layer.attention;
  const model::FeedForwardSpec& f = layer.feed_forward;
  const uint32_t n = shared_.spec->hidden_size;
  exec::LayerWeights& w = weights_;
  using model::LinearRole;
  QINFER_ASSIGN_OR_RETURN(w.attention_norm, MakeVector(layer.attention_norm, n, true));
  QINFER_ASSIGN_OR_RETURN(w.post_attention_norm, MakeVector(layer.post_attention_norm, n, true));
  QINFER_ASSIGN_OR_RETURN(w.feed_forward_norm, MakeVector(layer.feed_forward_norm, n, true));
  QINFER_ASSIGN_OR_RETURN(w.post_feed_forward_norm,
                          MakeVector(layer.post_feed_forward_norm, n, true));
  const uint32_t q_norm = a.wide_norms ? a.heads * a.head_dim : a.head_dim;
  const uint32_t k_norm = a.wide_norms ? a.kv_heads * a.head_dim : a.head_dim;
  QINFER_ASSIGN_OR_RETURN(w.attention.q_norm, MakeVector(a.q_norm, q_norm, true));
  QINFER_ASSIGN_OR_RETURN(w.attention.k_norm, MakeVector(a.k_norm, k_norm, true));
  QINFER_ASSIGN_OR_RETURN(w.attention.sinks, MakeVector(a.sinks, a.heads, false));
  QINFER_ASSIGN_OR_RETURN(w.attention.q, MakeLinear(a.q, a.q_bias, LinearRole::kQ));
  QINFER_ASSIGN_OR_RETURN(w.attention.k, MakeLinear(a.k, a.k_bias, LinearRole::kK));
  QINFER_ASSIGN_OR_RETURN(w.attention.v, MakeLinear(a.v, a.v_bias, LinearRole::kV));
  QINFER_ASSIGN_OR_RETURN(w.attention.o, MakeLinear(a.o, a.o_bias, LinearRole::kO));
  QINFER_ASSIGN_OR_RETURN(w.feed_forward.gate, MakeLinear(f.gate, f.gate_bias, LinearRole::kGate));
  QINFER_ASSIGN_OR_RETURN(w.feed_forward.up, MakeLinear(f.up, f.up_bias, LinearRole::kUp));
  QINFER_ASSIGN_OR_RETURN(w.feed_forward.down, MakeLinear(f.down, f.down_bias, LinearRole::kDown));
  return OkStatus();
}

}  // namespace qinfer::quant
