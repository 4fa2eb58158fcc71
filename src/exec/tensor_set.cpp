// Planning and loading of tensors, in pieces of whole panels.
#include "exec/tensor_set.h"

#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "exec/activation_block.h"
#include "model/stored_rows.h"

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
                      const model::TensorUse& use, uint32_t begin, uint32_t end) {
  Item item;
  item.ref = *use.ref;
  QINFER_ASSIGN_OR_RETURN(item.stored, model::FindStored(checkpoint, use));
  item.rows = use.rows;
  item.cols = use.cols;
  item.parts = end - begin;
  item.first_part = begin;
  item.vector = use.vector;
  item.first_piece = pieces_;
  const std::string where = checkpoint.name() + ": tensor " + use.ref->name;
  if (use.vector) {
    if (use.norm) item.offset = spec.norm_weight_offset;
    QINFER_RETURN_IF_ERROR(PlanVector(use, &item));
  } else {
    QINFER_RETURN_IF_ERROR(PlanMatrix(checkpoint, where, &item));
  }
  if (item.in_place != nullptr) {
    mapped_bytes_ += item.bytes;
  } else {
    uint64_t next = 0;  // the next tensor begins at a multiple of kAlign
    if (!CheckedAdd(allocated_bytes_, item.bytes, &next) ||
        !CheckedAdd<uint64_t>(next, Memory::kAlign - 1, &next)) {
      return FormatError(where + ": the model is too large");
    }
    allocated_bytes_ = next / Memory::kAlign * Memory::kAlign;
  }
  if (!CheckedAdd(pieces_, item.pieces, &pieces_)) {
    return FormatError(where + ": the model is too large");
  }
  items_.push_back(std::move(item));
  return OkStatus();
}

// Vectors of a stack lie one after the other.
Status TensorSet::PlanVector(const model::TensorUse& use, Item* item) {
  item->bytes = uint64_t{use.cols} * use.parts * sizeof(float);
  item->pieces = 1;
  const uint64_t span = uint64_t{use.cols} * use.ref->step;
  scratch_bytes_ = std::max<size_t>(
      scratch_bytes_, SourceBytes(item->stored.dtype, 1, span) + span * sizeof(float) + 16);
  return OkStatus();
}

Status TensorSet::PlanMatrix(const format::Checkpoint& checkpoint, const std::string& where,
                             Item* item) {
  const model::StoredTensor& stored = item->stored;
  const uint64_t panels = CeilDiv<uint64_t>(item->rows, kernels::kPanelRows);
  uint64_t part_bytes = 0, all_panels = 0;
  if (!weights::PackedSize(stored.format, item->rows, item->cols, &item->panel_bytes,
                           &part_bytes) ||
      !CheckedMul<uint64_t>(part_bytes, item->parts, &item->bytes) ||
      !CheckedMul<uint64_t>(panels, item->parts, &all_panels) || all_panels > UINT32_MAX) {
    return FormatError(where + ": it is too large, or its format is not supported");
  }
  item->part_panels = static_cast<uint32_t>(panels);
  item->direct = model::IsDirect(item->ref, stored);
  item->gathered = model::IsGathered(item->ref, stored);
  uint64_t panel_source = item->panel_bytes, panel_scratch = 0;
  if (stored.packed) {
    if (item->ref.row_begin % kernels::kPanelRows != 0) {
      return FormatError(where + ": a range of rows must start at a multiple of 16");
    }
    const uint8_t* map = checkpoint.sources()[stored.info->source]->Map();
    if (map != nullptr) {
      item->in_place = map + stored.info->offset + FirstPanel(*item) * item->panel_bytes;
      return OkStatus();
    }
  } else {
    uint64_t row_bytes = 0;
    if (!TensorBytes(stored.dtype, stored.info == nullptr ? item->cols : stored.cols, &row_bytes)) {
      return FormatError(
          StrCat(where, ": rows of ", stored.cols, " values are not a whole number of blocks"));
    }
    panel_source = panel_scratch = row_bytes * kernels::kPanelRows;
    if (!item->direct) {
      panel_source = uint64_t{item->cols} * kernels::kPanelRows * sizeof(float);
      panel_scratch = panel_source;
    }
  }
  item->panels_per_piece = static_cast<uint32_t>(
      std::min(all_panels, std::max<uint64_t>(1, kPieceBytes / panel_source)));
  item->pieces = static_cast<uint32_t>(CeilDiv<uint64_t>(all_panels, item->panels_per_piece));
  uint64_t scratch = panel_scratch * (item->direct ? item->panels_per_piece : 1);
  if (!item->direct && stored.info != nullptr) {
    scratch =
        RoundUp<uint64_t>(scratch, 64) + model::RowScratchBytes(item->ref, stored, item->cols);
  }
  scratch_bytes_ = std::max<size_t>(scratch_bytes_, scratch);
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

StatusOr<TensorSet> TensorSet::PlanLayerWithoutExperts(const format::Checkpoint& checkpoint,
                                                       const model::ModelSpec& spec,
                                                       uint32_t layer) {
  TensorSet set;
  Status status;
  model::ForEachLayerTensor(
      spec, spec.layers[layer],
      [&](const model::TensorUse& use) {
        if (status.ok()) status = set.Add(checkpoint, spec, use);
      },
      false);
  QINFER_RETURN_IF_ERROR(status);
  return set;
}

StatusOr<TensorSet> TensorSet::PlanExperts(const format::Checkpoint& checkpoint,
                                           const model::ModelSpec& spec, uint32_t layer,
                                           uint32_t begin, uint32_t end) {
  TensorSet set;
  Status status;
  model::ForEachExpertTensor(
      spec, spec.layers[layer].feed_forward, begin, end, [&](const model::TensorUse& use) {
        if (!status.ok()) return;
        const bool stack = use.parts > 1;
        status = set.Add(checkpoint, spec, use, stack ? begin : 0, stack ? end : 1);
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

void TensorSet::Place(uint8_t* memory) {
  for (Item& item : items_) {
    if (item.in_place != nullptr) continue;
    item.placed = memory;
    memory += RoundUp<uint64_t>(item.bytes, Memory::kAlign);
  }
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
  const model::TensorRef& ref = item->ref;
  const DType dtype = item->stored.dtype;
  const uint64_t element = SourceBytes(dtype, 1, 1);
  const uint64_t span = (uint64_t{item->cols} - 1) * ref.step + 1;
  float* out = reinterpret_cast<float*>(item->placed);
  for (uint32_t part = 0; part < item->parts; ++part, out += item->cols) {
    const absl::Span<uint8_t> bytes(scratch, element * span);
    QINFER_RETURN_IF_ERROR(
        checkpoint.Read(*item->stored.info, (ref.row_begin + part * ref.stride) * element, bytes));
    if (ref.step == 1) {
      QINFER_RETURN_IF_ERROR(weights::DecodeToFloat(dtype, bytes, span, out));
    } else {
      float* all = reinterpret_cast<float*>(scratch + RoundUp<uint64_t>(bytes.size(), 16));
      QINFER_RETURN_IF_ERROR(weights::DecodeToFloat(dtype, bytes, span, all));
      for (uint32_t i = 0; i < item->cols; ++i) out[i] = all[uint64_t{i} * ref.step];
    }
    if (item->offset != 0.0f) {
      for (uint32_t i = 0; i < item->cols; ++i) out[i] += item->offset;
    }
  }
  return OkStatus();
}

Status TensorSet::LoadPanels(const format::Checkpoint& checkpoint, Item* item, uint32_t piece,
                             uint8_t* scratch) {
  const uint32_t all = item->part_panels * item->parts;
  const uint32_t begin = piece * item->panels_per_piece;
  const uint32_t end = std::min(all, begin + item->panels_per_piece);
  if (item->stored.packed) {
    const absl::Span<uint8_t> out(item->placed + begin * item->panel_bytes,
                                  (end - begin) * item->panel_bytes);
    const uint64_t skip = FirstPanel(*item) * item->panel_bytes;
    return checkpoint.Read(*item->stored.info, skip + begin * item->panel_bytes, out);
  }
  for (uint32_t at = begin; at < end;) {
    const uint32_t part = at / item->part_panels, first = at % item->part_panels;
    const uint32_t count = std::min(end - at, item->part_panels - first);
    QINFER_RETURN_IF_ERROR(LoadPart(checkpoint, *item, item->first_part + part, first,
                                    first + count, scratch, item->placed + at * item->panel_bytes));
    at += count;
  }
  return OkStatus();
}

// Panels [begin, end) of a part.
Status TensorSet::LoadPart(const format::Checkpoint& checkpoint, const Item& item, uint32_t part,
                           uint32_t begin, uint32_t end, uint8_t* scratch, uint8_t* out) {
  const DType dtype = item.stored.dtype;
  if (item.direct) {
    const uint64_t first = uint64_t{begin} * kernels::kPanelRows;
    const uint64_t count =
        std::min<uint64_t>(uint64_t{end} * kernels::kPanelRows, item.rows) - first;
    const absl::Span<uint8_t> source(scratch, SourceBytes(dtype, count, item.cols));
    QINFER_RETURN_IF_ERROR(checkpoint.Read(
        *item.stored.info, SourceBytes(dtype, model::StoredRow(item.ref, part, first), item.cols),
        source));
    return weights::ImportRows(dtype, source, first, count, item.cols,
                               absl::MakeSpan(out, (end - begin) * item.panel_bytes));
  }
  // Gathered: blocks of the rows in the place of the floats, which are larger.
  float* floats = reinterpret_cast<float*>(scratch);
  const uint64_t floats_bytes = uint64_t{item.cols} * kernels::kPanelRows * sizeof(float);
  for (uint32_t panel = begin; panel < end; ++panel, out += item.panel_bytes) {
    const uint64_t first = uint64_t{panel} * kernels::kPanelRows;
    const uint64_t count = std::min<uint64_t>(kernels::kPanelRows, item.rows - first);
    uint8_t* rest = scratch + RoundUp<uint64_t>(floats_bytes, 64);
    if (item.gathered) {
      const absl::Span<uint8_t> source(scratch, SourceBytes(dtype, count, item.cols));
      QINFER_RETURN_IF_ERROR(model::ReadStoredRows(checkpoint, item.ref, item.stored, part, first,
                                                   count, rest, source.data()));
      QINFER_RETURN_IF_ERROR(weights::ImportRows(dtype, source, first, count, item.cols,
                                                 absl::MakeSpan(out, item.panel_bytes)));
      continue;
    }
    QINFER_RETURN_IF_ERROR(model::ReadRows(checkpoint, item.ref, item.stored, part, first, count,
                                           item.cols, rest, floats));
    QINFER_RETURN_IF_ERROR(weights::PackRows(item.stored.format, weights::PackOptions(), floats,
                                             first, count, item.cols,
                                             absl::MakeSpan(out, item.panel_bytes)));
  }
  return OkStatus();
}

const TensorSet::Item* TensorSet::Find(const model::TensorRef& ref) const {
  if (!ref.present()) return nullptr;
  for (size_t i = 0; i < items_.size(); ++i) {
    const size_t at = (found_ + i) % items_.size();
    if (items_[at].ref == ref) {
      found_ = at;
      return &items_[at];
    }
  }
  return nullptr;
}

StatusOr<Linear> TensorSet::MakeLinear(const Item& item, uint32_t part,
                                       model::LinearRole role) const {
  Linear linear;
  const uint8_t* data = item.in_place != nullptr ? item.in_place : item.placed;
  const uint64_t bytes = item.part_panels * item.panel_bytes;
  linear.format = item.stored.format;
  QINFER_ASSIGN_OR_RETURN(
      linear.matrix, weights::View(item.stored.format, item.rows, item.cols,
                                   absl::MakeConstSpan(data + part * bytes, bytes), item.ref.name));
  linear.activation_block = item.stored.activation_block != 0
                                ? item.stored.activation_block
                                : DefaultActivationBlock(role, item.stored.format);
  linear.activation_scale = item.stored.activation_scale;
  return linear;
}

StatusOr<Linear> TensorSet::GetLinear(const model::TensorRef& weight, const model::TensorRef& bias,
                                      model::LinearRole role) const {
  const Item* item = Find(weight);
  if (item == nullptr) return Linear();
  QINFER_ASSIGN_OR_RETURN(Linear linear, MakeLinear(*item, 0, role));
  linear.bias = GetVector(bias);
  return linear;
}

StatusOr<std::vector<Linear>> TensorSet::GetStack(const model::TensorRef& weight,
                                                  const model::TensorRef& bias, uint32_t parts,
                                                  model::LinearRole role) const {
  std::vector<Linear> stack;
  if (!weight.present()) return stack;
  for (uint32_t p = 0; p < parts; ++p) {
    const Item* item = Find(weight.per_part() ? model::PartRef(weight, p) : weight);
    if (item == nullptr) return InternalError("a part of a stack of weights was not loaded");
    QINFER_ASSIGN_OR_RETURN(Linear linear, MakeLinear(*item, weight.per_part() ? 0 : p, role));
    linear.bias = GetPartVector(bias, p, linear.matrix.rows);
    stack.push_back(linear);
  }
  return stack;
}

StatusOr<Linear> TensorSet::GetPart(const model::TensorRef& weight, uint32_t part,
                                    model::LinearRole role) const {
  const Item* item = Find(weight.per_part() ? model::PartRef(weight, part) : weight);
  if (item == nullptr) return InternalError("a part of a stack of weights was not loaded");
  return MakeLinear(*item, weight.per_part() ? 0 : part - item->first_part, role);
}

const float* TensorSet::GetVector(const model::TensorRef& ref) const {
  const Item* item = Find(ref);
  return item == nullptr ? nullptr : reinterpret_cast<const float*>(item->placed);
}

const float* TensorSet::GetPartVector(const model::TensorRef& ref, uint32_t part,
                                      uint32_t n) const {
  if (ref.per_part()) return GetVector(model::PartRef(ref, part));
  const float* all = GetVector(ref);
  return all == nullptr ? nullptr : all + size_t{part} * n;
}

StatusOr<LayerWeights> LayerFromSet(const TensorSet& set, const model::LayerSpec& layer,
                                    bool experts) {
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
  QINFER_ASSIGN_OR_RETURN(attention.q_a, set.GetLinear(a.q_a, a.q_a_bias, LinearRole::kQA));
  QINFER_ASSIGN_OR_RETURN(attention.kv_a, set.GetLinear(a.kv_a, a.kv_a_bias, LinearRole::kKvA));
  QINFER_ASSIGN_OR_RETURN(attention.k_b, set.GetStack(a.k_b, {}, a.heads, LinearRole::kKB));
  QINFER_ASSIGN_OR_RETURN(attention.v_b, set.GetStack(a.v_b, {}, a.heads, LinearRole::kVB));
  attention.q_a_norm = set.GetVector(a.q_a_norm);
  attention.kv_a_norm = set.GetVector(a.kv_a_norm);
  FeedForwardWeights& feed = weights.feed_forward;
  QINFER_ASSIGN_OR_RETURN(feed.gate, set.GetLinear(f.gate, f.gate_bias, LinearRole::kGate));
  QINFER_ASSIGN_OR_RETURN(feed.up, set.GetLinear(f.up, f.up_bias, LinearRole::kUp));
  QINFER_ASSIGN_OR_RETURN(feed.down, set.GetLinear(f.down, f.down_bias, LinearRole::kDown));
  if (f.kind == model::FeedForwardKind::kExperts) {
    QINFER_ASSIGN_OR_RETURN(feed.router, set.GetLinear(f.router, f.router_bias, LinearRole::kGate));
    QINFER_ASSIGN_OR_RETURN(feed.shared_gate, set.GetLinear(f.shared_gate, {}, LinearRole::kGate));
    feed.router_correction = set.GetVector(f.router_correction);
    if (!experts) return weights;
    QINFER_ASSIGN_OR_RETURN(feed.expert_gate, set.GetStack(f.expert_gate, f.expert_gate_bias,
                                                           f.experts, LinearRole::kExpertGate));
    QINFER_ASSIGN_OR_RETURN(feed.expert_up, set.GetStack(f.expert_up, f.expert_up_bias, f.experts,
                                                         LinearRole::kExpertUp));
    QINFER_ASSIGN_OR_RETURN(feed.expert_down, set.GetStack(f.expert_down, f.expert_down_bias,
                                                           f.experts, LinearRole::kExpertDown));
  }
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
