// Calibrations: samples, statistics that do not depend on threads or memory, saving, merging.
#include <gtest/gtest.h>

#include "quant/calibration_data.h"
#include "quant/self_generate.h"
#include "test_util.h"

namespace qinfer::quant {
namespace {

TEST(Calibration, DoesNotDependOnThreadsOrOnHowManySamplesFitInMemory) {
  std::string first;
  for (uint32_t threads : {1u, 3u}) {
    Host host(threads);
    auto checkpoint = host.Open(TinyPath());
    for (uint64_t hidden_budget : {uint64_t{1}, uint64_t{64} << 20}) {
      CalibrationOptions options;
      options.samples = 4;
      options.sample_tokens = 64;
      auto calibration = Calibration::Create(checkpoint, options, host.context);
      ASSERT_TRUE(calibration.ok()) << calibration.status();
      const_cast<CalibrationData&>((*calibration)->data()).set_hidden_budget(hidden_budget);
      const std::string text = ReadText(TinyPath() + "/tiny-calibration.txt");
      ASSERT_TRUE((*calibration)->AddText(text.substr(0, 8000)).ok());
      auto run = (*calibration)->Run();
      ASSERT_TRUE(run.ok()) << run.status();
      ASSERT_TRUE(Finish(run->get()).ok());
      const std::string bytes = CalibrationBytes((*calibration)->data());
      if (first.empty()) first = bytes;
      EXPECT_TRUE(bytes == first) << threads << " threads, " << hidden_budget << " bytes";
    }
  }
}

TEST(Calibration, IsSavedLoadedAndMerged) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  auto calibration = Calibrated(&host, checkpoint, 4, 64);
  auto sink = io::CreateFile(folder.File("c"));
  ASSERT_TRUE(sink.ok());
  ASSERT_TRUE(calibration->Save(sink->get()).ok());
  sink->reset();
  auto source = io::OpenFile(folder.File("c"), io::Access::kCopy, &host.memory);
  ASSERT_TRUE(source.ok());
  auto loaded = Calibration::Load(*source, checkpoint, host.context);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(CalibrationBytes((*loaded)->data()) == CalibrationBytes(calibration->data()));
  EXPECT_EQ((*loaded)->data().held_out().size(), calibration->data().held_out().size());
  ASSERT_TRUE((*loaded)->Merge(*calibration).ok());
  const InputStats* one = calibration->data().Find(0, model::LinearRole::kUp);
  const InputStats* two = (*loaded)->data().Find(0, model::LinearRole::kGate);
  ASSERT_NE(one, nullptr);
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(two->moments.tokens(), 2 * one->moments.tokens());
  EXPECT_DOUBLE_EQ(two->moments.sums()[3], 2 * one->moments.sums()[3]);
  EXPECT_FALSE(calibration->Merge(*calibration).ok());
}

TEST(Calibration, DamagedFilesAreRefused) {
  Host host;
  auto checkpoint = host.Open(TinyPath());
  auto calibration = Calibrated(&host, checkpoint, 2, 32);
  const std::string good = CalibrationBytes(calibration->data());
  const auto load = [&](const std::string& bytes) {
    return LoadCalibration(bytes, "damaged", checkpoint, host.context).status();
  };
  ASSERT_TRUE(load(good).ok());
  for (size_t size : {size_t{0}, size_t{8}, size_t{31}, size_t{32}, good.size() - 1}) {
    EXPECT_FALSE(load(good.substr(0, size)).ok()) << size;
  }
  for (size_t at = 0; at < good.size(); at += good.size() / 97 + 1) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    const Status status = load(bad);
    EXPECT_FALSE(status.ok()) << at;
    EXPECT_NE(std::string(status.message()).find("damaged"), std::string::npos);
  }
  EXPECT_FALSE(load(good + "x").ok());
}

TEST(Calibration, MistakesAreExplained) {
  Host host;
  auto checkpoint = host.Open(TinyPath());
  CalibrationOptions options;
  options.samples = 0;
  EXPECT_FALSE(Calibration::Create(checkpoint, options, host.context).ok());
  options.samples = 4;
  auto calibration = Calibration::Create(checkpoint, options, host.context);
  ASSERT_TRUE(calibration.ok());
  EXPECT_FALSE((*calibration)->Run().ok());  // nothing was fed
  const int32_t wrong[] = {1, 2, 1 << 30};
  EXPECT_FALSE((*calibration)->AddTokens(wrong).ok());
  TemporaryFolder folder;
  auto sink = io::CreateFile(folder.File("c"));
  EXPECT_FALSE((*calibration)->Save(sink->get()).ok());
}

TEST(Calibration, SeedsChooseSamples) {
  Host host;
  auto checkpoint = host.Open(TinyPath());
  const std::string text = ReadText(TinyPath() + "/tiny-calibration.txt").substr(0, 60000);
  const auto chosen = [&](uint64_t seed) {
    CalibrationOptions options;
    options.samples = 3;
    options.sample_tokens = 64;
    options.seed = seed;
    auto calibration = Calibration::Create(checkpoint, options, host.context).value();
    EXPECT_TRUE(calibration->AddText(text).ok());
    std::vector<std::vector<int32_t>> tokens;
    for (const Sample& s : const_cast<CalibrationData&>(calibration->data()).TakeSamples()) {
      tokens.push_back(s.tokens);
    }
    EXPECT_EQ(calibration->data().held_out().size(), CalibrationData::kHeldOut);
    for (const Sample& held : calibration->data().held_out()) {
      for (const auto& sample : tokens) EXPECT_NE(held.tokens, sample);
    }
    return tokens;
  };
  EXPECT_EQ(chosen(1), chosen(1));
  EXPECT_NE(chosen(1), chosen(2));
}

TEST(SelfGenerate, WritesTheSameSamplesWhateverTheBatch) {
  std::vector<std::vector<int32_t>> first;
  for (uint32_t batch : {1u, 3u, 8u}) {
    Host host;
    SelfGenerateOptions options;
    options.samples = 5;
    options.sample_tokens = 24;
    options.batch = batch;
    options.seed = 7;
    auto work = SelfGenerateWork::Create(host.Open(TinyPath()), options, host.context);
    ASSERT_TRUE(work.ok()) << work.status();
    const Status finished = Finish(work->get());
    ASSERT_TRUE(finished.ok()) << finished;
    std::vector<std::vector<int32_t>> tokens;
    for (const Sample& sample : (*work)->TakeSamples()) tokens.push_back(sample.tokens);
    EXPECT_EQ(tokens.size(), 5u);
    if (first.empty()) first = tokens;
    EXPECT_EQ(tokens, first) << batch;
  }
  EXPECT_NE(first[0], first[1]);
}

TEST(SelfGenerate, FeedsACalibration) {
  Host host;
  auto checkpoint = host.Open(TinyPath());
  CalibrationOptions options;
  options.samples = 4;
  options.sample_tokens = 32;
  auto calibration = Calibration::Create(checkpoint, options, host.context);
  ASSERT_TRUE(calibration.ok());
  ASSERT_TRUE((*calibration)->UseSelfGenerated().ok());
  auto run = (*calibration)->Run();
  ASSERT_TRUE(run.ok());
  const Status finished = Finish(run->get());
  ASSERT_TRUE(finished.ok()) << finished;
  const observe::Report report = (*calibration)->data().Describe();
  EXPECT_EQ(report.Find("source")->AsString(), "self-generated");
  EXPECT_TRUE(report.Find("self_generated")->AsBool());
  EXPECT_EQ((*calibration)->data().held_out().size(), CalibrationData::kHeldOut);
}

TEST(DrawToken, FollowsTheDistribution) {
  Host host;
  const std::vector<float> logits = {0.0f, 1.0f, -50.0f, 2.0f};
  std::vector<float> scratch(4);
  const double total = 1.0 + 2.718281828 + 7.389056099;
  const auto draw = [&](double unit) {
    return DrawToken(logits, unit, *host.context.kernels, scratch.data());
  };
  EXPECT_EQ(draw(0.0), 0);
  EXPECT_EQ(draw(0.9 / total), 0);
  EXPECT_EQ(draw(1.1 / total), 1);
  EXPECT_EQ(draw(3.8 / total), 3);
  EXPECT_EQ(draw(0.999999), 3);
}

}  // namespace
}  // namespace qinfer::quant
