// What differs between containers when a specification is read or a tensor is looked at: .qinfer
// files carry both ready-made, the others are described by their types.
#include "model/spec_source.h"
#include "model/stored_tensor.h"

namespace qinfer::model {

StatusOr<ModelSpec> SpecFromQinfer(const format::Checkpoint& checkpoint) {
  return UnsupportedError(checkpoint.name() + ": .qinfer files cannot be read yet");
}

Status DescribeStored(const format::Checkpoint& checkpoint, const std::string& where,
                      StoredTensor* stored) {
  const format::TensorInfo& info = *stored->info;
  if (checkpoint.qinfer() != nullptr) return SpecFromQinfer(checkpoint).status();
  if (info.rank != 1 && info.rank != 2) {
    return FormatError(StrCat(where, ": it has ", info.rank, " dimensions; 1 or 2 are expected"));
  }
  stored->rows = info.rank == 2 ? info.shape[0] : 1;
  stored->cols = info.rank == 2 ? info.shape[1] : info.shape[0];
  if (info.rank == 1) return OkStatus();
  StatusOr<weights::Format> format = weights::ExactFormat(info.dtype);
  if (!format.ok()) return Annotate(format.status(), where);
  stored->format = *format;
  return OkStatus();
}

}  // namespace qinfer::model
