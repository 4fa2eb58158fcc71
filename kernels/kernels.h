// The contract between the engine and its compute kernels: plain structs, one table of functions
// per instruction set, and what each function computes to the last bit. Every table gives the same
// bits (kernels/ref is the oracle); only speed differs. No std headers with inline code here: this
// file is compiled with instruction-set flags.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace qinfer::kernels {

// ---- Packed weights
// -------------------------------------------------------------------------------------------------
constexpr uint32_t kPanelRows = 16;  // output rows side by side in a panel
constexpr uint32_t kInputGranule =
    32;  // inputs are padded to a multiple of this, with codes that add nothing

enum class WeightKind : uint8_t { kF32, kF16, kBF16, kInt8, kInt6, kInt4, kTable4 };
enum class ScaleKind : uint8_t {
  kNone,  // float kinds
  kF16,   // one scale (and one minimum) per row and group
  kF32,
  kE8M0,  // a power of two
  kSub8,  // an 8-bit scale (signed for kInt6; and an 8-bit minimum) per group, under an F16 scale
          // (and minimum) per super_group
};

// A linear layer's weight [rows = outputs][cols = inputs] as it lies in a .qinfer file
// (docs/file-format.md, "Packed weights"): panels of 16 rows, panel after panel, each `panel_bytes`
// long and 64-byte aligned. Value of code u (unsigned) of row r in group g:   symmetric  scale * (u
// - zero)   zero = 8, 32, 128 by kind
//                                                   has_min    scale * u + minimum     (kSub8:
//                                                   d*sc*u - dmin*mn)
struct Matrix {
  const uint8_t* data = nullptr;
  uint32_t rows = 0, cols = 0;  // logical
  size_t panel_bytes = 0;
  WeightKind kind = WeightKind::kF32;
  ScaleKind scale = ScaleKind::kNone;
  bool has_min = false;
  uint32_t group_size = 0;   // 16, 32, 64, 128; 0 = the whole row
  uint32_t super_group = 0;  // kSub8: 256 (or what the row's tail leaves)

  uint32_t padded_cols() const {
    return (cols + kInputGranule - 1) / kInputGranule * kInputGranule;
  }
  uint32_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

// ---- Activations
// ----------------------------------------------------------------------------------------------------
// INT8 per token in blocks of `block` inputs (32, 64, 128 or 256): x ~ scale * code, code in [-127,
// 127], zero in the padding.
struct Activations {
  int8_t* codes =
      nullptr;  // [tokens][code_stride], 64-byte aligned rows, code_stride >= padded_cols
  float* scales = nullptr;  // [tokens][scale_stride], one per block
  int32_t* sums = nullptr;  // [tokens][sum_stride], one per 16 inputs: the sum of their codes
  size_t code_stride = 0, scale_stride = 0, sum_stride = 0;
  uint32_t block = 128;
};

// ---- KV pages
// -------------------------------------------------------------------------------------------------------
constexpr uint32_t kPageTokens = 16;
constexpr uint32_t kAttentionBlock = 64;  // keys per step of the left fold, at absolute positions
enum class KvType : uint8_t { kF32, kF16, kInt8 };
// A plane is one (layer, kv head)'s keys or values of one page:
//   K  F32/F16 [head_dim][16 tokens];  INT8: codes [ceil(head_dim/4)][16 tokens][4 inputs] (s8),
//   then F32 scales [groups][16 tokens] V  F32/F16 [16 tokens][head_dim];  INT8: codes [16
//   tokens][head_dim padded to 16] (s8), then F32 scales [groups][16 tokens]
// INT8 groups are 64 inputs of one token and head (the last may be short). Planes are padded to 64
// bytes.

struct AttentionArgs {
  const float* q = nullptr;  // [tokens][q_stride]; query heads of this kv head side by side:
                             // [group_heads][head_dim], roped
  size_t q_stride = 0;
  float* out = nullptr;  // [tokens][out_stride]: [group_heads][v_head_dim]
  size_t out_stride = 0;
  uint32_t tokens = 0;          // consecutive positions of one sequence
  uint32_t first_position = 0;  // of token 0; its own key is already written
  uint32_t group_heads = 1, head_dim = 0, v_head_dim = 0;
  const uint8_t* const* pages =
      nullptr;              // the sequence's pages by index position/16, from page `first_page` on
  uint32_t first_page = 0;  // pages before it have been recycled (outside every window)
  size_t k_offset = 0, v_offset = 0;  // of this (layer, kv head)'s planes inside a page
  KvType k_type = KvType::kF16, v_type = KvType::kF16;
  uint32_t window = 0;           // a query at p sees keys with p - window < key <= p; 0 = all
  float scale = 1.0f;            // of q.k
  float softcap = 0.0f;          // c * tanh(s / c) before the mask; 0 = none
  const float* sinks = nullptr;  // [group_heads] or null: an extra logit without a value
  void* scratch = nullptr;       // attention_scratch_bytes(...)
};

enum class Activation : uint8_t { kSilu, kGeluTanh };

// ---- The table
// ------------------------------------------------------------------------------------------------------
// Reductions over a float vector (norms, sums): 16 virtual lanes, element i in lane i % 16, tails
// +0, each lane in order, then the fixed tree (i, i+8), (i, i+4), (i, i+2), (i, i+1). fma only
// where said. exp, tanh, ... are those of kernels/ref/math.h.
struct Table {
  const char* name;  // "ref", "avx2", "avx512", "neon"

  // out[t][row] for rows of panels [panel_begin, panel_end), t < tokens; rows past matrix.rows are
  // not written. `out` points at row 0 of the matrix. Exact contract: for each (row, t), total = 0;
  // for each activation block b in order: part = 0; for each unit u (the part of a weight group
  // inside b) in order, with the exact integer sums I = sum(code_w - zero) * code_a (has_min: I =
  // sum code_w * code_a) and A = sum code_a:  part = fma(scale_u, float(I), part), then with a
  // minimum part = fma(min_u, float(A), part); total = fma(scale_a[b], part, total). kSub8: within
  // a unit of super_group and block: p = fma(float(sc_u), float(I), p), m = fma(float(mn_u),
  // float(A), m), and at its end part = fma(d, p, part), with a minimum part = fma(-dmin, m, part).
  // The result does not depend on `tokens` nor on how panels are cut. Quantized kinds only.
  // `scratch`: matmul_scratch_bytes.
  void (*matmul_int8)(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                      const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                      void* scratch);
  // The same with float activations x[t][0..cols): total = fma(w, x[k], total) over k in order, w
  // the decoded weight in F32 (quantized kinds: w = scale * float(u - zero); with a minimum
  // fma(scale, float(u), min); kSub8: fma(d * float(sc), float(u), -(dmin * float(mn)))). All
  // kinds.
  void (*matmul_float)(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                       const float* x, size_t x_stride, uint32_t tokens, float* out,
                       size_t out_stride, void* scratch);
  // Row `row` decoded to F32 (the same w as above) into out[0..cols).
  void (*decode_row)(const Matrix& matrix, uint32_t row, float* out);

  // amax over the block; scale = amax / 127; code = round to nearest even of x * (127 / amax),
  // clamped to +-127; all zero for amax = 0. A block with a NaN or infinity gets the scale NaN (so
  // that the logits tell). Padding up to padded_cols is zeroed.
  void (*quantize)(const float* x, uint32_t cols, uint32_t token, const Activations& out);

  // out[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * weight[i]; weight may be null (1). In place is
  // fine.
  void (*rms_norm)(const float* x, const float* weight, uint32_t n, float eps, float* out);
  void (*add)(float* x, const float* y, size_t n);  // x += y
  void (*scale)(float* x, float by, size_t n);
  void (*gated)(Activation activation, const float* gate, const float* up, size_t n,
                float* out);                       // act(gate) * up
  void (*softcap)(float* x, float cap, size_t n);  // cap * tanh(x / cap)
  // Rotates the first `rope_dims` of a head in place. cos, sin: [rope_dims / 2] of this position.
  // interleaved: pairs (2i, 2i+1), else (i, i+rope_dims/2). x' = fma(x, cos, -(y*sin)), y' = fma(x,
  // sin, y*cos).
  void (*rope)(float* head, const float* cos, const float* sin, uint32_t rope_dims,
               bool interleaved);

  // Stores one token's key or value (head_dim floats) into its plane at slot 0..15. Unused slots
  // may hold anything.
  void (*write_k)(uint8_t* plane, KvType type, uint32_t slot, const float* k, uint32_t head_dim);
  void (*write_v)(uint8_t* plane, KvType type, uint32_t slot, const float* v, uint32_t head_dim);
  // Scores: float types: s = fma(q[d], k[d], s) over d in order (lanes are tokens). INT8: q is
  // quantized per 64 inputs as `quantize` does (no fold of scale), s = fma(float(I_g), sq_g * sk_g,
  // s) over groups. Then s *= scale, softcap, mask. Left fold over blocks of 64 keys at absolute
  // positions; blocks without a visible key are skipped: m' = max(m, max s); a = exp(m - m'); l =
  // fma(l, a, sum p); o = fma over keys in order of p * v on o * a; at the end o / l (sinks join l
  // and m first).
  void (*attention)(const AttentionArgs& args);

  // Index of the largest value, the lowest index of equals; NaN counts as smaller than everything.
  uint32_t (*argmax)(const float* x, size_t n);
  // *max = max x, returns sum exp(x - max) (16 lanes and the tree).
  float (*exp_sum)(const float* x, size_t n, float* max);
  // out[i] = exp(x[i] - shift)
  void (*exp_shift)(const float* x, float shift, size_t n, float* out);
};

size_t MatmulScratchBytes(const Matrix& matrix, uint32_t tokens);
size_t AttentionScratchBytes(uint32_t group_heads, uint32_t head_dim, uint32_t v_head_dim,
                             uint32_t tokens);
size_t KPlaneBytes(KvType type, uint32_t head_dim);
size_t VPlaneBytes(KvType type, uint32_t head_dim);

enum class Isa : uint8_t { kAuto, kRef, kAvx2, kAvx512, kNeon };
// The best table that this processor (and operating system) can run and `cap` allows; null if the
// processor cannot run `cap` itself.
const Table* SelectTable(Isa cap);

}  // namespace qinfer::kernels
