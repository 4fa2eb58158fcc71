// Reading and decoding rows of source tensors.
#include "quant/source_rows.h"

#include <algorithm>

#include "core/checked.h"
#include "model/stored_tensor.h"

namespace qinfer::quant {
namespace {

// The element type that a .qinfer file's format text names: "f32", "f16", "i64", ...
DType TypeNamed(std::string_view name) {
  for (uint32_t i = 0; i < static_cast<uint32_t>(DType::kOther); ++i) {
    const DType type = static_cast<DType>(i);
    const absl::string_view known = Info(type).name;
    if (known.size() == name.size() &&
        std::equal(known.begin(), known.end(), name.begin(), [](char upper, char lower) {
          return (upper >= 'A' && upper <= 'Z' ? upper - 'A' + 'a' : upper) == lower;
        })) {
      return type;
    }
  }
  return DType::kOther;
}

}  // namespace

StatusOr<SourceTensor> DescribeTensor(const format::Checkpoint& checkpoint,
                                      const format::TensorInfo& info) {
  SourceTensor tensor;
  tensor.info = &info;
  tensor.dtype = info.dtype;
  tensor.rank = info.rank;
  std::copy(std::begin(info.shape), std::end(info.shape), std::begin(tensor.shape));
  if (checkpoint.qinfer() == nullptr) return tensor;
  if (info.rank < 2 || info.rank > 3) {  // plain elements, under the name of their type
    tensor.dtype = TypeNamed(info.dtype_name);
    return tensor;
  }
  model::StoredTensor stored;
  stored.info = &info;
  const std::string where = StrCat(checkpoint.name(), ": tensor \"", std::string(info.name), "\"");
  QINFER_RETURN_IF_ERROR(model::DescribeStored(checkpoint, where, &stored));
  if (!stored.packed) return tensor;
  tensor.packed = true;
  tensor.format = stored.format;
  tensor.rank = 2;
  tensor.parts = stored.parts;
  tensor.shape[0] = stored.rows;
  tensor.shape[1] = stored.cols;
  tensor.shape[2] = tensor.shape[3] = 1;
  uint64_t bytes = 0;
  if (!weights::PackedSize(tensor.format, stored.rows, stored.cols, &tensor.panel_bytes, &bytes) ||
      bytes > info.bytes / std::max(1u, stored.parts)) {
    return FormatError(StrCat(where, " is shorter than its format says"));
  }
  return tensor;
}

StatusOr<uint64_t> SourceRowBytes(const SourceTensor& tensor, uint64_t first, uint64_t count) {
  const std::string name(tensor.info->name);
  if (tensor.packed) {
    const uint64_t begin = first / kernels::kPanelRows;
    const uint64_t end = CeilDiv<uint64_t>(first + count, kernels::kPanelRows);
    return (end - begin) * tensor.panel_bytes;
  }
  uint64_t row_bytes = 0, bytes = 0;
  if (!TensorBytes(tensor.dtype, tensor.cols(), &row_bytes) ||
      !CheckedMul(row_bytes, count, &bytes)) {
    return FormatError(StrCat("tensor \"", name, "\": rows of ", tensor.cols(),
                              " are not whole blocks of ", std::string(tensor.info->dtype_name)));
  }
  return bytes;
}

Status ReadSourceRows(const format::Checkpoint& checkpoint, const SourceTensor& tensor,
                      uint64_t first, uint64_t count, absl::Span<uint8_t> out) {
  uint64_t begin = first / kernels::kPanelRows * tensor.panel_bytes;
  if (!tensor.packed) {
    QINFER_ASSIGN_OR_RETURN(begin, SourceRowBytes(tensor, 0, first));
  }
  QINFER_ASSIGN_OR_RETURN(const uint64_t bytes, SourceRowBytes(tensor, first, count));
  if (out.size() < bytes) return InternalError("a buffer for source rows is too small");
  return checkpoint.Read(*tensor.info, begin, out.first(bytes));
}

Status DecodeSourceRow(const SourceTensor& tensor, absl::Span<const uint8_t> chunk, uint64_t first,
                       uint64_t row, const kernels::Table& kernels, float* out) {
  if (!tensor.packed) {
    QINFER_ASSIGN_OR_RETURN(const uint64_t row_bytes, SourceRowBytes(tensor, 0, 1));
    return weights::DecodeToFloat(tensor.dtype, chunk.subspan((row - first) * row_bytes, row_bytes),
                                  tensor.cols(), out);
  }
  // One panel of the matrix, seen as a matrix of its own.
  const uint64_t first_panel = first / kernels::kPanelRows, panel = row / kernels::kPanelRows;
  const uint64_t panel_begin = panel * kernels::kPanelRows;
  const uint64_t rows = std::min<uint64_t>(kernels::kPanelRows, tensor.rows() - panel_begin);
  QINFER_ASSIGN_OR_RETURN(
      const kernels::Matrix matrix,
      weights::View(tensor.format, rows, tensor.cols(),
                    chunk.subspan((panel - first_panel) * tensor.panel_bytes, tensor.panel_bytes),
                    {tensor.info->name.data(), tensor.info->name.size()}));
  kernels.decode_row(matrix, static_cast<uint32_t>(row - panel_begin), out);
  return OkStatus();
}

}  // namespace qinfer::quant
