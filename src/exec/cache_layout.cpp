// Which layers share page tables, and how large their pages are.
#include "core/checked.h"
#include "exec/forward.h"
#include "exec/workspace.h"

namespace qinfer::exec {

std::vector<kv::GroupLayout> CacheLayout(const model::ModelSpec& spec, kernels::KvType k_type,
                                         kernels::KvType v_type) {
  std::vector<kv::GroupLayout> groups;
  for (uint32_t i = 0; i < spec.layers.size(); ++i) {
    const model::AttentionSpec& a = spec.layers[i].attention;
    const KvShape kv = KvShapeOf(a);
    kv::GroupLayout* group = nullptr;
    for (kv::GroupLayout& known : groups) {
      if (known.kv_heads == kv.heads && known.head_dim == kv.key_dim &&
          known.v_head_dim == kv.value_dim && known.latent == kv.latent &&
          known.window == a.window) {
        group = &known;
        break;
      }
    }
    if (group == nullptr) {
      group = &groups.emplace_back();
      group->kv_heads = kv.heads;
      group->head_dim = kv.key_dim;
      group->v_head_dim = kv.value_dim;
      group->latent = kv.latent;
      group->window = a.window;
      group->k_plane_bytes = RoundUp<size_t>(kernels::KPlaneBytes(k_type, kv.key_dim), 64);
      if (!kv.latent) {
        group->v_plane_bytes = RoundUp<size_t>(kernels::VPlaneBytes(v_type, kv.value_dim), 64);
      }
    }
    group->layers.push_back(i);
  }
  for (kv::GroupLayout& group : groups) {
    group.page_bytes =
        group.layers.size() * group.kv_heads * (group.k_plane_bytes + group.v_plane_bytes);
  }
  return groups;
}

}  // namespace qinfer::exec
