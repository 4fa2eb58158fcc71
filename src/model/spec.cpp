// Consistency of specifications, and the list of linear weights in the order of execution.
#include "model/spec.h"

#include <cmath>

#include "model/config_reader.h"

namespace qinfer::model {
namespace {

constexpr uint32_t kMaxExpertsUsed = 256;
// Of all layers together (DeepSeek R1 has 14,848, Kimi K2 23,040): each has entries in tables and
// plans, so that a few bytes of a configuration could ask for a lot.
constexpr uint64_t kMaxExpertsOfModel = 1u << 16;
constexpr uint32_t kMaxLatentWidth = 1u << 22;  // of all heads' queries in the latent space

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

Status ValidateLatent(const ModelSpec& spec, const AttentionSpec& a, const std::string& name) {
  QINFER_RETURN_IF_ERROR(
      Check(a.kv_heads == 1 && a.latent_dim > 0 && a.latent_dim <= kMaxHeadDim &&
                a.rope_dim < a.head_dim && a.latent_dim + a.rope_dim <= kMaxHeadDim,
            StrCat(name, "a latent of ", a.latent_dim, " values and ", a.rope_dim,
                   " rotated ones of ", a.head_dim, " a head are not possible")));
  QINFER_RETURN_IF_ERROR(Check(uint64_t{a.heads} * (a.latent_dim + a.rope_dim) <= kMaxLatentWidth,
                               name + "attention is too wide"));
  QINFER_RETURN_IF_ERROR(
      Check(a.rope < 0 || spec.ropes[static_cast<size_t>(a.rope)].dims == a.rope_dim,
            name + "its rope does not rotate what all heads share"));
  QINFER_RETURN_IF_ERROR(Check(a.softcap == 0.0f && !a.q_norm.present() && !a.k_norm.present(),
                               name + "latent attention has no cap and no norms of heads"));
  QINFER_RETURN_IF_ERROR(Check(a.kv_a.present() && a.kv_a_norm.present() && a.k_b.present() &&
                                   a.v_b.present() && !a.k.present() && !a.v.present() &&
                                   a.q_a.present() == a.q_a_norm.present(),
                               name + "a weight of latent attention is not named"));
  return Check(a.q_a.present() ? a.q_rank > 0 && a.q_rank <= kMaxWidth : a.q_rank == 0,
               StrCat(name, "a query rank of ", a.q_rank));
}

Status ValidateExperts(const FeedForwardSpec& f, const std::string& name) {
  QINFER_RETURN_IF_ERROR(
      Check(f.experts > 0 && f.experts <= kMaxExperts && f.experts_used > 0 &&
                f.experts_used <= f.experts && f.experts_used <= kMaxExpertsUsed,
            StrCat(name, f.experts_used, " of ", f.experts, " experts; 1 to ", kMaxExpertsUsed,
                   " of at most ", kMaxExperts, " are possible")));
  QINFER_RETURN_IF_ERROR(Check(
      f.expert_intermediate > 0 && f.expert_intermediate <= kMaxWidth &&
          f.intermediate <= kMaxWidth,
      StrCat(name, "experts of ", f.expert_intermediate, " and ", f.intermediate, " values")));
  QINFER_RETURN_IF_ERROR(
      Check(f.groups == 0 ||
                (f.experts % f.groups == 0 && f.groups_used > 0 && f.groups_used <= f.groups &&
                 f.group_score_top > 0 && f.group_score_top <= f.experts / f.groups &&
                 f.experts_used <= f.experts / f.groups * f.groups_used),
            StrCat(name, f.groups_used, " of ", f.groups, " groups of experts")));
  QINFER_RETURN_IF_ERROR(Check(std::isfinite(f.routed_scale) && std::isfinite(f.swiglu_limit) &&
                                   f.swiglu_limit >= 0.0f && std::isfinite(f.swiglu_alpha) &&
                                   f.swiglu_alpha > 0.0f,
                               name + "a scale of its experts is not finite"));
  const bool shared = f.intermediate > 0;
  return Check(f.router.present() && f.expert_gate.present() && f.expert_up.present() &&
                   f.expert_down.present() && f.gate.present() == shared &&
                   f.up.present() == shared && f.down.present() == shared &&
                   (shared || !f.shared_gate.present()),
               name + "a weight of its experts is not named");
}

Status ValidateLayer(const ModelSpec& spec, const LayerSpec& layer, size_t index) {
  const std::string name = StrCat("layer ", index, ": ");
  const AttentionSpec& a = layer.attention;
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
                a.q.present() && a.o.present(),
            name + "a norm or an attention weight is not named"));
  if (a.kind == AttentionKind::kLatent) {
    QINFER_RETURN_IF_ERROR(ValidateLatent(spec, a, name));
  } else {
    QINFER_RETURN_IF_ERROR(Check(a.k.present() && a.v.present() && a.latent_dim == 0,
                                 name + "a norm or an attention weight is not named"));
  }
  const FeedForwardSpec& f = layer.feed_forward;
  if (f.kind == FeedForwardKind::kExperts) return ValidateExperts(f, name);
  QINFER_RETURN_IF_ERROR(Check(f.experts == 0, name + "a dense layer has no experts"));
  QINFER_RETURN_IF_ERROR(Check(f.intermediate > 0 && f.intermediate <= kMaxWidth,
                               StrCat(name, "a feed-forward width of ", f.intermediate)));
  return Check(f.gate.present() && f.up.present() && f.down.present(),
               name + "a feed-forward weight is not named");
}

}  // namespace

TensorRef PartRef(const TensorRef& ref, uint32_t part) {
  TensorRef out = ref;
  const size_t at = ref.name.find("{}");
  if (at != std::string::npos) out.name.replace(at, 2, std::to_string(part));
  return out;
}

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
    case LinearRole::kQA:
      return "q_a";
    case LinearRole::kKvA:
      return "kv_a";
    case LinearRole::kKB:
      return "k_b";
    case LinearRole::kVB:
      return "v_b";
    case LinearRole::kExpertGate:
      return "expert_gate";
    case LinearRole::kExpertUp:
      return "expert_up";
    case LinearRole::kExpertDown:
      return "expert_down";
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
    const uint32_t hidden = spec.hidden_size;
    const auto add = [&](const TensorRef& ref, LinearRole role, uint32_t rows, uint32_t cols) {
      if (ref.present()) uses.push_back({ref, role, i, rows, cols});
    };
    const auto stack = [&](const TensorRef& ref, LinearRole role, uint32_t parts, uint32_t rows,
                           uint32_t cols) {
      if (!ref.per_part()) {
        uses.push_back({ref, role, i, rows, cols, parts});
        return;
      }
      for (uint32_t p = 0; p < parts; ++p) {
        uses.push_back({PartRef(ref, p), role, i, rows, cols, 1, p});
      }
    };
    if (a.kind == AttentionKind::kLatent) {
      add(a.q_a, LinearRole::kQA, a.q_rank, hidden);
      add(a.kv_a, LinearRole::kKvA, a.latent_dim + a.rope_dim, hidden);
      add(a.q, LinearRole::kQ, a.heads * a.head_dim, a.q_a.present() ? a.q_rank : hidden);
      stack(a.k_b, LinearRole::kKB, a.heads, a.latent_dim, a.head_dim - a.rope_dim);
      stack(a.v_b, LinearRole::kVB, a.heads, a.v_head_dim, a.latent_dim);
    } else {
      add(a.q, LinearRole::kQ, a.heads * a.head_dim, hidden);
      add(a.k, LinearRole::kK, a.kv_heads * a.head_dim, hidden);
      add(a.v, LinearRole::kV, a.kv_heads * a.v_head_dim, hidden);
    }
    add(a.o, LinearRole::kO, hidden, a.heads * a.v_head_dim);
    add(f.gate, LinearRole::kGate, f.intermediate, hidden);
    add(f.up, LinearRole::kUp, f.intermediate, hidden);
    add(f.down, LinearRole::kDown, hidden, f.intermediate);
    if (f.kind == FeedForwardKind::kExperts) {
      stack(f.expert_gate, LinearRole::kExpertGate, f.experts, f.expert_intermediate, hidden);
      stack(f.expert_up, LinearRole::kExpertUp, f.experts, f.expert_intermediate, hidden);
      stack(f.expert_down, LinearRole::kExpertDown, f.experts, hidden, f.expert_intermediate);
    }
  }
  if (!spec.tied()) {
    uses.push_back(
        {spec.lm_head, LinearRole::kHead, UINT32_MAX, spec.vocab_size, spec.hidden_size});
  }
  return uses;
}

uint32_t RopeVariant(const ModelSpec& spec, uint64_t length) {
  // No term ever falls with the length, so equal sums have equal terms.
  uint32_t variant = 0;
  for (const RopeSpec& rope : spec.ropes) {
    if (length <= rope.original_context) continue;
    if (rope.scaling == RopeScaling::kLongRope) ++variant;
    if (rope.scaling == RopeScaling::kDynamic) {
      variant += static_cast<uint32_t>(length - rope.original_context);
    }
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
  uint64_t experts = 0;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    QINFER_RETURN_IF_ERROR(ValidateLayer(spec, spec.layers[i], i));
    experts += spec.layers[i].feed_forward.experts;
  }
  return Check(experts <= kMaxExpertsOfModel, StrCat(experts, " experts in all layers; at most ",
                                                     kMaxExpertsOfModel, " are possible"));
}

}  // namespace qinfer::model
