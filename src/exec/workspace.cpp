// Sizes of the forward pass's buffers: maxima over layers, for the largest batch.
#include "exec/workspace.h"

#include <algorithm>

#include "core/checked.h"

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
  Workspace::Rows TakeRows(size_t rows, size_t width) {
    Workspace::Rows out;
    out.stride = RoundUp<size_t>(width, 16);
    out.data = Take<float>(rows * out.stride);
    return out;
  }
  kernels::Activations TakeCodes(size_t rows, size_t width) {
    kernels::Activations out;
    out.code_stride = RoundUp<size_t>(width, Memory::kAlign);
    out.scale_stride = RoundUp<size_t>(CeilDiv<size_t>(width, kSmallestBlock), 16);
    out.sum_stride = RoundUp<size_t>(CeilDiv<size_t>(width, 16), 16);
    out.codes = Take<int8_t>(rows * out.code_stride);
    out.scales = Take<float>(rows * out.scale_stride);
    out.sums = Take<int32_t>(rows * out.sum_stride);
    return out;
  }
  size_t size() const { return size_; }

 private:
  uint8_t* base_;
  size_t size_ = 0;
};

// Any weight of this width, whatever its format turns out to be.
size_t MatmulScratch(uint32_t cols, uint32_t tokens) {
  kernels::Matrix m;
  m.rows = kernels::kPanelRows;
  m.cols = cols;
  const size_t as_float = kernels::MatmulScratchBytes(m, tokens);
  m.kind = kernels::WeightKind::kInt8;
  m.scale = kernels::ScaleKind::kF16;
  m.has_min = true;
  m.group_size = 16;
  return std::max(as_float, kernels::MatmulScratchBytes(m, tokens));
}

struct Widths {
  uint32_t q = 0, k = 0, v = 0, o = 0, intermediate = 0;
  size_t scratch = 0, page = 0;
};

Widths MaximaOf(const model::ModelSpec& spec) {
  Widths w;
  w.scratch = MatmulScratch(spec.hidden_size, kMaxTokenTile);
  for (const model::LayerSpec& layer : spec.layers) {
    const model::AttentionSpec& a = layer.attention;
    w.q = std::max(w.q, a.heads * a.head_dim);
    w.k = std::max(w.k, a.kv_heads * a.head_dim);
    w.v = std::max(w.v, a.kv_heads * a.v_head_dim);
    w.o = std::max(w.o, a.heads * a.v_head_dim);
    w.intermediate = std::max(w.intermediate, layer.feed_forward.intermediate);
    w.scratch =
        std::max(w.scratch, kernels::AttentionScratchBytes(a.heads / a.kv_heads, a.head_dim,
                                                           a.v_head_dim, kMaxAttentionTile));
    w.page =
        std::max(w.page, a.kv_heads * (kernels::KPlaneBytes(kernels::KvType::kF32, a.head_dim) +
                                       kernels::VPlaneBytes(kernels::KvType::kF32, a.v_head_dim)));
  }
  w.scratch = std::max(w.scratch, MatmulScratch(w.o, kMaxTokenTile));
  w.scratch = std::max(w.scratch, MatmulScratch(w.intermediate, kMaxTokenTile));
  return w;
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
  q = cut.TakeRows(n, w.q);
  k = cut.TakeRows(n, w.k);
  v = cut.TakeRows(n, w.v);
  attention = cut.TakeRows(n, w.o);
  gate = cut.TakeRows(n, w.intermediate);
  up = cut.TakeRows(n, w.intermediate);
  head_x = cut.TakeRows(rows, spec.hidden_size);
  x_codes = cut.TakeCodes(n, spec.hidden_size);
  attention_codes = cut.TakeCodes(n, w.o);
  down_codes = cut.TakeCodes(n, w.intermediate);
  head_codes = cut.TakeCodes(rows, spec.hidden_size);
  logits = cut.Take<float>(rows * spec.vocab_size);
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
  lanes = std::min(context.executor->concurrency(), kMaxLanes);
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
