// Hidden states at the two ends of the layers: made from token ids by reading single rows of the
// source's embedding, and brought through the final norm; without loading either matrix.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "exec/model.h"
#include "format/checkpoint.h"
#include "model/spec.h"

namespace qinfer::quant {

// hidden[t] = the embedding of tokens[t], scaled as the spec says: [tokens][hidden_size].
Status EmbedFromSource(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                       absl::Span<const int32_t> tokens, const exec::Context& context,
                       float* hidden);

// A small tensor (norm, bias) as F32, with `offset` added: `out` has `count` floats.
Status ReadSmall(const format::Checkpoint& checkpoint, const model::TensorRef& ref, uint64_t count,
                 float offset, const exec::Context& context, float* out);

// The final norm, in place.
Status ApplyFinalNorm(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                      const exec::Context& context, uint32_t tokens, float* hidden);

// What the first three take at most for a while.
StatusOr<uint64_t> EndBytes(const format::Checkpoint& checkpoint, const model::ModelSpec& spec);

}  // namespace qinfer::quant
