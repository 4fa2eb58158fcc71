// How much memory a quantization takes, computed from headers by the same functions that later
// allocate; and how large its pieces may be under a limit.
#pragma once

#include <cstdint>
#include <memory>

#include "quant/calibration_data.h"
#include "quant/quantize.h"
#include "quant/recipe.h"
#include "quant/source_tokenizer.h"

namespace qinfer::quant {

// The piece in which finished tensors are read back on resuming.
constexpr uint64_t kReplayBytes = 64 << 10;

struct WorkSizes {
  QuantizeMemoryPlan plan;
  uint32_t evaluation_samples = 0;  // of those held out
  uint32_t head_slice_panels = 0;
  uint64_t calibration_hidden = 0;  // bytes of hidden states per pass of a calibration
  uint32_t expert_window = 0;       // experts that a calibration holds at once; 0 = all
};

// The tokenizer that a quantization will use: the given one, that of its calibration, or one that
// is made.
StatusOr<std::shared_ptr<const SourceTokenizer>> FindTokenizer(const format::Checkpoint& checkpoint,
                                                               const QuantizeOptions& options,
                                                               Memory* memory);

// `tokenizer` is there, and kept until the documents are written. BudgetError with the least that
// would do where the limit is too low.
StatusOr<WorkSizes> PlanWork(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                             const ResolvedRecipe& resolved, const QuantizeOptions& options,
                             const std::shared_ptr<const SourceTokenizer>& tokenizer,
                             const exec::Context& context);

}  // namespace qinfer::quant
