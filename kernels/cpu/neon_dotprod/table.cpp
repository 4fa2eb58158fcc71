// The table for NEON with dot product instructions.
#include "kernels/cpu/neon/neon.h"
#include "kernels/cpu/neon_dotprod/neon_dotprod.h"
#include "kernels/cpu/tables.h"
#include "kernels/ref/ref.h"

namespace qinfer::kernels {
namespace {

constexpr auto kMatmulQuantized = MatmulByKind<neon_dotprod::MatmulInt4, neon_dotprod::MatmulInt6,
                                               neon_dotprod::MatmulInt8, neon_dotprod::MatmulFp4>;

constexpr Table kTable = {
    "neon-dotprod", kMatmulQuantized,        neon::MatmulFloat, neon::DecodeRow,
    neon::Quantize, neon::RmsNorm,           neon::Add,         neon::Scale,
    neon::Gated,    neon::Softcap,           neon::Rope,        neon::WriteK,
    neon::WriteV,   neon_dotprod::Attention, neon::Argmax,      neon::ExpSum,
    neon::ExpShift, ref::QuantizeStatic,     neon::DecodePanel, neon::PanelMaxima};

}  // namespace

const Table* NeonDotprodTable() { return &kTable; }

}  // namespace qinfer::kernels
