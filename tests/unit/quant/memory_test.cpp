// What quantizing takes is what was planned, for every kind of source and calibration; and a limit
// is kept or refused with the least that works.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "quant/calibration_data.h"
#include "test_util.h"

namespace qinfer::quant {
namespace {

enum class Samples { kNone, kRun, kWaiting, kOwn };

struct Source {
  const char* name;
  std::string path;
  bool writes = true;  // a model that can write its own samples
};

std::string Golden(const char* name) {
  return std::string(QINFER_SOURCE_DIR "/tests/golden/models/") + name;
}

// Token ids of no meaning, the same each time.
std::shared_ptr<Calibration> Fed(Host* host, std::shared_ptr<format::Checkpoint> checkpoint,
                                 uint32_t samples) {
  CalibrationOptions options;
  options.samples = samples;
  options.sample_tokens = 96;
  auto calibration = Calibration::Create(checkpoint, options, host->context);
  EXPECT_TRUE(calibration.ok()) << calibration.status();
  const uint32_t vocab = (*calibration)->data().spec().vocab_size;
  std::vector<int32_t> tokens(96 * (samples + samples / 4));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>((i * i * 31 + i * 7 + 3) % vocab);
  }
  EXPECT_TRUE((*calibration)->AddTokens(tokens).ok());
  return *calibration;
}

QuantizeOptions OptionsFor(Host* host, std::shared_ptr<format::Checkpoint> checkpoint,
                           Samples samples, const std::string& output) {
  QuantizeOptions options;
  options.output_path = output;
  options.recipe.search_scales = kSearchSampleModel;
  options.calibrate = options.evaluate = samples != Samples::kNone;
  options.calibration_options.samples = 4;
  options.calibration_options.sample_tokens = 64;
  if (samples == Samples::kRun || samples == Samples::kWaiting) {
    options.calibration = Fed(host, checkpoint, 12);
  }
  if (samples == Samples::kRun) {
    auto run = options.calibration->Run();
    EXPECT_TRUE(run.ok()) << run.status();
    EXPECT_TRUE(Finish(run->get()).ok());
  }
  return options;
}

Status Quantize(Host* host, std::shared_ptr<format::Checkpoint> checkpoint,
                QuantizeOptions options) {
  auto work = QuantizeWork::Create(std::move(checkpoint), std::move(options), host->context);
  return work.ok() ? Finish(work->get()) : work.status();
}

// Peak of everything against the plan's total; what is in use before is part of both.
void ExpectPlanned(const Source& source, uint32_t threads, Samples samples) {
  SCOPED_TRACE(StrCat(source.name, ", ", threads, " threads, samples ", static_cast<int>(samples)));
  Host host(threads);
  TemporaryFolder folder;
  auto checkpoint = host.Open(source.path);
  ASSERT_NE(checkpoint, nullptr);
  QuantizeOptions options = OptionsFor(&host, checkpoint, samples, folder.File("x.qinfer"));
  const auto plan = PlanQuantizeMemory(*checkpoint, options, host.context);
  ASSERT_TRUE(plan.ok()) << plan.status();
  host.memory.ResetPeak();
  const Status done = Quantize(&host, checkpoint, std::move(options));
  ASSERT_TRUE(done.ok()) << done;
  const double peak = static_cast<double>(host.memory.peak_bytes());
  const double total = static_cast<double>(plan->total_bytes);
  const std::string parts =
      StrCat("documents ", plan->document_bytes, ", calibrate ", plan->calibrate_bytes, ", layer ",
             plan->layer_bytes, ", head ", plan->head_bytes, ", in use ", plan->in_use_bytes);
  EXPECT_LE(peak, total) << parts;
  EXPECT_LE(total, 1.1 * peak) << parts;
}

// Where what is in use already would hide an error, the work alone.
void ExpectLimitKept(const Source& source, Samples samples) {
  SCOPED_TRACE(StrCat(source.name, ", samples ", static_cast<int>(samples)));
  Host host(2);
  TemporaryFolder folder;
  auto checkpoint = host.Open(source.path);
  ASSERT_NE(checkpoint, nullptr);
  QuantizeOptions options = OptionsFor(&host, checkpoint, samples, folder.File("x.qinfer"));
  const auto plan = PlanQuantizeMemory(*checkpoint, options, host.context);
  ASSERT_TRUE(plan.ok()) << plan.status();
  options.memory_limit_bytes = plan->minimum_bytes - 1;
  const Status refused = Quantize(&host, checkpoint, std::move(options));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.message()).find(StrCat(plan->minimum_bytes)), std::string::npos)
      << refused;
  EXPECT_EQ(folder.entries(), 0u);

  options = OptionsFor(&host, checkpoint, samples, folder.File("x.qinfer"));
  options.memory_limit_bytes = plan->minimum_bytes;
  if (options.calibration != nullptr) options.calibration->data().ReleaseTokenizer();
  const uint64_t base = host.memory.used_bytes() + host.memory.mapped_bytes();
  host.memory.ResetPeak();
  const Status done = Quantize(&host, checkpoint, std::move(options));
  ASSERT_TRUE(done.ok()) << done;
  EXPECT_LE(host.memory.peak_bytes() - base, plan->minimum_bytes);
}

std::vector<Source> Shipped(const TemporaryFolder& folder) {
  if (kThreadSanitizer) return {{"gemma 2", Golden("gemma2-small/model-f16.gguf"), false}};
  // A file of ours, of one of them.
  const std::string converted = folder.File("tiny.qinfer");
  Host host;
  auto sink = io::CreateFile(converted);
  EXPECT_TRUE(sink.ok());
  auto work = ConvertWork::Create(host.Open(TinyPath()), std::move(*sink), host.context);
  EXPECT_TRUE(work.ok() && Finish(work->get()).ok());
  return {{"tiny-llama", TinyPath()},
          {"tiny-deepseek", QINFER_SOURCE_DIR "/samples/models/tiny-deepseek"},
          {"tiny-llama as .qinfer", converted},
          {"llama blocks as GGUF", Golden("llama-blocks/model-blocks.gguf"), false},
          {"gemma 2 as GGUF", Golden("gemma2-small/model-f16.gguf"), false}};
}

TEST(QuantizeMemory, FollowsThePlan) {
  TemporaryFolder folder;
  for (const Source& source : Shipped(folder)) {
    for (uint32_t threads = kThreadSanitizer ? 2 : 1; threads <= 2; ++threads) {
      for (Samples samples : {Samples::kNone, Samples::kRun, Samples::kWaiting, Samples::kOwn}) {
        if (samples == Samples::kOwn && !source.writes) continue;
        ExpectPlanned(source, threads, samples);
      }
    }
  }
}

TEST(QuantizeMemory, KeepsToALimitOrSaysTheLeast) {
  TemporaryFolder folder;
  for (const Source& source : Shipped(folder)) {
    for (Samples samples : {Samples::kNone, Samples::kRun, Samples::kWaiting, Samples::kOwn}) {
      if (samples == Samples::kOwn && !source.writes) continue;
      ExpectLimitKept(source, samples);
    }
  }
}

// Real files, where tests/fetch_models.sh has put them: vocabularies of another size.
TEST(QuantizeMemory, OfRealModelsFollowsThePlan) {
  const char* home = std::getenv("HOME");
  const std::string cache = StrCat(home == nullptr ? "" : home, "/.cache/qinfer/");
  size_t found = 0;
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"}) {
    if (!std::filesystem::exists(cache + name)) continue;
    ++found;
    const Source source = {name, cache + name};
    ExpectPlanned(source, 2, Samples::kNone);
    Host host(2);
    auto checkpoint = host.Open(source.path);
    ASSERT_NE(checkpoint, nullptr);
    QuantizeOptions options = OptionsFor(&host, checkpoint, Samples::kNone, "/nowhere/x.qinfer");
    options.memory_limit_bytes = 2 << 20;
    const Status refused = Quantize(&host, checkpoint, std::move(options));
    EXPECT_EQ(refused.code(), absl::StatusCode::kOutOfRange) << refused;
    EXPECT_NE(std::string(refused.message()).find("needs at least"), std::string::npos) << refused;
  }
  if (found == 0) GTEST_SKIP() << "no real models in " << cache;
}

// Results do not depend on the limit, nor on who runs the calibration.
TEST(QuantizeMemory, ALimitChangesNothingInTheFile) {
  TemporaryFolder folder;
  std::string path = TinyPath();
  const auto quantize = [&](Samples samples, const char* name, uint64_t limit) {
    Host host(2);
    auto checkpoint = host.Open(path);
    QuantizeOptions options = OptionsFor(&host, checkpoint, samples, folder.File(name));
    options.evaluate = false;  // of which a limit may leave samples out
    const auto plan = PlanQuantizeMemory(*checkpoint, options, host.context);
    EXPECT_TRUE(plan.ok());
    options.memory_limit_bytes = limit == 0 ? 0 : plan->minimum_bytes;
    const Status done = Quantize(&host, checkpoint, std::move(options));
    EXPECT_TRUE(done.ok()) << done;
    return ReadText(folder.File(name));
  };
  const std::string before = quantize(Samples::kRun, "a", 0);
  ASSERT_GT(before.size(), 1000u);
  EXPECT_TRUE(quantize(Samples::kWaiting, "b", 0) == before);
  EXPECT_TRUE(quantize(Samples::kWaiting, "c", 1) == before);
  EXPECT_TRUE(quantize(Samples::kOwn, "d", 1) == quantize(Samples::kOwn, "e", 0));
  for (const char* experts :
       {"/tests/golden/models/gpt-oss-small", "/samples/models/tiny-deepseek",
        "/tests/golden/gguf-models/deepseek2-lite.gguf", "/tests/golden/models/deepseek-fp8"}) {
    if (kThreadSanitizer && path.find("gpt-oss") != std::string::npos) break;
    path = StrCat(QINFER_SOURCE_DIR, experts);
    const std::string all = quantize(Samples::kRun, "f", 0);
    ASSERT_GT(all.size(), 1000u);
    EXPECT_TRUE(quantize(Samples::kWaiting, "g", 1) == all);
  }
}

}  // namespace
}  // namespace qinfer::quant
