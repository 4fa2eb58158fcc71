// Patterns of tensor names.
#include "quant/wildcard.h"

#include <gtest/gtest.h>

#include <string>

namespace qinfer::quant {
namespace {

TEST(WildcardMatch, Works) {
  EXPECT_TRUE(WildcardMatch("*", ""));
  EXPECT_TRUE(WildcardMatch("", ""));
  EXPECT_FALSE(WildcardMatch("", "a"));
  EXPECT_TRUE(WildcardMatch("a*c", "abbbc"));
  EXPECT_FALSE(WildcardMatch("a*c", "abbbcd"));
  EXPECT_TRUE(WildcardMatch("model.layers.?.mlp.*", "model.layers.3.mlp.down_proj.weight"));
  EXPECT_FALSE(WildcardMatch("model.layers.?.mlp.*", "model.layers.13.mlp.down_proj.weight"));
  EXPECT_TRUE(WildcardMatch("*down*", "blk.0.ffn_down.weight"));
  EXPECT_TRUE(WildcardMatch("a*b*c", "aXbXbXc"));
  EXPECT_FALSE(WildcardMatch("a?c", "ac"));
}

TEST(WildcardMatch, StaysFastOnHardPatterns) {
  const std::string name(2000, 'a');
  std::string pattern;
  for (int i = 0; i < 500; ++i) pattern += "*a";
  EXPECT_FALSE(WildcardMatch(pattern + "b", name));
}

TEST(CloseNames, PutsTheLikelyOneFirst) {
  const std::vector<std::string_view> names = {"model.layers.0.self_attn.q_proj.weight",
                                               "model.layers.0.mlp.down_proj.weight", "lm_head"};
  EXPECT_EQ(CloseNames("model.layers.0.mlp.donw_proj", names, 1).at(0),
            "model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(CloseNames("x", {}, 3).size(), 0u);
}

}  // namespace
}  // namespace qinfer::quant
