// The buffers of a forward pass: one block, cut up by the same code that plans its size.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/memory.h"
#include "exec/forward.h"
#include "exec/units.h"

namespace qinfer::exec {

constexpr uint32_t kMaxTokenTile = 120;     // tokens of one matrix unit
constexpr uint32_t kMaxAttentionTile = 32;  // queries of one attention unit
// Queries (tokens x heads) of one unit of latent attention, where all heads share keys.
constexpr uint32_t kMaxLatentRows = 128;
constexpr uint32_t kExpandTokens = 96;  // of one unit of expansion: whole pages
constexpr uint32_t kExpandGroup = 64;   // latents per scale of a head's transposed k_b
constexpr uint32_t kExpandHeads = 8;    // at a time
constexpr uint32_t kFewTokens = 4;      // cheaper on the caller than any barrier
// Attention that is cut into fewer units than this per lane splits heads, or keys into spans, whose
// states take so much room at most; then there are at most so many groups of units.
constexpr uint32_t kLeastUnitsALane = 2, kGroupsALane = 2 * kLeastUnitsALane;
constexpr size_t kMaxStateFloats = 256 * 1024;
// Experts whose tokens fill so many slots a lane have enough units for all lanes to end together.
constexpr uint32_t kLaneSlots = 32;

// Keys and values as attention sees them.
struct KvShape {
  uint32_t heads, key_dim, value_dim;
  bool latent;  // values are the beginnings of keys
};
inline KvShape KvShapeOf(const model::AttentionSpec& a) {
  if (a.kind == model::AttentionKind::kLatent) {
    return {1, a.latent_dim + a.rope_dim, a.latent_dim, true};
  }
  return {a.kv_heads, a.head_dim, a.v_head_dim, false};
}
// A page of one layer with F32 keys and values.
inline size_t FloatPageBytes(const KvShape& kv) {
  size_t bytes = kernels::KPlaneBytes(kernels::KvType::kF32, kv.key_dim);
  if (!kv.latent) bytes += kernels::VPlaneBytes(kernels::KvType::kF32, kv.value_dim);
  return kv.heads * bytes;
}
// Tokens of one unit of attention at most.
inline uint32_t MaxAttentionTile(const model::AttentionSpec& a) {
  if (a.kind != model::AttentionKind::kLatent) return kMaxAttentionTile;
  return std::min(kMaxAttentionTile, std::max(1u, kMaxLatentRows / a.heads));
}

// A segment of the batch in flight.
struct Segment {
  kv::Sequence* sequence;
  const uint8_t* const* pages;  // of the layer at hand
  uint32_t first_page;
  uint32_t first_token, tokens, position;
  uint32_t rope_length;  // of the whole sequence, for ropes that depend on it
  // How its attention is cut: tiles of tokens, parts of the heads that share keys, spans of keys
  // (1: all of them together).
  uint32_t tile, parts, spans, first_unit;
  uint32_t first_group;              // of units that share their outputs, where there are spans
  size_t first_state, group_floats;  // of these groups' states
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
  // Latent attention: q_a's output (normed in place), queries and sums of all heads in the latent
  // space; in `attention` lies what comes back from there, where the queries were.
  Rows q_a, absorbed, latent_out;
  kernels::Activations q_a_codes;
  kernels::Activations head_tile_codes;  // [lane][kMaxTokenTile]: of one head
  // Latent attention in the expanded form, in the place of `absorbed` and `latent_out`: keys and
  // values of `heads` heads at a time (0: never) of up to `keys` cached tokens.
  struct Expansion {
    uint32_t heads = 0, keys = 0;
    kernels::Activations codes;      // [key]: cached latents
    Rows rope;                       // [key]: the cached keys that all heads share
    uint8_t* key_weights = nullptr;  // [head]: k_b, transposed
    size_t key_weight_bytes = 0;
    uint8_t* pages = nullptr;  // of all heads' keys and values
    const uint8_t** page_table = nullptr;
    Rows out;                      // [token]: what attention gives
    Rows made_k, made_v, latents;  // [lane][kExpandTokens]
  };
  Expansion expansion;
  // Experts. A slot is a (token, rank) pair; slots lie by expert, then token.
  Rows router;  // outputs, scores for the choice, scores of groups
  Rows shared_gate, expert_out;
  // Of the experts at work: `window_slots` rows.
  Rows gathered, expert_gate, expert_up;
  kernels::Activations gathered_codes, expert_codes;
  uint32_t window_slots = 0;
  uint32_t* chosen = nullptr;        // [token][rank]: experts
  float* chosen_weights = nullptr;   // [token][rank]
  uint32_t* slot_of = nullptr;       // [token][rank]
  uint32_t* slot_tokens = nullptr;   // [slot]
  uint32_t* expert_begin = nullptr;  // [expert + 1]: slots
  struct ExpertJob* jobs = nullptr;  // one an expert in use, then that of the shared ones
  float* logits = nullptr;           // [max_logit_rows][vocab_size]
  float* logit_maxima = nullptr;     // [max_logit_rows, or lane][panels]: of each 16 logits
  int32_t* tokens = nullptr;
  uint32_t* positions = nullptr;
  uint32_t* segment_of = nullptr;
  uint32_t* logit_tokens = nullptr;  // the token of each wanted row
  Segment* segments = nullptr;
  float* cosines = nullptr;  // [rope][token][rope_stride]
  float* sines = nullptr;
  size_t rope_stride = 0;
  // Attention whose keys are split: states of spans, and how many of a group's spans are done.
  float* states = nullptr;
  size_t state_floats = 0;
  uint32_t* spans_done = nullptr;  // [kGroupsALane * lanes], by std::atomic_ref
  uint8_t* scratch = nullptr;      // [lane][scratch_stride]
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

// The input of a group of linear weights, and in which form they take it.
struct LinearInput {
  Workspace::Rows x;
  kernels::Activations codes;  // block set
  bool int8 = false;           // some weight of the group takes codes
  float static_scale = 0.0f;   // of all codes; 0 = each block has its own
};

// One expert's tokens, and how its work is cut.
struct ExpertJob {
  const Linear *gate, *up, *down;
  LinearInput x, middle;  // `middle`: activated, into down
  Workspace::Rows gate_out, up_out, out;
  uint32_t expert;  // model::kNoPart: the shared ones
  uint32_t window;  // which jobs are at work at the same time
  uint32_t slot;    // the first of its own
  uint32_t tokens, rows;
  uint32_t tile;  // tokens of a unit
  uint32_t rows_per_unit, up_first;
  uint32_t panels_per_unit, down_first;
};

}  // namespace qinfer::exec
