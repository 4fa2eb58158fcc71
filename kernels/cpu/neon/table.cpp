// The NEON table.
#include "kernels/cpu/neon/neon.h"

#include "kernels/cpu/tables.h"
#include "kernels/ref/ref.h"

namespace qinfer::kernels {
namespace {

constexpr auto kMatmulQuantized =
    MatmulByKind<neon::MatmulInt4, neon::MatmulInt6, neon::MatmulInt8, neon::MatmulFp4>;

constexpr Table kTable = {
    "neon",        kMatmulQuantized, neon::MatmulFloat,   neon::DecodeRow,   neon::Quantize,
    neon::RmsNorm, neon::Add,        neon::Scale,         neon::Gated,       neon::Softcap,
    neon::Rope,    neon::WriteK,     neon::WriteV,        neon::Attention,   neon::Argmax,
    neon::ExpSum,  neon::ExpShift,   ref::QuantizeStatic, neon::DecodePanel, neon::PanelMaxima};

}  // namespace

const Table* NeonTable() { return &kTable; }

}  // namespace qinfer::kernels
