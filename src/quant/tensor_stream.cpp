// Streaming of one tensor.
#include "quant/tensor_stream.h"

#include <algorithm>

namespace qinfer::quant {
namespace {

constexpr uint64_t kCopyBytes = 256 << 10;

uint64_t UnitBytes(const TensorPlan& plan, bool keep, uint32_t unit_panels) {
  if (!plan.packed()) return std::min<uint64_t>(kCopyBytes, std::max<uint64_t>(plan.bytes, 1));
  return keep ? 0 : unit_panels * plan.panel_bytes;
}

// Source bytes that become one piece of decoded F32 values, in whole blocks.
uint64_t DecodePieceElements(const TensorPlan& plan) {
  const uint64_t block = Info(plan.source->dtype).block;
  return std::max<uint64_t>(kCopyBytes / sizeof(float) / block, 1) * block;
}

}  // namespace

uint32_t TensorStream::DefaultUnitPanels(const TensorPlan& plan, const exec::Context& context) {
  const uint64_t panels = plan.panels();
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(context.executor->concurrency(), 1, std::max<uint64_t>(panels, 1)));
}

StatusOr<uint64_t> TensorStream::PlanBytes(const format::Checkpoint& checkpoint,
                                           const TensorPlan& plan, bool keep, uint32_t unit_panels,
                                           const exec::Context& context) {
  if (unit_panels == 0) unit_panels = DefaultUnitPanels(plan, context);
  uint64_t bytes = UnitBytes(plan, keep, unit_panels);
  if (plan.action == TensorAction::kDecode) bytes += kCopyBytes;
  if (plan.packed()) {
    QINFER_ASSIGN_OR_RETURN(const uint64_t packer,
                            TensorPacker::PlanBytes(checkpoint, plan, context));
    bytes += packer;
  }
  return bytes;
}

StatusOr<TensorStream> TensorStream::Create(const format::Checkpoint& checkpoint,
                                            const TensorPlan& plan, size_t index,
                                            ModelWriter* writer, Options options,
                                            const exec::Context& context) {
  TensorStream stream;
  stream.checkpoint_ = &checkpoint;
  stream.plan_ = &plan;
  stream.index_ = index;
  stream.writer_ = writer;
  stream.options_ = std::move(options);
  stream.context_ = context;
  stream.unit_panels_ = stream.options_.unit_panels != 0 ? stream.options_.unit_panels
                                                         : DefaultUnitPanels(plan, context);
  const bool keep = !stream.options_.keep.empty();
  if (plan.packed()) {
    QINFER_ASSIGN_OR_RETURN(TensorPacker packer,
                            TensorPacker::Create(checkpoint, plan, stream.options_.pack, context));
    stream.packer_ = std::move(packer);
    if (stream.options_.weights != ObserverKind::kMinMax && plan.action == TensorAction::kPack) {
      QINFER_ASSIGN_OR_RETURN(
          stream.observer_,
          CreateObserver(stream.options_.weights, {stream.options_.ema_alpha}, context.memory));
    }
  }
  const uint64_t unit_bytes = UnitBytes(plan, keep, stream.unit_panels_) +
                              (plan.action == TensorAction::kDecode ? kCopyBytes : 0);
  if (unit_bytes != 0) {
    QINFER_ASSIGN_OR_RETURN(stream.unit_,
                            Buffer::Create(context.memory, unit_bytes, "packed panels"));
  }
  return stream;
}

StatusOr<bool> TensorStream::Step(const Deadline& deadline) {
  if (!plan_->packed()) return StepBytes();
  return observer_ != nullptr ? StepObserve() : StepPanels(deadline);
}

// The first pass over a tensor whose values are clipped to an observed range.
StatusOr<bool> TensorStream::StepObserve() {
  const uint32_t end = std::min(packer_->panels(), observed_ + unit_panels_);
  QINFER_RETURN_IF_ERROR(packer_->Observe(observed_, end, observer_.get()));
  observed_ = end;
  if (observed_ < packer_->panels()) return false;
  options_.pack.clip = true;
  options_.pack.range = observer_->range(options_.range);
  observer_.reset();
  packer_.reset();
  QINFER_ASSIGN_OR_RETURN(TensorPacker packer,
                          TensorPacker::Create(*checkpoint_, *plan_, options_.pack, context_));
  packer_ = std::move(packer);
  return false;
}

StatusOr<bool> TensorStream::StepPanels(const Deadline& deadline) {
  const uint32_t end = std::min(packer_->panels(), panel_ + unit_panels_);
  const uint64_t bytes = uint64_t{end - panel_} * plan_->panel_bytes;
  const absl::Span<uint8_t> out = options_.keep.empty()
                                      ? absl::MakeSpan(unit_.as<uint8_t>(), bytes)
                                      : options_.keep.subspan(panel_ * plan_->panel_bytes, bytes);
  if (packed_ < end) {
    // What a hook gets at once may be much to pack: a few panels a step.
    const uint32_t stop = std::min(end, packed_ + DefaultUnitPanels(*plan_, context_));
    const absl::Span<uint8_t> part =
        out.subspan((packed_ - panel_) * plan_->panel_bytes, (stop - packed_) * plan_->panel_bytes);
    const bool measure = plan_->action == TensorAction::kPack;
    QINFER_RETURN_IF_ERROR(packer_->Pack(packed_, stop, part, measure ? &errors_ : nullptr,
                                         measure ? &extremes_ : nullptr));
    packed_ = stop;
    if (packed_ < end) return false;
  }
  if (options_.hook) {
    QINFER_ASSIGN_OR_RETURN(const bool seen, options_.hook(panel_, end, out, deadline));
    if (!seen) return false;
  }
  QINFER_RETURN_IF_ERROR(writer_->Write(index_, done_bytes_, out));
  done_bytes_ += bytes;
  panel_ = end;
  return panel_ == packer_->panels();
}

StatusOr<bool> TensorStream::StepBytes() {
  const format::TensorInfo& source = *plan_->source;
  const std::string where = StrCat(checkpoint_->name(), ": tensor \"", plan_->name, "\"");
  if (plan_->action == TensorAction::kRaw) {
    const uint64_t size = std::min<uint64_t>(unit_.size(), plan_->bytes - done_bytes_);
    const absl::Span<uint8_t> piece(unit_.as<uint8_t>(), size);
    QINFER_RETURN_IF_ERROR(checkpoint_->Read(source, done_bytes_, piece));
    QINFER_RETURN_IF_ERROR(writer_->Write(index_, done_bytes_, piece));
    done_bytes_ += size;
    return done_bytes_ == plan_->bytes;
  }
  const uint64_t elements =
      std::min(DecodePieceElements(*plan_), (plan_->bytes - done_bytes_) / sizeof(float));
  uint64_t bytes = 0;
  if (!TensorBytes(source.dtype, elements, &bytes) || bytes > kCopyBytes) {
    return FormatError(where + " is not made of whole blocks");
  }
  float* floats = unit_.as<float>();
  const absl::Span<uint8_t> raw(unit_.as<uint8_t>() + unit_.size() - kCopyBytes, bytes);
  QINFER_RETURN_IF_ERROR(checkpoint_->Read(source, source_at_, raw));
  const Status decoded = weights::DecodeToFloat(source.dtype, raw, elements, floats);
  if (!decoded.ok()) return Annotate(decoded, where);
  QINFER_RETURN_IF_ERROR(
      writer_->Write(index_, done_bytes_,
                     absl::MakeConstSpan(unit_.as<const uint8_t>(), elements * sizeof(float))));
  source_at_ += bytes;
  done_bytes_ += elements * sizeof(float);
  return done_bytes_ == plan_->bytes;
}

}  // namespace qinfer::quant
