// A tensor as a checkpoint stores it, seen through what a specification needs: logical shape and
// weight format, whatever the container. How its rows are read is in stored_rows.h.
#pragma once

#include "core/status.h"
#include "format/checkpoint.h"
#include "model/spec.h"
#include "model/tensor_uses.h"
#include "weights/format.h"

namespace qinfer::model {

struct StoredTensor {
  const format::TensorInfo* info = nullptr;  // null for a configuration without weights
  DType dtype = DType::kF32;    // of the values, or of the source's blocks; not for packed ones
  bool packed = false;          // panels of `format` as kernels take them (.qinfer)
  weights::Format format;       // of a matrix: packed, exact for the source's type, or as loaded
  uint64_t rows = 0, cols = 0;  // of the stored matrix, outer dimensions flattened; a vector has 1
  uint32_t parts = 1;           // packed: matrices of `rows` rows one after the other
  uint32_t activation_block = 0;  // declared by the file; 0 = not
  float activation_scale = 0.0f;  // the same
  // FP8: factors of blocks of scale_rows x scale_cols values. MXFP4 in safetensors: the exponents,
  // one for 32 values of a row.
  const format::TensorInfo* scale = nullptr;
  uint32_t scale_rows = 0, scale_cols = 0;

  // `info` holds the codes of blocks alone, and `scale` what has to be put in front of each.
  bool joined() const { return dtype == DType::kMxfp4 && scale != nullptr; }
};

// Finds the tensor of a use and checks its shape and type. FormatError names the tensor, its shape
// and the one expected; UnsupportedError a type that cannot be used.
StatusOr<StoredTensor> FindStored(const format::Checkpoint& checkpoint, const TensorUse& use);

// Container-dependent part of the above: fills packed, format and logical shape from `info`.
Status DescribeStored(const format::Checkpoint& checkpoint, const std::string& where,
                      StoredTensor* stored);

// Finds the factors of an FP8 tensor, which may lie in any shard. Without them its values mean
// nothing: FormatError.
Status FindScale(const format::Checkpoint& checkpoint, const std::string& where,
                 StoredTensor* stored);

// MXFP4 in safetensors: "X_blocks" [..., rows, cols / 32, 16] of bytes (low nibble first) beside
// "X_scales" [..., rows, cols / 32]. The scales that go with `info`, null if it is nothing such.
const format::TensorInfo* FindMxScales(const format::Checkpoint& checkpoint,
                                       const format::TensorInfo& info);

bool IsMxName(std::string_view name);  // of the first kind
// Whether `info` is the scales of such a tensor.
bool IsMxScales(const format::Checkpoint& checkpoint, const format::TensorInfo& info);
// The same, or the factors of an FP8 tensor: what becomes part of another tensor's values.
bool IsScales(const format::Checkpoint& checkpoint, const format::TensorInfo& info);

// Whether a reference is to whole stored rows in order, or to whole stacks of them.
bool IsPlain(const TensorRef& ref, uint32_t rows);

}  // namespace qinfer::model
