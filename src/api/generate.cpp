// From the public generation options to those of the engine, and the beginning of a generation.
#include <cmath>
#include <utility>

#include "api/engine.h"
#include "api/structs.h"
#include "tokenizer/utf8.h"

namespace qinfer::api {
namespace {

using engine::GenerateOptions;
using engine::SamplingOptions;

constexpr uint64_t kMaxStopStrings = 65536;

Status CheckFinite(const qinfer_generate_options& options) {
  const std::pair<float, const char*> values[] = {
      {options.temperature, "temperature"},
      {options.top_p, "top_p"},
      {options.min_p, "min_p"},
      {options.repetition_penalty, "repetition_penalty"},
      {options.frequency_penalty, "frequency_penalty"},
      {options.presence_penalty, "presence_penalty"},
  };
  for (const auto& [value, name] : values) {
    if (!std::isfinite(value))
      return BadOption(StrCat("generate options.", name, " is not finite"));
  }
  return OkStatus();
}

// Zero stands for the model's recommendation where that is asked for and there is one, and else for
// "off", which is what SamplingOptions begin with.
void ReadSampling(const qinfer_generate_options& options, const model::GenerationDefaults* model,
                  SamplingOptions* out) {
  out->greedy = (options.flags & QINFER_GENERATE_GREEDY) != 0;
  const auto choose = [](auto given, const auto* recommended, auto* value) {
    if (given != 0) {
      *value = given;
    } else if (recommended != nullptr && recommended->has_value()) {
      *value = **recommended;
    }
  };
  choose(options.temperature, model == nullptr ? nullptr : &model->temperature, &out->temperature);
  choose(options.top_k, model == nullptr ? nullptr : &model->top_k, &out->top_k);
  if (options.top_k == QINFER_TOP_K_OFF) out->top_k = 0;
  choose(options.top_p, model == nullptr ? nullptr : &model->top_p, &out->top_p);
  choose(options.min_p, model == nullptr ? nullptr : &model->min_p, &out->min_p);
  choose(options.repetition_penalty, model == nullptr ? nullptr : &model->repetition_penalty,
         &out->repetition_penalty);
  // A recommended temperature of zero means greedy.
  if (out->temperature == 0.0f) {
    out->temperature = 1.0f;
    out->greedy = true;
  }
  out->frequency_penalty = options.frequency_penalty;
  out->presence_penalty = options.presence_penalty;
  out->seed = options.seed;
}

// What concerns the splitting of reasoning: refused where it would do nothing.
Status ReadReasoning(const qinfer_generate_options& options, GenerateOptions* out) {
  QINFER_RETURN_IF_ERROR(Reserved(options.reserved, "generate options.reserved"));
  QINFER_ASSIGN_OR_RETURN(std::string begin, CopyText(options.reasoning_begin, "reasoning_begin"));
  QINFER_ASSIGN_OR_RETURN(std::string end, CopyText(options.reasoning_end, "reasoning_end"));
  if ((options.flags & QINFER_GENERATE_SPLIT_REASONING) == 0) {
    if (begin.empty() && end.empty() && options.reasoning_start == 0) return OkStatus();
    return BadOption(
        "generate options say how to split reasoning, without QINFER_GENERATE_SPLIT_REASONING");
  }
  engine::ReasoningOptions made;
  if (begin.empty() != end.empty()) {
    return BadOption("reasoning_begin and reasoning_end: give both tags, or none for <think>");
  }
  made.channels = begin.empty();
  if (!begin.empty()) made.tags = {std::move(begin), std::move(end)};
  QINFER_RETURN_IF_ERROR(WithDetail(engine::ValidateTags(made.tags), QINFER_DETAIL_OPTION));
  switch (options.reasoning_start) {
    case QINFER_REASONING_DETECT:
      break;
    case QINFER_REASONING_OUTSIDE:
      made.start = engine::Channel::kText;
      break;
    case QINFER_REASONING_INSIDE:
      made.start = engine::Channel::kReasoning;
      break;
    default:
      return BadOption(StrCat("reasoning_start is ", options.reasoning_start,
                              "; known are QINFER_REASONING_DETECT, _OUTSIDE and _INSIDE"));
  }
  out->reasoning = std::move(made);
  return OkStatus();
}

StatusOr<GenerateOptions> ReadGenerateOptions(const qinfer_generate_options* options,
                                              const ModelState& model) {
  qinfer_generate_options read;
  QINFER_RETURN_IF_ERROR(ReadStruct(options, "generate options", &read));
  QINFER_RETURN_IF_ERROR(KnownFlags(
      read.flags,
      QINFER_GENERATE_GREEDY | QINFER_GENERATE_IGNORE_EOS | QINFER_GENERATE_MODEL_DEFAULTS |
          QINFER_GENERATE_SPLIT_REASONING | QINFER_GENERATE_PROMPT_LOOKUP,
      "generate options.flags"));
  QINFER_RETURN_IF_ERROR(CheckFinite(read));
  GenerateOptions made;
  const bool defaults = (read.flags & QINFER_GENERATE_MODEL_DEFAULTS) != 0;
  ReadSampling(read, defaults ? &model.model->generation_defaults() : nullptr, &made.sampling);
  made.max_tokens = read.max_tokens;
  made.ignore_eos = (read.flags & QINFER_GENERATE_IGNORE_EOS) != 0;
  made.prompt_lookup = (read.flags & QINFER_GENERATE_PROMPT_LOOKUP) != 0;
  const uint32_t vocab_size = model.model->spec().vocab_size;
  if (read.logprobs > vocab_size) {
    return BadOption(
        StrCat("logprobs is ", read.logprobs, "; the vocabulary has ", vocab_size, " tokens"));
  }
  made.logprobs = read.logprobs;
  QINFER_ASSIGN_OR_RETURN(const absl::Span<const qinfer_logit_bias> bias,
                          Array(read.logit_bias, read.logit_bias_count, "logit_bias", vocab_size));
  for (const qinfer_logit_bias& item : bias) {
    made.sampling.logit_bias.emplace_back(item.token, item.bias);
  }
  QINFER_ASSIGN_OR_RETURN(
      const absl::Span<const int32_t> stops,
      Array(read.stop_tokens, read.stop_token_count, "stop_tokens", vocab_size));
  for (const int32_t token : stops) {
    if (token >= 0 && static_cast<uint32_t>(token) < vocab_size) continue;
    return BadOption(StrCat("stop_tokens names token ", token, "; the vocabulary has ids 0 to ",
                            vocab_size - 1));
  }
  made.stop_tokens.assign(stops.begin(), stops.end());
  QINFER_ASSIGN_OR_RETURN(
      const absl::Span<const qinfer_str> strings,
      Array(read.stop_strings, read.stop_string_count, "stop_strings", kMaxStopStrings));
  for (const qinfer_str& item : strings) {
    QINFER_ASSIGN_OR_RETURN(std::string text, CopyText(item, "stop_strings"));
    if (text.empty()) return BadOption("a stop string is empty: it would stop at once");
    const size_t invalid = tokenizer::FindInvalidUtf8(text);
    if (invalid != std::string_view::npos) {
      return BadOption(
          StrCat("a stop string is not valid UTF-8 at byte ", invalid, ", as generated text is"));
    }
    made.stop_strings.push_back(std::move(text));
  }
  QINFER_RETURN_IF_ERROR(ReadReasoning(read, &made));
  QINFER_RETURN_IF_ERROR(
      WithDetail(engine::ValidateSampling(made.sampling, vocab_size), QINFER_DETAIL_OPTION));
  return made;
}

}  // namespace
}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace

extern "C" {

qinfer_status qinfer_generate_begin(qinfer_session* session, const qinfer_generate_options* options,
                                    qinfer_task** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, session, "session", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    const SessionState& state = *session->state;
    QINFER_ASSIGN_OR_RETURN(const qinfer::engine::GenerateOptions read,
                            ReadGenerateOptions(options, *state.engine->model));
    TaskParts task;
    task.kind = QINFER_TASK_GENERATE;
    QINFER_ASSIGN_OR_RETURN(Claim claim, Claim::Enter(state.exclusive, "session"));
    task.claims.push_back(std::move(claim));
    task.keep.push_back(session->state);
    QINFER_ASSIGN_OR_RETURN(std::unique_ptr<qinfer::engine::Generation> generation,
                            state.session->Generate(read));
    task.generation = generation.get();
    task.work = std::move(generation);
    return MakeTask(session->runtime, std::move(task), out);
  });
}

}  // extern "C"
