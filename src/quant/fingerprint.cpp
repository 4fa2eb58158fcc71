// Fingerprints by xxh3.
#include "quant/fingerprint.h"

#include <algorithm>
#include <array>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "quant/bytes.h"

namespace qinfer::quant {
uint64_t HashBytes(const void* data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

uint64_t ShapeFingerprint(const model::ModelSpec& spec) {
  ByteWriter out;
  out.PutString("qinfer shape 1");
  out.Put(spec.hidden_size);
  out.Put(spec.vocab_size);
  out.Put(static_cast<uint64_t>(spec.layers.size()));
  for (const model::LayerSpec& layer : spec.layers) {
    const model::AttentionSpec& a = layer.attention;
    out.Put(static_cast<uint8_t>(a.kind));
    for (uint32_t value : {a.heads, a.kv_heads, a.head_dim, a.v_head_dim}) out.Put(value);
    out.Put(static_cast<uint8_t>(layer.feed_forward.kind));
    out.Put(layer.feed_forward.intermediate);
    if (a.kind == model::AttentionKind::kLatent) {
      for (uint32_t value : {a.latent_dim, a.rope_dim, a.q_rank}) out.Put(value);
    }
    const model::FeedForwardSpec& f = layer.feed_forward;
    if (f.kind == model::FeedForwardKind::kExperts) {
      for (uint32_t value : {f.experts, f.experts_used, f.expert_intermediate}) out.Put(value);
    }
  }
  return HashText(out.bytes());
}

StatusOr<uint64_t> WeightsFingerprint(const format::Checkpoint& checkpoint) {
  constexpr uint64_t kPiece = 4096;
  std::array<uint8_t, kPiece> piece;
  ByteWriter out;
  out.PutString("qinfer weights 1");
  for (const format::TensorInfo& tensor : checkpoint.tensors()) {
    out.PutString(tensor.name);
    out.PutString(tensor.dtype_name);
    out.Put(tensor.rank);
    for (uint64_t size : tensor.shape) out.Put(size);
    out.Put(tensor.bytes);
    const uint64_t length = std::min(kPiece, tensor.bytes);
    if (length == 0) continue;
    for (uint64_t begin : {uint64_t{0}, (tensor.bytes - length) / 2, tensor.bytes - length}) {
      QINFER_RETURN_IF_ERROR(checkpoint.Read(tensor, begin, absl::MakeSpan(piece).first(length)));
      out.Put(HashBytes(piece.data(), length));
    }
  }
  return HashText(out.bytes());
}

}  // namespace qinfer::quant
