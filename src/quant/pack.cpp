// Packing panels in parallel.
#include "quant/pack.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <new>

#include "core/checked.h"

namespace qinfer::quant {
namespace {

constexpr uint32_t kMaxLanes = 64;

// The error of the smallest panel, so that messages do not depend on timing.
class FirstError {
 public:
  void Add(uint32_t index, Status status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (index < index_) {
      index_ = index;
      status_ = std::move(status);
    }
  }
  const Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  uint32_t index_ = UINT32_MAX;
  Status status_;
};

}  // namespace

uint32_t TensorPacker::Lanes(const TensorPlan& plan, const exec::Context& context) {
  const uint64_t panels = plan.panels();
  return static_cast<uint32_t>(std::clamp<uint64_t>(
      std::min<uint64_t>(context.executor->concurrency(), panels), 1, kMaxLanes));
}

StatusOr<model::StoredTensor> TensorPacker::Stored(const format::Checkpoint& checkpoint,
                                                   const TensorPlan& plan) {
  const model::TensorUse use{
      &plan.ref, static_cast<uint32_t>(plan.rows), static_cast<uint32_t>(plan.cols), false, false,
      plan.parts};
  return model::FindStored(checkpoint, use);
}

// Scratch of a lane: a panel of source bytes, the panel as floats, and one decoded row.
StatusOr<uint64_t> TensorPacker::LaneBytes(const format::Checkpoint& checkpoint,
                                           const SourceTensor& source, const TensorPlan& plan,
                                           uint64_t* source_bytes) {
  if (plan.by_ref) {
    QINFER_ASSIGN_OR_RETURN(const model::StoredTensor stored, Stored(checkpoint, plan));
    *source_bytes = model::RowScratchBytes(plan.ref, stored, plan.cols);
  } else {
    QINFER_ASSIGN_OR_RETURN(*source_bytes, SourceRowBytes(source, 0, kernels::kPanelRows));
  }
  uint64_t floats = 0;
  if (!CheckedMul<uint64_t>(plan.cols, (kernels::kPanelRows + 1) * sizeof(float), &floats)) {
    return FormatError(StrCat("tensor \"", plan.name, "\" is too wide"));
  }
  return RoundUp<uint64_t>(*source_bytes, 64) + RoundUp<uint64_t>(floats, 64);
}

StatusOr<uint64_t> TensorPacker::PlanBytes(const format::Checkpoint& checkpoint,
                                           const TensorPlan& plan, const exec::Context& context) {
  QINFER_ASSIGN_OR_RETURN(const SourceTensor source, DescribeTensor(checkpoint, *plan.source));
  uint64_t source_bytes = 0;
  QINFER_ASSIGN_OR_RETURN(const uint64_t lane, LaneBytes(checkpoint, source, plan, &source_bytes));
  return lane * Lanes(plan, context);
}

StatusOr<TensorPacker> TensorPacker::Create(const format::Checkpoint& checkpoint,
                                            const TensorPlan& plan, const PackSettings& settings,
                                            const exec::Context& context) {
  TensorPacker packer;
  packer.checkpoint_ = &checkpoint;
  packer.plan_ = &plan;
  packer.settings_ = settings;
  packer.context_ = context;
  QINFER_ASSIGN_OR_RETURN(packer.source_, DescribeTensor(checkpoint, *plan.source));
  if (plan.by_ref) {
    QINFER_ASSIGN_OR_RETURN(packer.stored_, Stored(checkpoint, plan));
  }
  if (plan.panels() > UINT32_MAX) {
    return FormatError(StrCat("tensor \"", plan.name, "\" has too many rows"));
  }
  packer.panels_ = static_cast<uint32_t>(plan.panels());
  packer.lanes_ = Lanes(plan, context);
  QINFER_ASSIGN_OR_RETURN(packer.lane_bytes_,
                          LaneBytes(checkpoint, packer.source_, plan, &packer.source_bytes_));
  QINFER_ASSIGN_OR_RETURN(
      packer.scratch_,
      Buffer::Create(context.memory, packer.lane_bytes_ * packer.lanes_, "scratch for packing"));
  return packer;
}

uint64_t TensorPacker::RowsOf(uint32_t panel) const {
  return std::min<uint64_t>(kernels::kPanelRows, plan_->rows - FirstRow(panel));
}

// The source's bytes of a panel; nothing where rows are read as floats.
StatusOr<absl::Span<const uint8_t>> TensorPacker::ReadPanel(uint32_t panel, uint8_t* lane) const {
  if (plan_->by_ref) return absl::Span<const uint8_t>();
  uint64_t first = plan_->ref.row_begin + PartOf(panel) * plan_->rows + FirstRow(panel);
  if (source_.packed) first = uint64_t{panel} * kernels::kPanelRows;  // parts begin at panels
  const uint64_t rows = RowsOf(panel);
  QINFER_ASSIGN_OR_RETURN(const uint64_t bytes, SourceRowBytes(source_, first, rows));
  const absl::Span<uint8_t> raw(lane, bytes);
  QINFER_RETURN_IF_ERROR(ReadSourceRows(*checkpoint_, source_, first, rows, raw));
  return absl::Span<const uint8_t>(raw);
}

Status TensorPacker::DecodePanel(uint32_t panel, absl::Span<const uint8_t> raw, uint8_t* lane,
                                 float* floats) const {
  const uint64_t first = FirstRow(panel), rows = RowsOf(panel);
  if (plan_->by_ref) {
    return model::ReadRows(*checkpoint_, plan_->ref, stored_, PartOf(panel), first, rows,
                           plan_->cols, lane, floats);
  }
  for (uint64_t r = 0; r < rows; ++r) {
    QINFER_RETURN_IF_ERROR(DecodeSourceRow(source_, raw, first, first + r, *context_.kernels,
                                           floats + r * plan_->cols));
  }
  return OkStatus();
}

Status TensorPacker::PackPanel(uint32_t panel, uint8_t* lane, uint8_t* out, ErrorSums* sums,
                               Extremes* extremes) const {
  const uint64_t first = FirstRow(panel), rows = RowsOf(panel);
  const uint64_t cols = plan_->cols;
  const float* importance = settings_.importance;
  if (importance != nullptr) importance += PartOf(panel) * settings_.importance_stride;
  QINFER_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> raw, ReadPanel(panel, lane));
  float* floats = reinterpret_cast<float*>(lane + RoundUp<uint64_t>(source_bytes_, 64));
  float* decoded = floats + kernels::kPanelRows * cols;
  const absl::Span<uint8_t> packed(out, plan_->panel_bytes);
  const bool exact = plan_->action == TensorAction::kExact;
  const bool gathered = exact && plan_->by_ref;
  if (gathered) {  // blocks of the rows in the place of the floats, which are larger
    uint64_t bytes = 0;
    if (!TensorBytes(stored_.dtype, rows * cols, &bytes)) {
      return FormatError("rows are not a whole number of blocks");
    }
    const absl::Span<uint8_t> blocks(reinterpret_cast<uint8_t*>(floats), bytes);
    QINFER_RETURN_IF_ERROR(model::ReadStoredRows(*checkpoint_, plan_->ref, stored_, PartOf(panel),
                                                 first, rows, lane, blocks.data()));
    QINFER_RETURN_IF_ERROR(weights::ImportRows(stored_.dtype, blocks, first, rows, cols, packed));
  }
  if (!exact || sums != nullptr) {
    QINFER_RETURN_IF_ERROR(DecodePanel(panel, raw, lane, floats));
    if (extremes != nullptr) {
      SerialExecutor serial;
      *extremes = FindExtremes(
          {floats, cols, static_cast<uint32_t>(rows), static_cast<uint32_t>(cols)}, &serial);
    }
  }
  if (gathered) {
    // Done above.
  } else if (exact && source_.packed) {
    std::copy(raw.begin(), raw.begin() + static_cast<ptrdiff_t>(plan_->panel_bytes), out);
  } else if (exact) {
    QINFER_RETURN_IF_ERROR(weights::ImportRows(source_.dtype, raw, first, rows, cols, packed));
  } else {
    weights::PackOptions options;
    options.search_scales = settings_.search_scales;
    options.importance = importance;
    if (settings_.clip) {
      const float low = static_cast<float>(settings_.range.min);
      const float high = static_cast<float>(settings_.range.max);
      // NaN fails both comparisons and stays for PackRows to report.
      for (uint64_t i = 0; i < rows * cols; ++i) {
        if (floats[i] < low) floats[i] = low;
        if (floats[i] > high) floats[i] = high;
      }
    }
    QINFER_RETURN_IF_ERROR(
        weights::PackRows(plan_->format, options, floats, first, rows, cols, packed));
    if (settings_.clip && sums != nullptr) {  // the error counts what clipping cost
      QINFER_RETURN_IF_ERROR(DecodePanel(panel, raw, lane, floats));
    }
  }
  if (sums == nullptr) return OkStatus();
  QINFER_ASSIGN_OR_RETURN(const kernels::Matrix matrix,
                          weights::View(plan_->format, rows, cols, packed, plan_->name));
  *sums = ErrorSums();
  for (uint64_t r = 0; r < rows; ++r) {
    context_.kernels->decode_row(matrix, static_cast<uint32_t>(r), decoded);
    sums->Add(CompareRow(floats + r * cols, decoded, cols, importance));
  }
  return OkStatus();
}

Status TensorPacker::Pack(uint32_t begin, uint32_t end, absl::Span<uint8_t> out, ErrorSums* sums,
                          Extremes* extremes) {
  if (out.size() < uint64_t{end - begin} * plan_->panel_bytes) {
    return InternalError("a buffer for packed panels is too small");
  }
  FirstError error;
  std::vector<ErrorSums> parts(sums == nullptr ? 0 : end - begin);
  std::vector<Extremes> ranges(extremes == nullptr ? 0 : end - begin);
  ParallelFor(context_.executor, lanes_, [&](uint32_t lane) {
    for (uint32_t panel = begin + lane; panel < end; panel += lanes_) {
      const uint32_t i = panel - begin;
      // Bodies of an executor must not throw; what is called here may allocate a little.
      try {
        Status status = PackPanel(
            panel, scratch_.as<uint8_t>() + lane * lane_bytes_, out.data() + i * plan_->panel_bytes,
            sums == nullptr ? nullptr : &parts[i], extremes == nullptr ? nullptr : &ranges[i]);
        if (!status.ok()) error.Add(panel, std::move(status));
      } catch (const std::bad_alloc&) {
        error.Add(panel, NoMemoryError("no memory while packing weights"));
      }
    }
  });
  if (!error.status().ok()) {
    return Annotate(error.status(), StrCat(checkpoint_->name(), ": tensor \"", plan_->name, "\""));
  }
  for (const ErrorSums& part : parts) sums->Add(part);
  for (const Extremes& range : ranges) {
    if (range.finite == 0) continue;
    if (extremes->finite == 0 || range.min < extremes->min) extremes->min = range.min;
    if (extremes->finite == 0 || range.max > extremes->max) extremes->max = range.max;
    extremes->finite += range.finite;
  }
  return OkStatus();
}

Status TensorPacker::Observe(uint32_t begin, uint32_t end, Observer* observer) {
  for (uint32_t panel = begin; panel < end; ++panel) {
    QINFER_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> raw,
                            ReadPanel(panel, scratch_.as<uint8_t>()));
    const uint64_t rows = RowsOf(panel);
    float* floats =
        reinterpret_cast<float*>(scratch_.as<uint8_t>() + RoundUp<uint64_t>(source_bytes_, 64));
    QINFER_RETURN_IF_ERROR(DecodePanel(panel, raw, scratch_.as<uint8_t>(), floats));
    QINFER_RETURN_IF_ERROR(observer->Observe(
        {floats, plan_->cols, static_cast<uint32_t>(rows), static_cast<uint32_t>(plan_->cols)},
        context_.executor));
  }
  return OkStatus();
}

}  // namespace qinfer::quant
