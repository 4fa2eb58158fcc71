// Helpers of the tests that compare with recorded logits: opening a golden model under one of its
// configurations, and distances.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "exec_testing.h"

namespace qinfer::exec {

inline double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    most = difference > most || std::isnan(difference) ? difference : most;
  }
  return most;
}

// `variant`: "" = config.json, else config-VARIANT.json. `weights`: a file of the folder.
inline StatusOr<std::shared_ptr<format::Checkpoint>> OpenGolden(const std::string& folder,
                                                                const std::string& variant,
                                                                const std::string& weights,
                                                                Machine* machine) {
  format::OpenOptions options;
  options.memory = &machine->memory;
  options.access = io::Access::kCopy;
  format::SideFiles side;
  if (weights.find(".gguf") == std::string::npos) {
    const std::string config =
        ReadText(folder + "config" + (variant.empty() ? "" : "-" + variant) + ".json");
    QINFER_ASSIGN_OR_RETURN(side.config_json,
                            format::Document::Copy(config, &machine->memory, "a configuration"));
  }
  QINFER_ASSIGN_OR_RETURN(std::shared_ptr<io::Source> source,
                          io::OpenFile(folder + weights, io::Access::kCopy, &machine->memory));
  return format::OpenCheckpoint(source, side, options);
}

}  // namespace qinfer::exec
