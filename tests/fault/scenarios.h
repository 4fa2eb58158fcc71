// What the API is made to do while things fail: each scenario does one complete piece of work
// through the public header alone, releases everything, and returns the first status that was not a
// success.
#pragma once

#include <qinfer/qinfer.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fault {

// The hooks that a scenario runs with; both count, and fail when their number is up.
struct Hooks {
  const qinfer_allocator* allocator;
  // Wraps the bytes of a file as an io table.
  qinfer_io (*open)(const std::string* bytes);
};

// A model of a few thousand parameters in every container, with a vocabulary of a few tokens: small
// enough for every single failure to be tried.
struct Files {
  std::string weights, config, tokenizer, tokenizer_config;
  std::string gguf, qinfer;
  std::string latent;  // a model with latent attention, in GGUF
  std::string path;    // of the folder
};
// False, with a message on stderr: something of it is not there.
bool LoadFiles(Files* files);

using Scenario = qinfer_status (*)(const Files& files, const Hooks& hooks, qinfer_error* err);
struct NamedScenario {
  const char* name;
  Scenario run;
};
const std::vector<NamedScenario>& Scenarios();

}  // namespace fault
