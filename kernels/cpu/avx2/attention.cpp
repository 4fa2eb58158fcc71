// AVX2 attention, and the KV planes it reads.
#include "kernels/cpu/avx2/attention_simd.h"
#include "kernels/cpu/kv_write.h"

namespace qinfer::kernels::avx2 {

void Attention(const AttentionArgs& args) { fold::Attention<AttentionSimd>(args); }

void WriteK(uint8_t* plane, KvType type, uint32_t slot, const float* k, uint32_t head_dim) {
  fold::Write<AttentionSimd>(plane, type, slot, k, head_dim, true);
}

void WriteV(uint8_t* plane, KvType type, uint32_t slot, const float* v, uint32_t head_dim) {
  fold::Write<AttentionSimd>(plane, type, slot, v, head_dim, false);
}

}  // namespace qinfer::kernels::avx2
