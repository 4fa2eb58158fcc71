// One tensor of the output made from the source: panels of 16 rows, read, decoded, packed and
// compared by as many lanes as the executor has, each with its own small scratch. The same bytes
// and figures for any number of lanes.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "absl/types/span.h"
#include "exec/model.h"
#include "format/checkpoint.h"
#include "model/stored_rows.h"
#include "quant/metrics.h"
#include "quant/observer.h"
#include "quant/recipe.h"
#include "quant/source_rows.h"

namespace qinfer::quant {

struct PackSettings {
  bool search_scales = true;
  const float* importance = nullptr;  // [cols] or null
  size_t importance_stride = 0;       // from one part's to the next one's; 0 = the same for all
  bool clip = false;                  // to `range`, before packing (weight observers but MinMax)
  Range range;
};

class TensorPacker {
 public:
  // Bytes that Create takes from Memory.
  static StatusOr<uint64_t> PlanBytes(const format::Checkpoint& checkpoint, const TensorPlan& plan,
                                      const exec::Context& context);
  // `plan` is of a matrix that is packed(); it and the checkpoint outlive the packer.
  static StatusOr<TensorPacker> Create(const format::Checkpoint& checkpoint, const TensorPlan& plan,
                                       const PackSettings& settings, const exec::Context& context);

  uint32_t panels() const { return panels_; }
  uint64_t panel_bytes() const { return plan_->panel_bytes; }
  // Panels [begin, end) into `out` ((end - begin) * panel_bytes). With `sums`, compares what they
  // decode to with the source and adds, in row order.
  Status Pack(uint32_t begin, uint32_t end, absl::Span<uint8_t> out, ErrorSums* sums,
              Extremes* extremes);
  // Shows rows of panels [begin, end) to an observer, decoded.
  Status Observe(uint32_t begin, uint32_t end, Observer* observer);

 private:
  Status PackPanel(uint32_t panel, uint8_t* lane, uint8_t* out, ErrorSums* sums,
                   Extremes* extremes) const;
  StatusOr<absl::Span<const uint8_t>> ReadPanel(uint32_t panel, uint8_t* lane) const;
  // Part of a panel, and its first row there.
  uint32_t PartOf(uint32_t panel) const {
    return static_cast<uint32_t>(panel / plan_->part_panels());
  }
  uint64_t FirstRow(uint32_t panel) const {
    return panel % plan_->part_panels() * kernels::kPanelRows;
  }
  uint64_t RowsOf(uint32_t panel) const;
  Status DecodePanel(uint32_t panel, absl::Span<const uint8_t> raw, uint8_t* lane,
                     float* floats) const;
  static StatusOr<model::StoredTensor> Stored(const format::Checkpoint& checkpoint,
                                              const TensorPlan& plan);
  static StatusOr<uint64_t> LaneBytes(const format::Checkpoint& checkpoint,
                                      const SourceTensor& source, const TensorPlan& plan,
                                      uint64_t* source_bytes);
  static uint32_t Lanes(const TensorPlan& plan, const exec::Context& context);

  const format::Checkpoint* checkpoint_ = nullptr;
  const TensorPlan* plan_ = nullptr;
  PackSettings settings_;
  exec::Context context_;
  SourceTensor source_;
  model::StoredTensor stored_;  // of plans by_ref
  uint32_t panels_ = 0, lanes_ = 1;
  uint64_t source_bytes_ = 0, lane_bytes_ = 0;  // of a panel; of a lane's scratch
  Buffer scratch_;
};

}  // namespace qinfer::quant
