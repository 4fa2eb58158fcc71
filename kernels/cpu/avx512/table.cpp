// The AVX-512 table.
#include "kernels/cpu/avx512/avx512.h"
#include "kernels/cpu/tables.h"

namespace qinfer::kernels {
namespace {

constexpr auto kMatmulQuantized =
    MatmulByKind<avx512::MatmulInt4, avx512::MatmulInt6, avx512::MatmulInt8, avx512::MatmulFp4>;

constexpr Table kTable = {
    "avx512",         kMatmulQuantized,       avx512::MatmulFloat, avx512::DecodeRow,
    avx512::Quantize, avx512::RmsNorm,        avx512::Add,         avx512::Scale,
    avx512::Gated,    avx512::Softcap,        avx512::Rope,        avx512::WriteK,
    avx512::WriteV,   avx512::Attention,      avx512::Argmax,      avx512::ExpSum,
    avx512::ExpShift, avx512::QuantizeStatic, avx512::DecodePanel, avx512::PanelMaxima};

}  // namespace

const Table* Avx512Table() { return &kTable; }

}  // namespace qinfer::kernels
