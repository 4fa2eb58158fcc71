// Helpers of the tests that compare with recorded logits: opening a golden model under one of its
// configurations, running it under a changed specification, and distances.
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

// Logits of all tokens under a specification that may not be the checkpoint's own: layers are run
// one at a time, which takes any.
inline StatusOr<std::vector<float>> LogitsBySpec(const model::ModelSpec& spec,
                                                 const format::Checkpoint& checkpoint,
                                                 const Context& context,
                                                 const std::vector<int32_t>& tokens) {
  const uint32_t n = static_cast<uint32_t>(tokens.size());
  ForwardOptions options;
  options.max_batch_tokens = n;
  options.activations = Activations::kFloat;
  QINFER_ASSIGN_OR_RETURN(std::unique_ptr<Forward> forward,
                          Forward::CreateForLayers(spec, context, options, checkpoint));
  QINFER_ASSIGN_OR_RETURN(std::unique_ptr<EndStore> ends, LoadEnds(checkpoint, spec, context));
  std::vector<float> hidden(size_t{n} * spec.hidden_size), logits(size_t{n} * spec.vocab_size);
  QINFER_RETURN_IF_ERROR(forward->Embed(ends->weights(), tokens, hidden.data()));
  for (uint32_t layer = 0; layer < spec.layers.size(); ++layer) {
    QINFER_ASSIGN_OR_RETURN(std::unique_ptr<LayerStore> store,
                            LoadLayer(checkpoint, spec, layer, context));
    QINFER_RETURN_IF_ERROR(
        forward->RunLayer(store->weights(), layer, absl::MakeConstSpan(&n, 1), hidden.data(), {}));
  }
  QINFER_RETURN_IF_ERROR(forward->Head(ends->weights(), hidden.data(), n, logits.data(), {}));
  return logits;
}

}  // namespace qinfer::exec
