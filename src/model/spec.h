// What a model is, as pure data: every layer spelled out, so that the forward pass never asks which
// architecture it runs. One file per architecture in this folder turns a configuration into a
// ModelSpec; a .qinfer file stores it as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "format/checkpoint.h"
#include "kernels/kernels.h"

namespace qinfer::model {

// A weight of the source, by the name that the source gives it. Several logical weights may be row
// ranges of one stored tensor (fused q/k/v), so a reference can say which rows; 0 rows = all.
struct TensorRef {
  std::string name;  // empty = the layer has none
  uint64_t row_begin = 0;
  uint64_t rows = 0;
  // A stack of weights of one shape (experts, heads), all in this tensor: part p begins at row
  // row_begin + p * stride of the stored matrix (outer dimensions flattened). 0 parts = no stack.
  uint32_t parts = 0;
  uint64_t stride = 0;
  uint32_t step = 1;        // from one row to the next: 2 where two weights are interleaved
  bool transposed = false;  // the rows named are the weight's columns
  // Transposed: the weight's rows are every so many stored columns, from this one on.
  uint32_t column = 0, column_step = 1;
  bool present() const { return !name.empty(); }
  // Where every part is a tensor of its own, "{}" in the name stands for its number.
  bool per_part() const { return name.find("{}") != std::string::npos; }
  bool operator==(const TensorRef&) const = default;
};
// The tensor of one part of a per_part reference.
TensorRef PartRef(const TensorRef& ref, uint32_t part);

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kDynamic, kLongRope };
struct RopeSpec {
  uint32_t dims = 0;         // rotated inputs of a head
  bool interleaved = false;  // pairs (2i, 2i+1); else halves
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;           // yarn: its correction range is rounded to whole dimensions
  double attention_factor = 1.0;  // of cos and sin
  uint32_t original_context = 0;
  std::vector<double> short_factors, long_factors;  // longrope
  TensorRef frequency_factors;                      // GGUF rope_freqs: divisors of the frequencies
  bool operator==(const RopeSpec&) const = default;
};

enum class AttentionKind : uint8_t { kGrouped, kLatent };
struct AttentionSpec {
  AttentionKind kind = AttentionKind::kGrouped;
  uint32_t heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
  float scale = 0.0f;    // of q.k
  float softcap = 0.0f;  // 0 = none
  uint32_t window = 0;   // 0 = all
  int32_t rope = -1;     // index into ModelSpec::ropes; -1 = none
  TensorRef q, k, v, o, q_bias, k_bias, v_bias, o_bias;
  TensorRef q_norm, k_norm;  // RMS norms over head_dim, before the rotation
  bool wide_norms = false;   // q_norm and k_norm are over all heads of a token at once
  TensorRef sinks;
  // Latent: one key-value head. kv_a gives a latent of `latent_dim` values (normed by kv_a_norm)
  // and a key of `rope_dim` values that all heads share; both are all that is cached. A query head
  // has head_dim - rope_dim values without position, which k_b [latent_dim][those] of the head
  // takes into the latent space, then rope_dim that are rotated. v_b [v_head_dim][latent_dim] of
  // the head takes its sum of latents back. q reads q_a's output (q_rank values, normed by
  // q_a_norm), or the hidden state where there is no q_a.
  uint32_t latent_dim = 0, rope_dim = 0, q_rank = 0;
  TensorRef q_a, kv_a, q_a_norm, kv_a_norm, q_a_bias, kv_a_bias;
  TensorRef k_b, v_b;  // stacks of `heads` parts
  bool operator==(const AttentionSpec&) const = default;
};

enum class FeedForwardKind : uint8_t { kDense, kExperts };
// How the router's outputs become weights: softmax over all experts, a sigmoid each, or a softmax
// over the chosen (which are then the largest outputs).
enum class RouterScoring : uint8_t { kSoftmax, kSigmoid, kSoftmaxChosen };
struct FeedForwardSpec {
  FeedForwardKind kind = FeedForwardKind::kDense;
  uint32_t intermediate = 0;
  kernels::Activation activation = kernels::Activation::kSilu;
  TensorRef gate, up, down, gate_bias, up_bias, down_bias;
  // Experts: gate, up and down above are those of the experts that every token takes (intermediate
  // 0: none), scaled by the sigmoid of shared_gate where there is one.
  uint32_t experts = 0, experts_used = 0, expert_intermediate = 0;
  RouterScoring scoring = RouterScoring::kSoftmax;
  uint32_t groups = 0, groups_used = 0;  // 0 = the choice is not limited to groups
  uint32_t group_score_top = 1;          // a group's score: the sum of its best so many
  bool normalize = false;                // the chosen weights are divided by their sum
  float routed_scale = 1.0f;
  TensorRef router, router_bias, shared_gate;
  TensorRef router_correction;  // added to the scores for the choice, not for the weights
  TensorRef expert_gate, expert_up, expert_down;                 // stacks of `experts` parts
  TensorRef expert_gate_bias, expert_up_bias, expert_down_bias;  // the same of vectors
  // Not 0: the gate is limited to `swiglu_limit`, the other branch to its both sides and raised by
  // one, and the sigmoid steepened by `swiglu_alpha` (gpt-oss).
  float swiglu_limit = 0.0f, swiglu_alpha = 1.0f;
  bool operator==(const FeedForwardSpec&) const = default;
};

struct LayerSpec {
  // Before a branch, and after it inside the residual branch; either may be absent.
  TensorRef attention_norm, post_attention_norm;
  TensorRef feed_forward_norm, post_feed_forward_norm;
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  bool operator==(const LayerSpec&) const = default;
};

struct ModelSpec {
  std::string architecture;  // "llama", "gemma3", ...: for people, never for the forward pass
  uint32_t hidden_size = 0, vocab_size = 0;
  uint32_t max_context = 0;  // positions the model was made for
  float norm_epsilon = 1e-5f;
  float norm_weight_offset =
      0.0f;  // 1 where norm weights are stored minus one (Gemma in safetensors); source-dependent
  float embedding_scale = 1.0f;
  float logit_softcap = 0.0f;
  float logit_scale = 1.0f;
  TensorRef embedding, final_norm, lm_head;  // lm_head absent = tied to the embedding
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
  // Tensors whose names begin so belong to parts that are left out (layers that predict further
  // tokens).
  std::vector<std::string> skipped_prefixes;
  bool operator==(const ModelSpec&) const = default;

  bool tied() const { return !lm_head.present(); }
};

// The role a linear weight plays: for recipes, statistics and reports.
enum class LinearRole : uint8_t {
  kQ,
  kK,
  kV,
  kO,
  kGate,
  kUp,
  kDown,
  kHead,
  kQA,
  kKvA,
  kKB,
  kVB,  // latent attention; kQ is its q_b too
  kExpertGate,
  kExpertUp,
  kExpertDown  // routed experts
};
constexpr bool IsExpertRole(LinearRole role) {
  return role == LinearRole::kExpertGate || role == LinearRole::kExpertUp ||
         role == LinearRole::kExpertDown;
}
constexpr uint32_t kNoPart = UINT32_MAX;
std::string_view RoleName(LinearRole role);  // "q", "k", ..., "head"

struct LinearUse {
  TensorRef weight;
  LinearRole role;
  uint32_t layer;           // UINT32_MAX for the head
  uint32_t rows, cols;      // logical shape that the spec implies, of one part
  uint32_t parts = 1;       // weights of this shape in the tensor
  uint32_t part = kNoPart;  // the expert, where each has tensors of its own
};
// Every quantizable linear weight, in the order of execution; the embedding is not one, an untied
// head is.
std::vector<LinearUse> LinearUses(const ModelSpec& spec);

// Some ropes turn all keys of a long sequence by other frequencies than those of a short one:
// lengths with the same number are alike. 0 where nothing depends on the length.
uint32_t RopeVariant(const ModelSpec& spec, uint64_t length);

// Sizes of every tensor against the spec, before anything is allocated: FormatError names the
// tensor, its shape, and the one expected.
Status ValidateTensors(const ModelSpec& spec, const format::Checkpoint& checkpoint);
// Ranges and consistency of the spec itself (sizes non-zero and bounded, heads % kv_heads, windows,
// ropes).
Status ValidateSpec(const ModelSpec& spec);

// The spec of an opened checkpoint: .qinfer files carry it; else the architecture is looked up in
// the registry. UnsupportedError names an unknown architecture and lists the known.
StatusOr<ModelSpec> SpecFromCheckpoint(const format::Checkpoint& checkpoint);
std::string SpecToJson(const ModelSpec& spec);
// `memory`: for the time of parsing.
StatusOr<ModelSpec> SpecFromJson(std::string_view json, Memory* memory);

// What generation_config.json or GGUF metadata says about ends and sampling.
struct GenerationDefaults {
  std::vector<int32_t> eos_ids;       // all of them
  std::vector<std::string> warnings;  // what was passed over, with its place
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<uint32_t> top_k;
};
// `memory`: for the time of parsing.
StatusOr<GenerationDefaults> GenerationDefaultsFromCheckpoint(const format::Checkpoint& checkpoint,
                                                              Memory* memory);
GenerationDefaults GenerationDefaultsFromGguf(const format::Gguf& gguf);

}  // namespace qinfer::model
