// How finely the work of quantization is cut: with no budget each step is one unit, so that their
// number says how much of the work a step can overshoot by. No clock is looked at.
#include <filesystem>

#include "test_util.h"

namespace qinfer::quant {
namespace {

constexpr uint32_t kSamples = 2, kTokens = 64;

// Steps of a Work when each does the least.
uint32_t Steps(Work* work) {
  Deadline smallest;
  smallest.until_ns = 0;
  for (uint32_t steps = 1;; ++steps) {
    StatusOr<bool> done = work->Step(smallest);
    EXPECT_TRUE(done.ok()) << done.status();
    if (!done.ok() || *done) return steps;
  }
}

TEST(Units, CalibrationIsCutInsideLayers) {
  Host host(1);
  auto checkpoint = host.Open(TinyPath());
  CalibrationOptions options;
  options.samples = kSamples;
  options.sample_tokens = kTokens;
  auto calibration = Calibration::Create(checkpoint, options, host.context);
  ASSERT_TRUE(calibration.ok());
  const std::string text = ReadText(TinyPath() + "/tiny-calibration.txt");
  ASSERT_TRUE((*calibration)->AddText(text.substr(0, 20000)).ok());
  auto run = (*calibration)->Run();
  ASSERT_TRUE(run.ok());
  const auto spec = model::SpecFromCheckpoint(*checkpoint);
  const auto layers = static_cast<uint32_t>(spec->layers.size());
  // Phases with a unit a token alone: two norms, activation, residual sum, angles.
  EXPECT_GT(Steps(run->get()), layers * kSamples * kTokens * 5);
}

TEST(Units, QuantizationIsCutInsideLayersAndTheHead) {
  Host host(1);
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  auto calibration = Calibrated(&host, checkpoint, kSamples, kTokens);
  const auto make = [&](const char* name) {
    QuantizeOptions options;
    options.recipe.linear = weights::ParseFormat("int8").value();
    options.recipe.search_scales = false;
    options.calibration = calibration;
    options.output_path = folder.File(name);
    return QuantizeWork::Create(checkpoint, std::move(options), host.context);
  };
  auto work = make("steps.qinfer"), whole = make("whole.qinfer");
  ASSERT_TRUE(work.ok() && whole.ok());
  const auto spec = model::SpecFromCheckpoint(*checkpoint);
  const auto layers = static_cast<uint32_t>(spec->layers.size());
  const uint32_t steps = Steps(work->get());
  // Held-out samples run through two models.
  const uint32_t held_out =
      static_cast<uint32_t>((*work)->TakeReport().Find("evaluation.windows")->AsInt());
  EXPECT_GT(held_out, 0u);
  EXPECT_GT(steps, 2 * layers * held_out * kTokens * 4);
  // No slice of the head is one step: every panel of 16 rows is at least packed by itself.
  EXPECT_GT(steps, spec->vocab_size / 16);
  ASSERT_TRUE(Finish(whole->get()).ok());
  EXPECT_TRUE(ReadText(folder.File("steps.qinfer")) == ReadText(folder.File("whole.qinfer")));
}

}  // namespace
}  // namespace qinfer::quant
