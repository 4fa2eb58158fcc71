// NEON attention with dot product instructions, which only INT8 keys have a use for.
#include "kernels/cpu/neon/attention_simd.h"
#include "kernels/cpu/neon_dotprod/neon_dotprod.h"

namespace qinfer::kernels::neon_dotprod {

void Attention(const AttentionArgs& args) { fold::Attention<neon::AttentionSimd>(args); }

}  // namespace qinfer::kernels::neon_dotprod
