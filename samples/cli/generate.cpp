// qinfer generate: text from a raw prompt; and what it shares with qinfer chat.
#include "generate.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <limits>

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

const char* FinishName(uint32_t reason) {
  switch (reason) {
    case QINFER_FINISH_EOS:
      return "eos";
    case QINFER_FINISH_STOP_TOKEN:
      return "stop_token";
    case QINFER_FINISH_STOP_STRING:
      return "stop_string";
    case QINFER_FINISH_MAX_TOKENS:
      return "max_tokens";
    case QINFER_FINISH_CONTEXT_FULL:
      return "context_full";
    default:
      return "none";
  }
}

// Shows text as it comes: the answer on stdout, split reasoning on stderr, dim on a terminal.
class Stream {
 public:
  explicit Stream(bool show_reasoning) : show_reasoning_(show_reasoning) {}

  void Show(std::string_view text, bool reasoning) {
    if (text.empty() || (reasoning && !show_reasoning_)) return;
    if (reasoning) {
      std::fprintf(stderr, dim_ ? "\x1b[2m%s\x1b[0m" : "%s", ForStream(text, stderr).c_str());
    } else {
      if (open_line_ && text.front() != '\n') std::fputc('\n', stderr);
      Write(text);
    }
    open_line_ = reasoning && text.back() != '\n';
  }

  static void Write(std::string_view text) {
    const std::string shown = ForStream(text, stdout);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    FlushOutput();
  }

 private:
  const bool show_reasoning_;
  const bool dim_ = isatty(STDERR_FILENO) == 1;
  bool open_line_ = false;  // of reasoning
};

// Whether the model marks reasoning by Harmony's special tokens (gpt-oss), which text does not
// show.
bool WritesHarmony(const qinfer_model* model) {
  for (const std::string_view marker : {"<|start|>", "<|channel|>", "<|message|>", "<|end|>"}) {
    int32_t id = QINFER_TOKEN_NONE, special = 0;
    qinfer_str text = {nullptr, 0};
    qinfer_error error = QINFER_ERROR_INIT;
    Check(qinfer_tokenizer_find(model, marker.data(), marker.size(), &id, &error), error,
          "vocabulary");
    if (id == QINFER_TOKEN_NONE) return false;
    Check(qinfer_tokenizer_token(model, id, &text, &special, &error), error, "vocabulary");
    if (special == 0) return false;
  }
  return true;
}

// Reasoning and answer as one text, in the form of models that write tags.
class Tagged {
 public:
  std::string Add(std::string_view text, bool reasoning) {
    if (text.empty()) return "";
    std::string out = reasoning == inside_ ? "" : reasoning ? "<think>\n" : "\n</think>\n\n";
    inside_ = reasoning;
    return out.append(text);
  }

 private:
  bool inside_ = false;
};

// What the options say about reasoning. The texts are the options'.
void SetReasoning(const GenerateOptions& options, bool tagged, qinfer_generate_options* generate) {
  if (options.reasoning == "show" && !tagged) return;
  generate->flags |= QINFER_GENERATE_SPLIT_REASONING;
  if (options.reasoning_tags.size() == 2) {
    generate->reasoning_begin = Str(options.reasoning_tags[0]);
    generate->reasoning_end = Str(options.reasoning_tags[1]);
  }
}

// In (0, most]: to the library 0 says "not given", which is not what it says here.
CLI::Validator Above0(double most, const char* range) {
  const auto check = [most, range](std::string& text) {
    double value = 0.0;
    try {
      value = std::stod(text);
    } catch (const std::exception&) {
      return "'" + text + "' is not a number";
    }
    return value > 0.0 && value <= most ? "" : "'" + text + "' is not " + range;
  };
  return CLI::Validator(check, "");
}

void RunGenerate(const GenerateOptions& options) {
  const Loaded loaded = Load(options);
  qinfer_error error = QINFER_ERROR_INIT;
  const std::vector<int32_t> ids = Encode(loaded.model.get(), options.prompt, 0);
  if (ids.empty()) throw Error("the prompt is empty and this model adds no BOS: give -p some text");
  Check(qinfer_session_append(loaded.session.get(), ids.data(), ids.size(), &error), error,
        "prompt");
  const Outcome outcome = Generate(loaded, options, options.prompt);
  if (options.json) {
    PrintJson(outcome, options);
    return;
  }
  std::printf("\n");
  FlushOutput();
  if (outcome.finish == "context_full" && options.max_tokens != 0) {
    std::fprintf(stderr, "[The context of %u tokens is full: the text ends here.]\n",
                 outcome.prompt_tokens + outcome.generated_tokens);
  }
}

}  // namespace

void AddSampling(CLI::App* app, GenerateOptions* options) {
  app->add_option("-n,--max-tokens", options->max_tokens,
                  "Tokens to generate at most; 0 = until the context is full")
      ->transform(Whole<uint32_t>())
      ->capture_default_str();
  app->add_option("--temperature", options->temperature, "0 = always the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->default_str("0");
  app->add_option("--top-k", options->top_k, "Only the k likeliest tokens (default: 0 = all)")
      ->transform(Whole<uint32_t>());
  app->add_option("--top-p", options->top_p,
                  "Only the likeliest tokens that make up this probability (default: 1 = all)")
      ->check(Above0(1.0, "above 0 and at most 1"));
  app->add_option("--min-p", options->min_p,
                  "Only tokens this likely relative to the likeliest (default: 0 = all)")
      ->check(CLI::Range(0.0, 1.0));
  app->add_option("--repetition-penalty", options->repetition_penalty,
                  "Above 1: tokens of the prompt and the output become less likely (default: 1 = "
                  "off)")
      ->check(Above0(std::numeric_limits<float>::max(), "above 0; 1 changes nothing"));
  app->add_option("--frequency-penalty", options->frequency_penalty,
                  "-2 to 2, for each time that a token was generated (default: 0)");
  app->add_option("--presence-penalty", options->presence_penalty,
                  "-2 to 2, once for a token that was generated (default: 0)");
  app->add_option("--seed", options->seed, "The same seed gives the same text")
      ->transform(Whole<uint64_t>())
      ->capture_default_str();
  app->add_option("--stop", options->stop, "Text that ends the output; may be repeated");
  app->add_option("--reasoning", options->reasoning,
                  "Text between <think> and </think>, or in other channels than final. show: as "
                  "the model writes it, channels between these tags; split: to stderr, or with "
                  "--json in a field of its own; hide: left out")
      ->check(CLI::IsMember({"show", "split", "hide"}))
      ->capture_default_str();
  app->add_option("--reasoning-tags", options->reasoning_tags,
                  "The two tags around reasoning, where they are others")
      ->expected(2)
      ->type_name("BEGIN END");
  app->add_flag("--ignore-eos", options->ignore_eos, "Go on after the model's end token");
  app->add_flag("--prompt-lookup", options->prompt_lookup,
                "Guess tokens from the prompt and the output, and check several at once: the same "
                "text, sooner where it repeats");
  app->add_option("--logprobs", options->logprobs,
                  "With --json: the best N tokens at each place (default: 0 = none)")
      ->transform(Whole<uint32_t>());
}

Outcome Generate(const Loaded& loaded, const GenerateOptions& options, std::string_view echo) {
  qinfer_generate_options generate = QINFER_GENERATE_OPTIONS_INIT;
  generate.max_tokens = options.max_tokens;
  if (options.temperature == 0.0f) generate.flags |= QINFER_GENERATE_GREEDY;
  if (options.ignore_eos) generate.flags |= QINFER_GENERATE_IGNORE_EOS;
  if (options.prompt_lookup) generate.flags |= QINFER_GENERATE_PROMPT_LOOKUP;
  generate.temperature = options.temperature;
  generate.top_k = options.top_k;
  generate.top_p = options.top_p;
  generate.min_p = options.min_p;
  generate.repetition_penalty = options.repetition_penalty;
  generate.frequency_penalty = options.frequency_penalty;
  generate.presence_penalty = options.presence_penalty;
  generate.seed = options.seed;
  generate.logprobs = options.logprobs;
  std::vector<qinfer_str> stops;
  for (const std::string& stop : options.stop) stops.push_back(Str(stop));
  generate.stop_strings = stops.data();
  generate.stop_string_count = stops.size();
  const bool tagged = options.reasoning == "show" && WritesHarmony(loaded.model.get());
  SetReasoning(options, tagged, &generate);
  Tagged tags;
  Stream stream(options.reasoning == "split");
  qinfer_task* raw = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_generate_begin(loaded.session.get(), &generate, &raw, &error), error,
        "cannot generate");
  const Task task(raw);
  if (!options.json) Stream::Write(echo);
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    if (InterruptGuard::Seen()) {
      qinfer_task_cancel(task.get());
      outcome.finish = "interrupted";
    }
    qinfer_event event = QINFER_EVENT_INIT;
    const qinfer_status status = qinfer_generate_next(task.get(), 50'000'000, &event, &error);
    if (status == QINFER_END || (status == QINFER_E_CANCELLED && InterruptGuard::Seen())) break;
    if (Check(status, error, "generation failed") == QINFER_PENDING) continue;
    const bool reasoning = event.channel == QINFER_CHANNEL_REASONING;
    (reasoning ? outcome.reasoning : outcome.text) += View(event.text);
    const std::string shown =
        tagged ? tags.Add(View(event.text), reasoning) : std::string(View(event.text));
    if (tagged || !reasoning) outcome.shown += shown;
    if (!options.json) {
      stream.Show(shown, reasoning && !tagged);
    } else if (event.token != QINFER_TOKEN_NONE) {
      Json token = {{"id", event.token}};
      if (event.logprob_count > 0) {
        token["logprob"] = event.logprobs[0].logprob;
        for (uint64_t i = 1; i < event.logprob_count; ++i) {
          token["top"].push_back(
              {{"id", event.logprobs[i].token}, {"logprob", event.logprobs[i].logprob}});
        }
      }
      outcome.tokens.push_back(std::move(token));
    }
    if (event.finish_reason != QINFER_FINISH_NONE) outcome.finish = FinishName(event.finish_reason);
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Check(
      qinfer_generate_counts(task.get(), &outcome.prompt_tokens, &outcome.generated_tokens, &error),
      error, "cannot count");
  Check(qinfer_generate_lookup_counts(task.get(), &outcome.drafted, &outcome.accepted,
                                      &outcome.steps, &error),
        error, "cannot count");
  return outcome;
}

void PrintJson(const Outcome& outcome, const GenerateOptions& options) {
  Json json;
  if (options.reasoning == "split") json["reasoning"] = outcome.reasoning;
  json["text"] = outcome.shown;
  json["finish_reason"] = outcome.finish;
  json["prompt_tokens"] = outcome.prompt_tokens;
  json["generated_tokens"] = outcome.generated_tokens;
  json["seconds"] = outcome.seconds;
  if (options.prompt_lookup) {
    json["prompt_lookup"] = {
        {"drafted", outcome.drafted}, {"accepted", outcome.accepted}, {"steps", outcome.steps}};
  }
  json["tokens"] = outcome.tokens;
  std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

Loaded Load(const GenerateOptions& options) {
  if (options.logprobs != 0 && !options.json) throw Error("--logprobs needs --json", 2);
  if (options.temperature == 0.0f &&
      (options.top_k > 1 || (options.top_p > 0.0f && options.top_p < 1.0f) ||
       options.min_p > 0.0f)) {
    throw Error("--top-k, --top-p and --min-p choose among likely tokens: give --temperature too",
                2);
  }
  if (options.reasoning == "show" && !options.reasoning_tags.empty()) {
    throw Error("--reasoning-tags needs --reasoning split or hide", 2);
  }
  Loaded loaded;
  loaded.runtime = MakeRuntime(options);
  loaded.model = OpenModel(loaded.runtime.get(), options.model, options, QINFER_PARTS_ALL);
  loaded.engine = MakeEngine(loaded.model.get(), options);
  qinfer_session* session = nullptr;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_session_create(loaded.engine.get(), &session, &error), error,
        "cannot open a session");
  loaded.session.reset(session);
  return loaded;
}

void AddGenerate(CLI::App* app) {
  auto generate = std::make_shared<GenerateOptions>();
  CLI::App* sub = app->add_subcommand("generate", "Continue a raw prompt, without a template");
  sub->add_option("MODEL", generate->model, kModelHelp)->required();
  sub->add_option("-p,--prompt", generate->prompt, "The prompt")->required();
  AddContext(sub, generate.get(), "Tokens of KV cache (default: the model's context, up to 4096)");
  AddSampling(sub, generate.get());
  AddJson(sub, generate.get());
  AddMachine(sub, generate.get());
  AddLoad(sub, generate.get());
  AddEngine(sub, generate.get());
  AddDeterminism(sub, generate.get());
  sub->callback([generate] { RunGenerate(*generate); });
}

}  // namespace cli
