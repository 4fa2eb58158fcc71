// Perplexity, and KL divergence against a reference model, on a text: consecutive windows, the
// second half of each scored, as llama.cpp's tool does, so that figures compare. A Work over
// exec::Forward.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/work.h"
#include "exec/forward.h"
#include "exec/model.h"
#include "observe/report.h"

namespace qinfer::evaluate {

struct PerplexityOptions {
  uint32_t context = 512;    // window; tokens [context/2, context-1) predict their successors
  uint32_t max_windows = 0;  // 0 = all whole windows
  kernels::KvType k_type = kernels::KvType::kF16, v_type = kernels::KvType::kF16;
  exec::Activations activations = exec::Activations::kAuto;
  exec::Activations reference_activations = exec::Activations::kFloat;
  // Called with every scored row, in order (for --logits-out); may be null. row: [vocab_size]
  // logits. An error ends the evaluation with it.
  Status (*sink)(void* user, absl::Span<const float> row) = nullptr;
  void* sink_user = nullptr;
};

class PerplexityWork : public Work {
 public:
  // `tokens`: the whole text, encoded with its special tokens. With `reference` (same vocabulary,
  // else MisuseError) KL and top-1 agreement are computed as well. The first token of each window
  // is replaced by BOS where the model's tokenizer adds one. Memory does not grow with the text but
  // for 8 bytes per scored token.
  static StatusOr<std::unique_ptr<PerplexityWork>> Create(
      std::shared_ptr<const exec::Model> model, std::shared_ptr<const exec::Model> reference,
      std::vector<int32_t> tokens, const PerplexityOptions& options, const exec::Context& context);
  // perplexity, perplexity_stderr, nll, tokens (scored), windows, context; with a reference:
  // reference_perplexity, kl_mean, kl_stderr, kl_median, kl_p99, kl_p999, kl_max, top1 (a
  // fraction).
  virtual observe::Report TakeReport() = 0;
};

}  // namespace qinfer::evaluate
