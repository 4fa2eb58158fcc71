// Sessions of one model and the generation of text. An Engine owns the KV pools and the forward
// pass; sessions are sequences of it; a generation is a Work that yields events. Several
// generations share a step: whoever steps advances all that are ready (policy is simple here: up to
// max_batch_tokens, decode rows first).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/work.h"
#include "engine/sampling.h"
#include "exec/forward.h"
#include "exec/model.h"

namespace qinfer::engine {

struct EngineOptions {
  uint64_t context_tokens =
      0;  // KV pool size over all sessions; 0 = the model's max_context capped to 4096
  uint32_t max_sessions = 8;
  uint32_t batch_tokens = 512;  // tokens per forward step
  kernels::KvType k_type = kernels::KvType::kInt8, v_type = kernels::KvType::kInt8;
  exec::Activations activations = exec::Activations::kAuto;
};

struct GenerateOptions {
  SamplingOptions sampling;
  uint32_t max_tokens = 0;                // 0 = until the context is full
  std::vector<int32_t> stop_tokens;       // beside the model's ends
  std::vector<std::string> stop_strings;  // also across tokens; not part of the text
  bool ignore_eos = false;
  uint32_t logprobs = 0;  // the chosen token's and the best n
};

enum class FinishReason : uint8_t {
  kNone,
  kEos,
  kStopToken,
  kStopString,
  kMaxTokens,
  kContextFull
};

struct TokenLogprob {
  int32_t token;
  float logprob;
};
struct Event {
  int32_t token = -1;  // -1: text only (held-back bytes released at the end)
  std::string text;    // complete UTF-8; text that may become a stop string is held back
  std::vector<TokenLogprob> logprobs;         // the chosen one first
  FinishReason finish = FinishReason::kNone;  // set on the last event
};

class Session;

// A generation in progress. Step returns true when finished; events are taken as they come.
class Generation : public Work {
 public:
  virtual bool NextEvent(Event* out) = 0;  // false: none waiting
  virtual uint32_t prompt_tokens() const = 0;
  virtual uint32_t generated_tokens() const = 0;
};

// One sequence. One caller at a time; several sessions of an engine may be used from several
// threads (the engine serialises steps).
class Session {
 public:
  virtual ~Session() = default;
  virtual uint32_t length() const = 0;
  virtual absl::Span<const int32_t> tokens() const = 0;
  // Appends tokens without computing: they are prefilled by the next generation or Prefill.
  virtual Status Append(absl::Span<const int32_t> tokens) = 0;
  // Computes what is pending; afterwards LastLogits is the prediction for the next token. As a
  // Work, so that it can be time-boxed.
  virtual StatusOr<std::unique_ptr<Work>> Prefill() = 0;
  virtual StatusOr<absl::Span<const float>> LastLogits()
      const = 0;  // MisuseError before anything was computed
  virtual StatusOr<std::unique_ptr<Generation>> Generate(const GenerateOptions& options) = 0;
  virtual StatusOr<std::shared_ptr<Session>> Fork() const = 0;
  virtual Status Truncate(uint32_t length) = 0;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  virtual ~Engine() = default;
  static StatusOr<std::shared_ptr<Engine>> Create(std::shared_ptr<const exec::Model> model,
                                                  const exec::Context& context,
                                                  const EngineOptions& options);
  virtual StatusOr<std::shared_ptr<Session>> NewSession() = 0;
  virtual const exec::Model& model() const = 0;
  virtual const EngineOptions& options() const = 0;
};

}  // namespace qinfer::engine
