// Putting the report of a quantization together from what its groups say, and the short form of it
// that travels in the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/report.h"
#include "quant/calibration_data.h"
#include "quant/memory_plan.h"
#include "quant/recipe.h"

namespace qinfer::quant {

struct ReportInputs {
  const format::Checkpoint* checkpoint = nullptr;
  const ResolvedRecipe* resolved = nullptr;
  const Recipe* recipe = nullptr;  // null: a conversion
  const CalibrationData* calibration = nullptr;
  const std::vector<observe::Report>* groups = nullptr;
  uint64_t file_bytes = 0;
};
observe::Report BuildReport(const ReportInputs& inputs);
// Without tensors and layers: the same for the same inputs and options, whatever the machine did.
observe::Report Summary(const observe::Report& report);
// {"tensor": {"min", "max", "scale"}} for every quantized linear weight.
observe::Report ActivationRanges(const ResolvedRecipe& resolved,
                                 const CalibrationData& calibration);

}  // namespace qinfer::quant
