// What differs between containers when a specification is read or a tensor is looked at: .qinfer
// files carry specification, logical shapes and formats; the others are described by their types.
#include "core/checked.h"
#include "format/qinfer_file.h"
#include "model/spec_source.h"
#include "model/stored_tensor.h"

namespace qinfer::model {
namespace {

constexpr std::string_view kMxBlocks = "_blocks", kMxScales = "_scales";
constexpr std::string_view kFp8Scales[] = {"_scale_inv", "_scale"};  // whichever is there

bool EndsIn(std::string_view name, std::string_view suffix) {
  return name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix;
}

// The tensor whose name has another ending.
const format::TensorInfo* FindSibling(const format::Checkpoint& checkpoint, std::string_view name,
                                      std::string_view suffix, std::string_view other) {
  return checkpoint.Find(std::string(name.substr(0, name.size() - suffix.size())).append(other));
}

Status DescribePacked(const format::QinferFile& file, const std::string& where,
                      StoredTensor* stored) {
  const format::QinferTensor* tensor = file.Find(stored->info->name);
  if (tensor == nullptr) return FormatError(where + ": missing");
  if (tensor->rank < 1 || tensor->rank > 3) {
    return FormatError(
        StrCat(where, ": it has ", tensor->rank, " dimensions; 1 to 3 are expected"));
  }
  StatusOr<weights::Format> format = weights::ParseFormat(tensor->format);
  if (!format.ok()) return Annotate(format.status(), where);
  stored->format = *format;
  stored->activation_scale = tensor->activation_scale;
  stored->rows = tensor->rank >= 2 ? tensor->shape[tensor->rank - 2] : 1;
  stored->cols = tensor->shape[tensor->rank - 1];
  uint64_t expected = 0, panel_bytes = 0;
  if (tensor->rank >= 2) {
    stored->packed = true;
    const uint64_t parts = tensor->rank == 3 ? tensor->shape[0] : 1;
    if (parts == 0 || parts > UINT32_MAX ||
        !weights::PackedSize(*format, stored->rows, stored->cols, &panel_bytes, &expected) ||
        !CheckedMul(expected, parts, &expected)) {
      return FormatError(where + ": its shape does not go with its format");
    }
    stored->parts = static_cast<uint32_t>(parts);
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
  StatusOr<ModelSpec> spec = SpecFromJson(json, checkpoint.memory());
  if (!spec.ok()) return Annotate(spec.status(), where);
  return spec;
}

Status DescribeStored(const format::Checkpoint& checkpoint, const std::string& where,
                      StoredTensor* stored) {
  const format::TensorInfo& info = *stored->info;
  if (checkpoint.qinfer() != nullptr) return DescribePacked(*checkpoint.qinfer(), where, stored);
  if (const format::TensorInfo* scales = FindMxScales(checkpoint, info)) {
    stored->dtype = DType::kMxfp4;
    stored->scale = scales;
    stored->scale_rows = 1;
    stored->scale_cols = Info(DType::kMxfp4).block;
    stored->rows = info.shape[0] * info.shape[1];
    stored->cols = info.shape[2] * stored->scale_cols;
    QINFER_ASSIGN_OR_RETURN(stored->format, weights::ExactFormat(DType::kMxfp4));
    return OkStatus();
  }
  if (info.rank < 1 || info.rank > 3) {
    return FormatError(StrCat(where, ": it has ", info.rank, " dimensions; 1 to 3 are expected"));
  }
  stored->dtype = info.dtype;
  stored->cols = info.shape[info.rank - 1];
  stored->rows = 1;
  for (uint32_t d = 0; d + 1 < info.rank; ++d) stored->rows *= info.shape[d];  // checked: elements
  if (info.rank == 1) return OkStatus();
  if (info.dtype == DType::kF8E4M3) {
    // What such checkpoints were made from, and what they are run in.
    stored->format.kind = kernels::WeightKind::kBF16;
    return FindScale(checkpoint, where, stored);
  }
  StatusOr<weights::Format> format = weights::ExactFormat(info.dtype, info.dtype_name);
  if (!format.ok()) return Annotate(format.status(), where);
  stored->format = *format;
  return OkStatus();
}

const format::TensorInfo* FindMxScales(const format::Checkpoint& checkpoint,
                                       const format::TensorInfo& info) {
  if (info.dtype != DType::kU8 || info.rank != 4 || info.shape[3] != 16 ||
      !EndsIn(info.name, kMxBlocks)) {
    return nullptr;
  }
  const format::TensorInfo* scales = FindSibling(checkpoint, info.name, kMxBlocks, kMxScales);
  if (scales == nullptr || scales->dtype != DType::kU8 || scales->rank != 3) return nullptr;
  for (uint32_t d = 0; d < 3; ++d) {
    if (scales->shape[d] != info.shape[d]) return nullptr;
  }
  return scales;
}

bool IsMxName(std::string_view name) { return EndsIn(name, kMxBlocks); }

bool IsMxScales(const format::Checkpoint& checkpoint, const format::TensorInfo& info) {
  if (!EndsIn(info.name, kMxScales)) return false;
  const format::TensorInfo* blocks = FindSibling(checkpoint, info.name, kMxScales, kMxBlocks);
  return blocks != nullptr && FindMxScales(checkpoint, *blocks) == &info;
}

bool IsScales(const format::Checkpoint& checkpoint, const format::TensorInfo& info) {
  if (IsMxScales(checkpoint, info)) return true;
  for (const std::string_view suffix : kFp8Scales) {
    if (!EndsIn(info.name, suffix)) continue;
    const format::TensorInfo* values = FindSibling(checkpoint, info.name, suffix, "");
    if (values != nullptr && values->dtype == DType::kF8E4M3) return true;
  }
  return false;
}

Status FindScale(const format::Checkpoint& checkpoint, const std::string& where,
                 StoredTensor* stored) {
  const std::string name(stored->info->name);
  const format::TensorInfo* scale = nullptr;
  for (const std::string_view suffix : kFp8Scales) {
    if (scale == nullptr) scale = FindSibling(checkpoint, name, "", suffix);
  }
  if (scale == nullptr) {
    return FormatError(StrCat(where, ": FP8 values without their scales (", name,
                              "_scale_inv is in none of the files)"));
  }
  if (scale->rank > 2 || (scale->dtype != DType::kF32 && scale->dtype != DType::kF16 &&
                          scale->dtype != DType::kBF16)) {
    return FormatError(StrCat(checkpoint.name(), ": tensor ", std::string(scale->name),
                              ": scales must be a matrix of F32, F16 or BF16"));
  }
  const uint64_t high = scale->rank == 2 ? scale->shape[0] : 1;
  const uint64_t wide = scale->rank == 0 ? 1 : scale->shape[scale->rank - 1];
  // Which size of block gives so many of them; 128 wherever that is possible.
  const auto block = [](uint64_t all, uint64_t blocks) -> uint32_t {
    for (const uint32_t size : {128u, 1u, 64u, 32u, 16u, 256u, 512u}) {
      if (CeilDiv<uint64_t>(all, size) == blocks) return size;
    }
    return blocks == 1 ? static_cast<uint32_t>(all) : 0u;
  };
  if (stored->rows > UINT32_MAX || stored->cols > UINT32_MAX) {
    return FormatError(where + ": too large");
  }
  stored->scale = scale;
  stored->scale_rows = block(stored->rows, high);
  stored->scale_cols = block(stored->cols, wide);
  if (stored->scale_rows == 0 || stored->scale_cols == 0) {
    return FormatError(StrCat(where, ": ", high, " x ", wide, " scales do not go with ",
                              stored->rows, " x ", stored->cols, " values"));
  }
  return OkStatus();
}

}  // namespace qinfer::model
