// Every tensor that a specification names, with the shape it implies. Used to validate a checkpoint
// and to plan and load it.
#pragma once

#include <cstdint>

#include "model/spec.h"

namespace qinfer::model {

struct TensorUse {
  const TensorRef* ref;
  uint32_t rows, cols;  // a vector has rows 1
  bool vector;
  bool norm = false;   // norm_weight_offset applies
  uint32_t parts = 1;  // of a stack: rows and cols are those of one part
};

// A tensor of each part in [begin, end), or what holds all parts.
template <typename F>
void ForEachStackTensor(const TensorRef& ref, uint32_t begin, uint32_t end, const TensorUse& all,
                        F&& f) {
  if (!ref.present()) return;
  TensorUse use = all;
  use.ref = &ref;
  if (!ref.per_part()) return f(use);
  use.parts = 1;
  for (uint32_t p = begin; p < end; ++p) {
    const TensorRef part = PartRef(ref, p);
    use.ref = &part;
    f(use);
  }
}

// Matrices of the experts in [begin, end): of all experts, where these share a tensor.
template <typename F>
void ForEachExpertTensor(const ModelSpec& spec, const FeedForwardSpec& m, uint32_t begin,
                         uint32_t end, F&& f) {
  const TensorUse up{nullptr, m.expert_intermediate, spec.hidden_size, false, false, m.experts};
  const TensorUse down{nullptr, spec.hidden_size, m.expert_intermediate, false, false, m.experts};
  ForEachStackTensor(m.expert_gate, begin, end, up, f);
  ForEachStackTensor(m.expert_up, begin, end, up, f);
  ForEachStackTensor(m.expert_down, begin, end, down, f);
}

// All of one layer: matrices in the order of execution, then vectors. Without `experts`: all but
// the matrices of experts.
template <typename F>
void ForEachLayerTensor(const ModelSpec& spec, const LayerSpec& layer, F&& f, bool experts = true) {
  const AttentionSpec& a = layer.attention;
  const FeedForwardSpec& m = layer.feed_forward;
  const bool latent = a.kind == AttentionKind::kLatent;
  const uint32_t q = a.heads * a.head_dim, k = latent ? 0 : a.kv_heads * a.head_dim,
                 v = latent ? 0 : a.kv_heads * a.v_head_dim, o = a.heads * a.v_head_dim;
  const uint32_t hidden = spec.hidden_size, wide = m.intermediate;
  const auto matrix = [&](const TensorRef& ref, uint32_t rows, uint32_t cols) {
    if (ref.present()) f(TensorUse{&ref, rows, cols, false});
  };
  const auto vector = [&](const TensorRef& ref, uint32_t n) {
    if (ref.present()) f(TensorUse{&ref, 1, n, true});
  };
  const auto norm = [&](const TensorRef& ref, uint32_t n) {
    if (ref.present()) f(TensorUse{&ref, 1, n, true, true});
  };
  // One use where the parts share a tensor, else one a part.
  const auto stack = [&](const TensorRef& ref, uint32_t parts, uint32_t rows, uint32_t cols,
                         bool vectors) {
    ForEachStackTensor(ref, 0, parts, {nullptr, rows, cols, vectors, false, parts}, f);
  };
  matrix(a.q_a, a.q_rank, hidden);
  matrix(a.q, q, a.q_a.present() ? a.q_rank : hidden);
  matrix(a.kv_a, a.latent_dim + a.rope_dim, hidden);
  stack(a.k_b, a.heads, a.latent_dim, a.head_dim - a.rope_dim, false);
  stack(a.v_b, a.heads, a.v_head_dim, a.latent_dim, false);
  matrix(a.k, k, hidden);
  matrix(a.v, v, hidden);
  matrix(a.o, hidden, o);
  matrix(m.router, m.experts, hidden);
  matrix(m.gate, wide, hidden);
  matrix(m.up, wide, hidden);
  matrix(m.down, hidden, wide);
  matrix(m.shared_gate, 1, hidden);
  if (experts) ForEachExpertTensor(spec, m, 0, m.experts, f);
  norm(layer.attention_norm, hidden);
  norm(layer.post_attention_norm, hidden);
  norm(layer.feed_forward_norm, hidden);
  norm(layer.post_feed_forward_norm, hidden);
  norm(a.q_norm, a.wide_norms ? q : a.head_dim);
  norm(a.k_norm, a.wide_norms ? k : a.head_dim);
  norm(a.q_a_norm, a.q_rank);
  norm(a.kv_a_norm, a.latent_dim);
  vector(a.sinks, a.heads);
  vector(a.q_a_bias, a.q_rank);
  vector(a.kv_a_bias, a.latent_dim + a.rope_dim);
  vector(a.q_bias, q);
  vector(a.k_bias, k);
  vector(a.v_bias, v);
  vector(a.o_bias, hidden);
  vector(m.router_bias, m.experts);
  vector(m.router_correction, m.experts);
  vector(m.gate_bias, wide);
  vector(m.up_bias, wide);
  vector(m.down_bias, hidden);
  stack(m.expert_gate_bias, m.experts, 1, m.expert_intermediate, true);
  stack(m.expert_up_bias, m.experts, 1, m.expert_intermediate, true);
  stack(m.expert_down_bias, m.experts, 1, hidden, true);
}

// Embedding, final norm, head, and what ropes name.
template <typename F>
void ForEachEndTensor(const ModelSpec& spec, F&& f) {
  f(TensorUse{&spec.embedding, spec.vocab_size, spec.hidden_size, false});
  f(TensorUse{&spec.final_norm, 1, spec.hidden_size, true, true});
  if (!spec.tied()) f(TensorUse{&spec.lm_head, spec.vocab_size, spec.hidden_size, false});
  for (const RopeSpec& rope : spec.ropes) {
    if (rope.frequency_factors.present()) {
      f(TensorUse{&rope.frequency_factors, 1, rope.dims / 2, true});
    }
  }
}

}  // namespace qinfer::model
