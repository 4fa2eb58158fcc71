// A tensor as a checkpoint stores it, seen through what a specification needs: logical shape and
// weight format, whatever the container.
#pragma once

#include "core/status.h"
#include "format/checkpoint.h"
#include "model/spec.h"
#include "model/tensor_uses.h"
#include "weights/format.h"

namespace qinfer::model {

struct StoredTensor {
  const format::TensorInfo* info = nullptr;  // null for a configuration without weights
  DType dtype = DType::kF32;      // of the values, or of the source's blocks; not for packed ones
  bool packed = false;            // panels of `format` as kernels take them (.qinfer)
  weights::Format format;         // of a matrix: packed, or the exact one of the source's type
  uint64_t rows = 0, cols = 0;    // logical; a vector has rows 1
  uint32_t activation_block = 0;  // declared by the file; 0 = not
};

// Finds the tensor of a use and checks its shape and type. FormatError names the tensor, its shape
// and the one expected; UnsupportedError a type that cannot be used.
StatusOr<StoredTensor> FindStored(const format::Checkpoint& checkpoint, const TensorUse& use);

// Container-dependent part of the above: fills packed, format and logical shape from `info`.
Status DescribeStored(const format::Checkpoint& checkpoint, const std::string& where,
                      StoredTensor* stored);

}  // namespace qinfer::model
