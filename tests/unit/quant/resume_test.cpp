// Quantizations that are killed in the middle of calibrating: the next run goes on from what was
// kept, and ends in the file that an undisturbed one writes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "quant/partial_store.h"
#include "test_util.h"

namespace qinfer::quant {
namespace {

struct Case {
  std::string model;
  bool own;    // the model writes its samples
  bool small;  // as little memory as will do: a pass for every sample
};

std::string KeptPath(const std::string& output) { return output + ".partial/state-calibrating"; }

// How often the run has kept its state, which says so itself.
uint32_t Kept(const std::string& output) {
  const std::string bytes = ReadText(KeptPath(output));
  uint32_t turn = 0;
  if (bytes.size() > 20) std::memcpy(&turn, bytes.data() + 16, sizeof(turn));
  return turn;
}

QuantizeOptions OptionsFor(const Case& test, const std::string& output, Host* host,
                           const std::shared_ptr<format::Checkpoint>& checkpoint) {
  QuantizeOptions options;
  options.recipe.search_scales = kSearchSampleModel;
  options.output_path = output;
  options.calibration_options.samples = 3;
  options.calibration_options.sample_tokens = 24;
  options.calibration_keep_interval_ns = 0;
  options.resume = true;
  if (!test.own) {
    options.calibration =
        Calibration::Create(checkpoint, options.calibration_options, host->context).value();
    const std::string text = ReadText(TinyPath() + "/tiny-calibration.txt");
    EXPECT_TRUE(options.calibration->AddText(text.substr(0, 1500)).ok());
  }
  if (test.small) {
    const auto plan = PlanQuantizeMemory(*checkpoint, options, host->context);
    EXPECT_TRUE(plan.ok()) << plan.status();
    options.memory_limit_bytes = plan->minimum_bytes;
  }
  return options;
}

StatusOr<observe::Report> RunThrough(const Case& test, const std::string& output,
                                     uint32_t threads) {
  Host host(threads);
  auto checkpoint = host.Open(test.model);
  QINFER_ASSIGN_OR_RETURN(
      auto work,
      QuantizeWork::Create(checkpoint, OptionsFor(test, output, &host, checkpoint), host.context));
  QINFER_RETURN_IF_ERROR(Finish(work.get()));
  return work->TakeReport();
}

// Runs in a process of its own that is killed when it has kept its state `turn` times, at once or
// some units later. False if it was finished before.
bool RunKilled(const Case& test, const std::string& output, uint32_t turn) {
  const pid_t child = fork();
  if (child == 0) {
    Host host(1);
    auto checkpoint = host.Open(test.model);
    auto work =
        QuantizeWork::Create(checkpoint, OptionsFor(test, output, &host, checkpoint), host.context);
    if (!work.ok()) _exit(1);
    Deadline smallest;
    smallest.until_ns = 0;
    for (;;) {
      const auto done = (*work)->Step(smallest);
      if (!done.ok()) _exit(2);
      if (*done) _exit(3);
      if (Kept(output) < turn) continue;
      for (uint32_t i = 0; i < turn % 3; ++i) (void)(*work)->Step(smallest);
      kill(getpid(), SIGKILL);
    }
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 3)) << status;
  return WIFSIGNALED(status);
}

double Number(const observe::Report& report, const char* key) {
  const observe::Report* found = report.Find(key);
  return found == nullptr ? -1 : found->AsNumber();
}

class ResumedCalibration : public ::testing::TestWithParam<int> {};

TEST_P(ResumedCalibration, EndsInTheSameFile) {
  const std::string models = QINFER_SOURCE_DIR "/samples/models/";
  const Case cases[] = {{models + "tiny-llama", false, false},
                        {models + "tiny-llama", false, true},
                        {models + "tiny-llama", true, false},
                        {models + "tiny-deepseek", false, false},
                        {models + "tiny-deepseek", true, true}};
  const Case test = cases[GetParam()];
  TemporaryFolder folder;
  const std::string straight = folder.File("straight.qinfer");
  const auto expected = RunThrough(test, straight, 2);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(Number(*expected, "resume.calibration_steps_reused"), 0);
  double most_samples = 0, most_steps = 0;
  int kills = 0;
  const std::string killed = folder.File("killed.qinfer");
  for (uint32_t turn = 1;; turn += turn < 4 ? 1 : 7, ++kills) {
    SCOPED_TRACE(turn);
    if (!RunKilled(test, killed, turn)) break;
    ASSERT_FALSE(std::filesystem::exists(killed));
    ASSERT_TRUE(std::filesystem::exists(KeptPath(killed)));
    const auto report = RunThrough(test, killed, 2);
    ASSERT_TRUE(report.ok()) << report.status();
    const double steps = Number(*report, "resume.calibration_steps_reused"),
                 samples = Number(*report, "resume.samples_reused");
    EXPECT_GE(steps, test.own ? 0 : turn);
    EXPECT_GT(steps + samples, 0);
    EXPECT_EQ(Number(*report, "calibration.samples"), Number(*expected, "calibration.samples"));
    most_steps = std::max(most_steps, steps);
    most_samples = std::max(most_samples, samples);
    EXPECT_TRUE(ReadText(killed) == ReadText(straight));
    EXPECT_EQ(folder.entries(), 2u);
    std::filesystem::remove(killed);
  }
  EXPECT_GT(kills, 4);
  EXPECT_GT(most_steps, 8);
  EXPECT_EQ(most_samples > 0, test.own);
}
INSTANTIATE_TEST_SUITE_P(All, ResumedCalibration, ::testing::Range(0, kThreadSanitizer ? 1 : 5));

// Whatever is damaged of the state, the calibration is run anew, and nothing else is different.
TEST(ResumedCalibrationState, DamageMeansCalibratingAnew) {
  const Case test = {TinyPath(), false, false};
  TemporaryFolder folder;
  const std::string straight = folder.File("straight.qinfer"), killed = folder.File("k.qinfer");
  ASSERT_TRUE(RunThrough(test, straight, 2).ok());
  for (const char* name : {"calibrating", "calibrating-stats-1", "calibrating-hidden-1"}) {
    for (const bool cut : {false, true}) {
      SCOPED_TRACE(StrCat(name, cut ? " cut" : " changed"));
      ASSERT_TRUE(RunKilled(test, killed, 5));
      const std::string path = StrCat(killed, ".partial/state-", name);
      std::string bytes = ReadText(path);
      ASSERT_GT(bytes.size(), 100u);
      if (cut) bytes.resize(bytes.size() - 1);
      bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 1);
      std::ofstream(path, std::ios::binary) << bytes;
      const auto report = RunThrough(test, killed, 2);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(Number(*report, "resume.calibration_steps_reused"), 0);
      EXPECT_TRUE(ReadText(killed) == ReadText(straight));
      std::filesystem::remove(killed);
    }
  }
}

}  // namespace
}  // namespace qinfer::quant
