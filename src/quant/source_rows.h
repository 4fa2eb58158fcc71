// Rows of a source tensor as floats, whatever holds them: float or block-quantized types of other
// people's files, or our own packed panels. Reads in chunks; keeps nothing.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "core/memory.h"
#include "format/checkpoint.h"
#include "kernels/kernels.h"
#include "weights/format.h"

namespace qinfer::quant {

// What a tensor is logically: for a .qinfer file the stored bytes are packed panels.
struct SourceTensor {
  const format::TensorInfo* info = nullptr;
  DType dtype = DType::kOther;  // of the elements, unless packed; kOther: only bytes are known
  uint32_t rank = 0;
  uint64_t shape[4] = {1, 1, 1, 1};
  bool packed = false;  // panels of `format`
  weights::Format format;
  uint64_t panel_bytes = 0;
  uint32_t parts = 1;  // packed: matrices of so many rows one after the other

  uint64_t rows() const { return rank >= 2 ? shape[0] : 1; }
  uint64_t cols() const { return rank >= 2 ? shape[rank - 1] : shape[0]; }
  uint64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
};
StatusOr<SourceTensor> DescribeTensor(const format::Checkpoint& checkpoint,
                                      const format::TensorInfo& info);

// Source bytes that hold rows [first, first + count) of a matrix; `first` is a multiple of 16 where
// the source is packed.
StatusOr<uint64_t> SourceRowBytes(const SourceTensor& tensor, uint64_t first, uint64_t count);
// Reads them. `out` has SourceRowBytes(...) bytes.
Status ReadSourceRows(const format::Checkpoint& checkpoint, const SourceTensor& tensor,
                      uint64_t first, uint64_t count, absl::Span<uint8_t> out);
// Decodes row `row` of a chunk read by ReadSourceRows that starts at row `first`.
Status DecodeSourceRow(const SourceTensor& tensor, absl::Span<const uint8_t> chunk, uint64_t first,
                       uint64_t row, const kernels::Table& kernels, float* out);

}  // namespace qinfer::quant
