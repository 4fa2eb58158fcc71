// Totals, layers and tensors of a report.
#include "quant/quantize_report.h"

#include "quant/group_work.h"

namespace qinfer::quant {
namespace {

double Number(const observe::Report& node, std::string_view path) {
  const observe::Report* found = node.Find(path);
  return found == nullptr ? 0.0 : found->AsNumber();
}
uint64_t Whole(const observe::Report& node, std::string_view path) {
  const observe::Report* found = node.Find(path);
  return found == nullptr ? 0 : static_cast<uint64_t>(found->AsInt());
}

// Sums over tensors.
struct Totals {
  uint64_t bytes = 0, parameters = 0;
  double error = 0, signal = 0;

  void Add(const observe::Report& tensor) {
    bytes += Whole(tensor, "bytes");
    parameters += Whole(tensor, "parameters");
    error += Number(tensor, "error");
    signal += Number(tensor, "signal");
  }
  double Bits() const {
    return parameters == 0 ? 0.0
                           : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
  }
};

void AddLayer(const observe::Report& group, observe::Report* layers) {
  Totals totals;
  const observe::Report* tensors = group.Find("tensors");
  for (size_t i = 0; tensors != nullptr && i < tensors->size(); ++i) totals.Add(tensors->at(i));
  observe::Report& layer = layers->Append();
  layer["layer"] = Whole(group, "layer");
  layer["bytes"] = totals.bytes;
  layer["bits_per_weight"] = totals.Bits();
  if (totals.signal > 0) layer["relative_mse"] = totals.error / totals.signal;
  const observe::Report* hidden = group.Find("hidden");
  if (hidden != nullptr) layer["hidden"] = *hidden;
}

}  // namespace

observe::Report BuildReport(const ReportInputs& inputs) {
  observe::Report report;
  report["kind"] = inputs.recipe == nullptr ? "convert" : "quantize";
  report["source"] = inputs.checkpoint->name();
  report["architecture"] = inputs.resolved->spec.architecture;
  Totals all, linear;
  uint64_t source_bytes = 0;
  for (const observe::Report& group : *inputs.groups) {
    const observe::Report* tensors = group.Find("tensors");
    for (size_t i = 0; tensors != nullptr && i < tensors->size(); ++i) {
      all.Add(tensors->at(i));
      const observe::Report* layer = group.Find("layer");
      if (layer != nullptr && layer->AsInt() >= 0) linear.Add(tensors->at(i));
    }
  }
  for (const format::TensorInfo& tensor : inputs.checkpoint->tensors())
    source_bytes += tensor.bytes;
  report["parameters"] = all.parameters;
  report["file_bytes"] = inputs.file_bytes;
  report["tensor_bytes"] = all.bytes;
  report["source_tensor_bytes"] = source_bytes;
  report["bits_per_weight"] = all.Bits();
  report["layer_bits_per_weight"] = linear.Bits();
  if (inputs.resolved->skipped_tensors != 0) {
    observe::Report& skipped = report["skipped"];
    skipped["tensors"] = inputs.resolved->skipped_tensors;
    skipped["bytes"] = inputs.resolved->skipped_bytes;
    skipped["why"] = "layers that predict further tokens (MTP) are not part of the model";
  }
  if (inputs.recipe != nullptr) report["recipe"] = RecipeReport(*inputs.recipe);
  if (inputs.calibration != nullptr) {
    report["calibration"] = inputs.calibration->Describe();
  } else if (inputs.recipe != nullptr) {
    report["calibration"]["source"] = "none";
  }
  for (const observe::Report& group : *inputs.groups) {
    const observe::Report* evaluation = group.Find("evaluation");
    if (evaluation == nullptr) continue;
    report["evaluation"] = *evaluation;
    // Differences are what one looks for first.
    const double before = Number(*evaluation, "reference_perplexity");
    if (before > 0) {
      report["evaluation"]["perplexity_increase"] =
          Number(*evaluation, "perplexity") / before - 1.0;
    }
  }
  observe::Report& layers = report["layers"];
  for (const observe::Report& group : *inputs.groups) {
    const observe::Report* layer = group.Find("layer");
    if (layer != nullptr && layer->AsInt() >= 0) AddLayer(group, &layers);
  }
  observe::Report& list = report["tensors"];
  for (const observe::Report& group : *inputs.groups) {
    const observe::Report* tensors = group.Find("tensors");
    const observe::Report* layer = group.Find("layer");
    for (size_t i = 0; tensors != nullptr && i < tensors->size(); ++i) {
      observe::Report& item = list.Append();
      item = tensors->at(i);
      if (layer != nullptr && layer->AsInt() >= 0) item["layer"] = layer->AsInt();
    }
  }
  return report;
}

observe::Report Summary(const observe::Report& report) {
  observe::Report summary;
  for (size_t i = 0; i < report.size(); ++i) {
    const std::string& key = report.key(i);
    // Where the source lay is nobody's business once the file is passed on.
    if (key == "layers" || key == "tensors" || key == "source" || key == "memory" ||
        key == "resume") {
      continue;
    }
    summary[key] = report.at(i);
  }
  return summary;
}

namespace {

// Null for what is no linear weight, or has not been calibrated.
const InputStats* StatsOfInput(const ResolvedRecipe& resolved, const TensorPlan& plan,
                               const CalibrationData& calibration) {
  using model::LinearRole;
  const InputStats* stats = nullptr;
  if (plan.use == TensorUse::kLinear) {
    // Experts and the parts of latent attention stay dynamic: their inputs have ranges of their
    // own.
    for (const LinearRole role : {LinearRole::kQ, LinearRole::kK, LinearRole::kV, LinearRole::kO,
                                  LinearRole::kGate, LinearRole::kUp, LinearRole::kDown}) {
      if (plan.role == role) stats = calibration.Find(plan.layer, role);
    }
  } else if (HeadPlan(resolved) == &plan) {
    stats = calibration.Find(UINT32_MAX, model::LinearRole::kHead);
  }
  return stats == nullptr || stats->observer->values() == 0 ? nullptr : stats;
}

}  // namespace

float StaticActivationScale(const ResolvedRecipe& resolved, const TensorPlan& plan,
                            const CalibrationData& calibration) {
  const InputStats* stats = StatsOfInput(resolved, plan, calibration);
  if (stats == nullptr) return 0.0f;
  const auto scale = static_cast<float>(calibration.InputRange(*stats).Magnitude() / 127.0);
  return scale >= kernels::kLeastScale && scale <= kernels::kLargestScale ? scale : 0.0f;
}

observe::Report ActivationRanges(const ResolvedRecipe& resolved,
                                 const CalibrationData& calibration) {
  observe::Report ranges;
  for (const TensorPlan& plan : resolved.tensors) {
    const float scale = StaticActivationScale(resolved, plan, calibration);
    if (scale == 0.0f) continue;
    const Range range = calibration.InputRange(*StatsOfInput(resolved, plan, calibration));
    observe::Report& item = ranges[plan.name];
    item["min"] = range.min;
    item["max"] = range.max;
    item["scale"] = double{scale};
  }
  return ranges;
}

}  // namespace qinfer::quant
