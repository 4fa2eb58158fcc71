// The table for AVX2 with AVX-VNNI.
#include "kernels/cpu/avxvnni/avxvnni.h"

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/tables.h"

namespace qinfer::kernels {
namespace {

constexpr auto kMatmulQuantized =
    MatmulByKind<avxvnni::MatmulInt4, avxvnni::MatmulInt6, avxvnni::MatmulInt8, avxvnni::MatmulFp4>;

constexpr Table kTable = {
    "avxvnni",     kMatmulQuantized, avx2::MatmulFloat,    avx2::DecodeRow,    avx2::Quantize,
    avx2::RmsNorm, avx2::Add,        avx2::Scale,          avx2::Gated,        avx2::Softcap,
    avx2::Rope,    avx2::WriteK,     avx2::WriteV,         avxvnni::Attention, avx2::Argmax,
    avx2::ExpSum,  avx2::ExpShift,   avx2::QuantizeStatic, avx2::DecodePanel,  avx2::PanelMaxima};

}  // namespace

const Table* AvxVnniTable() { return &kTable; }

}  // namespace qinfer::kernels
