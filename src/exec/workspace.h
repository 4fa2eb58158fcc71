// The buffers of a forward pass: one block, cut up by the same code that plans its size.
#pragma once

#include <cstdint>

#include "core/memory.h"
#include "exec/forward.h"

namespace qinfer::exec {

constexpr uint32_t kMaxTokenTile = 128;     // tokens of one matrix unit
constexpr uint32_t kMaxAttentionTile = 32;  // queries of one attention unit
constexpr uint32_t kMaxLanes = 256;

// A segment of the batch in flight.
struct Segment {
  kv::Sequence* sequence;
  const uint8_t* const* pages;  // of the layer at hand
  uint32_t first_page;
  uint32_t first_token, tokens, position;
  uint32_t rope_length;              // of the whole sequence, for ropes that depend on it
  uint32_t tile, parts, first_unit;  // how its attention is cut
};

struct Workspace {
  // Token rows of one width each; strides in elements.
  struct Rows {
    float* data = nullptr;
    size_t stride = 0;
    float* row(size_t t) const { return data + t * stride; }
  };

  Rows hidden, branch, x, q, k, v, attention, gate, up, head_x;
  kernels::Activations x_codes, attention_codes, down_codes, head_codes;
  float* logits = nullptr;  // [max_logit_rows][vocab_size]
  int32_t* tokens = nullptr;
  uint32_t* positions = nullptr;
  uint32_t* segment_of = nullptr;
  uint32_t* logit_tokens = nullptr;  // the token of each wanted row
  Segment* segments = nullptr;
  float* cosines = nullptr;  // [rope][token][rope_stride]
  float* sines = nullptr;
  size_t rope_stride = 0;
  uint8_t* scratch = nullptr;  // [lane][scratch_stride]
  size_t scratch_stride = 0;
  // For layers on their own: F32 pages of one sequence.
  uint8_t* pages = nullptr;
  const uint8_t** page_table = nullptr;
  size_t page_bytes = 0;
  uint32_t page_count = 0;

  uint32_t lanes = 1;
  Buffer block;

  // Sets every pointer relative to `base` (which may be null, to plan) and returns the size.
  size_t Cut(const model::ModelSpec& spec, const ForwardOptions& options, const Context& context,
             bool layers_only, uint8_t* base);
};

}  // namespace qinfer::exec
