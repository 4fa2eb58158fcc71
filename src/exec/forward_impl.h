// The state machine of a forward pass. Phases are in phases_*.cpp, batches in forward.cpp, layers
// on their own in forward_layers.cpp.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "exec/activation_block.h"
#include "exec/forward.h"
#include "exec/rope_table.h"
#include "exec/units.h"
#include "exec/workspace.h"

namespace qinfer::exec {

// In the order of execution; which of them a layer has is decided by NextPhase.
enum class Phase : uint8_t {
  kEmbed,
  kAttentionNorm,
  kQkv,
  kQueryNorm,  // latent attention with a q_a: norm of its output
  kQueryUp,    // and q_b
  kAbsorb,     // latent attention: queries into the latent space
  kRope,       // writes keys and values too
  kAttention,
  kValueUp,      // latent attention: sums of latents back
  kExpandReady,  // latent attention, expanded: latents and weights of some heads, made ready
  kExpand,       // and their keys and values; then attention, and the next heads
  kAttentionQuantize,
  kOut,
  kFeedForwardNorm,
  kRouter,
  kRoute,
  kGather,
  kExpertsUp,
  kExpertsDown,
  kCombine,
  kGateUp,
  kActivate,
  kDown,
  kFinalNorm,
  kHead,
  kDone,
};

// The same activations from token `t` on.
inline kernels::Activations FromToken(const kernels::Activations& codes, uint32_t t) {
  kernels::Activations out = codes;
  const size_t row = size_t{t} * codes.planes;
  out.codes += row * codes.code_stride;
  out.scales += row * codes.scale_stride;
  out.sums += row * codes.sum_stride;
  return out;
}

// Where a layer's planes are inside a page, and of which types.
struct Planes {
  size_t k_offset = 0, v_offset = 0, head_stride = 0;
  kernels::KvType k_type, v_type;
};

struct LinearJob {
  const Linear* linear = nullptr;
  Workspace::Rows out;
};

// Up to three weights with one input, cut into units of panels and tokens.
struct LinearPhase {
  LinearInput input;
  LinearJob jobs[3];
  uint32_t job_count = 0;
  uint32_t tokens = 0;
  uint32_t panels = 0, panels_per_unit = 1, chunks = 0;  // over all jobs
  uint32_t token_tile = 1, tiles = 0;
  uint32_t units() const { return chunks * tiles; }
};

class ForwardImpl final : public Forward {
 public:
  ForwardImpl(const Context& context, const ForwardOptions& options)
      : context_(context), options_(options), kernels_(context.kernels) {}
  Status Init(const model::ModelSpec& spec, std::shared_ptr<const Model> model);
  Status ReadRopeFactors(const format::Checkpoint& checkpoint);

  Status Begin(absl::Span<const BatchSegment> segments) override;
  StatusOr<bool> Run(const Deadline& deadline) override;
  void Abandon() override { phase_ = Phase::kDone; }
  absl::Span<const float> Logits(uint32_t row) const override;
  absl::Span<const float> LogitMaxima(uint32_t row) const override;
  uint32_t logit_rows() const override { return logit_rows_; }
  Status RunLayer(const LayerWeights& weights, uint32_t layer,
                  absl::Span<const uint32_t> sequence_lengths, float* hidden,
                  const Tap& tap) override;
  Status BeginLayer(const LayerWeights& weights, uint32_t layer,
                    absl::Span<const uint32_t> sequence_lengths, float* hidden) override;
  StatusOr<bool> StepLayer(const Tap& tap, const Deadline& deadline) override;
  Status Embed(const EndWeights& ends, absl::Span<const int32_t> tokens, float* hidden) override;
  Status Head(const EndWeights& ends, const float* hidden, uint32_t tokens, float* logits,
              const Tap& tap) override;

 private:
  // Goes on with phase_ from units_; true when the phase is complete.
  bool RunPhase(const Deadline& deadline);
  void NextPhase();
  void SetLayer(const LayerWeights& weights, uint32_t layer);

  // forward_layers.cpp: a layer on its own begins with kEmbed (only its ropes) and ends after
  // kFinalNorm (only the residual sum).
  bool RunLayerPhase(const Deadline& deadline);
  void NextLayerPhase(const Tap& tap);
  StatusOr<bool> LoadWindow(const Deadline& deadline);
  void LayerAttended(const Tap& tap);
  void ShowExperts(const Tap& tap, model::LinearRole role);
  void AttendTo(uint32_t segment);

  // phases_linear.cpp
  bool TakesCodes(const Linear& linear) const;
  // The block that all weights of a group take; 0 = none takes codes.
  uint32_t CodeBlock(std::initializer_list<const Linear*> group) const;
  // The scale that a file fixes for the input of a group; 0 = it does not.
  float StaticScale(std::initializer_list<const Linear*> group) const;
  LinearInput Input(const Workspace::Rows& x, const kernels::Activations& codes,
                    std::initializer_list<const Linear*> group) const;
  LinearInput WithPlanes(LinearInput input) const;
  LinearInput FeedForwardInput() const;  // of gate and up
  // One token's codes of an input, or of the part of it that `codes` points at.
  void Quantize(const LinearInput& input, const kernels::Activations& codes, const float* x,
                uint32_t cols, uint32_t token) const {
    QuantizeRow(*kernels_, x, cols, token, input.static_scale, codes);
  }
  void PlanLinear(LinearPhase* phase) const;
  void LinearUnit(const LinearPhase& phase, uint32_t lane, uint32_t unit);
  void Multiply(const Linear& linear, const LinearInput& input, uint32_t panel_begin,
                uint32_t panel_end, uint32_t first_token, uint32_t count,
                const Workspace::Rows& out, uint32_t lane);
  bool RunLinear(LinearPhase* phase, const Deadline& deadline);
  void Activate(float* gate, float* up, size_t n) const;
  void ActivatePart(float* gate, float* up, uint32_t begin, uint32_t end, const LinearInput& down,
                    uint32_t token) const;
  bool FusesGateUp() const { return tokens_ <= kFewTokens; }
  bool RunGateUp(const Deadline& deadline);
  void GateUpUnit(const LinearInput& x, const LinearInput& down, uint32_t lane, uint32_t unit,
                  uint32_t rows_per_unit);
  bool RunHead(const Linear& head, const LinearInput& input, uint32_t rows, float* logits,
               const Deadline& deadline);

  // phases_attention.cpp
  void ResolvePages();
  Planes PlanesOf(const Segment& segment) const;
  void WriteLatent(uint32_t token);
  void RopeToken(uint32_t token);
  bool RunRope(const Deadline& deadline);
  uint32_t CutAttention(uint64_t* work);
  uint32_t SplitAttention(bool split);
  uint32_t SpansOf(const Segment& segment) const;
  void AttentionUnit(uint32_t lane, uint32_t unit);
  bool RunAttention(const Deadline& deadline);

  // phases_latent.cpp
  struct HeadPhase {  // heads with a weight each, cut into units of heads and tokens
    uint32_t heads_per_unit, chunks, token_tile, tiles;
  };
  HeadPhase PlanHeads(const std::vector<Linear>& weights) const;
  bool RunHeads(const std::vector<Linear>& weights, const Deadline& deadline, bool absorb);
  LinearInput HeadInput(const Linear& weight, const float* x, size_t stride, uint32_t lane) const;
  void AbsorbHead(uint32_t lane, uint32_t head, uint32_t first_token, uint32_t count);
  void ValueHead(uint32_t lane, uint32_t head, uint32_t first_token, uint32_t count);
  void RotateQuery(uint32_t token, uint32_t head);
  Phase PhaseAfterQkv() const;
  Phase PhaseOfQueries() const { return expanded_ ? Phase::kRope : Phase::kAbsorb; }
  LinearInput AttentionInput() const;  // of what reads the normed hidden state

  // phases_expand.cpp
  bool Expands() const;  // the layer at hand, in the batch at hand
  // Query heads that attention works on, and the keys and values that it does so with: all, or in
  // the expanded form some heads that share nothing.
  uint32_t HeadsAtHand() const {
    const uint32_t heads = layer_spec_->attention.heads;
    return expanded_ ? std::min(ws_.expansion.heads, heads - expanded_head_) : heads;
  }
  KvShape ShapeAtHand() const {
    const model::AttentionSpec& a = layer_spec_->attention;
    return expanded_ ? KvShape{HeadsAtHand(), a.head_dim, a.v_head_dim, false} : KvShapeOf(a);
  }
  Planes ExpandedPlanes() const;
  kernels::Matrix KeyWeight(uint32_t head) const;
  void TransposeKeyWeight(uint32_t lane, uint32_t head);
  void ReadyLatents(uint32_t lane, uint32_t page);
  bool RunExpandReady(const Deadline& deadline);
  void ExpandUnit(uint32_t lane, uint32_t head, uint32_t first, uint32_t count);
  bool RunExpand(const Deadline& deadline);
  const uint8_t* LatentPlane(uint32_t page) const;
  kernels::Activations LatentCodes() const;
  kernels::KvType LatentType() const;
  // Where the outputs of this layer's attention are.
  const Workspace::Rows& Attended() const { return expanded_ ? ws_.expansion.out : ws_.attention; }

  // phases_experts.cpp
  bool HasExperts() const;
  LinearInput ExpertInput() const;  // of the experts and the shared ones
  bool RunRouter(const Deadline& deadline);
  void RouteToken(uint32_t token);
  void Dispatch();
  void AddJob(const LinearInput& x, const Linear& gate, const Linear& up, const Linear& down,
              uint32_t expert, uint32_t tokens, uint32_t rows);
  void GatherSlot(uint32_t slot, uint32_t row);
  bool RunGather(const Deadline& deadline);
  void ExpertUpUnit(uint32_t lane, uint32_t unit);
  void ExpertDownUnit(uint32_t lane, uint32_t unit);
  void NextWindow();
  const ExpertJob& WindowOf(ExpertJob* job) const;
  bool RunExperts(const Deadline& deadline, bool up);
  void CombineToken(uint32_t token);

  // phases_tokens.cpp
  void FinishBranch(const float* post_norm, uint32_t token);
  void EmbedToken(uint32_t token);
  void FillRopes(uint32_t token);
  // Where the cosines and sines of a token are.
  size_t RopeRow(size_t rope, uint32_t token) const {
    return (rope * options_.max_batch_tokens + token) * ws_.rope_stride;
  }
  // Rotates the first inputs of a head by the layer's rope, where it has one.
  void Rotate(float* head, uint32_t token) const;
  void QuantizeHidden(const LinearInput& input, uint32_t row, float* rest);
  void NormToken(const float* weight, const LinearInput& out, uint32_t token);
  // A phase of one unit a token: few tokens are cheaper on the caller than any barrier.
  template <typename F>
  bool RunTokens(uint32_t count, const Deadline& deadline, F&& f) {
    return units_.Run(context_.executor, count <= kFewTokens ? 1 : ws_.lanes, deadline, count,
                      [&](uint32_t, uint32_t token) { f(token); });
  }

  uint8_t* Scratch(uint32_t lane) const { return ws_.scratch + lane * ws_.scratch_stride; }

  const Context context_;
  const ForwardOptions options_;
  const kernels::Table* const kernels_;
  std::shared_ptr<const Model> model_;  // null: layers only
  model::ModelSpec spec_;
  std::vector<kv::GroupLayout> groups_;              // shape only: page sizes are each cache's own
  std::vector<uint32_t> group_of_, index_in_group_;  // by layer
  std::vector<RopeTable> ropes_;
  uint32_t max_position_ = 0;
  Workspace ws_;

  // The batch in flight.
  Phase phase_ = Phase::kDone;
  uint32_t layer_ = 0;
  UnitCursor units_;  // of the phase
  uint32_t tokens_ = 0, segments_ = 0, logit_rows_ = 0;
  std::atomic<bool> not_finite_{false};
  // The layer at hand, and the part of the batch that attention works on.
  const LayerWeights* weights_ = nullptr;
  const model::LayerSpec* layer_spec_ = nullptr;
  const float* pending_norm_ = nullptr;  // post norm of the branch that waits
  bool pending_ = false;                 // a branch has not been added to hidden yet
  uint32_t segment_begin_ = 0, segment_end_ = 0, token_begin_ = 0, token_end_ = 0;
  bool expanded_ = false;       // latent attention in that form
  uint32_t expanded_head_ = 0;  // the first of those at hand
  bool own_pages_ = false;      // RunLayer: F32 pages of the workspace
  // Experts of the layer at hand.
  uint32_t jobs_ = 0, up_units_ = 0, down_units_ = 0;
  uint32_t window_begin_ = 0, window_end_ = 0;  // jobs at work
  bool gathers_ = false, gather_codes_ = false, gather_floats_ = false;
};

}  // namespace qinfer::exec
