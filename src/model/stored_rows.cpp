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

// The blocks of a slice of a stored row, as DecodeToFloat takes them. Joined: `scratch` takes the
// codes and exponents as they are stored, so many bytes as the blocks together.
Status ReadBlocks(const format::Checkpoint& checkpoint, const StoredTensor& stored, uint64_t row,
                  const Slice& slice, uint8_t* scratch, absl::Span<uint8_t> out) {
  if (!stored.joined()) {
    return checkpoint.Read(
        *stored.info, row * BytesOf(stored.dtype, stored.cols) + BytesOf(stored.dtype, slice.begin),
        out);
  }
  constexpr uint64_t kCodes = 16;  // bytes of a block
  const uint64_t block = Info(stored.dtype).block;
  const uint64_t first = row * (stored.cols / block) + slice.begin / block;
  const uint64_t count = slice.count / block;
  uint8_t* exponents = scratch + count * kCodes;
  QINFER_RETURN_IF_ERROR(
      checkpoint.Read(*stored.info, first * kCodes, absl::MakeSpan(scratch, count * kCodes)));
  QINFER_RETURN_IF_ERROR(checkpoint.Read(*stored.scale, first, absl::MakeSpan(exponents, count)));
  // Two neighbours a byte there, element j with j + 16 here.
  uint8_t* to = out.data();
  for (uint64_t b = 0; b < count; ++b) {
    const uint8_t* codes = scratch + b * kCodes;
    *to++ = exponents[b];
    for (uint32_t j = 0; j < kCodes; ++j) {
      const uint32_t shift = j % 2 * 4;
      const uint32_t low = codes[j / 2] >> shift & 15u, high = codes[8 + j / 2] >> shift & 15u;
      *to++ = static_cast<uint8_t>(low | high << 4);
    }
  }
  return OkStatus();
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
  uint8_t* rest = scratch + RoundUp<uint64_t>(bytes.size(), 16);
  QINFER_RETURN_IF_ERROR(ReadBlocks(checkpoint, stored, row, slice, rest, bytes));
  if (slice.count == count) {
    QINFER_RETURN_IF_ERROR(weights::DecodeToFloat(stored.dtype, bytes, count, out));
  } else {
    float* decoded = reinterpret_cast<float*>(rest);
    QINFER_RETURN_IF_ERROR(weights::DecodeToFloat(stored.dtype, bytes, slice.count, decoded));
    std::copy_n(decoded + (begin - slice.begin), count, out);
  }
  if (stored.scale == nullptr || stored.joined()) return OkStatus();
  return Scale(checkpoint, stored, row, begin, count, rest, out);
}

// Whole stored rows of a type that its weight format holds exactly.
bool KeepsRows(const TensorRef& ref, const StoredTensor& stored) {
  if (stored.packed || ref.transposed || (stored.scale != nullptr && !stored.joined())) {
    return false;
  }
  const StatusOr<weights::Format> exact = weights::ExactFormat(stored.dtype);
  return exact.ok() && *exact == stored.format;
}

}  // namespace

bool IsDirect(const TensorRef& ref, const StoredTensor& stored) {
  return stored.packed || (KeepsRows(ref, stored) && ref.step == 1 && !stored.joined());
}

bool IsGathered(const TensorRef& ref, const StoredTensor& stored) {
  return KeepsRows(ref, stored) && !IsDirect(ref, stored);
}

uint64_t RowScratchBytes(const TensorRef& ref, const StoredTensor& stored, uint64_t cols) {
  // Of a stored row that is transposed: what sixteen of its columns span.
  const uint64_t span =
      std::min<uint64_t>(stored.cols, (kMostRows - 1) * uint64_t{ref.column_step} + 1);
  const uint64_t most = ref.transposed ? std::max(kMostRows, span) : cols;
  const Slice slice = Cover(stored.dtype, Info(stored.dtype).block - 1, most);
  const uint64_t blocks = RoundUp<uint64_t>(BytesOf(stored.dtype, slice.count), 16);
  uint64_t bytes = blocks + slice.count * sizeof(float);
  if (stored.joined()) {
    bytes += blocks;
  } else if (stored.scale != nullptr) {
    bytes += 2 * RoundUp<uint64_t>(
                     CeilDiv<uint64_t>(stored.cols, stored.scale_cols) * sizeof(float), 16);
  }
  if (ref.transposed) bytes += RoundUp<uint64_t>(most * sizeof(float), 16);
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
  // Neighbours of a stored row that hold one input of `count` outputs.
  const uint64_t step = ref.column_step, span = (count - 1) * step + 1;
  float* column = reinterpret_cast<float*>(scratch);
  uint8_t* rest = scratch + RoundUp<uint64_t>(std::max(kMostRows, span) * sizeof(float), 16);
  for (uint64_t c = 0; c < cols; ++c) {
    QINFER_RETURN_IF_ERROR(ReadSlice(checkpoint, stored, StoredRow(ref, part, c),
                                     ref.column + first * step, span, rest, column));
    for (uint64_t r = 0; r < count; ++r) out[r * cols + c] = column[r * step];
  }
  return OkStatus();
}

Status ReadStoredRows(const format::Checkpoint& checkpoint, const TensorRef& ref,
                      const StoredTensor& stored, uint32_t part, uint64_t first, uint64_t count,
                      uint8_t* scratch, uint8_t* out) {
  const uint64_t row_bytes = BytesOf(stored.dtype, stored.cols);
  for (uint64_t r = 0; r < count; ++r) {
    QINFER_RETURN_IF_ERROR(ReadBlocks(checkpoint, stored, StoredRow(ref, part, first + r),
                                      {0, stored.cols}, scratch,
                                      absl::MakeSpan(out + r * row_bytes, row_bytes)));
  }
  return OkStatus();
}

}  // namespace qinfer::model
