// One group: its phases, its tensors, and the slices of the head. Layers of quantized weights are
// put together in group_layer.cpp.
#include "quant/group_work.h"

#include <algorithm>

#include "exec/activation_block.h"
#include "quant/quantize_report.h"
#include "quant/source_rows.h"

namespace qinfer::quant {

std::vector<Group> MakeGroups(const ResolvedRecipe& resolved, uint32_t layers) {
  std::vector<Group> groups(layers + 2);
  groups[0].embedding = true;
  groups[layers + 1].head = true;
  for (uint32_t l = 0; l < layers; ++l) groups[l + 1].layer = l;
  // The resolved order is the order of groups, so each is one range.
  size_t at = 0;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    groups[g].begin = at;
    while (at < resolved.tensors.size()) {
      const TensorPlan& plan = resolved.tensors[at];
      const uint32_t home = plan.use == TensorUse::kEmbedding ? 0
                            : plan.layer != UINT32_MAX        ? plan.layer + 1
                                                              : layers + 1;
      if (home != g) break;
      ++at;
    }
    groups[g].end = at;
  }
  return groups;
}

StatusOr<TensorPlan> ReferencePlan(const TensorPlan& plan, const format::Checkpoint& checkpoint) {
  QINFER_ASSIGN_OR_RETURN(const SourceTensor source, DescribeTensor(checkpoint, *plan.source));
  TensorPlan reference = plan;
  reference.action = TensorAction::kExact;
  if (source.packed) {
    reference.format = source.format;
  } else {
    StatusOr<weights::Format> exact = weights::ExactFormat(source.dtype);
    reference.action = exact.ok() ? TensorAction::kExact : TensorAction::kPack;
    reference.format = exact.ok() ? *exact : weights::Format{};
  }
  if (!weights::PackedSize(reference.format, plan.rows, plan.cols, &reference.panel_bytes,
                           &reference.bytes)) {
    return FormatError(StrCat("tensor \"", plan.name, "\" is too large"));
  }
  return reference;
}

StatusOr<std::unique_ptr<GroupWork>> GroupWork::Create(const GroupShared& shared,
                                                       const Group& group) {
  auto work = std::unique_ptr<GroupWork>(new GroupWork(shared, group));
  work->tensor_ = group.begin;
  work->kept_.resize(group.end - group.begin);
  work->report_["layer"] = group.layer == UINT32_MAX ? int64_t{-1} : int64_t{group.layer};
  work->report_["tensors"];
  if (shared.drift == nullptr) return work;
  if (group.layer != UINT32_MAX) work->phase_ = Phase::kReference;
  if (group.embedding) work->phase_ = Phase::kEmbedReference;
  if (!group.head) return work;
  work->phase_ = Phase::kHeadInputs;
  QINFER_RETURN_IF_ERROR(shared.drift->BeginHead());
  const TensorPlan* head = HeadPlan(*shared.resolved);
  if (head == nullptr) return InternalError("the model has no head");
  QINFER_ASSIGN_OR_RETURN(work->reference_plan_, ReferencePlan(*head, *shared.checkpoint));
  QINFER_ASSIGN_OR_RETURN(
      TensorPacker packer,
      TensorPacker::Create(*shared.checkpoint, *work->reference_plan_, {}, shared.context));
  work->reference_ = std::move(packer);
  QINFER_ASSIGN_OR_RETURN(
      work->reference_panels_,
      Buffer::Create(shared.context.memory,
                     std::min(shared.head_slice_panels, work->reference_->panels()) *
                         work->reference_plan_->panel_bytes,
                     "a slice of the head"));
  return work;
}

StatusOr<bool> GroupWork::Step(const Deadline& deadline) {
  switch (phase_) {
    case Phase::kEmbedReference:
    case Phase::kHeadInputs:
      return StepSample();
    case Phase::kReference:
      return StepReference(deadline);
    case Phase::kTensors:
      return StepTensors(deadline);
    case Phase::kQuantized:
      return StepQuantized(deadline);
    case Phase::kTiedHead:
      return StepTiedHead(deadline);
    case Phase::kDone:
      return true;
  }
  return InternalError("a group is in no phase");
}

// What a held-out sample needs before the group's tensors come by.
StatusOr<bool> GroupWork::StepSample() {
  if (phase_ == Phase::kEmbedReference) {
    QINFER_RETURN_IF_ERROR(shared_.drift->EmbedReference(sample_));
  } else {
    QINFER_RETURN_IF_ERROR(shared_.drift->HeadInputs(sample_));
  }
  if (++sample_ < shared_.drift->samples()) return false;
  sample_ = 0;
  phase_ = Phase::kTensors;
  return false;
}

// The reference goes first, so that the float layer is gone before packed tensors are kept.
StatusOr<bool> GroupWork::StepReference(const Deadline& deadline) {
  if (store_ == nullptr) {
    QINFER_ASSIGN_OR_RETURN(
        store_, exec::OpenLayer(*shared_.checkpoint, *shared_.spec, group_.layer, shared_.context));
    built_ = false;
  }
  if (!built_) {
    QINFER_ASSIGN_OR_RETURN(built_, store_->Step(deadline));
    return false;
  }
  QINFER_ASSIGN_OR_RETURN(const bool done, shared_.drift->RunReference(
                                               store_->weights(), group_.layer, sample_, deadline));
  if (!done || ++sample_ < shared_.drift->samples()) return false;
  store_.reset();
  built_ = false;
  sample_ = 0;
  phase_ = Phase::kTensors;
  return false;
}

StatusOr<bool> GroupWork::StepTensors(const Deadline& deadline) {
  if (tensor_ < group_.end) {
    if (!stream_.has_value()) {
      QINFER_ASSIGN_OR_RETURN(TensorStream stream, OpenStream(tensor_));
      stream_ = std::move(stream);
      return false;
    }
    QINFER_ASSIGN_OR_RETURN(const bool done, stream_->Step(deadline));
    if (!done) return false;
    Describe(shared_.resolved->tensors[tensor_], *stream_);
    stream_.reset();
    importance_ = Buffer();
    ++tensor_;
    return false;
  }
  if (shared_.drift == nullptr) {
    phase_ = Phase::kDone;
    return true;
  }
  if (group_.layer != UINT32_MAX) {
    phase_ = Phase::kQuantized;
    return false;
  }
  if (group_.head && HeadPlan(*shared_.resolved)->use == TensorUse::kEmbedding) {
    phase_ = Phase::kTiedHead;
    return false;
  }
  if (!StepDrift()) return false;
  if (group_.head) QINFER_RETURN_IF_ERROR(shared_.drift->FinishHead(&report_["evaluation"]));
  phase_ = Phase::kDone;
  return true;
}

StatusOr<bool> GroupWork::StepQuantized(const Deadline& deadline) {
  if (!built_) {
    QINFER_RETURN_IF_ERROR(BuildLayer());
    built_ = true;
    return false;
  }
  if (sample_ < shared_.drift->samples()) {
    QINFER_ASSIGN_OR_RETURN(const bool done,
                            shared_.drift->RunQuantized(weights_, group_.layer, sample_, deadline));
    sample_ += done ? 1 : 0;
    return false;
  }
  if (!StepDrift()) return false;
  phase_ = Phase::kDone;
  return true;
}

// A tied head is the embedding's tensor, which is already written: packing it again gives the same
// panels and needs no memory for all of them.
StatusOr<bool> GroupWork::StepTiedHead(const Deadline& deadline) {
  const TensorPlan& plan = *HeadPlan(*shared_.resolved);
  if (!tied_.has_value()) {
    PackSettings settings;
    settings.search_scales = shared_.recipe->search_scales;
    QINFER_RETURN_IF_ERROR(ImportanceOf(plan, &settings));
    QINFER_ASSIGN_OR_RETURN(TensorPacker packer, TensorPacker::Create(*shared_.checkpoint, plan,
                                                                      settings, shared_.context));
    tied_ = std::move(packer);
    QINFER_ASSIGN_OR_RETURN(
        tied_panels_,
        Buffer::Create(shared_.context.memory,
                       std::min(shared_.head_slice_panels, tied_->panels()) * plan.panel_bytes,
                       "a slice of the head"));
  }
  const uint32_t end = std::min(tied_->panels(), tied_at_ + shared_.head_slice_panels);
  const absl::Span<uint8_t> panels(tied_panels_.as<uint8_t>(), (end - tied_at_) * plan.panel_bytes);
  if (tied_packed_ < end) {
    const uint32_t stop =
        std::min(end, tied_packed_ + TensorStream::DefaultUnitPanels(plan, shared_.context));
    QINFER_RETURN_IF_ERROR(tied_->Pack(tied_packed_, stop,
                                       panels.subspan((tied_packed_ - tied_at_) * plan.panel_bytes,
                                                      (stop - tied_packed_) * plan.panel_bytes),
                                       nullptr, nullptr));
    tied_packed_ = stop;
    return false;
  }
  QINFER_ASSIGN_OR_RETURN(const bool seen, EvaluateSlice(plan, tied_at_, end, panels, deadline));
  if (!seen) return false;
  tied_at_ = end;
  if (tied_at_ < tied_->panels()) return false;
  QINFER_RETURN_IF_ERROR(shared_.drift->FinishHead(&report_["evaluation"]));
  phase_ = Phase::kDone;
  return true;
}

// Slices come in order, and the reference's panels of each are made first.
StatusOr<bool> GroupWork::EvaluateSlice(const TensorPlan& plan, uint32_t begin, uint32_t end,
                                        absl::Span<const uint8_t> panels,
                                        const Deadline& deadline) {
  const uint64_t first = uint64_t{begin} * kernels::kPanelRows;
  const uint64_t rows = std::min<uint64_t>(plan.rows, uint64_t{end} * kernels::kPanelRows) - first;
  const uint64_t bytes = (end - begin) * reference_plan_->panel_bytes;
  if (bytes > reference_panels_.size()) return InternalError("a slice of the head is too large");
  const absl::Span<uint8_t> exact(reference_panels_.as<uint8_t>(), bytes);
  if (reference_at_ < end) {
    const uint64_t panel_bytes = reference_plan_->panel_bytes;
    const uint32_t stop = std::min(
        end, reference_at_ + TensorStream::DefaultUnitPanels(*reference_plan_, shared_.context));
    QINFER_RETURN_IF_ERROR(reference_->Pack(
        reference_at_, stop,
        exact.subspan((reference_at_ - begin) * panel_bytes, (stop - reference_at_) * panel_bytes),
        nullptr, nullptr));
    reference_at_ = stop;
    return false;
  }
  exec::Linear reference, quantized;
  reference.format = reference_plan_->format;
  QINFER_ASSIGN_OR_RETURN(
      reference.matrix, weights::View(reference_plan_->format, rows, plan.cols, exact, plan.name));
  quantized.format = plan.format;
  quantized.activation_block = exec::DefaultActivationBlock(model::LinearRole::kHead, plan.format);
  quantized.activation_scale = StaticScale(plan);
  QINFER_ASSIGN_OR_RETURN(quantized.matrix,
                          weights::View(plan.format, rows, plan.cols, panels, plan.name));
  return shared_.drift->HeadSlice(reference, quantized, first, deadline);
}

float GroupWork::StaticScale(const TensorPlan& plan) const {
  if (!shared_.resolved->static_activations || shared_.calibration == nullptr) return 0.0f;
  return StaticActivationScale(*shared_.resolved, plan, *shared_.calibration);
}

StatusOr<const InputStats*> GroupWork::StatsOf(const TensorPlan& plan, uint32_t part) const {
  const InputStats* stats = nullptr;
  if (shared_.calibration == nullptr) return stats;
  if (plan.use == TensorUse::kLinear) {
    stats = shared_.calibration->Find(plan.layer, plan.role, part);
  } else if (HeadPlan(*shared_.resolved) == &plan) {
    stats = shared_.calibration->Find(UINT32_MAX, model::LinearRole::kHead);
  }
  if (stats != nullptr && stats->moments.channels() != plan.cols) {
    return FormatError(StrCat("tensor \"", plan.name, "\" has ", plan.cols,
                              " inputs, the calibration ", stats->moments.channels()));
  }
  return stats;
}

// The importance of a tensor's inputs; of experts that share a tensor, of each.
Status GroupWork::ImportanceOf(const TensorPlan& plan, PackSettings* settings) {
  uncovered_ = 0;
  const bool stack = plan.use == TensorUse::kLinear && model::IsExpertRole(plan.role) &&
                     plan.part == model::kNoPart;
  const uint32_t sets = stack ? plan.parts : 1;
  for (uint32_t p = 0; p < sets; ++p) {
    QINFER_ASSIGN_OR_RETURN(const InputStats* stats, StatsOf(plan, stack ? p : plan.part));
    if (stats == nullptr) return OkStatus();
    if (p == 0) {
      QINFER_ASSIGN_OR_RETURN(
          importance_, Buffer::Create(shared_.context.memory, sets * plan.cols * sizeof(float),
                                      "importance of inputs"));
    }
    // Without tokens all inputs are alike, which is a search without weights.
    if (stats->moments.tokens() == 0) ++uncovered_;
    stats->moments.Importance(importance_.as<float>() + p * plan.cols);
  }
  settings->importance = importance_.as<const float>();
  settings->importance_stride = stack ? plan.cols : 0;
  return OkStatus();
}

StatusOr<TensorStream> GroupWork::OpenStream(size_t index) {
  const TensorPlan& plan = shared_.resolved->tensors[index];
  TensorStream::Options options;
  options.pack.search_scales = shared_.recipe->search_scales;
  options.weights = shared_.calibration_options->weights;
  options.ema_alpha = shared_.calibration_options->ema_alpha;
  options.range.method = shared_.calibration_options->range;
  options.range.percentile = shared_.calibration_options->percentile;
  if (plan.action == TensorAction::kPack) {
    QINFER_RETURN_IF_ERROR(ImportanceOf(plan, &options.pack));
  }
  if (shared_.drift != nullptr && plan.packed()) {
    if (IsLayerMatrix(plan)) {
      Buffer& kept = kept_[index - group_.begin];
      QINFER_ASSIGN_OR_RETURN(
          kept, Buffer::Create(shared_.context.memory, plan.bytes, "a packed tensor"));
      options.keep = absl::MakeSpan(kept.as<uint8_t>(), plan.bytes);
    } else if (plan.use == TensorUse::kEmbedding) {
      options.hook = [this, &plan](uint32_t begin, uint32_t end, absl::Span<const uint8_t> panels,
                                   const Deadline&) -> StatusOr<bool> {
        QINFER_RETURN_IF_ERROR(
            shared_.drift->EmbedPanels(plan.format, plan.rows, begin, end, panels));
        return true;
      };
    } else if (plan.use == TensorUse::kHead) {
      options.unit_panels = shared_.head_slice_panels;
      options.hook = [this, &plan](uint32_t begin, uint32_t end, absl::Span<const uint8_t> panels,
                                   const Deadline& deadline) {
        return EvaluateSlice(plan, begin, end, panels, deadline);
      };
    }
  }
  return TensorStream::Create(*shared_.checkpoint, plan, index, shared_.writer, std::move(options),
                              shared_.context);
}

void GroupWork::Describe(const TensorPlan& plan, const TensorStream& stream) {
  observe::Report& item = report_["tensors"].Append();
  item["name"] = plan.name;
  item["role"] = TensorUseName(plan);
  observe::Report& shape = item["shape"];
  if (plan.packed()) {
    if (plan.parts > 1) shape.Append() = plan.parts;
    shape.Append() = plan.rows;
    shape.Append() = plan.cols;
  } else {
    for (uint32_t d = 0; d < plan.source->rank; ++d) shape.Append() = plan.source->shape[d];
  }
  item["source_type"] = SourceTypeName(plan);
  item["format"] = plan.packed() ? weights::Name(plan.format) : RawFormat(plan.raw_type);
  item["import"] = ImportWord(plan);
  item["bytes"] = plan.bytes;
  const uint64_t elements = plan.packed() ? plan.elements() : plan.source->elements();
  item["parameters"] = elements;
  item["bits_per_weight"] =
      elements == 0 ? 0.0 : 8.0 * static_cast<double>(plan.bytes) / static_cast<double>(elements);
  if (plan.part != model::kNoPart) item["expert"] = plan.part;
  if (plan.action != TensorAction::kPack) return;
  if (uncovered_ != 0) {
    item["unweighted_parts"] = uncovered_;
    item["note"] =
        "no calibration token reached this expert (or some of the tensor's): its scales "
        "are searched without weights";
  }
  PutErrors(stream.errors(), shared_.calibration != nullptr, &item);
  item["error"] = stream.errors().error;
  item["signal"] = stream.errors().signal;
  item["min"] = double{stream.extremes().min};
  item["max"] = double{stream.extremes().max};
  if (stream.clipped()) item["clipped_to"] = stream.range().Magnitude();
}

// True when the hidden states after this group are compared.
bool GroupWork::StepDrift() {
  if (!shared_.drift->StepCompare(&drift_sums_)) return false;
  observe::Report& hidden = report_["hidden"];
  hidden["relative_mse"] = drift_sums_.RelativeMse();
  hidden["cosine"] = drift_sums_.Cosine();
  hidden["max_abs"] = drift_sums_.max_abs;
  return true;
}

}  // namespace qinfer::quant
