// How tests of splitters compare what comes out. No tests here.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/reasoning.h"

namespace qinfer::engine {

using Pieces = std::vector<ChannelSplitter::Piece>;

// Reasoning in braces.
inline std::string Shown(const Pieces& pieces) {
  std::string text;
  Channel last = Channel::kText;
  for (const auto& piece : pieces) {
    EXPECT_FALSE(piece.text.empty());
    if (piece.channel != last) text += last == Channel::kText ? "{" : "}";
    last = piece.channel;
    text += piece.text;
  }
  return text + (last == Channel::kReasoning ? "}" : "");
}

}  // namespace qinfer::engine
