// The AVX2 table.
#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/tables.h"

namespace qinfer::kernels {
namespace {

constexpr auto kMatmulQuantized =
    MatmulByKind<avx2::MatmulInt4, avx2::MatmulInt6, avx2::MatmulInt8, avx2::MatmulFp4>;

constexpr Table kTable = {
    "avx2",        kMatmulQuantized, avx2::MatmulFloat,    avx2::DecodeRow,   avx2::Quantize,
    avx2::RmsNorm, avx2::Add,        avx2::Scale,          avx2::Gated,       avx2::Softcap,
    avx2::Rope,    avx2::WriteK,     avx2::WriteV,         avx2::Attention,   avx2::Argmax,
    avx2::ExpSum,  avx2::ExpShift,   avx2::QuantizeStatic, avx2::DecodePanel, avx2::PanelMaxima};

}  // namespace

const Table* Avx2Table() { return &kTable; }

}  // namespace qinfer::kernels
