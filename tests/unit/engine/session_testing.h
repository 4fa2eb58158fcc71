// Sessions and options that tests of generation share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine.h"

namespace qinfer::engine {

using Tokens = std::vector<int32_t>;

inline std::shared_ptr<Session> MakeSession(const std::shared_ptr<Engine>& engine,
                                            const Tokens& prompt) {
  auto session = engine->NewSession();
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  const Status status = (*session)->Append(prompt);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return *session;
}

inline GenerateOptions Greedy(uint32_t tokens) {
  GenerateOptions options;
  options.sampling.greedy = true;
  options.max_tokens = tokens;
  options.ignore_eos = true;
  return options;
}

}  // namespace qinfer::engine
