// A layer as it will run: views of the packed tensors that a group has kept, with norms and biases
// read from the source.
#include <algorithm>

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

StatusOr<const TensorPlan*> GroupWork::PlanNamed(const std::string& name, size_t* index) const {
  for (size_t i = group_.begin; i < group_.end; ++i) {
    if (shared_.resolved->tensors[i].name != name) continue;
    *index = i - group_.begin;
    return &shared_.resolved->tensors[i];
  }
  return InternalError(StrCat("tensor \"", name, "\" is not in its layer's group"));
}

StatusOr<exec::Linear> GroupWork::MakeLinear(const model::TensorRef& weight,
                                             const model::TensorRef& bias, model::LinearRole role) {
  exec::Linear linear;
  if (!weight.present()) return linear;
  size_t index = 0;
  QINFER_ASSIGN_OR_RETURN(const TensorPlan* plan, PlanNamed(weight.name, &index));
  const Buffer& kept = kept_[index];
  // A range of rows of a fused tensor starts at a panel, or kernels cannot take it in place.
  const uint64_t rows = weight.rows != 0 ? weight.rows : plan->rows;
  if (weight.row_begin % kernels::kPanelRows != 0 || weight.row_begin + rows > plan->rows) {
    return UnsupportedError(StrCat("rows ", weight.row_begin, " to ", weight.row_begin + rows,
                                   " of tensor \"", plan->name,
                                   "\" do not start at a multiple of 16"));
  }
  const uint64_t begin = weight.row_begin / kernels::kPanelRows * plan->panel_bytes;
  const uint64_t bytes = (rows + kernels::kPanelRows - 1) / kernels::kPanelRows * plan->panel_bytes;
  linear.format = plan->format;
  linear.activation_block = exec::DefaultActivationBlock(role, plan->format);
  linear.activation_scale = StaticScale(*plan);
  QINFER_ASSIGN_OR_RETURN(
      linear.matrix,
      weights::View(plan->format, rows, plan->cols,
                    absl::MakeConstSpan(kept.as<const uint8_t>() + begin, bytes), plan->name));
  QINFER_ASSIGN_OR_RETURN(linear.bias, MakeVector(bias, static_cast<uint32_t>(rows), false));
  return linear;
}

StatusOr<std::vector<exec::Linear>> GroupWork::MakeStack(const model::TensorRef& weight,
                                                         const model::TensorRef& bias,
                                                         uint32_t parts, model::LinearRole role) {
  std::vector<exec::Linear> stack;
  if (!weight.present()) return stack;
  for (uint32_t p = 0; p < parts; ++p) {
    exec::Linear linear;
    if (weight.per_part()) {
      QINFER_ASSIGN_OR_RETURN(linear, MakeLinear(model::PartRef(weight, p), {}, role));
    } else {
      size_t index = 0;
      QINFER_ASSIGN_OR_RETURN(const TensorPlan* plan, PlanNamed(weight.name, &index));
      const uint64_t bytes = plan->part_panels() * plan->panel_bytes;
      linear.format = plan->format;
      linear.activation_block = exec::DefaultActivationBlock(role, plan->format);
      QINFER_ASSIGN_OR_RETURN(
          linear.matrix,
          weights::View(plan->format, plan->rows, plan->cols,
                        absl::MakeConstSpan(kept_[index].as<const uint8_t>() + p * bytes, bytes),
                        plan->name));
    }
    model::TensorRef part = model::PartRef(bias, p);
    if (bias.present() && !bias.per_part()) part.row_begin += p * bias.stride;
    QINFER_ASSIGN_OR_RETURN(linear.bias, MakeVector(part, linear.matrix.rows, false));
    stack.push_back(linear);
  }
  return stack;
}

// As BuildLayer makes them, with what one of them is read through.
uint64_t GroupWork::VectorBytes(const model::ModelSpec& spec, uint32_t layer) {
  const model::LayerSpec& l = spec.layers[layer];
  const model::AttentionSpec& a = l.attention;
  const model::FeedForwardSpec& f = l.feed_forward;
  const uint64_t n = spec.hidden_size, heads = a.heads, kv_heads = a.kv_heads;
  const uint64_t experts = f.experts, wide = experts * f.expert_intermediate;
  const uint64_t q_norm = (a.wide_norms ? heads : 1) * a.head_dim;
  const uint64_t k_norm = (a.wide_norms ? kv_heads : 1) * a.head_dim;
  const struct {
    const model::TensorRef& ref;
    uint64_t count;
  } vectors[] = {{l.attention_norm, n},
                 {l.post_attention_norm, n},
                 {l.feed_forward_norm, n},
                 {l.post_feed_forward_norm, n},
                 {a.q_norm, q_norm},
                 {a.k_norm, k_norm},
                 {a.sinks, heads},
                 {a.q_a_norm, a.q_rank},
                 {a.kv_a_norm, a.latent_dim},
                 {a.q_bias, heads * a.head_dim},
                 {a.k_bias, kv_heads * a.head_dim},
                 {a.v_bias, kv_heads * a.v_head_dim},
                 {a.o_bias, n},
                 {a.q_a_bias, a.q_rank},
                 {a.kv_a_bias, uint64_t{a.latent_dim} + a.rope_dim},
                 {f.gate_bias, f.intermediate},
                 {f.up_bias, f.intermediate},
                 {f.down_bias, n},
                 {f.router_bias, experts},
                 {f.router_correction, experts},
                 {f.expert_gate_bias, wide},
                 {f.expert_up_bias, wide},
                 {f.expert_down_bias, experts * n}};
  uint64_t sum = 0, widest = 0;
  for (const auto& vector : vectors) {
    if (!vector.ref.present()) continue;
    sum += vector.count;
    widest = std::max(widest, vector.count);
  }
  return (sum + widest) * sizeof(float);
}

Status GroupWork::BuildLayer() {
  // Matrices as the output names them, vectors from the source.
  const model::LayerSpec& layer = shared_.spec->layers[group_.layer];
  const model::LayerSpec& out = shared_.resolved->spec.layers[group_.layer];
  const model::AttentionSpec &a = layer.attention, &oa = out.attention;
  const model::FeedForwardSpec &f = layer.feed_forward, &of = out.feed_forward;
  const uint32_t n = shared_.spec->hidden_size;
  exec::LayerWeights& w = weights_;
  exec::AttentionWeights& wa = w.attention;
  exec::FeedForwardWeights& wf = w.feed_forward;
  using model::LinearRole;
  QINFER_ASSIGN_OR_RETURN(w.attention_norm, MakeVector(layer.attention_norm, n, true));
  QINFER_ASSIGN_OR_RETURN(w.post_attention_norm, MakeVector(layer.post_attention_norm, n, true));
  QINFER_ASSIGN_OR_RETURN(w.feed_forward_norm, MakeVector(layer.feed_forward_norm, n, true));
  QINFER_ASSIGN_OR_RETURN(w.post_feed_forward_norm,
                          MakeVector(layer.post_feed_forward_norm, n, true));
  const uint32_t q_norm = a.wide_norms ? a.heads * a.head_dim : a.head_dim;
  const uint32_t k_norm = a.wide_norms ? a.kv_heads * a.head_dim : a.head_dim;
  QINFER_ASSIGN_OR_RETURN(wa.q_norm, MakeVector(a.q_norm, q_norm, true));
  QINFER_ASSIGN_OR_RETURN(wa.k_norm, MakeVector(a.k_norm, k_norm, true));
  QINFER_ASSIGN_OR_RETURN(wa.sinks, MakeVector(a.sinks, a.heads, false));
  QINFER_ASSIGN_OR_RETURN(wa.q_a_norm, MakeVector(a.q_a_norm, a.q_rank, true));
  QINFER_ASSIGN_OR_RETURN(wa.kv_a_norm, MakeVector(a.kv_a_norm, a.latent_dim, true));
  QINFER_ASSIGN_OR_RETURN(wa.q, MakeLinear(oa.q, a.q_bias, LinearRole::kQ));
  QINFER_ASSIGN_OR_RETURN(wa.k, MakeLinear(oa.k, a.k_bias, LinearRole::kK));
  QINFER_ASSIGN_OR_RETURN(wa.v, MakeLinear(oa.v, a.v_bias, LinearRole::kV));
  QINFER_ASSIGN_OR_RETURN(wa.o, MakeLinear(oa.o, a.o_bias, LinearRole::kO));
  QINFER_ASSIGN_OR_RETURN(wa.q_a, MakeLinear(oa.q_a, a.q_a_bias, LinearRole::kQA));
  QINFER_ASSIGN_OR_RETURN(wa.kv_a, MakeLinear(oa.kv_a, a.kv_a_bias, LinearRole::kKvA));
  QINFER_ASSIGN_OR_RETURN(wa.k_b, MakeStack(oa.k_b, {}, a.heads, LinearRole::kKB));
  QINFER_ASSIGN_OR_RETURN(wa.v_b, MakeStack(oa.v_b, {}, a.heads, LinearRole::kVB));
  QINFER_ASSIGN_OR_RETURN(wf.gate, MakeLinear(of.gate, f.gate_bias, LinearRole::kGate));
  QINFER_ASSIGN_OR_RETURN(wf.up, MakeLinear(of.up, f.up_bias, LinearRole::kUp));
  QINFER_ASSIGN_OR_RETURN(wf.down, MakeLinear(of.down, f.down_bias, LinearRole::kDown));
  if (f.kind != model::FeedForwardKind::kExperts) return OkStatus();
  QINFER_ASSIGN_OR_RETURN(wf.router, MakeLinear(of.router, f.router_bias, LinearRole::kGate));
  QINFER_ASSIGN_OR_RETURN(wf.shared_gate, MakeLinear(of.shared_gate, {}, LinearRole::kGate));
  QINFER_ASSIGN_OR_RETURN(wf.router_correction, MakeVector(f.router_correction, f.experts, false));
  QINFER_ASSIGN_OR_RETURN(wf.expert_gate, MakeStack(of.expert_gate, f.expert_gate_bias, f.experts,
                                                    LinearRole::kExpertGate));
  QINFER_ASSIGN_OR_RETURN(
      wf.expert_up, MakeStack(of.expert_up, f.expert_up_bias, f.experts, LinearRole::kExpertUp));
  QINFER_ASSIGN_OR_RETURN(wf.expert_down, MakeStack(of.expert_down, f.expert_down_bias, f.experts,
                                                    LinearRole::kExpertDown));
  return OkStatus();
}

}  // namespace qinfer::quant
