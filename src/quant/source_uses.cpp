// Walks a specification for what each tensor is used for, what is split off and in which order
// tensors go.
#include "quant/source_uses.h"

#include <utility>

#include "core/checked.h"
#include "model/stored_tensor.h"

namespace qinfer::quant {
namespace {

// The first use of a name decides, as long as the tensor is taken as it is.
void AddOnce(const std::string& name, Use use, Uses* uses) {
  if (uses->find(name) == uses->end()) uses->emplace(name, std::move(use));
}

void AddSmall(const model::TensorRef& ref, uint32_t layer, uint32_t parts, Uses* uses) {
  if (!ref.present()) return;
  Use use;
  use.use = TensorUse::kSmall;
  use.layer = layer;
  for (uint32_t p = 0; p < (ref.per_part() ? parts : 1); ++p) {
    AddOnce(model::PartRef(ref, p).name, use, uses);
  }
}

}  // namespace

bool IsRange(const model::TensorRef& ref) {
  return ref.parts == 0 && ref.step == 1 && !ref.transposed && ref.rows != 0;
}

bool NeedsSplit(const model::TensorRef& ref, uint32_t rows, bool packed) {
  return ref.transposed || ref.step != 1 || (ref.parts > 0 && !model::IsPlain(ref, rows)) ||
         (IsRange(ref) && !packed);
}

std::string SplitName(const std::string& name, model::LinearRole role) {
  const std::string word(model::RoleName(role));
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos || name.substr(dot) != ".weight") return name + "." + word;
  return name.substr(0, dot) + "." + word + name.substr(dot);
}

Uses CollectUses(const model::ModelSpec& spec, bool packed) {
  Uses uses;
  Use embedding;
  embedding.use = TensorUse::kEmbedding;
  embedding.role = model::LinearRole::kHead;
  uses.emplace(spec.embedding.name, embedding);
  for (const model::LinearUse& use : model::LinearUses(spec)) {
    const bool head = use.role == model::LinearRole::kHead;
    Use item{head ? TensorUse::kHead : TensorUse::kLinear,
             use.role,
             use.layer,
             use.weight,
             use.rows,
             use.cols,
             use.parts,
             use.part};
    if (NeedsSplit(use.weight, use.rows, packed)) {
      uses.emplace(use.weight.name, std::move(item));
    } else {
      AddOnce(use.weight.name, std::move(item), &uses);
    }
  }
  for (uint32_t l = 0; l < spec.layers.size(); ++l) {
    const model::LayerSpec& layer = spec.layers[l];
    const model::AttentionSpec& a = layer.attention;
    const model::FeedForwardSpec& f = layer.feed_forward;
    for (const model::TensorRef* ref : {&f.router, &f.shared_gate}) {
      if (!ref->present()) continue;
      Use use;
      use.use = TensorUse::kKept;
      use.layer = l;
      AddOnce(ref->name, use, &uses);
    }
    for (const model::TensorRef* ref : {&layer.attention_norm,
                                        &layer.post_attention_norm,
                                        &layer.feed_forward_norm,
                                        &layer.post_feed_forward_norm,
                                        &a.q_bias,
                                        &a.k_bias,
                                        &a.v_bias,
                                        &a.o_bias,
                                        &a.q_norm,
                                        &a.k_norm,
                                        &a.sinks,
                                        &a.q_a_norm,
                                        &a.kv_a_norm,
                                        &a.q_a_bias,
                                        &a.kv_a_bias,
                                        &f.gate_bias,
                                        &f.up_bias,
                                        &f.down_bias,
                                        &f.router_bias,
                                        &f.router_correction,
                                        &f.expert_gate_bias,
                                        &f.expert_up_bias,
                                        &f.expert_down_bias}) {
      AddSmall(*ref, l, f.experts, &uses);
    }
  }
  AddSmall(spec.final_norm, UINT32_MAX, 1, &uses);
  for (const model::RopeSpec& rope : spec.ropes) {
    AddSmall(rope.frequency_factors, UINT32_MAX, 1, &uses);
  }
  return uses;
}

void NameSplit(bool packed, model::ModelSpec* spec) {
  const auto rename = [packed](model::TensorRef* ref, model::LinearRole role, uint32_t parts,
                               uint32_t rows) {
    if (!ref->present() || ref->per_part() || !NeedsSplit(*ref, rows, packed)) return;
    const std::string name = SplitName(ref->name, role);
    *ref = model::TensorRef();
    ref->name = name;
    if (parts == 0) return;
    ref->parts = parts;
    ref->stride = rows;
  };
  using model::LinearRole;
  for (model::LayerSpec& layer : spec->layers) {
    model::AttentionSpec& a = layer.attention;
    model::FeedForwardSpec& f = layer.feed_forward;
    rename(&a.q, LinearRole::kQ, 0, a.heads * a.head_dim);
    rename(&a.k, LinearRole::kK, 0, a.kv_heads * a.head_dim);
    rename(&a.v, LinearRole::kV, 0, a.kv_heads * a.v_head_dim);
    rename(&f.gate, LinearRole::kGate, 0, f.intermediate);
    rename(&f.up, LinearRole::kUp, 0, f.intermediate);
    rename(&a.k_b, LinearRole::kKB, a.heads, a.latent_dim);
    rename(&a.v_b, LinearRole::kVB, a.heads, a.v_head_dim);
    rename(&f.expert_gate, LinearRole::kExpertGate, f.experts, f.expert_intermediate);
    rename(&f.expert_up, LinearRole::kExpertUp, f.experts, f.expert_intermediate);
    rename(&f.expert_down, LinearRole::kExpertDown, f.experts, spec->hidden_size);
  }
}

bool IsSkipped(const model::ModelSpec& spec, std::string_view name) {
  for (const std::string& prefix : spec.skipped_prefixes) {
    if (name.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

uint64_t OrderOf(const Use& use) {
  switch (use.use) {
    case TensorUse::kEmbedding:
      return 0;
    case TensorUse::kLinear:
      return 1 + uint64_t{use.layer} * 32 + static_cast<uint64_t>(use.role);
    case TensorUse::kKept:
    case TensorUse::kSmall:
      return use.layer == UINT32_MAX ? UINT64_MAX - 1 : 1 + uint64_t{use.layer} * 32 + 31;
    case TensorUse::kHead:
      return UINT64_MAX - 2;
    case TensorUse::kUnused:
      break;
  }
  return UINT64_MAX;
}

}  // namespace qinfer::quant
