// AVX-VNNI attention, which only INT8 keys and values have a use for.
#include "kernels/cpu/avxvnni/avxvnni.h"

#include "kernels/cpu/avx2/attention_simd.h"

namespace qinfer::kernels::avxvnni {

void Attention(const AttentionArgs& args) { fold::Attention<avx2::AttentionSimd>(args); }

}  // namespace qinfer::kernels::avxvnni
