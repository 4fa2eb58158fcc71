// Planning and loading of tensors, in pieces of whole panels.
#include "exec/tensor_set.h"

#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "exec/activation_block.h"

namespace qinfer::exec {
namespace {

constexpr uint64_t kPieceBytes = 64 << 10;  // of source: some 50 µs of repacking

// Bytes of `rows` rows of a source tensor; sizes were checked when the tensor was found.
uint64_t SourceBytes(DType dtype, uint64_t rows, uint64_t cols) {
  uint64_t bytes = 0;
  return TensorBytes(dtype, rows * cols, &bytes) ? bytes : 0;
}

}  // namespace

Status TensorSet::Add(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                      const model::TensorUse& use) {
  Item item;
  item.ref = *use.ref;
  QINFER_ASSIGN_OR_RETURN(item.stored, model::FindStored(checkpoint, use));
  item.first_row = use.ref->row_begin;
  item.rows = use.rows;
  item.cols = use.cols;
  item.vector = use.vector;
  item.first_piece = pieces_;
  const std::string where = checkpoint.name() + ": tensor " + use.ref->name;
  if (use.vector) {
    if (use.norm) item.offset = spec.norm_weight_offset;
    item.bytes = uint64_t{use.cols} * sizeof(float);
    item.pieces = 1;
    scratch_bytes_ = std::max<size_t>(scratch_bytes_, SourceBytes(item.stored.dtype, 1, item.cols));
  } else {
    if (!weights::PackedSize(item.stored.format, item.rows, item.cols, &item.panel_bytes,
                             &item.bytes)) {
      return FormatError(where + ": it is too large, or its format is not supported");
    }
    const uint64_t panels = CeilDiv<uint64_t>(item.rows, kernels::kPanelRows);
    uint64_t panel_source = item.panel_bytes;
    if (item.stored.packed) {
      if (item.first_row % kernels::kPanelRows != 0) {
        return FormatError(where + ": a range of rows must start at a multiple of 16");
      }
      const uint8_t* map = checkpoint.sources()[item.stored.info->source]->Map();
      if (map != nullptr) {
        item.in_place = map + item.stored.info->offset +
                        item.first_row / kernels::kPanelRows * item.panel_bytes;
      }
    } else {
      uint64_t row_bytes = 0;
      if (!TensorBytes(item.stored.dtype, item.cols, &row_bytes)) {
        return FormatError(
            StrCat(where, ": rows of ", item.cols, " values are not a whole number of blocks"));
      }
      panel_source = row_bytes * kernels::kPanelRows;
    }
    if (item.in_place == nullptr) {
      item.panels_per_piece = static_cast<uint32_t>(
          std::min(panels, std::max<uint64_t>(1, kPieceBytes / panel_source)));
      item.pieces = static_cast<uint32_t>(CeilDiv<uint64_t>(panels, item.panels_per_piece));
      if (!item.stored.packed) {
        scratch_bytes_ = std::max<size_t>(scratch_bytes_, panel_source * item.panels_per_piece);
      }
    }
  }
  if (item.in_place != nullptr) {
    mapped_bytes_ += item.bytes;
  } else if (!CheckedAdd(allocated_bytes_, item.bytes, &allocated_bytes_)) {
    return FormatError(where + ": the model is too large");
  }
  if (!CheckedAdd(pieces_, item.pieces, &pieces_)) {
    return FormatError(where + ": the model is too large");
  }
  items_.push_back(std::move(item));
  return OkStatus();
}

StatusOr<TensorSet> TensorSet::PlanLayer(const format::Checkpoint& checkpoint,
                                         const model::ModelSpec& spec, uint32_t layer) {
  TensorSet set;
  Status status;
  model::ForEachLayerTensor(spec, spec.layers[layer], [&](const model::TensorUse& use) {
    if (status.ok()) status = set.Add(checkpoint, spec, use);
  });
  QINFER_RETURN_IF_ERROR(status);
  return set;
}

StatusOr<TensorSet> TensorSet::PlanEnds(const format::Checkpoint& checkpoint,
                                        const model::ModelSpec& spec) {
  TensorSet set;
  Status status;
  model::ForEachEndTensor(spec, [&](const model::TensorUse& use) {
    if (status.ok()) status = set.Add(checkpoint, spec, use);
  });
  QINFER_RETURN_IF_ERROR(status);
  return set;
}

Status TensorSet::Allocate(Memory* memory) {
  for (Item& item : items_) {
    if (item.in_place != nullptr) continue;
    StatusOr<Buffer> buffer = Buffer::Create(memory, item.bytes, "weights");
    if (!buffer.ok()) return Annotate(buffer.status(), "tensor " + item.ref.name);
    item.buffer = std::move(*buffer);
  }
  return OkStatus();
}

Status TensorSet::LoadPiece(const format::Checkpoint& checkpoint, uint32_t piece,
                            uint8_t* scratch) {
  // The last item that starts at or before the piece and has pieces at all.
  auto it = std::upper_bound(items_.begin(), items_.end(), piece,
                             [](uint32_t p, const Item& item) { return p < item.first_piece; });
  do {
    --it;
  } while (it->pieces == 0);
  const Status status = it->vector ? LoadVector(checkpoint, &*it, scratch)
                                   : LoadPanels(checkpoint, &*it, piece - it->first_piece, scratch);
  return Annotate(status, "tensor " + it->ref.name);
}

Status TensorSet::LoadVector(const format::Checkpoint& checkpoint, Item* item, uint8_t* scratch) {
  const uint64_t element = SourceBytes(item->stored.dtype, 1, 1);
  const absl::Span<uint8_t> bytes(scratch, element * item->cols);
  QINFER_RETURN_IF_ERROR(checkpoint.Read(*item->stored.info, item->first_row * element, bytes));
  float* out = item->buffer.as<float>();
  QINFER_RETURN_IF_ERROR(weights::DecodeToFloat(item->stored.dtype, bytes, item->cols, out));
  if (item->offset != 0.0f) {
    for (uint32_t i = 0; i < item->cols; ++i) out[i] += item->offset;
  }
  return OkStatus();
}

Status TensorSet::LoadPanels(const format::Checkpoint& checkpoint, Item* item, uint32_t piece,
                             uint8_t* scratch) {
  const uint32_t all = CeilDiv(item->rows, kernels::kPanelRows);
  const uint32_t begin = piece * item->panels_per_piece;
  const uint32_t end = std::min(all, begin + item->panels_per_piece);
  const absl::Span<uint8_t> out(item->buffer.as<uint8_t>() + begin * item->panel_bytes,
                                (end - begin) * item->panel_bytes);
  if (item->stored.packed) {
    const uint64_t skip = item->first_row / kernels::kPanelRows * item->panel_bytes;
    return checkpoint.Read(*item->stored.info, skip + begin * item->panel_bytes, out);
  }
  const uint64_t first = uint64_t{begin} * kernels::kPanelRows;
  const uint64_t count =
      std::min<uint64_t>(uint64_t{end} * kernels::kPanelRows, item->rows) - first;
  const DType dtype = item->stored.dtype;
  const absl::Span<uint8_t> source(scratch, SourceBytes(dtype, count, item->cols));
  QINFER_RETURN_IF_ERROR(checkpoint.Read(
      *item->stored.info, SourceBytes(dtype, item->first_row + first, item->cols), source));
  return weights::ImportRows(dtype, source, first, count, item->cols, out);
}

const TensorSet::Item* TensorSet::Find(const model::TensorRef& ref) const {
  if (!ref.present()) return nullptr;
  for (const Item& item : items_) {
    if (item.ref == ref) return &item;
  }
  return nullptr;
}

StatusOr<Linear> TensorSet::GetLinear(const model::TensorRef& weight, const model::TensorRef& bias,
                                      model::LinearRole role) const {
  Linear linear;
  const Item* item = Find(weight);
  if (item == nullptr) return linear;
  const uint8_t* data = item->in_place != nullptr ? item->in_place : item->buffer.as<uint8_t>();
  linear.format = item->stored.format;
  QINFER_ASSIGN_OR_RETURN(linear.matrix,
                          weights::View(item->stored.format, item->rows, item->cols,
                                        absl::MakeConstSpan(data, item->bytes), item->ref.name));
  linear.activation_block = item->stored.activation_block != 0
                                ? item->stored.activation_block
                                : DefaultActivationBlock(role, item->stored.format);
  linear.bias = GetVector(bias);
  return linear;
}

const float* TensorSet::GetVector(const model::TensorRef& ref) const {
  const Item* item = Find(ref);
  return item == nullptr ? nullptr : item->buffer.as<float>();
}

StatusOr<LayerWeights> LayerFromSet(const TensorSet& set, const model::LayerSpec& layer) {
  using model::LinearRole;
  const model::AttentionSpec& a = layer.attention;
  const model::FeedForwardSpec& f = layer.feed_forward;
  LayerWeights weights;
  weights.attention_norm = set.GetVector(layer.attention_norm);
  weights.post_attention_norm = set.GetVector(layer.post_attention_norm);
  weights.feed_forward_norm = set.GetVector(layer.feed_forward_norm);
  weights.post_feed_forward_norm = set.GetVector(layer.post_feed_forward_norm);
  AttentionWeights& attention = weights.attention;
  QINFER_ASSIGN_OR_RETURN(attention.q, set.GetLinear(a.q, a.q_bias, LinearRole::kQ));
  QINFER_ASSIGN_OR_RETURN(attention.k, set.GetLinear(a.k, a.k_bias, LinearRole::kK));
  QINFER_ASSIGN_OR_RETURN(attention.v, set.GetLinear(a.v, a.v_bias, LinearRole::kV));
  QINFER_ASSIGN_OR_RETURN(attention.o, set.GetLinear(a.o, a.o_bias, LinearRole::kO));
  attention.q_norm = set.GetVector(a.q_norm);
  attention.k_norm = set.GetVector(a.k_norm);
  attention.sinks = set.GetVector(a.sinks);
  FeedForwardWeights& feed = weights.feed_forward;
  QINFER_ASSIGN_OR_RETURN(feed.gate, set.GetLinear(f.gate, f.gate_bias, LinearRole::kGate));
  QINFER_ASSIGN_OR_RETURN(feed.up, set.GetLinear(f.up, f.up_bias, LinearRole::kUp));
  QINFER_ASSIGN_OR_RETURN(feed.down, set.GetLinear(f.down, f.down_bias, LinearRole::kDown));
  return weights;
}

StatusOr<EndWeights> EndsFromSet(const TensorSet& set, const model::ModelSpec& spec) {
  EndWeights ends;
  QINFER_ASSIGN_OR_RETURN(ends.embedding,
                          set.GetLinear(spec.embedding, {}, model::LinearRole::kHead));
  ends.final_norm = set.GetVector(spec.final_norm);
  const model::TensorRef& head = spec.tied() ? spec.embedding : spec.lm_head;
  QINFER_ASSIGN_OR_RETURN(ends.head, set.GetLinear(head, {}, model::LinearRole::kHead));
  for (const model::RopeSpec& rope : spec.ropes) {
    ends.rope_factors.push_back(set.GetVector(rope.frequency_factors));
  }
  return ends;
}

}  // namespace qinfer::exec
