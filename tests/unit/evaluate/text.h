// Helpers of the evaluation tests: a text file as tokens, and a Work run to its end.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/unit/engine/test_model.h"

namespace qinfer::evaluate {

inline bool ReadTokens(const exec::Model& model, const std::string& path,
                       std::vector<int32_t>* tokens) {
  std::ifstream file(path, std::ios::binary);
  if (!file.good() || model.tokenizer() == nullptr) return false;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::pmr::vector<int32_t> ids;
  tokenizer::EncodeOptions options;
  options.parse_special = false;  // as llama.cpp's tool: "<unk>" in WikiText is text
  if (!model.tokenizer()->Encode(text, options, &ids).ok()) return false;
  tokens->assign(ids.begin(), ids.end());
  return true;
}

inline Status RunToEnd(Work* work) {
  const auto done = work->Step(Deadline());
  if (!done.ok()) return done.status();
  return *done ? OkStatus() : InternalError("not finished without a deadline");
}

}  // namespace qinfer::evaluate
