// Single rows of the embedding, small tensors, and the size of a loaded layer.
#include "quant/hidden_states.h"

#include <algorithm>

#include "quant/source_rows.h"

namespace qinfer::quant {
namespace {

StatusOr<const format::TensorInfo*> FindTensor(const format::Checkpoint& checkpoint,
                                               const std::string& name) {
  const format::TensorInfo* info = checkpoint.Find(name);
  if (info == nullptr) {
    return FormatError(StrCat(checkpoint.name(), ": no tensor \"", name, "\""));
  }
  return info;
}

}  // namespace

Status EmbedFromSource(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                       absl::Span<const int32_t> tokens, const exec::Context& context,
                       float* hidden) {
  QINFER_ASSIGN_OR_RETURN(const format::TensorInfo* info,
                          FindTensor(checkpoint, spec.embedding.name));
  QINFER_ASSIGN_OR_RETURN(const SourceTensor tensor, DescribeTensor(checkpoint, *info));
  if (tensor.cols() != spec.hidden_size || tensor.rows() < spec.vocab_size) {
    return FormatError(StrCat(checkpoint.name(), ": the embedding \"", spec.embedding.name,
                              "\" is [", tensor.rows(), ", ", tensor.cols(), "], expected [",
                              spec.vocab_size, ", ", spec.hidden_size, "]"));
  }
  const uint64_t unit = tensor.packed ? kernels::kPanelRows : 1;
  QINFER_ASSIGN_OR_RETURN(const uint64_t bytes, SourceRowBytes(tensor, 0, unit));
  QINFER_ASSIGN_OR_RETURN(Buffer row, Buffer::Create(context.memory, bytes, "an embedding row"));
  for (size_t t = 0; t < tokens.size(); ++t) {
    const uint64_t id = static_cast<uint64_t>(tokens[t]);
    if (tokens[t] < 0 || id >= spec.vocab_size) {
      return MisuseError(
          StrCat("token ", tokens[t], " is outside the vocabulary of ", spec.vocab_size));
    }
    const uint64_t first = id / unit * unit;
    const uint64_t count = std::min(unit, tensor.rows() - first);
    QINFER_RETURN_IF_ERROR(ReadSourceRows(checkpoint, tensor, first, count,
                                          absl::MakeSpan(row.as<uint8_t>(), row.size())));
    float* out = hidden + t * spec.hidden_size;
    QINFER_RETURN_IF_ERROR(DecodeSourceRow(tensor,
                                           absl::MakeConstSpan(row.as<const uint8_t>(), row.size()),
                                           first, id, *context.kernels, out));
    if (spec.embedding_scale != 1.0f) {
      context.kernels->scale(out, spec.embedding_scale, spec.hidden_size);
    }
  }
  return OkStatus();
}

Status ReadSmall(const format::Checkpoint& checkpoint, const model::TensorRef& ref, uint64_t count,
                 float offset, const exec::Context& context, float* out) {
  QINFER_ASSIGN_OR_RETURN(const format::TensorInfo* info, FindTensor(checkpoint, ref.name));
  QINFER_ASSIGN_OR_RETURN(const SourceTensor tensor, DescribeTensor(checkpoint, *info));
  const uint64_t span = (count - 1) * ref.step + 1;  // of elements that lie `step` apart
  uint64_t skip = 0, bytes = 0;
  if (count == 0 || !TensorBytes(tensor.dtype, ref.row_begin, &skip) ||
      !TensorBytes(tensor.dtype, span, &bytes) || skip + bytes > info->bytes) {
    return FormatError(StrCat(checkpoint.name(), ": tensor \"", ref.name, "\" has fewer than ",
                              ref.row_begin + span, " elements"));
  }
  QINFER_ASSIGN_OR_RETURN(Buffer raw, Buffer::Create(context.memory, bytes, "a small tensor"));
  const auto read = absl::MakeSpan(raw.as<uint8_t>(), raw.size());
  QINFER_RETURN_IF_ERROR(checkpoint.Read(*info, skip, read));
  if (ref.step == 1) {
    QINFER_RETURN_IF_ERROR(weights::DecodeToFloat(tensor.dtype, read, count, out));
  } else {
    uint64_t element = 0;
    if (!TensorBytes(tensor.dtype, 1, &element)) {
      return FormatError(StrCat(checkpoint.name(), ": tensor \"", ref.name,
                                "\" holds blocks, which cannot be taken apart"));
    }
    for (uint64_t i = 0; i < count; ++i) {
      QINFER_RETURN_IF_ERROR(weights::DecodeToFloat(
          tensor.dtype, read.subspan(i * ref.step * element, element), 1, out + i));
    }
  }
  if (offset != 0.0f) {
    for (uint64_t i = 0; i < count; ++i) out[i] += offset;
  }
  return OkStatus();
}

Status ApplyFinalNorm(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                      const exec::Context& context, uint32_t tokens, float* hidden) {
  const uint32_t n = spec.hidden_size;
  QINFER_ASSIGN_OR_RETURN(Buffer weight,
                          Buffer::Create(context.memory, n * sizeof(float), "the final norm"));
  QINFER_RETURN_IF_ERROR(ReadSmall(checkpoint, spec.final_norm, n, spec.norm_weight_offset, context,
                                   weight.as<float>()));
  for (uint32_t t = 0; t < tokens; ++t) {
    float* row = hidden + size_t{t} * n;
    context.kernels->rms_norm(row, weight.as<float>(), n, spec.norm_epsilon, row);
  }
  return OkStatus();
}

StatusOr<uint64_t> EndBytes(const format::Checkpoint& checkpoint, const model::ModelSpec& spec) {
  QINFER_ASSIGN_OR_RETURN(const format::TensorInfo* info,
                          FindTensor(checkpoint, spec.embedding.name));
  QINFER_ASSIGN_OR_RETURN(const SourceTensor tensor, DescribeTensor(checkpoint, *info));
  QINFER_ASSIGN_OR_RETURN(const uint64_t row,
                          SourceRowBytes(tensor, 0, tensor.packed ? kernels::kPanelRows : 1));
  return std::max<uint64_t>(row, 2 * sizeof(float) * spec.hidden_size);  // a norm and its source
}

}  // namespace qinfer::quant
