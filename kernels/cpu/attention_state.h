// What attention keeps while it runs, and where it finds keys and values: see attention_fold.h.
// Internal linkage.
#pragma once

#include <string.h>

#include "kernels/cpu/inline.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"

namespace qinfer::kernels::fold {
namespace {

constexpr uint32_t kTile = 4;

// Everything that lives in scratch, by row.
struct State {
  const AttentionArgs* args;
  float* o;  // [rows][o_stride]
  size_t o_stride;
  float* m;
  float* l;
  float* before;  // the same of the spans before, for rows that have seen any
  float* before_m;
  float* before_l;
  float* q_scales;    // INT8 keys: [rows][groups]
  int32_t* q_starts;  // [rows][groups]: -128 times the sum of the query's codes
  int8_t* q_codes;    // [rows][q_stride]
  size_t q_stride;
  uint32_t groups;
  uint8_t* latent_values;  // V planes of the block at hand, made from its keys
  size_t latent_stride;
  uint32_t latent_base;
  uint8_t* block_values;  // INT8: the codes of the block at hand as Simd multiplies them
};

struct Range {
  uint32_t begin, end;
};

struct Tile {
  uint32_t row;          // first
  Range visible[kTile];  // in this block, absolute keys; empty if begin >= end
  Range all;             // their union
  bool whole;            // all of them see all keys of the block
  Range unprepared;      // INT8 values of the block that Simd has not prepared yet: whole pages
  alignas(32) float s[kTile][kAttentionBlock];
  float decay[kTile];
};

QINFER_FN const uint8_t* Page(const AttentionArgs& args, uint32_t key) {
  return args.pages[key / kPageTokens - args.first_page];
}
QINFER_FN const float* QueryRow(const AttentionArgs& args, uint32_t row) {
  return args.q + row / args.group_heads * args.q_stride +
         row % args.group_heads * static_cast<size_t>(args.head_dim);
}
// From `key`'s page to the page at the same place in the next block, whose lines are asked for one
// by one while this one's are read: pages lie anywhere, so the processor does not foresee them.
// (All asked for at once wait for each other.) Nothing at the end, and for what lies in scratch.
QINFER_FN ptrdiff_t Ahead(const AttentionArgs& args, uint32_t key) {
  const uint32_t next = key + kAttentionBlock;
  if (next >= args.first_position + args.tokens) return 0;
  return static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(Page(args, next)) -
                                reinterpret_cast<uintptr_t>(Page(args, key)));
}
QINFER_FN void Ask(const uint8_t* line, ptrdiff_t ahead) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(line) +
                                                   static_cast<size_t>(ahead)));
}
// The plane of values that holds `key`.
QINFER_FN const uint8_t* ValuePlane(const State& st, uint32_t key) {
  if (!st.args->latent) return Page(*st.args, key) + st.args->v_offset;
  return st.latent_values + (key - st.latent_base) / kPageTokens * st.latent_stride;
}
QINFER_FN ptrdiff_t ValuesAhead(const AttentionArgs& args, uint32_t key) {
  return args.latent ? 0 : Ahead(args, key);
}
// Scales of INT8 values of the page that holds `key`.
QINFER_FN const float* ValueScales(const State& st, uint32_t key, uint32_t group) {
  return reinterpret_cast<const float*>(ValuePlane(st, key) +
                                        layout::VCodeBytes(st.args->v_head_dim)) +
         group * kPageTokens;
}
// Bytes of a key or value.
template <KvType T>
constexpr size_t kItemBytes = T == KvType::kF32   ? 4
                              : T == KvType::kF16 ? 2
                                                  : 1;
// Bytes from a token's values to the next one's.
template <KvType V>
QINFER_FN size_t ValueStride(const AttentionArgs& args) {
  return V == KvType::kInt8 ? layout::VCodeStride(args.v_head_dim)
                            : args.v_head_dim * kItemBytes<V>;
}

}  // namespace
}  // namespace qinfer::kernels::fold
