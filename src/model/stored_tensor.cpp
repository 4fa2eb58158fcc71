// Finding tensors and checking them against a specification.
#include "model/stored_tensor.h"

#include "core/checked.h"

namespace qinfer::model {
namespace {

std::string Shape(const format::TensorInfo& info) {
  std::string text = "[";
  for (uint32_t i = 0; i < info.rank; ++i) text += StrCat(i > 0 ? ", " : "", info.shape[i]);
  return text + "]";
}

bool IsVectorType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF64;
}

}  // namespace

StatusOr<StoredTensor> FindStored(const format::Checkpoint& checkpoint, const TensorUse& use) {
  const std::string name = use.ref->name;
  const std::string where = checkpoint.name() + ": tensor " + name;
  StoredTensor stored;
  if (checkpoint.container() == format::Container::kConfigOnly) {
    stored.dtype = use.vector ? DType::kF32 : DType::kF16;  // what such a model usually has
    stored.rows = use.rows;
    stored.cols = use.cols;
    QINFER_ASSIGN_OR_RETURN(stored.format, weights::ExactFormat(stored.dtype));
    return stored;
  }
  stored.info = checkpoint.Find(name);
  if (stored.info == nullptr) return FormatError(where + ": missing");
  QINFER_RETURN_IF_ERROR(DescribeStored(checkpoint, where, &stored));
  const uint64_t needed = use.ref->rows != 0 ? use.ref->rows : use.rows;
  uint64_t end = 0;
  const bool rows_fit = CheckedAdd(use.ref->row_begin, needed, &end) &&
                        (use.ref->rows == 0 && use.ref->row_begin == 0 ? stored.rows == use.rows
                                                                       : end <= stored.rows);
  if (needed != use.rows || !rows_fit || stored.cols != use.cols) {
    return FormatError(StrCat(
        where, ": its shape is ", Shape(*stored.info), ", expected ",
        use.vector ? StrCat("[", use.cols, "]") : StrCat("[", use.rows, ", ", use.cols, "]")));
  }
  if (use.vector && !IsVectorType(stored.dtype)) {
    return UnsupportedError(StrCat(where, ": type ", std::string(stored.info->dtype_name),
                                   " cannot be used for a norm or bias; F32, F16 and BF16 can"));
  }
  return stored;
}

Status ValidateTensors(const ModelSpec& spec, const format::Checkpoint& checkpoint) {
  Status status;
  const auto check = [&](const TensorUse& use) {
    if (status.ok()) status = FindStored(checkpoint, use).status();
  };
  ForEachEndTensor(spec, check);
  for (const LayerSpec& layer : spec.layers) ForEachLayerTensor(spec, layer, check);
  return status;
}

}  // namespace qinfer::model
