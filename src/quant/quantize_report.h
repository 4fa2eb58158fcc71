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
// The scale that calibration fixes for the input of a linear weight or of the head; 0 where it has
// seen nothing, or only values that no scale fits.
float StaticActivationScale(const ResolvedRecipe& resolved, const TensorPlan& plan,
                            const CalibrationData& calibration);
// {"tensor": {"min", "max", "scale"}} for every weight that has such a scale.
observe::Report ActivationRanges(const ResolvedRecipe& resolved,
                                 const CalibrationData& calibration);

}  // namespace qinfer::quant
