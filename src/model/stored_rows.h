// Rows of a weight as floats, however its tensor holds them: part of a stack, every second row, the
// transpose of stored rows, FP8 with factors by blocks. The common case (whole stored rows of a
// type that our formats hold exactly) is told apart, since it needs no floats.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "model/stored_tensor.h"

namespace qinfer::model {

// Rows lie as they are needed, in a type that weights::ImportRows takes.
bool IsDirect(const TensorRef& ref, const StoredTensor& stored);
// Rows are of such a type, but not one after the other, or with parts of their blocks elsewhere:
// ReadStoredRows gathers them, and ImportRows keeps them exactly.
bool IsGathered(const TensorRef& ref, const StoredTensor& stored);

// The stored row of row `row` of part `part` (not transposed).
inline uint64_t StoredRow(const TensorRef& ref, uint32_t part, uint64_t row) {
  return ref.row_begin + part * ref.stride + row * ref.step;
}

// Bytes that ReadRows and ReadStoredRows need beside their output, for weights of `cols` inputs.
uint64_t RowScratchBytes(const TensorRef& ref, const StoredTensor& stored, uint64_t cols);

// Rows [first, first + count), count <= 16, of part `part`, `cols` inputs each, into
// out[count][cols]. Not for packed tensors. NaN and infinities pass through.
Status ReadRows(const format::Checkpoint& checkpoint, const TensorRef& ref,
                const StoredTensor& stored, uint32_t part, uint64_t first, uint64_t count,
                uint64_t cols, uint8_t* scratch, float* out);
// The same as blocks of stored.dtype, for what IsGathered is true of: whole rows, side by side.
Status ReadStoredRows(const format::Checkpoint& checkpoint, const TensorRef& ref,
                      const StoredTensor& stored, uint32_t part, uint64_t first, uint64_t count,
                      uint8_t* scratch, uint8_t* out);

}  // namespace qinfer::model
