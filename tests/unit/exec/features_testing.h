// What the tests of features share: a specification that ignores something no longer agrees with
// the recorded logits.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "golden_testing.h"

namespace qinfer::exec {

using Change = std::function<void(model::ModelSpec*)>;
struct Ignored {
  const char* what;
  Change change;
};
struct FeatureCase {
  const char* folder;
  const char* variant;
  std::vector<Ignored> ignored;
};

inline Change EachLayer(void (*change)(model::LayerSpec*)) {
  return [change](model::ModelSpec* spec) {
    for (model::LayerSpec& layer : spec->layers) change(&layer);
  };
}

inline Change EachRope(void (*change)(model::RopeSpec*)) {
  return [change](model::ModelSpec* spec) {
    for (model::RopeSpec& rope : spec->ropes) change(&rope);
  };
}

inline void ExpectAllMatter(const std::vector<FeatureCase>& cases) {
  for (const FeatureCase& c : cases) {
    SCOPED_TRACE(StrCat(c.folder, " ", c.variant));
    const std::string folder = Golden(std::string("models/") + c.folder + "/"), variant = c.variant;
    Machine machine;
    auto checkpoint = OpenGolden(folder, variant, "model.safetensors", &machine);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto spec = model::SpecFromCheckpoint(**checkpoint);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    const Recorded recorded(folder + "expected.safetensors");
    const std::vector<int32_t> tokens = recorded.Read<int32_t>("tokens");
    const std::vector<float> expected =
        recorded.Read<float>(variant.empty() ? "logits" : "logits." + variant);
    auto logits = LogitsBySpec(*spec, **checkpoint, machine.context, tokens);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    EXPECT_LT(MaxDifference(*logits, expected), 1e-3);
    for (const Ignored& ignored : c.ignored) {
      model::ModelSpec changed = *spec;
      ignored.change(&changed);
      EXPECT_NE(changed, *spec) << ignored.what;
      auto other = LogitsBySpec(changed, **checkpoint, machine.context, tokens);
      ASSERT_TRUE(other.ok()) << ignored.what << ": " << other.status().message();
      EXPECT_GT(MaxDifference(*other, expected), 1e-2) << ignored.what;
    }
  }
}

}  // namespace qinfer::exec
