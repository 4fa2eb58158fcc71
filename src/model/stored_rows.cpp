// Reading and decoding of rows that do not lie as kernels need them.
#include "model/stored_rows.h"

#include <algorithm>

#include "core/checked.h"

namespace qinfer::model {
namespace {

constexpr uint64_t kMostRows = 16;

uint64_t BytesOf(DType dtype, uint64_t elements) {
  uint64_t bytes = 0;
  return TensorBytes(dtype, elements, &bytes) ? bytes : 0;
}

// Elements of a stored row that have to be read for [begin, begin + count): whole blocks.
struct Slice {
  uint64_t begin, count;
};
Slice Cover(DType dtype, uint64_t begin, uint64_t count) {
  const uint64_t block = Info(dtype).block;
  const uint64_t first = begin / block * block;
  return {first, RoundUp(begin + count, block) - first};
}

// Multiplies values of stored row `row`, from column `col` on, by the factors of their blocks.
Status Scale(const format::Checkpoint& checkpoint, const StoredTensor& stored, uint64_t row,
             uint64_t col, uint64_t count, uint8_t* scratch, float* values) {
  const uint64_t wide = CeilDiv<uint64_t>(stored.cols, stored.scale_cols);
  const uint64_t first = col / stored.scale_cols;
  const uint64_t last = (col + count - 1) / stored.scale_cols;
  const DType dtype = stored.scale->dtype;
  const uint64_t element = BytesOf(dtype, 1), n = last - first + 1;
  const absl::Span<uint8_t> bytes(scratch, n * element);
  float* factors = reinterpret_cast<float*>(scratch + RoundUp<uint64_t>(wide * 4, 16));
  QINFER_RETURN_IF_ERROR(
      checkpoint.Read(*stored.scale, (row / stored.scale_rows * wide + first) * element, bytes));
  QINFER_RETURN_IF_ERROR(weights::DecodeToFloat(dtype, bytes, n, factors));
  for (uint64_t i = 0; i < count; ++i) {
    values[i] *= factors[(col + i) / stored.scale_cols - first];
  }
  return OkStatus();
}

// Elements [begin, begin + count) of a stored row.
Status ReadSlice(const format::Checkpoint& checkpoint, const StoredTensor& stored, uint64_t row,
                 uint64_t begin, uint64_t count, uint8_t* scratch, float* out) {
  const Slice slice = Cover(stored.dtype, begin, count);
  const absl::Span<uint8_t> bytes(scratch, BytesOf(stored.dtype, slice.count));
  const uint64_t row_bytes = BytesOf(stored.dtype, stored.cols);
  QINFER_RETURN_IF_ERROR(
      checkpoint.Read(*stored.info, row * row_bytes + BytesOf(stored.dtype, slice.begin), bytes));
  uint8_t* rest = scratch + RoundUp<uint64_t>(bytes.size(), 16);
  if (slice.count == count) {
    QINFER_RETURN_IF_ERROR(weights::DecodeToFloat(stored.dtype, bytes, count, out));
  } else {
    float* decoded = reinterpret_cast<float*>(rest);
    QINFER_RETURN_IF_ERROR(weights::DecodeToFloat(stored.dtype, bytes, slice.count, decoded));
    std::copy_n(decoded + (begin - slice.begin), count, out);
  }
  if (stored.scale == nullptr) return OkStatus();
  return Scale(checkpoint, stored, row, begin, count, rest, out);
}

}  // namespace

bool IsDirect(const TensorRef& ref, const StoredTensor& stored) {
  return stored.packed || (!ref.transposed && ref.step == 1 && stored.scale == nullptr &&
                           weights::ExactFormat(stored.dtype).ok() &&
                           *weights::ExactFormat(stored.dtype) == stored.format);
}

uint64_t RowScratchBytes(const TensorRef& ref, const StoredTensor& stored, uint64_t cols) {
  const uint64_t most = ref.transposed ? kMostRows : cols;
  const Slice slice = Cover(stored.dtype, Info(stored.dtype).block - 1, most);
  uint64_t bytes =
      RoundUp<uint64_t>(BytesOf(stored.dtype, slice.count), 16) + slice.count * sizeof(float);
  if (stored.scale != nullptr) {
    bytes += 2 * RoundUp<uint64_t>(
                     CeilDiv<uint64_t>(stored.cols, stored.scale_cols) * sizeof(float), 16);
  }
  if (ref.transposed) bytes += kMostRows * sizeof(float);
  return RoundUp<uint64_t>(bytes, 64);
}

Status ReadRows(const format::Checkpoint& checkpoint, const TensorRef& ref,
                const StoredTensor& stored, uint32_t part, uint64_t first, uint64_t count,
                uint64_t cols, uint8_t* scratch, float* out) {
  if (!ref.transposed) {
    for (uint64_t r = 0; r < count; ++r) {
      QINFER_RETURN_IF_ERROR(ReadSlice(checkpoint, stored, StoredRow(ref, part, first + r), 0, cols,
                                       scratch, out + r * cols));
    }
    return OkStatus();
  }
  float* column = reinterpret_cast<float*>(scratch);  // `count` neighbours of one stored row
  uint8_t* rest = scratch + kMostRows * sizeof(float);
  for (uint64_t c = 0; c < cols; ++c) {
    QINFER_RETURN_IF_ERROR(
        ReadSlice(checkpoint, stored, StoredRow(ref, part, c), first, count, rest, column));
    for (uint64_t r = 0; r < count; ++r) out[r * cols + c] = column[r];
  }
  return OkStatus();
}

}  // namespace qinfer::model
