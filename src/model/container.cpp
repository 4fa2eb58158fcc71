// What differs between containers when a specification is read or a tensor is looked at: .qinfer
// files carry specification, logical shapes and formats; the others are described by their types.
#include "format/qinfer_file.h"
#include "model/spec_source.h"
#include "model/stored_tensor.h"

namespace qinfer::model {
namespace {

Status DescribePacked(const format::QinferFile& file, const std::string& where,
                      StoredTensor* stored) {
  const format::QinferTensor* tensor = file.Find(stored->info->name);
  if (tensor == nullptr) return FormatError(where + ": missing");
  if (tensor->rank != 1 && tensor->rank != 2) {
    return FormatError(
        StrCat(where, ": it has ", tensor->rank, " dimensions; 1 or 2 are expected"));
  }
  StatusOr<weights::Format> format = weights::ParseFormat(tensor->format);
  if (!format.ok()) return Annotate(format.status(), where);
  stored->format = *format;
  stored->rows = tensor->rank == 2 ? tensor->shape[0] : 1;
  stored->cols = tensor->rank == 2 ? tensor->shape[1] : tensor->shape[0];
  uint64_t expected = 0, panel_bytes = 0;
  if (tensor->rank == 2) {
    stored->packed = true;
    if (!weights::PackedSize(*format, stored->rows, stored->cols, &panel_bytes, &expected)) {
      return FormatError(where + ": its shape does not go with its format");
    }
  } else {
    // Vectors are plain arrays.
    switch (format->kind) {
      case kernels::WeightKind::kF32:
        stored->dtype = DType::kF32;
        break;
      case kernels::WeightKind::kF16:
        stored->dtype = DType::kF16;
        break;
      case kernels::WeightKind::kBF16:
        stored->dtype = DType::kBF16;
        break;
      default:
        return FormatError(where + ": a vector must be F32, F16 or BF16");
    }
    if (!TensorBytes(stored->dtype, stored->cols, &expected)) {
      return FormatError(where + ": too large");
    }
  }
  if (tensor->bytes != expected) {
    return FormatError(StrCat(where, ": it has ", tensor->bytes, " bytes, its shape and format ",
                              std::string(tensor->format), " need ", expected));
  }
  return OkStatus();
}

}  // namespace

StatusOr<ModelSpec> SpecFromQinfer(const format::Checkpoint& checkpoint) {
  const std::string_view json = checkpoint.qinfer()->Metadata(format::kMetaSpec);
  const std::string where = checkpoint.name() + ": metadata " + std::string(format::kMetaSpec);
  if (json.empty()) return FormatError(where + ": missing; the file is not a complete model");
  StatusOr<ModelSpec> spec = SpecFromJson(json);
  if (!spec.ok()) return Annotate(spec.status(), where);
  return spec;
}

Status DescribeStored(const format::Checkpoint& checkpoint, const std::string& where,
                      StoredTensor* stored) {
  const format::TensorInfo& info = *stored->info;
  if (checkpoint.qinfer() != nullptr) return DescribePacked(*checkpoint.qinfer(), where, stored);
  if (info.rank != 1 && info.rank != 2) {
    return FormatError(StrCat(where, ": it has ", info.rank, " dimensions; 1 or 2 are expected"));
  }
  stored->dtype = info.dtype;
  stored->rows = info.rank == 2 ? info.shape[0] : 1;
  stored->cols = info.rank == 2 ? info.shape[1] : info.shape[0];
  if (info.rank == 1) return OkStatus();
  StatusOr<weights::Format> format = weights::ExactFormat(info.dtype);
  if (!format.ok()) return Annotate(format.status(), where);
  stored->format = *format;
  return OkStatus();
}

}  // namespace qinfer::model
