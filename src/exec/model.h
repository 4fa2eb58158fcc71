// A loaded model: spec, weights as kernels take them, tokenizer, template. Immutable once loaded;
// shared by engines. Loading is a Work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/executor.h"
#include "core/memory.h"
#include "core/work.h"
#include "format/checkpoint.h"
#include "kernels/kernels.h"
#include "model/spec.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "weights/format.h"

namespace qinfer::exec {

// How inputs reach quantized weights. Float weights always take float activations.
// kInt8 has one plane of codes everywhere; kAuto has two where ForwardImpl::WithPlanes says so.
enum class Activations : uint8_t { kAuto, kInt8, kFloat };

// kFast may compute a prompt in a form that is faster and rounds otherwise (phases_expand.cpp), so
// that results depend on how it was cut into batches, and on what else was in them.
enum class Determinism : uint8_t { kStrict, kFast };

// What every part that computes needs from the runtime; the runtime outlives all users (they hold
// the shared_ptr).
struct Context {
  Memory* memory = nullptr;
  Executor* executor = nullptr;
  const kernels::Table* kernels = nullptr;
};

struct Linear {
  kernels::Matrix matrix;
  weights::Format format;
  uint32_t activation_block = 128;  // inputs per activation scale, a declared property of the layer
  float activation_scale = 0.0f;    // of every block, fixed by calibration; 0 = each has its own
  const float* bias = nullptr;      // [rows] or null
  bool present() const { return matrix.data != nullptr; }
};

struct AttentionWeights {
  Linear q, k, v, o;
  const float *q_norm = nullptr, *k_norm = nullptr, *sinks = nullptr;
  Linear q_a, kv_a;              // latent attention
  std::vector<Linear> k_b, v_b;  // one a head
  const float *q_a_norm = nullptr, *kv_a_norm = nullptr;
};
struct FeedForwardWeights {
  Linear gate, up, down;       // with experts: of those that every token takes
  Linear router, shared_gate;  // never quantized
  const float* router_correction = nullptr;
  std::vector<Linear> expert_gate, expert_up, expert_down;  // one an expert
};
// Experts that take turns in memory: those of a window are there at a time.
class ExpertWindows {
 public:
  virtual ~ExpertWindows() = default;
  virtual uint32_t size() const = 0;  // experts [i * size(), (i + 1) * size()) are a window
  // Goes on with loading the window of an expert, in place of another; true when it is there.
  virtual StatusOr<bool> Load(uint32_t expert, const Deadline& deadline) = 0;
};
// Norm weights are F32 with norm_weight_offset already added.
struct LayerWeights {
  const float *attention_norm = nullptr, *post_attention_norm = nullptr,
              *feed_forward_norm = nullptr, *post_feed_forward_norm = nullptr;
  AttentionWeights attention;
  FeedForwardWeights feed_forward;
  ExpertWindows* windows = nullptr;  // null: all experts are there
};

// Weights of one layer (or of embedding, final norm and head) with the memory that holds them.
// Float or block-quantized source tensors are repacked exactly (weights::ExactFormat); tensors of a
// .qinfer file are used in place.
class LayerStore {
 public:
  virtual ~LayerStore() = default;
  // Goes on with loading, at least one piece; true when all is there.
  virtual StatusOr<bool> Step(const Deadline& deadline) = 0;
  virtual const LayerWeights& weights() const = 0;  // after that
};
// Reads layer `layer` of the checkpoint, which outlives the store, as the specification does. Used
// by calibration and quantization, which hold one layer at a time. OpenLayer takes the memory and
// leaves the reading to LayerStore::Step; LoadLayer does it all. With an `expert_window` that many
// experts are held at a time, and the pass over the layer reads them as it needs them
// (LayerWeights::windows); 0 = all.
StatusOr<std::unique_ptr<LayerStore>> OpenLayer(const format::Checkpoint& checkpoint,
                                                const model::ModelSpec& spec, uint32_t layer,
                                                const Context& context, uint32_t expert_window = 0);
// What OpenLayer takes at most for any layer, from the table of tensors.
StatusOr<uint64_t> LargestLayerBytes(const format::Checkpoint& checkpoint,
                                     const model::ModelSpec& spec, const Context& context,
                                     uint32_t expert_window = 0);
// The largest window with which LargestLayerBytes is at most `bytes`, in powers of two; 0 = all
// experts, UINT32_MAX = none.
StatusOr<uint32_t> FindExpertWindow(const format::Checkpoint& checkpoint,
                                    const model::ModelSpec& spec, const Context& context,
                                    uint64_t bytes);
StatusOr<std::unique_ptr<LayerStore>> LoadLayer(const format::Checkpoint& checkpoint,
                                                const model::ModelSpec& spec, uint32_t layer,
                                                const Context& context);

struct EndWeights {
  Linear embedding;  // decode_row serves look-ups
  const float* final_norm = nullptr;
  Linear head;  // the embedding's matrix where tied
  std::vector<const float*>
      rope_factors;  // one per rope of the spec: its frequency factors, or null
};
class EndStore {
 public:
  virtual ~EndStore() = default;
  virtual const EndWeights& weights() const = 0;
};
StatusOr<std::unique_ptr<EndStore>> LoadEnds(const format::Checkpoint& checkpoint,
                                             const model::ModelSpec& spec, const Context& context);

class Model {
 public:
  virtual ~Model() = default;
  virtual const model::ModelSpec& spec() const = 0;
  virtual const LayerWeights& layer(uint32_t index) const = 0;
  virtual const EndWeights& ends() const = 0;
  virtual const tokenizer::Tokenizer* tokenizer() const = 0;         // null if the file has none
  virtual const tokenizer::ChatTemplate* chat_template() const = 0;  // null if the file has none
  virtual const std::string& chat_template_error()
      const = 0;  // why, where there is one that does not parse
  virtual const model::GenerationDefaults& generation_defaults() const = 0;
  virtual const format::Checkpoint& checkpoint() const = 0;
  virtual uint64_t weight_bytes() const = 0;  // bytes of all weights in use, mapped or allocated
};

// Loads everything as a resumable Work: units are panels of tensors, then pieces of the tokenizer.
class LoadWork : public Work {
 public:
  // `tokenizer`: of the same checkpoint, where it has been made already; null = made here.
  static StatusOr<std::unique_ptr<LoadWork>> Create(
      std::shared_ptr<format::Checkpoint> checkpoint, const Context& context,
      std::shared_ptr<const tokenizer::Tokenizer> tokenizer = nullptr);
  virtual std::shared_ptr<const Model> TakeModel() = 0;  // after Step returned true
};

struct PlanOptions {
  uint64_t context_tokens =
      0;  // KV pool size in tokens; 0 = the model's max_context capped to 4096
  uint32_t batch_tokens = 512;  // tokens per forward step
  uint32_t logit_rows = 1;      // rows of logits kept per step
  uint32_t max_sequences = 1;   // sequences at once
  kernels::KvType k_type = kernels::KvType::kInt8, v_type = kernels::KvType::kInt8;
  Activations activations = Activations::kAuto;
  Determinism determinism = Determinism::kStrict;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;  // as LoadWork is given it
  bool verify = false;  // the checksums of a .qinfer file are compared before it is loaded
};
// Computed from headers alone by the same code that later allocates. Actual peak <= total <= 1.1 x
// actual peak.
struct MemoryPlan {
  uint64_t mapped_bytes = 0;     // file maps (zero with Access::kCopy)
  uint64_t weight_bytes = 0;     // allocated weights
  uint64_t tokenizer_bytes = 0;  // vocabulary, template, side documents, the file's own tables
  uint64_t load_peak_bytes = 0;  // highest sum while loading
  uint64_t kv_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t total_bytes = 0;  // max(load peak, everything while generating)
};
StatusOr<MemoryPlan> PlanMemory(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                                const PlanOptions& options, const Context& context);

}  // namespace qinfer::exec
