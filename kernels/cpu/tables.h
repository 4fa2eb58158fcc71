// The tables that this build has, and which of them the processor can run. Private to kernels/.
#pragma once

#include "kernels/kernels.h"

namespace qinfer::kernels {

const Table* RefTable();
const Table* Avx2Table();
const Table* Avx512Table();
const Table* NeonTable();
const Table* NeonDotprodTable();

}  // namespace qinfer::kernels
