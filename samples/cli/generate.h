// What qinfer generate and qinfer chat share: their options, and one generation whose text is
// streamed as it comes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common.h"

namespace cli {

struct GenerateOptions : Common {
  std::string model, prompt, system;
  uint32_t max_tokens = 64;
  float temperature = 0.0f, top_p = 0.0f, min_p = 0.0f;
  float repetition_penalty = 0.0f, frequency_penalty = 0.0f, presence_penalty = 0.0f;
  uint32_t top_k = 0, logprobs = 0;
  uint64_t seed = 0;
  std::vector<std::string> stop;
  std::string reasoning = "show";
  std::vector<std::string> reasoning_tags;
  bool ignore_eos = false, prompt_lookup = false;
};

void AddSampling(CLI::App* app, GenerateOptions* options);

struct Loaded {
  Runtime runtime;
  Model model;
  Engine engine;
  Session session;
};

Loaded Load(const GenerateOptions& options);

struct Outcome {
  std::string text, reasoning, finish;
  std::string shown;  // the text, with the reasoning in tags where --reasoning show adds them
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  uint32_t prompt_tokens = 0, generated_tokens = 0;
  uint64_t drafted = 0, accepted = 0, steps = 0;
  double seconds = 0.0;
};

// Generates after the tokens of the session; streams unless `json`, after `echo`. Within an
// InterruptGuard an interrupt ends it, with the finish "interrupted".
Outcome Generate(const Loaded& loaded, const GenerateOptions& options, std::string_view echo);
void PrintJson(const Outcome& outcome, const GenerateOptions& options);

}  // namespace cli
