// Text that a model writes itself, for calibration where nobody gave any: sampled at temperature 1
// from BOS, seeded. Loads the whole model, so it needs the memory for that.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/work.h"
#include "exec/forward.h"
#include "exec/model.h"
#include "quant/calibration_keeper.h"

namespace qinfer::quant {

struct SelfGenerateOptions {
  uint32_t samples = 128, sample_tokens = 512;
  uint32_t batch = 16;  // sequences that share a step
  uint64_t seed = 0;
};

class SelfGenerateWork : public Work {
 public:
  // `tokenizer`: the checkpoint's own, where it has been made already; null = to be made.
  static StatusOr<std::unique_ptr<SelfGenerateWork>> Create(
      const std::shared_ptr<const format::Checkpoint>& checkpoint,
      const SelfGenerateOptions& options, const exec::Context& context,
      std::shared_ptr<const tokenizer::Tokenizer> tokenizer = nullptr);
  virtual std::vector<Sample> TakeSamples() = 0;
  // How far it is, but for tokens of samples that are not finished. Restored before the first Step,
  // it goes on with those from their beginning: the samples are the same.
  virtual WrittenSamples Written() const = 0;
  virtual void Restore(WrittenSamples written) = 0;
  // Samples that are finished.
  virtual uint64_t finished() const = 0;
};

// What Create and Step allocate at most, beside the checkpoint itself and a given tokenizer.
StatusOr<uint64_t> PlanSelfGenerateBytes(const format::Checkpoint& checkpoint,
                                         const model::ModelSpec& spec,
                                         const SelfGenerateOptions& options,
                                         std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                         const exec::Context& context);

// The token whose share of the distribution softmax(logits) holds `unit` in [0, 1); temperature 1.
// `scratch` has as many floats as logits. Sums in token order and in double.
int32_t DrawToken(absl::Span<const float> logits, double unit, const kernels::Table& kernels,
                  float* scratch);

}  // namespace qinfer::quant
