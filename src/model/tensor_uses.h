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
  bool norm = false;  // norm_weight_offset applies
};

// All of one layer: matrices in the order of execution, then vectors.
template <typename F>
void ForEachLayerTensor(const ModelSpec& spec, const LayerSpec& layer, F&& f) {
  const AttentionSpec& a = layer.attention;
  const FeedForwardSpec& m = layer.feed_forward;
  const uint32_t q = a.heads * a.head_dim, k = a.kv_heads * a.head_dim,
                 v = a.kv_heads * a.v_head_dim, o = a.heads * a.v_head_dim;
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
  matrix(a.q, q, hidden);
  matrix(a.k, k, hidden);
  matrix(a.v, v, hidden);
  matrix(a.o, hidden, o);
  matrix(m.gate, wide, hidden);
  matrix(m.up, wide, hidden);
  matrix(m.down, hidden, wide);
  norm(layer.attention_norm, hidden);
  norm(layer.post_attention_norm, hidden);
  norm(layer.feed_forward_norm, hidden);
  norm(layer.post_feed_forward_norm, hidden);
  norm(a.q_norm, a.wide_norms ? q : a.head_dim);
  norm(a.k_norm, a.wide_norms ? k : a.head_dim);
  vector(a.sinks, a.heads);
  vector(a.q_bias, q);
  vector(a.k_bias, k);
  vector(a.v_bias, v);
  vector(a.o_bias, hidden);
  vector(m.gate_bias, wide);
  vector(m.up_bias, wide);
  vector(m.down_bias, hidden);
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
