// The forward pass: a fixed plan of steps over a workspace that is allocated once. A batch of
// tokens of several sequences goes through all layers (or a range of them) in units of at most
// about 100 µs, can be suspended between units, and commits nothing itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/types/span.h"
#include "core/work.h"
#include "exec/model.h"
#include "kv/cache.h"

namespace qinfer::exec {

// Consecutive new tokens of one sequence. Positions start at sequence->length(); Reserve(count) has
// been done.
struct BatchSegment {
  kv::Sequence* sequence = nullptr;
  absl::Span<const int32_t> tokens;
  uint32_t logits_from =
      UINT32_MAX;  // logits are wanted for tokens [logits_from, tokens.size()) of this segment
  // The length that the sequence is computed for; 0 = up to these tokens. Decides ropes that depend
  // on it (model::RopeVariant): a sequence that goes on to a length of another variant has to be
  // computed anew, from length 0.
  uint32_t rope_length = 0;
};

// Where the time of batches goes, for profiles.
struct PhaseTimes {
  static constexpr uint32_t kPhases = 25;
  static const char* Name(uint32_t phase);
  uint64_t ns[kPhases] = {};
};

struct ForwardOptions {
  uint32_t max_batch_tokens = 512;  // larger batches are a MisuseError
  uint32_t max_logit_rows = 1;      // rows of logits kept at once
  Activations activations = Activations::kAuto;
  uint32_t max_position = 0;  // rope tables are made for positions [0, max_position)
  Determinism determinism = Determinism::kStrict;
  // kFast: the type of the keys and values that are made from cached latents.
  kernels::KvType expanded_type = kernels::KvType::kInt8;
  // kFast, for tests: from so many tokens on, whether it pays or not; 0 = where it pays.
  uint32_t expand_from = 0;
  PhaseTimes* times = nullptr;  // Run adds to it; it outlives the pass
};

// Sees the input of a linear layer (after the norm; float, before activation quantization):
// [tokens][cols]. The tapped pass gives the same bits as the plain one. Called on the thread that
// runs the pass, between units.
struct TapInput {
  uint32_t layer;
  model::LinearRole role;  // q stands for q, k and v (one input); gate for gate and up; where
                           // there is a q_a it stands for kv_a, and q for itself
  const float* x;
  size_t stride;
  uint32_t tokens, cols;
  uint32_t part = model::kNoPart;  // the expert whose input it is; its tokens in order
};
using Tap = std::function<void(const TapInput&)>;

// Tokens that a sequence can have where `context_tokens` are asked for.
inline uint32_t LongestSequence(const model::ModelSpec& spec, uint64_t context_tokens) {
  const uint64_t limit = spec.max_context == 0 ? UINT32_MAX : spec.max_context;
  return static_cast<uint32_t>(std::min(context_tokens, limit));
}

class Forward {
 public:
  virtual ~Forward() = default;
  // For a whole model. No allocation after this.
  static StatusOr<std::unique_ptr<Forward>> Create(std::shared_ptr<const Model> model,
                                                   const Context& context,
                                                   const ForwardOptions& options);
  // Without a model: layers are given one at a time to RunLayer (calibration, quantization). KV is
  // kept in F32 inside, per call.
  // `checkpoint` supplies what no layer owns (frequency factors of ropes); it is not kept.
  static StatusOr<std::unique_ptr<Forward>> CreateForLayers(const model::ModelSpec& spec,
                                                            const Context& context,
                                                            const ForwardOptions& options,
                                                            const format::Checkpoint& checkpoint);
  static uint64_t PlanBytes(const model::ModelSpec& spec, const ForwardOptions& options,
                            const Context& context);
  // What CreateForLayers takes.
  static uint64_t PlanLayerBytes(const model::ModelSpec& spec, const ForwardOptions& options,
                                 const Context& context);

  // Starts a batch. MisuseError if one is in flight, for token ids out of range, or for positions
  // past max_position.
  virtual Status Begin(absl::Span<const BatchSegment> segments) = 0;
  // Goes on until done (true) or the deadline. A logit that is not finite is a FormatError. After
  // an error or Abandon nothing is in flight and the caller rolls its sequences back.
  virtual StatusOr<bool> Run(const Deadline& deadline) = 0;
  virtual void Abandon() = 0;
  // Row i of the logits that the finished batch asked for, segments in order: [vocab_size]. Valid
  // until the next Begin.
  virtual absl::Span<const float> Logits(uint32_t row) const = 0;
  // The largest of each 16 of them, so that whoever looks for large ones need not read all.
  virtual absl::Span<const float> LogitMaxima(uint32_t row) const = 0;
  virtual uint32_t logit_rows() const = 0;

  // One layer on a hidden state [tokens][hidden_size], in place; each of `sequence_lengths` is an
  // own sequence from position 0 (sums to tokens).
  virtual Status RunLayer(const LayerWeights& weights, uint32_t layer,
                          absl::Span<const uint32_t> sequence_lengths, float* hidden,
                          const Tap& tap) = 0;
  // The same in pieces: StepLayer until it is true, at least a unit each time. `weights` and
  // `hidden` stay where they are until then; every step gets the same tap.
  virtual Status BeginLayer(const LayerWeights& weights, uint32_t layer,
                            absl::Span<const uint32_t> sequence_lengths, float* hidden) = 0;
  virtual StatusOr<bool> StepLayer(const Tap& tap, const Deadline& deadline) = 0;
  // hidden[t] = embedding of tokens[t]; logits of hidden rows through the final norm and the head.
  virtual Status Embed(const EndWeights& ends, absl::Span<const int32_t> tokens, float* hidden) = 0;
  virtual Status Head(const EndWeights& ends, const float* hidden, uint32_t tokens, float* logits,
                      const Tap& tap) = 0;
};

// The cache layout that a model needs.
std::vector<kv::GroupLayout> CacheLayout(const model::ModelSpec& spec, kernels::KvType k_type,
                                         kernels::KvType v_type);

}  // namespace qinfer::exec
