// Consistency of specifications, and the list of linear weights in the order of execution.
#include "model/spec.h"

#include <cmath>

#include "model/config_reader.h"

namespace qinfer::model {
namespace {

Status Check(bool good, const std::string& what) {
  return good ? OkStatus() : FormatError("model specification: " + what);
}

Status ValidateRope(const RopeSpec& rope, size_t index) {
  const std::string name = StrCat("rope ", index, ": ");
  const auto finite = [](double x) { return std::isfinite(x) && x > 0.0; };
  QINFER_RETURN_IF_ERROR(Check(rope.dims >= 2 && rope.dims <= kMaxHeadDim && rope.dims % 2 == 0,
                               StrCat(name, "rotates ", rope.dims, " inputs; an even number up to ",
                                      kMaxHeadDim, " is possible")));
  QINFER_RETURN_IF_ERROR(Check(finite(rope.theta) && finite(rope.factor) &&
                                   finite(rope.attention_factor) && finite(rope.low_freq_factor) &&
                                   finite(rope.high_freq_factor) && finite(rope.beta_fast) &&
                                   finite(rope.beta_slow),
                               name + "theta and factors must be finite and positive"));
  switch (rope.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kLinear:
      return OkStatus();
    case RopeScaling::kLlama3:
      QINFER_RETURN_IF_ERROR(Check(rope.high_freq_factor > rope.low_freq_factor,
                                   name + "high_freq_factor must exceed low_freq_factor"));
      [[fallthrough]];
    case RopeScaling::kYarn:
    case RopeScaling::kDynamic:
      return Check(rope.original_context > 0, name + "the original context is missing");
    case RopeScaling::kLongRope:
      break;
  }
  QINFER_RETURN_IF_ERROR(
      Check(rope.original_context > 0, name + "the original context is missing"));
  for (const std::vector<double>* factors : {&rope.short_factors, &rope.long_factors}) {
    QINFER_RETURN_IF_ERROR(
        Check(factors->size() == rope.dims / 2,
              StrCat(name, factors->size(), " factors; ", rope.dims / 2, " are needed")));
    for (const double factor : *factors) {
      QINFER_RETURN_IF_ERROR(Check(finite(factor), name + "factors must be finite and positive"));
    }
  }
  return OkStatus();
}

Status ValidateLayer(const ModelSpec& spec, const LayerSpec& layer, size_t index) {
  const std::string name = StrCat("layer ", index, ": ");
  const AttentionSpec& a = layer.attention;
  if (a.kind != AttentionKind::kGrouped) {
    return UnsupportedError("model specification: " + name +
                            "latent attention is not supported yet");
  }
  QINFER_RETURN_IF_ERROR(
      Check(a.heads > 0 && a.heads <= kMaxHeads && a.kv_heads > 0 && a.kv_heads <= a.heads &&
                a.heads % a.kv_heads == 0,
            StrCat(name, a.heads, " heads cannot share ", a.kv_heads, " key-value heads")));
  QINFER_RETURN_IF_ERROR(Check(a.head_dim > 0 && a.head_dim <= kMaxHeadDim && a.v_head_dim > 0 &&
                                   a.v_head_dim <= kMaxHeadDim,
                               StrCat(name, "heads of ", a.head_dim, " and ", a.v_head_dim,
                                      " values; 1 to ", kMaxHeadDim, " are possible")));
  QINFER_RETURN_IF_ERROR(Check(
      uint64_t{a.heads} * a.head_dim <= kMaxWidth && uint64_t{a.heads} * a.v_head_dim <= kMaxWidth,
      name + "attention is too wide"));
  QINFER_RETURN_IF_ERROR(Check(
      std::isfinite(a.scale) && a.scale > 0.0f && std::isfinite(a.softcap) && a.softcap >= 0.0f,
      name + "attention's scale or cap is not a positive number"));
  QINFER_RETURN_IF_ERROR(Check(a.window <= kMaxPosition, name + "the window is too large"));
  QINFER_RETURN_IF_ERROR(Check(a.rope >= -1 && a.rope < static_cast<int32_t>(spec.ropes.size()),
                               StrCat(name, "rope ", a.rope, " does not exist")));
  QINFER_RETURN_IF_ERROR(
      Check(a.rope < 0 || spec.ropes[static_cast<size_t>(a.rope)].dims <= a.head_dim,
            name + "its rope rotates more inputs than a head has"));
  QINFER_RETURN_IF_ERROR(
      Check((layer.attention_norm.present() || layer.post_attention_norm.present()) &&
                (layer.feed_forward_norm.present() || layer.post_feed_forward_norm.present()) &&
                a.q.present() && a.k.present() && a.v.present() && a.o.present(),
            name + "a norm or an attention weight is not named"));
  const FeedForwardSpec& f = layer.feed_forward;
  if (f.kind != FeedForwardKind::kDense) {
    return UnsupportedError("model specification: " + name + "experts are not supported yet");
  }
  QINFER_RETURN_IF_ERROR(Check(f.intermediate > 0 && f.intermediate <= kMaxWidth,
                               StrCat(name, "a feed-forward width of ", f.intermediate)));
  return Check(f.gate.present() && f.up.present() && f.down.present(),
               name + "a feed-forward weight is not named");
}

}  // namespace

std::string_view RoleName(LinearRole role) {
  switch (role) {
    case LinearRole::kQ:
      return "q";
    case LinearRole::kK:
      return "k";
    case LinearRole::kV:
      return "v";
    case LinearRole::kO:
      return "o";
    case LinearRole::kGate:
      return "gate";
    case LinearRole::kUp:
      return "up";
    case LinearRole::kDown:
      return "down";
    case LinearRole::kHead:
      break;
  }
  return "head";
}

std::vector<LinearUse> LinearUses(const ModelSpec& spec) {
  std::vector<LinearUse> uses;
  uses.reserve(spec.layers.size() * 7 + 1);
  for (uint32_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& a = spec.layers[i].attention;
    const FeedForwardSpec& f = spec.layers[i].feed_forward;
    uses.push_back({&a.q, LinearRole::kQ, i, a.heads * a.head_dim, spec.hidden_size});
    uses.push_back({&a.k, LinearRole::kK, i, a.kv_heads * a.head_dim, spec.hidden_size});
    uses.push_back({&a.v, LinearRole::kV, i, a.kv_heads * a.v_head_dim, spec.hidden_size});
    uses.push_back({&a.o, LinearRole::kO, i, spec.hidden_size, a.heads * a.v_head_dim});
    uses.push_back({&f.gate, LinearRole::kGate, i, f.intermediate, spec.hidden_size});
    uses.push_back({&f.up, LinearRole::kUp, i, f.intermediate, spec.hidden_size});
    uses.push_back({&f.down, LinearRole::kDown, i, spec.hidden_size, f.intermediate});
  }
  if (!spec.tied()) {
    uses.push_back(
        {&spec.lm_head, LinearRole::kHead, UINT32_MAX, spec.vocab_size, spec.hidden_size});
  }
  return uses;
}

uint32_t RopeVariant(const ModelSpec& spec, uint64_t length) {
  uint32_t variant = 0;
  for (const RopeSpec& rope : spec.ropes) {
    if (rope.scaling == RopeScaling::kLongRope && length > rope.original_context) ++variant;
  }
  return variant;
}

Status ValidateSpec(const ModelSpec& spec) {
  QINFER_RETURN_IF_ERROR(Check(spec.hidden_size > 0 && spec.hidden_size <= kMaxWidth,
                               StrCat("a hidden size of ", spec.hidden_size)));
  QINFER_RETURN_IF_ERROR(Check(spec.vocab_size > 0 && spec.vocab_size <= kMaxVocab,
                               StrCat("a vocabulary of ", spec.vocab_size, " tokens")));
  QINFER_RETURN_IF_ERROR(Check(spec.max_context > 0 && spec.max_context <= kMaxPosition,
                               StrCat("a context of ", spec.max_context, " tokens")));
  QINFER_RETURN_IF_ERROR(
      Check(!spec.layers.empty() && spec.layers.size() <= kMaxLayers,
            StrCat(spec.layers.size(), " layers; 1 to ", kMaxLayers, " are possible")));
  QINFER_RETURN_IF_ERROR(Check(spec.ropes.size() <= kMaxLayers, "too many ropes"));
  QINFER_RETURN_IF_ERROR(Check(std::isfinite(spec.norm_epsilon) && spec.norm_epsilon > 0.0f &&
                                   std::isfinite(spec.norm_weight_offset) &&
                                   std::isfinite(spec.embedding_scale) &&
                                   std::isfinite(spec.logit_scale) &&
                                   std::isfinite(spec.logit_softcap) && spec.logit_softcap >= 0.0f,
                               "norm epsilon, scales and caps must be finite numbers"));
  QINFER_RETURN_IF_ERROR(Check(spec.embedding.present() && spec.final_norm.present(),
                               "the embedding or the final norm is not named"));
  for (size_t i = 0; i < spec.ropes.size(); ++i) {
    QINFER_RETURN_IF_ERROR(ValidateRope(spec.ropes[i], i));
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    QINFER_RETURN_IF_ERROR(ValidateLayer(spec, spec.layers[i], i));
  }
  return OkStatus();
}

}  // namespace qinfer::model
