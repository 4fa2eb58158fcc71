// Sizes of the forward pass's buffers: maxima over layers, for the largest batch.
#include "exec/workspace.h"

#include <algorithm>

#include "core/checked.h"
#include "kernels/layout.h"

namespace qinfer::exec {
namespace {

constexpr uint32_t kSmallestBlock = 32;  // of activation quantization

class Cutter {
 public:
  explicit Cutter(uint8_t* base) : base_(base) {}
  template <typename T>
  T* Take(size_t count) {
    T* result = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + size_);
    size_ += RoundUp<size_t>(count * sizeof(T), Memory::kAlign);
    return result;
  }
  // An odd number of lines: rows whose distance is a power of two share few sets of a cache.
  Workspace::Rows TakeRows(size_t rows, size_t width) {
    Workspace::Rows out;
    out.stride = RoundUp<size_t>(width, 16) | 16;
    out.data = Take<float>(rows * out.stride);
    return out;
  }
  kernels::Activations TakeCodes(size_t rows, size_t width) {
    kernels::Activations out;
    out.code_stride = CeilDiv<size_t>(width, Memory::kAlign) * Memory::kAlign | Memory::kAlign;
    out.scale_stride = RoundUp<size_t>(CeilDiv<size_t>(width, kSmallestBlock), 16) | 16;
    out.sum_stride = RoundUp<size_t>(CeilDiv<size_t>(width, 16), 16) | 16;
    out.codes = Take<int8_t>(rows * out.code_stride);
    out.scales = Take<float>(rows * out.scale_stride);
    out.sums = Take<int32_t>(rows * out.sum_stride);
    return out;
  }
  // What is cut after Rewind lies where the bytes from `begin` on have been: for buffers that are
  // never in use at the same time. Ends with Forward.
  void Rewind(size_t begin) {
    most_ = size_;
    size_ = begin;
  }
  void Forward() { size_ = most_ = std::max(most_, size_); }
  size_t size() const { return size_; }

 private:
  uint8_t* base_;
  size_t size_ = 0, most_ = 0;
};

// Any weight of this width, whatever its format turns out to be.
size_t MatmulScratch(uint32_t cols, uint32_t rows) {
  kernels::Matrix m;
  m.rows = kernels::kPanelRows;
  m.cols = cols;
  const size_t as_float = kernels::MatmulScratchBytes(m, rows);
  m.kind = kernels::WeightKind::kInt8;
  m.scale = kernels::ScaleKind::kF16;
  m.has_min = true;
  m.group_size = 16;
  return std::max(as_float, kernels::MatmulScratchBytes(m, rows));
}

struct Widths {
  uint32_t q = 0, k = 0, v = 0, o = 0, intermediate = 0;
  uint32_t q_a = 0, absorbed = 0, latent_out = 0, per_head = 0;  // latent attention
  uint32_t heads = 0, head_dim = 0, value_dim = 0, nope = 0, rope = 0, latent = 0;  // and of those
  uint32_t experts = 0, used = 0, expert_intermediate = 0;
  size_t scratch = 0, page = 0, span_states = 0;  // floats of a span of one token's keys
  bool all_latent = true;
};

Widths MaximaOf(const model::ModelSpec& spec) {
  Widths w;
  w.scratch = MatmulScratch(spec.hidden_size, 2 * kMaxTokenTile);  // two planes
  for (const model::LayerSpec& layer : spec.layers) {
    const model::AttentionSpec& a = layer.attention;
    const KvShape kv = KvShapeOf(a);
    w.all_latent = w.all_latent && kv.latent;
    w.q = std::max(w.q, a.heads * a.head_dim);
    w.k = std::max(w.k, kv.heads * kv.key_dim);
    if (!kv.latent) w.v = std::max(w.v, kv.heads * kv.value_dim);
    w.o = std::max(w.o, a.heads * a.v_head_dim);
    if (kv.latent) {
      w.q_a = std::max(w.q_a, a.q_rank);
      w.absorbed = std::max(w.absorbed, a.heads * kv.key_dim);
      w.latent_out = std::max(w.latent_out, a.heads * kv.value_dim);
      w.per_head = std::max({w.per_head, a.head_dim - a.rope_dim, a.latent_dim});
      w.heads = std::max(w.heads, a.heads);
      w.head_dim = std::max(w.head_dim, a.head_dim);
      w.value_dim = std::max(w.value_dim, a.v_head_dim);
      w.nope = std::max(w.nope, a.head_dim - a.rope_dim);
      w.rope = std::max(w.rope, a.rope_dim);
      w.latent = std::max(w.latent, a.latent_dim);
      w.scratch = std::max(w.scratch, kernels::AttentionScratchBytes(1, a.head_dim, a.v_head_dim,
                                                                     kMaxAttentionTile));
    }
    const model::FeedForwardSpec& f = layer.feed_forward;
    w.intermediate = std::max(w.intermediate, f.intermediate);
    w.experts = std::max(w.experts, f.experts);
    w.used = std::max(w.used, f.experts_used);
    w.expert_intermediate = std::max(w.expert_intermediate, f.expert_intermediate);
    w.scratch =
        std::max(w.scratch, kernels::AttentionScratchBytes(a.heads / kv.heads, kv.key_dim,
                                                           kv.value_dim, MaxAttentionTile(a)));
    w.page = std::max(w.page, FloatPageBytes(kv));
    w.span_states = std::max(w.span_states, a.heads * kernels::AttentionStateStride(kv.value_dim));
  }
  for (const uint32_t cols : {w.q_a, w.per_head, w.expert_intermediate}) {
    if (cols != 0) w.scratch = std::max(w.scratch, MatmulScratch(cols, kMaxTokenTile));
  }
  w.scratch = std::max(w.scratch, MatmulScratch(w.o, kMaxTokenTile));
  w.scratch = std::max(w.scratch, MatmulScratch(w.intermediate, kMaxTokenTile));
  return w;
}

void CutExpansion(const Widths& w, const ForwardOptions& options, uint32_t heads, uint32_t lanes,
                  Cutter* cut, Workspace::Expansion* e) {
  e->heads = heads;
  const uint32_t pages = CeilDiv(e->keys, kernels::kPageTokens);
  const size_t keys = size_t{pages} * kernels::kPageTokens;
  e->codes = cut->TakeCodes(keys, w.latent);
  e->rope = cut->TakeRows(keys, w.rope);
  // Floats, whatever the format of the weights turns out to be: codes are smaller.
  kernels::Matrix m;
  m.rows = w.nope;
  m.cols = w.latent;
  e->key_weight_bytes = m.panels() * kernels::layout::PanelBytes(m);
  e->key_weights = cut->Take<uint8_t>(heads * e->key_weight_bytes);
  e->pages = cut->Take<uint8_t>(size_t{pages} * heads *
                                (kernels::KPlaneBytes(options.expanded_type, w.head_dim) +
                                 kernels::VPlaneBytes(options.expanded_type, w.value_dim)));
  e->page_table = cut->Take<const uint8_t*>(pages);
  e->out = cut->TakeRows(options.max_batch_tokens, size_t{w.heads} * w.value_dim);
  const size_t tile = size_t{lanes} * kExpandTokens;
  e->made_k = cut->TakeRows(tile, w.head_dim);
  e->made_v = cut->TakeRows(tile, w.value_dim);
  e->latents = cut->TakeRows(tile, w.latent);
}

// As many heads at a time as cost little beside the room of the absorbed form.
uint32_t ExpandedHeads(const Widths& w, const ForwardOptions& options, uint32_t lanes, size_t room,
                       Workspace::Expansion e) {
  const auto bytes = [&](uint32_t heads) {
    Cutter trial(nullptr);
    CutExpansion(w, options, heads, lanes, &trial, &e);
    return trial.size();
  };
  const size_t limit = std::max(room, 2 * bytes(1));
  uint32_t heads = std::min(kExpandHeads, w.heads);
  while (heads > 1 && bytes(heads) > limit) heads = CeilDiv(heads, 2u);
  return heads;
}

}  // namespace

size_t Workspace::Cut(const model::ModelSpec& spec, const ForwardOptions& options,
                      const Context& context, bool layers_only, uint8_t* base) {
  const Widths w = MaximaOf(spec);
  const size_t n = options.max_batch_tokens;
  const size_t rows = layers_only ? 0 : options.max_logit_rows;
  Cutter cut(base);
  hidden = cut.TakeRows(layers_only ? 0 : n, spec.hidden_size);
  branch = cut.TakeRows(n, spec.hidden_size);
  x = cut.TakeRows(n, spec.hidden_size);
  head_x = cut.TakeRows(rows, spec.hidden_size);
  x_codes = cut.TakeCodes(2 * n, spec.hidden_size);  // two planes
  head_codes = cut.TakeCodes(2 * rows, spec.hidden_size);
  lanes = std::min(context.executor->concurrency(), kMaxLanes);

  // Attention and feed-forward take turns, so they share their memory.
  const size_t turns = cut.size();
  q = cut.TakeRows(n, w.all_latent ? std::max(w.q, w.o) : w.q);
  k = cut.TakeRows(n, w.k);
  v = cut.TakeRows(n, w.v);
  // Queries of latent attention are not needed any more when its outputs come back.
  attention = w.all_latent ? q : cut.TakeRows(n, w.o);
  attention_codes = cut.TakeCodes(n, w.o);
  q_a = cut.TakeRows(n, w.q_a);
  q_a_codes = cut.TakeCodes(n, w.q_a);
  if (w.per_head > 0) head_tile_codes = cut.TakeCodes(size_t{lanes} * kMaxTokenTile, w.per_head);
  const size_t forms = cut.size();
  absorbed = cut.TakeRows(n, w.absorbed);
  latent_out = cut.TakeRows(n, w.latent_out);
  if (options.determinism == Determinism::kFast && w.heads > 0 && !layers_only) {
    const size_t room = cut.size() - forms;
    cut.Rewind(forms);  // a layer's attention has one form or the other
    expansion.keys = options.max_position != 0 ? options.max_position : spec.max_context;
    CutExpansion(w, options, ExpandedHeads(w, options, lanes, room, expansion), lanes, &cut,
                 &expansion);
    cut.Forward();
  }
  cut.Rewind(turns);
  gate = cut.TakeRows(n, w.intermediate);
  up = cut.TakeRows(n, w.intermediate);
  down_codes = cut.TakeCodes(n, w.intermediate);
  if (w.experts > 0) {
    const size_t slots = n * w.used;
    // At least what one expert may get; enough of it that windows cost nothing.
    window_slots = static_cast<uint32_t>(
        std::min(slots, std::max({n, slots / 4, size_t{kLaneSlots} * lanes})));
    router = cut.TakeRows(n, size_t{3} * w.experts);
    shared_gate = cut.TakeRows(n, 1);
    gathered = cut.TakeRows(window_slots, spec.hidden_size);
    gathered_codes = cut.TakeCodes(window_slots, spec.hidden_size);
    expert_gate = cut.TakeRows(window_slots, w.expert_intermediate);
    expert_up = cut.TakeRows(window_slots, w.expert_intermediate);
    expert_codes = cut.TakeCodes(window_slots, w.expert_intermediate);
    expert_out = cut.TakeRows(slots, spec.hidden_size);
    chosen = cut.Take<uint32_t>(slots);
    chosen_weights = cut.Take<float>(slots);
    slot_of = cut.Take<uint32_t>(slots);
    slot_tokens = cut.Take<uint32_t>(slots);
    expert_begin = cut.Take<uint32_t>(w.experts + 1);
    jobs = cut.Take<ExpertJob>(w.experts + 1);
  }
  cut.Forward();
  logits = cut.Take<float>(rows * spec.vocab_size);
  logit_maxima =
      cut.Take<float>((layers_only ? lanes : rows) * CeilDiv(spec.vocab_size, kernels::kPanelRows));
  tokens = cut.Take<int32_t>(n);
  positions = cut.Take<uint32_t>(n);
  segment_of = cut.Take<uint32_t>(n);
  logit_tokens = cut.Take<uint32_t>(rows);
  segments = cut.Take<Segment>(n);
  uint32_t half = 0;
  for (const model::RopeSpec& rope : spec.ropes) half = std::max(half, rope.dims / 2);
  rope_stride = RoundUp<size_t>(half, 16);
  cosines = cut.Take<float>(spec.ropes.size() * n * rope_stride);
  sines = cut.Take<float>(spec.ropes.size() * n * rope_stride);
  // Enough for one token; where that is too little, keys are not split.
  const uint32_t keys = options.max_position != 0 ? options.max_position : spec.max_context;
  state_floats =
      lanes == 1 || layers_only || keys <= kernels::kAttentionSpan
          ? 0
          : std::min(kMaxStateFloats, w.span_states * CeilDiv(keys, kernels::kAttentionSpan));
  states = cut.Take<float>(state_floats);
  spans_done = cut.Take<uint32_t>(state_floats == 0 ? 0 : kGroupsALane * lanes);
  scratch_stride = RoundUp<size_t>(w.scratch, Memory::kAlign);
  scratch = cut.Take<uint8_t>(lanes * scratch_stride);
  if (layers_only) {
    page_bytes = RoundUp<size_t>(w.page, Memory::kAlign);
    page_count = static_cast<uint32_t>(CeilDiv<size_t>(n, kernels::kPageTokens));
    pages = cut.Take<uint8_t>(page_count * page_bytes);
    page_table = cut.Take<const uint8_t*>(page_count);
  }
  return cut.size();
}

}  // namespace qinfer::exec
