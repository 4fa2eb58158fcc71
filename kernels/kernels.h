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

#define QINFER_INLINE inline __attribute__((always_inline))

enum class WeightKind : uint8_t { kF32, kF16, kBF16, kInt8, kInt6, kInt4, kFp4 };
enum class ScaleKind : uint8_t {
  kNone,  // float kinds
  kF16,   // one scale (and one minimum) per row and group
  kF32,
  kE8M0,  // a power of two: 2^(e - 127); 255 is NaN. The only one of kFp4, in groups of 32
  kSub8,  // an 8-bit scale per group (s8; with a minimum u8, and a u8 minimum), under an F16 scale
          // (and minimum) per super group of 256 inputs; kInt4 and kInt6 only
};

// A linear layer's weight [rows = outputs][cols = inputs] as it lies in a .qinfer file
// (docs/weight-layout.md): panels of 16 rows, panel after panel, each `panel_bytes` long and
// 64-byte aligned. Where things are inside a panel: kernels/layout.h. Value of code u (unsigned) of
// a row in a group:
//   symmetric  scale * (u - zero), zero = 8, 32, 128 by kind      (kSub8: d * sc * (u - zero))
//   kFp4       the same with u from layout::kFp4Codes and zero = 12
//   has_min    scale * u + minimum                                (kSub8: d * sc * u - dmin * mn)
struct Matrix {
  const uint8_t* data = nullptr;
  uint32_t rows = 0, cols = 0;  // logical
  size_t panel_bytes = 0;
  WeightKind kind = WeightKind::kF32;
  ScaleKind scale = ScaleKind::kNone;
  bool has_min = false;
  uint32_t group_size = 0;   // 16 (kInt6 only), 32, 64, 128; 0 = the whole row; kSub8: 16 or 32
  uint32_t super_group = 0;  // kSub8: 256

  QINFER_INLINE uint32_t padded_cols() const {
    return (cols + kInputGranule - 1) / kInputGranule * kInputGranule;
  }
  QINFER_INLINE uint32_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

// ---- Activations
// ----------------------------------------------------------------------------------------------------
// INT8 in blocks of `block` inputs (32, 64, 128 or 256): x ~ scale * code, code in [-127, 127],
// zero in the padding. A token has a row of codes, or with two `planes` two neighbouring rows,
// whose sum it is: the second holds what the first leaves over.
struct Activations {
  int8_t* codes = nullptr;  // [rows][code_stride], 64-byte aligned rows, code_stride >= padded_cols
  float* scales = nullptr;  // [rows][scale_stride], one per block
  int32_t* sums = nullptr;  // [rows][sum_stride], one per 16 inputs: the sum of their codes
  size_t code_stride = 0, scale_stride = 0, sum_stride = 0;
  uint32_t block = 128;
  uint32_t planes = 1;  // 1 or 2
};

// What a scale that is fixed beforehand may be: its inverse is a normal number.
constexpr float kLeastScale = 0x1p-110f, kLargestScale = 0x1p110f;

// ---- KV pages
// -------------------------------------------------------------------------------------------------------
constexpr uint32_t kPageTokens = 16;
constexpr uint32_t kAttentionBlock = 64;   // keys per step of the left fold, at absolute positions
constexpr uint32_t kAttentionSpan = 1024;  // keys of one fold; the folds of spans are then merged
constexpr uint32_t kAllSpans = UINT32_MAX;
enum class KvType : uint8_t { kF32, kF16, kInt8 };
// A plane is one (layer, kv head)'s keys or values of one page:
//   K  F32/F16 [head_dim][16 tokens];  INT8: codes [ceil(head_dim/4)][16 tokens][4 inputs] (s8),
//   then F32 scales [groups][16 tokens] V  F32/F16 [16 tokens][head_dim];  INT8: codes [16
//   tokens][head_dim padded to 16] (s8), then F32 scales [groups][16 tokens]
// INT8 groups are 64 inputs of one token and head (the last may be short). Planes are padded to 64
// bytes.

// The first key that a query sees; window 0: all.
QINFER_INLINE uint32_t FirstKey(uint32_t position, uint32_t window) {
  return window != 0 && position >= window ? position - window + 1 : 0;
}

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
  bool latent = false;  // values are the first v_head_dim inputs of the keys: there is no V plane,
                        // v_type is k_type, v_head_dim <= head_dim
  // One span alone, so that several threads share a query's keys: positions from span *
  // kAttentionSpan on. Its state goes to `states`, from which MergeAttention makes `out` when all
  // spans are there. [span, from the first that token 0 sees][row][AttentionStateStride].
  uint32_t span = kAllSpans;
  float* states = nullptr;
  void* scratch = nullptr;  // attention_scratch_bytes(...)

  QINFER_INLINE uint32_t FirstKey(uint32_t token) const {
    return kernels::FirstKey(first_position + token, window);
  }
};

enum class Activation : uint8_t { kSilu, kGeluTanh };

// ---- The table
// ------------------------------------------------------------------------------------------------------
// Reductions over a float vector (norms, sums): 16 virtual lanes, element i in lane i % 16, tails
// +0, each lane in order, then the fixed tree (i, i+8), (i, i+4), (i, i+2), (i, i+1). fma only
// where said. exp, tanh, ... are those of kernels/ref/math.h.
struct Table {
  const char* name;  // "ref", "avx2", "avxvnni", "avx512", "neon", "neon-dotprod"

  // out[t][row] for rows of panels [panel_begin, panel_end), t < tokens; rows past matrix.rows are
  // not written. `out` points at row 0 of the matrix. Quantized kinds only. `scratch`:
  // MatmulScratchBytes, 64-byte aligned, one per concurrent call. With two planes out[t][row] is
  // the sum of both planes' totals, the first one's first. Exact contract, for each row and plane
  // of t:
  //   total = 0; for each activation block b in order { part = 0; <below>;
  //   total = fma(scale_a[b], part, total) }
  // A unit u is the part of a weight group inside b; with the exact integers
  //   I_u = sum (code_w - zero) * code_a     (has_min: sum code_w * code_a)
  //   A_u = sum code_a
  // float scales: for each unit in order { part = fma(scale_u, float(I_u), part); with a minimum
  //   part = fma(min_u, float(A_u), part) }
  // kSub8: P = sum sc_u * I_u, M = sum mn_u * A_u over the units of b, exact in int32 (a block
  // never
  //   straddles super groups); part = fma(d, float(P), part); with a minimum
  //   part = fma(-dmin, float(M), part).
  // The result does not depend on `tokens` nor on how panels are cut.
  void (*matmul_int8)(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                      const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                      void* scratch);
  // The same with float activations x[t][0..cols): total = fma(w, x[k], total) over k in order, w
  // the decoded weight in F32 (quantized kinds: w = scale * float(u - zero); with a minimum
  // fma(scale, float(u), min); kSub8: scale = d * float(sc), min = -(dmin * float(mn))). All kinds.
  void (*matmul_float)(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                       const float* x, size_t x_stride, uint32_t tokens, float* out,
                       size_t out_stride, void* scratch);
  // Row `row` decoded to F32 (the same w as above) into out[0..cols).
  void (*decode_row)(const Matrix& matrix, uint32_t row, float* out);

  // amax over the block; scale = amax / 127; code = round to nearest even of x * (127 / amax); all
  // zero for amax < 2^-110. A block with a NaN or infinity gets the scale NaN and zero codes (so
  // that the logits tell). Padding up to a multiple of kInputGranule is zeroed.
  void (*quantize)(const float* x, uint32_t cols, uint32_t row, const Activations& out);

  // out[i] = (x[i] * (1 / sqrt(sum / n + eps))) * weight[i], sum over lanes of fma(x, x, lane);
  // weight may be null (no second multiplication). In place is fine.
  void (*rms_norm)(const float* x, const float* weight, uint32_t n, float eps, float* out);
  void (*add)(float* x, const float* y, size_t n);  // x += y
  void (*scale)(float* x, float by, size_t n);
  void (*gated)(Activation activation, const float* gate, const float* up, size_t n,
                float* out);                       // act(gate) * up
  void (*softcap)(float* x, float cap, size_t n);  // cap * tanh(x / cap)
  // Rotates the first `rope_dims` (even) of a head in place. cos, sin: [rope_dims / 2] of this
  // position. interleaved: pairs (2i, 2i+1), else (i, i+rope_dims/2). x' = fma(x, cos, -(y*sin)),
  // y' = fma(x, sin, y*cos).
  void (*rope)(float* head, const float* cos, const float* sin, uint32_t rope_dims,
               bool interleaved);

  // Stores one token's key or value (head_dim floats) into its plane at slot 0..15. Unused slots
  // may hold anything.
  void (*write_k)(uint8_t* plane, KvType type, uint32_t slot, const float* k, uint32_t head_dim);
  void (*write_v)(uint8_t* plane, KvType type, uint32_t slot, const float* v, uint32_t head_dim);
  // Scores: float types: s = fma(q[d], k[d], s) over d in order (lanes are tokens). INT8: q is
  // quantized per 64 inputs as `quantize` does, s = fma(float(I_g), sq_g * sk_g, s) over groups.
  // Then s *= scale, softcap (c * tanh(s / c)), mask. For each span of 1024 keys at absolute
  // positions, a left fold over its blocks of 64; what has no visible key is skipped: m' = max(m,
  // max s) (NaN is ignored); a = exp(m - m'); p = exp(s - m'), +0 where masked; l = fma(l, a, sum
  // p) with key i of the block in lane i % 16 and the fixed tree; o = o * a, then for each visible
  // key in order o = fma(p, v, o). INT8, for each group of 64 values: w = p * sv_g of all visible
  // keys of the block become codes of 8 bits without a sign, u = w * (255 / max w) to nearest even,
  // and with the exact integer I = sum u * code: o = fma(float(I), max w * (1 / 255), o). All u and
  // the factor are zero for max w < 2^-110; where some w is no finite number or has a sign the
  // factor is NaN. The first span begins with m = sink, l = 1 where there are sinks, the others
  // with m = -inf, l = 0, all with o = 0. Then spans are merged in order: top = max(m, m'), a =
  // exp(m - top), b = exp(m' - top), l = l * a + l' * b, o = o * a + o' * b, without fma. At the
  // end o * (1 / l).
  void (*attention)(const AttentionArgs& args);

  // Index of the largest value, the lowest index of equals; NaN counts as smaller than everything.
  uint32_t (*argmax)(const float* x, size_t n);
  // *max = max x, returns sum exp(x - max) (16 lanes and the tree).
  float (*exp_sum)(const float* x, size_t n, float* max);
  // out[i] = exp(x[i] - shift)
  void (*exp_shift)(const float* x, float shift, size_t n, float* out);

  // As `quantize` with one scale for all blocks, which was fixed beforehand: code = x * (1 / scale)
  // clamped to [-127, 127] and rounded to nearest even. `scale` is in [kLeastScale, kLargestScale].
  void (*quantize_static)(const float* x, uint32_t cols, uint32_t row, float scale,
                          const Activations& out);

  // A panel's 16 rows decoded as by decode_row, input after input: out[padded_cols][16]. What lies
  // past matrix.rows and cols may be anything.
  void (*decode_panel)(const Matrix& matrix, uint32_t panel, float* out);

  // maxima[p] = the largest of the panel x[16p .. min(16p + 16, n)), -infinity where all are NaN;
  // of zeros either. False where some value is not finite.
  bool (*panel_maxima)(const float* x, size_t n, float* maxima);
};

// `rows`: tokens times planes.
size_t MatmulScratchBytes(const Matrix& matrix, uint32_t rows);
// A row's state of one span in floats: o, then from AttentionSumsAt on m and l.
QINFER_INLINE size_t AttentionSumsAt(uint32_t v_head_dim) {
  return (size_t{v_head_dim} + 15) / 16 * 16;
}
QINFER_INLINE size_t AttentionStateStride(uint32_t v_head_dim) {
  return AttentionSumsAt(v_head_dim) + 16;
}
// Merges the states of all spans that each row sees into `out`, and with it changes them; the same
// bits as one call for all spans.
void MergeAttention(const AttentionArgs& args);
size_t AttentionScratchBytes(uint32_t group_heads, uint32_t head_dim, uint32_t v_head_dim,
                             uint32_t tokens);
size_t KPlaneBytes(KvType type, uint32_t head_dim);
size_t VPlaneBytes(KvType type, uint32_t head_dim);

enum class Isa : uint8_t { kAuto, kRef, kAvx2, kAvx512, kNeon, kAvxVnni };
// The best table that this processor (and operating system) can run and `cap` allows; null if the
// processor cannot run `cap` itself.
const Table* SelectTable(Isa cap);
// Whether this build has kernels of their own for `isa`, whatever the processor.
bool HasKernels(Isa isa);

}  // namespace qinfer::kernels
