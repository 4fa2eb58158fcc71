// Sessions of one model and the generation of text. An Engine owns the KV pools and the forward
// pass; sessions are sequences of it; a generation is a Work that yields events. Several
// generations share a step: whoever steps advances all that are ready (policy is simple here: up to
// batch_tokens, decode rows first, then prompts in turn).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/work.h"
#include "engine/prompt_lookup.h"
#include "engine/reasoning.h"
#include "engine/sampling.h"
#include "exec/forward.h"
#include "exec/model.h"

namespace qinfer::engine {

struct EngineOptions {
  // KV pool size over all sessions; 0 = the model's max_context capped to 4096. One session can
  // have as many tokens as that, and at most the model's max_context.
  uint64_t context_tokens = 0;
  uint32_t max_sessions = 8;
  uint32_t batch_tokens = 512;  // tokens per forward step
  kernels::KvType k_type = kernels::KvType::kInt8, v_type = kernels::KvType::kInt8;
  exec::Activations activations = exec::Activations::kAuto;
  exec::Determinism determinism = exec::Determinism::kStrict;
};

struct ReasoningOptions {
  ReasoningTags tags;
  // Of the first text; absent: what the session's tokens say, which may end with the begin tag, or
  // inside a message.
  std::optional<Channel> start;
  // By Harmony's channels, where the vocabulary has their markers, and not by the tags.
  bool channels = false;
};

struct GenerateOptions {
  SamplingOptions sampling;
  uint32_t max_tokens = 0;                // 0 = until the context is full
  std::vector<int32_t> stop_tokens;       // beside the model's ends
  std::vector<std::string> stop_strings;  // also across tokens; not part of the text
  bool ignore_eos = false;                // the model's ends are then tokens like any other
  uint32_t logprobs = 0;                  // the chosen token's and the best n; 0 = none
  // Splits the text into channels and takes the tags away; no token, end or logprob changes by it.
  std::optional<ReasoningOptions> reasoning;
  // Guesses tokens from the session's own and checks several in one step. No token, logprob or end
  // changes by it.
  bool prompt_lookup = false;
};

enum class FinishReason : uint8_t {
  kNone,
  kEos,
  kStopToken,
  kStopString,
  kMaxTokens,
  kContextFull
};

// One per token, in order; where a token's text belongs to two channels, more follow without a
// token. The token that ends a generation (end or stop token) is part of the session's tokens and
// has an event, without text.
struct Event {
  int32_t token = -1;  // -1: no token (the context was full from the start; more text of the last)
  std::string text;    // complete UTF-8; text that may become a stop string is held back
  // With GenerateOptions::logprobs: the chosen one first, then the best n by the raw logits.
  std::vector<TokenLogprob> logprobs;
  FinishReason finish = FinishReason::kNone;  // set on the last event
  // Of the text, or, where that is empty, of what comes next. Always kText without
  // GenerateOptions::reasoning.
  Channel channel = Channel::kText;
};

// A generation in progress. Step returns true when finished; events are taken as they come, and
// stay after an error or a cancel: every event's token is in the session. A generation that is
// destroyed before its end is cancelled. Step with budget 0 may return without progress of its own
// while another thread steps the same engine.
class Generation : public Work {
 public:
  virtual bool NextEvent(Event* out) = 0;  // false: none waiting
  virtual uint32_t prompt_tokens() const = 0;
  virtual uint32_t generated_tokens() const = 0;
  virtual LookupCounts lookup_counts() const = 0;  // zeros without GenerateOptions::prompt_lookup
};

// One sequence. One caller at a time; several sessions of an engine may be used from several
// threads (the engine serialises steps). While a generation or prefill of it is unfinished, a
// session answers Append, Prefill, Generate, Fork and Truncate with BusyError.
class Session {
 public:
  virtual ~Session() = default;
  virtual uint32_t length() const = 0;
  virtual absl::Span<const int32_t> tokens() const = 0;
  // Appends tokens without computing: they are prefilled by the next generation or Prefill.
  // BudgetError past the longest sequence.
  virtual Status Append(absl::Span<const int32_t> tokens) = 0;
  // Computes what is pending; afterwards LastLogits is the prediction for the next token. As a
  // Work, so that it can be time-boxed.
  virtual StatusOr<std::unique_ptr<Work>> Prefill() = 0;
  // The prediction after all of tokens(). MisuseError where there is none: nothing computed yet, or
  // tokens were added or generated since the last Prefill.
  virtual StatusOr<absl::Span<const float>> LastLogits() const = 0;
  virtual StatusOr<std::unique_ptr<Generation>> Generate(const GenerateOptions& options) = 0;
  // The same tokens and, shared until one of the two writes, the same pages.
  virtual StatusOr<std::shared_ptr<Session>> Fork() const = 0;
  // Keeps the first `length` tokens. The last of them is computed again when it is needed; all of
  // them where a window has recycled their pages.
  virtual Status Truncate(uint32_t length) = 0;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  virtual ~Engine() = default;
  // MisuseError for sizes that no model can have, with the option's name. All that takes options
  // begins with it.
  static Status CheckLimits(const EngineOptions& options);
  static StatusOr<std::shared_ptr<Engine>> Create(std::shared_ptr<const exec::Model> model,
                                                  const exec::Context& context,
                                                  const EngineOptions& options);
  // What Create allocates from the context's memory.
  static StatusOr<uint64_t> PlanBytes(const model::ModelSpec& spec, const EngineOptions& options,
                                      const exec::Context& context);
  // The part of it that is no cache: the forward pass and the sampler.
  static StatusOr<uint64_t> PlanWorkspaceBytes(const model::ModelSpec& spec,
                                               const EngineOptions& options,
                                               const exec::Context& context);
  virtual StatusOr<std::shared_ptr<Session>> NewSession() = 0;
  virtual const exec::Model& model() const = 0;
  virtual const EngineOptions& options() const = 0;  // with the defaults filled in
};

}  // namespace qinfer::engine
