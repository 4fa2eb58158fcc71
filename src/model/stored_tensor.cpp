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

// The last of the rows (of a vector: elements) that a reference names lies below `end`.
bool Reaches(const TensorRef& ref, uint64_t parts, uint64_t rows, uint64_t end) {
  uint64_t within = 0, before = 0, last = 0;
  return rows > 0 && parts > 0 && ref.step > 0 &&
         CheckedMul<uint64_t>(rows - 1, ref.step, &within) &&
         CheckedMul<uint64_t>(parts - 1, ref.stride, &before) &&
         CheckedAdd(within, before, &last) && CheckedAdd(last, ref.row_begin, &last) && last < end;
}

bool MatrixFits(const TensorUse& use, const StoredTensor& stored) {
  const TensorRef& ref = *use.ref;
  if (stored.packed) {
    if (ref.transposed || stored.parts != use.parts) return false;
    if (use.parts > 1) return stored.rows == use.rows && stored.cols == use.cols;
  }
  if (ref.parts > 0 && ref.parts != use.parts) return false;
  if (ref.transposed) {
    const bool whole = ref.column == 0 && ref.column_step == 1;
    const uint64_t last = ref.column + (uint64_t{use.rows} - 1) * ref.column_step;
    return (whole ? stored.cols == use.rows : ref.column_step > 0 && last < stored.cols) &&
           Reaches(ref, use.parts, use.cols, stored.rows);
  }
  if (stored.cols != use.cols) return false;
  if (use.parts == 1 && ref.rows == 0 && ref.row_begin == 0 && ref.step == 1) {
    return stored.rows == use.rows;
  }
  if (use.parts > 1 && IsPlain(ref, use.rows)) {
    return stored.rows == uint64_t{use.parts} * use.rows;
  }
  return (ref.rows == 0 || ref.rows == use.rows) && Reaches(ref, use.parts, use.rows, stored.rows);
}

bool VectorFits(const TensorUse& use, const StoredTensor& stored) {
  const TensorRef& ref = *use.ref;
  uint64_t elements = 0;
  if (!CheckedMul(stored.rows, stored.cols, &elements)) return false;
  if (use.parts == 1 && ref.rows == 0 && ref.row_begin == 0 && ref.step == 1) {
    return stored.rows == 1 && stored.cols == use.cols;
  }
  return (ref.rows == 0 || ref.rows == use.cols) && Reaches(ref, use.parts, use.cols, elements);
}

}  // namespace

bool IsPlain(const TensorRef& ref, uint32_t rows) {
  return ref.row_begin == 0 && ref.step == 1 && !ref.transposed &&
         (ref.parts <= 1 || ref.stride == rows);
}

StatusOr<StoredTensor> FindStored(const format::Checkpoint& checkpoint, const TensorUse& use) {
  const std::string name = use.ref->name;
  const std::string where = checkpoint.name() + ": tensor " + name;
  StoredTensor stored;
  if (checkpoint.container() == format::Container::kConfigOnly) {
    // What such a model usually has.
    stored.dtype = use.vector ? DType::kF32 : IsMxName(name) ? DType::kMxfp4 : DType::kF16;
    stored.rows = use.rows;
    stored.cols = use.cols;
    QINFER_ASSIGN_OR_RETURN(stored.format, weights::ExactFormat(stored.dtype));
    return stored;
  }
  stored.info = checkpoint.Find(name);
  if (stored.info == nullptr) return FormatError(where + ": missing");
  QINFER_RETURN_IF_ERROR(DescribeStored(checkpoint, where, &stored));
  if (use.vector ? !VectorFits(use, stored) : !MatrixFits(use, stored)) {
    std::string expected =
        use.vector ? StrCat(use.cols, "]") : StrCat(use.rows, ", ", use.cols, "]");
    if (use.parts > 1) expected = StrCat(use.parts, ", ", expected);
    return FormatError(StrCat(where, ": its shape is ", Shape(*stored.info), ", expected [",
                              expected, use.ref->transposed ? " transposed" : ""));
  }
  if (use.vector && !IsVectorType(stored.dtype)) {
    return UnsupportedError(StrCat(where, ": type ", std::string(stored.info->dtype_name),
                                   " cannot be used for a norm or bias; F32, F16 and BF16 can"));
  }
  if (stored.packed && !IsPlain(*use.ref, use.rows) && use.ref->step != 1) {
    return FormatError(where + ": interleaved rows cannot be taken from packed panels");
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
