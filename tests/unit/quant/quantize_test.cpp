// Quantizing and converting the sample model: quality bars, identical files, resuming after a kill,
// cancelling, refusals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "format/qinfer_file.h"
#include "quant/calibration_data.h"
#include "quant/recipe.h"
#include "test_util.h"

namespace qinfer::quant {
namespace {

QuantizeOptions Options(const std::string& format, const std::string& output,
                        std::shared_ptr<Calibration> calibration) {
  QuantizeOptions options;
  options.recipe.linear = weights::ParseFormat(format).value();
  options.recipe.search_scales = kSearchSampleModel;
  options.calibration = std::move(calibration);
  options.calibrate = options.calibration != nullptr;
  options.evaluate = options.calibration != nullptr;
  options.output_path = output;
  return options;
}

StatusOr<observe::Report> Quantize(Host* host, std::shared_ptr<format::Checkpoint> checkpoint,
                                   QuantizeOptions options) {
  auto work = QuantizeWork::Create(std::move(checkpoint), std::move(options), host->context);
  if (!work.ok()) return work.status();
  QINFER_RETURN_IF_ERROR(Finish(work->get()));
  return (*work)->TakeReport();
}

double Number(const observe::Report& report, const char* path) {
  const observe::Report* node = report.Find(path);
  EXPECT_NE(node, nullptr) << path;
  return node == nullptr ? -1.0 : node->AsNumber();
}

// OUT.partial/ is a plain name in the user's folder: whatever else has it already stays as it is.
TEST(Quantize, TouchesNothingOfOthersUnderThePartialName) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  const auto refused = [&](const std::string& why) {
    const auto work =
        QuantizeWork::Create(checkpoint, Options("int4", folder.File("x"), nullptr), host.context);
    EXPECT_TRUE(absl::IsInvalidArgument(work.status())) << why << ": " << work.status();
    EXPECT_NE(work.status().message().find("x.partial"), absl::string_view::npos) << work.status();
    EXPECT_NE(work.status().message().find(why), absl::string_view::npos) << work.status();
  };
  const std::string partial = folder.File("x.partial");
  const auto write = [](const std::string& path) { std::ofstream(path) << "dear"; };
  write(partial);
  refused("is in the way");
  EXPECT_EQ(std::filesystem::file_size(partial), 4u);
  std::filesystem::remove(partial);

  std::filesystem::create_directory(partial);
  write(partial + "/notes.txt");
  refused("notes.txt");
  EXPECT_EQ(std::filesystem::file_size(partial + "/notes.txt"), 4u);
  std::filesystem::remove(partial + "/notes.txt");

  const std::string elsewhere = folder.File("elsewhere");
  write(elsewhere);
  std::filesystem::create_symlink(elsewhere, partial + "/model.qinfer");
  auto work =
      QuantizeWork::Create(checkpoint, Options("int4", folder.File("x"), nullptr), host.context);
  EXPECT_FALSE(work.ok());
  EXPECT_EQ(std::filesystem::file_size(elsewhere), 4u);
  std::filesystem::remove_all(partial);

  std::filesystem::create_directory(folder.File("far"));
  std::filesystem::create_symlink(folder.File("far"), partial);
  refused("is in the way");
  EXPECT_TRUE(std::filesystem::is_empty(folder.File("far")));
}

TEST(Quantize, Int8AndInt4MeetTheirBarsOnHeldOutSamples) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  auto calibration = Calibrated(&host, checkpoint, 24, 256);
  auto int8 = Quantize(&host, checkpoint, Options("int8", folder.File("8.qinfer"), calibration));
  ASSERT_TRUE(int8.ok()) << int8.status();
  auto int4 = Quantize(&host, checkpoint, Options("int4", folder.File("4.qinfer"), calibration));
  ASSERT_TRUE(int4.ok()) << int4.status();
  EXPECT_LT(Number(*int8, "evaluation.perplexity_increase"), 0.001);
  EXPECT_LT(Number(*int8, "evaluation.kl_mean"), 0.001);
  EXPECT_LT(Number(*int4, "evaluation.perplexity_increase"), 0.015);
  EXPECT_LT(Number(*int4, "evaluation.kl_mean"), 0.02);
  EXPECT_GT(Number(*int4, "evaluation.kl_mean"), Number(*int8, "evaluation.kl_mean"));
  EXPECT_GT(Number(*int4, "evaluation.top1"), 0.9);
  EXPECT_NEAR(Number(*int4, "layer_bits_per_weight"), 4.5, 0.1);
  // Drift grows from the first layer to the last, and every layer is there.
  const observe::Report* layers = int4->Find("layers");
  ASSERT_NE(layers, nullptr);
  ASSERT_GT(layers->size(), 1u);
  const auto drift = [&](size_t layer) { return Number(layers->at(layer), "hidden.relative_mse"); };
  EXPECT_GT(drift(0), 0.0);
  EXPECT_GT(drift(layers->size() - 1), drift(0) * 0.1);
  EXPECT_GT(Number(layers->at(0), "hidden.cosine"), 0.99);
  // The files open and verify.
  for (const char* name : {"8.qinfer", "4.qinfer"}) {
    auto opened = host.Open(folder.File(name));
    ASSERT_NE(opened, nullptr);
    ASSERT_NE(opened->qinfer(), nullptr);
    EXPECT_TRUE(opened->qinfer()->VerifyAll().ok());
    EXPECT_FALSE(opened->qinfer()->Metadata(format::kMetaReport).empty());
    EXPECT_FALSE(opened->qinfer()->Metadata(format::kMetaRecipe).empty());
    EXPECT_NE(opened->qinfer()->Find(format::kSideTokenizerCompiled), nullptr);
  }
  EXPECT_FALSE(std::filesystem::exists(folder.File("4.qinfer.partial")));
}

TEST(Quantize, ImportanceLowersTheWeightedError) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  auto calibration = Calibrated(&host, checkpoint, 8, 256);
  QuantizeOptions plain = Options("int4", folder.File("a.qinfer"), calibration);
  plain.recipe.search_scales = false;
  auto without = Quantize(&host, checkpoint, std::move(plain));
  auto with = Quantize(&host, checkpoint, Options("int4", folder.File("b.qinfer"), calibration));
  ASSERT_TRUE(without.ok() && with.ok());
  const observe::Report* a = without->Find("tensors");
  const observe::Report* b = with->Find("tensors");
  ASSERT_EQ(a->size(), b->size());
  size_t compared = 0;
  for (size_t i = 0; i < a->size(); ++i) {
    if (a->at(i).Find("weighted_relative_mse") == nullptr) continue;
    EXPECT_LE(Number(b->at(i), "weighted_relative_mse"),
              Number(a->at(i), "weighted_relative_mse") * 1.0001);
    ++compared;
  }
  EXPECT_GT(compared, 10u);
}

TEST(Quantize, WritesTheSameFileWithAnyNumberOfThreads) {
  TemporaryFolder folder;
  std::string first;
  for (uint32_t threads : {1u, 2u, 5u}) {
    Host host(threads);
    auto checkpoint = host.Open(TinyPath());
    auto calibration = Calibrated(&host, checkpoint, 4, 128);
    const std::string path = folder.File(StrCat(threads, ".qinfer"));
    auto report = Quantize(&host, checkpoint, Options("int4", path, calibration));
    ASSERT_TRUE(report.ok()) << report.status();
    const std::string bytes = ReadText(path);
    ASSERT_GT(bytes.size(), 1000u);
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads << " threads";
  }
}

// A child process is killed inside a layer; the resumed run ends in the file that an undisturbed
// one writes, and does not do finished layers again.
TEST(Quantize, ResumesAfterAKill) {
  TemporaryFolder folder;
  const std::string straight = folder.File("straight.qinfer"),
                    killed = folder.File("killed.qinfer");
  constexpr uint64_t kLayersBeforeKill = 2;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Host host(1);
    auto checkpoint = host.Open(TinyPath());
    auto calibration = Calibrated(&host, checkpoint, 4, 128);
    auto work =
        QuantizeWork::Create(checkpoint, Options("int4", killed, calibration), host.context);
    if (!work.ok()) _exit(1);
    // The journal grows by a record with each group: embedding, then layers.
    uint64_t grown = 0;
    uintmax_t size = 0;
    Deadline smallest;
    smallest.until_ns = 0;
    for (;;) {
      auto done = (*work)->Step(smallest);
      if (!done.ok() || *done) _exit(2);
      std::error_code error;
      const uintmax_t now = std::filesystem::file_size(killed + ".partial/journal", error);
      if (!error && now > size) {
        size = now;
        ++grown;
      }
      // Header, embedding, two layers, and a bit of the third.
      if (grown == 2 + kLayersBeforeKill) {
        for (int i = 0; i < 3; ++i) (void)(*work)->Step(smallest);
        kill(getpid(), SIGKILL);
      }
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  ASSERT_TRUE(std::filesystem::exists(killed + ".partial"));
  ASSERT_FALSE(std::filesystem::exists(killed));

  Host host(2);
  auto checkpoint = host.Open(TinyPath());
  auto calibration = Calibrated(&host, checkpoint, 4, 128);
  QuantizeOptions resumed = Options("int4", killed, calibration);
  resumed.resume = true;
  auto report = Quantize(&host, checkpoint, std::move(resumed));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(Number(*report, "resume.layers_reused"), kLayersBeforeKill);
  auto direct = Quantize(&host, checkpoint, Options("int4", straight, calibration));
  ASSERT_TRUE(direct.ok()) << direct.status();
  EXPECT_EQ(Number(*direct, "resume.layers_reused"), 0);
  EXPECT_EQ(Number(*direct, "resume.layers_done"),
            Number(*report, "resume.layers_done") + kLayersBeforeKill);
  EXPECT_TRUE(ReadText(killed) == ReadText(straight));
  EXPECT_EQ(folder.entries(), 2u);
}

// A run that ends after its calibration leaves that to the next one; other samples, another seed
// and another model are other quantizations.
TEST(Quantize, ResumingTakesTheCalibrationOver) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  const uint32_t samples = kThreadSanitizer ? 2 : 4, tokens = kThreadSanitizer ? 24 : 64;
  const auto fed = [&](uint64_t seed, size_t bytes) {
    CalibrationOptions options;
    options.samples = samples;
    options.sample_tokens = 2 * tokens;
    options.seed = seed;
    auto calibration = Calibration::Create(checkpoint, options, host.context).value();
    const std::string text = ReadText(TinyPath() + "/tiny-calibration.txt");
    EXPECT_TRUE(calibration->AddText(text.substr(0, bytes)).ok());
    return calibration;
  };
  const auto own = [&]() {
    CalibrationOptions options;
    options.samples = samples;
    options.sample_tokens = tokens;
    auto calibration = Calibration::Create(checkpoint, options, host.context).value();
    EXPECT_TRUE(calibration->UseSelfGenerated().ok());
    return calibration;
  };
  const auto create = [&](std::shared_ptr<Calibration> calibration, const char* name) {
    QuantizeOptions options = Options("int4", folder.File(name), std::move(calibration));
    options.resume = true;
    return QuantizeWork::Create(checkpoint, std::move(options), host.context);
  };
  for (const bool generated : {false, true}) {
    SCOPED_TRACE(generated);
    const auto make = [&] { return generated ? own() : fed(1, 20000); };
    {
      auto work = create(make(), "x.qinfer");
      ASSERT_TRUE(work.ok()) << work.status();
      Deadline smallest;
      smallest.until_ns = 0;
      const std::string kept = folder.File("x.qinfer.partial/state-calibration");
      while (!std::filesystem::exists(kept)) {
        const auto done = (*work)->Step(smallest);
        ASSERT_TRUE(done.ok() && !*done);
      }
    }
    if (!generated) {
      for (const auto& other : {fed(2, 20000), fed(1, 19000), own()}) {
        const auto refused = create(other, "x.qinfer");
        ASSERT_FALSE(refused.ok());
        EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
      }
    }
    auto resumed_calibration = make();
    auto resumed = create(resumed_calibration, "x.qinfer");
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    ASSERT_TRUE(Finish(resumed->get()).ok());
    const observe::Report report = (*resumed)->TakeReport();
    EXPECT_TRUE(report.Find("resume.calibration_reused")->AsBool());
    auto direct = create(make(), "y.qinfer");
    ASSERT_TRUE(direct.ok() && Finish(direct->get()).ok());
    const observe::Report other = (*direct)->TakeReport();
    EXPECT_FALSE(other.Find("resume.calibration_reused")->AsBool());
    EXPECT_TRUE(ReadText(folder.File("x.qinfer")) == ReadText(folder.File("y.qinfer")));
    // The handle has the statistics, as if it had been run on its own.
    EXPECT_FALSE(resumed_calibration->data().stats().empty());
    EXPECT_FALSE(resumed_calibration->data().has_waiting());
    std::filesystem::remove(folder.File("x.qinfer"));
    std::filesystem::remove(folder.File("y.qinfer"));
  }
}

TEST(Quantize, CancelLeavesNothingUnlessResumeWasAsked) {
  Host host;
  auto checkpoint = host.Open(TinyPath());
  for (bool resume : {false, true}) {
    TemporaryFolder folder;
    QuantizeOptions options = Options("int4", folder.File("x.qinfer"), nullptr);
    options.resume = resume;
    auto work = QuantizeWork::Create(checkpoint, std::move(options), host.context);
    ASSERT_TRUE(work.ok()) << work.status();
    std::atomic<bool> cancel{false};
    Deadline smallest;
    smallest.until_ns = 0;
    smallest.cancel = &cancel;
    for (int i = 0; i < 20; ++i) ASSERT_TRUE((*work)->Step(smallest).ok());
    cancel = true;
    const auto cancelled = (*work)->Step(smallest);
    ASSERT_FALSE(cancelled.ok());
    EXPECT_TRUE(absl::IsCancelled(cancelled.status()));
    EXPECT_EQ(folder.entries(), resume ? 1u : 0u);
    work->reset();
    EXPECT_EQ(folder.entries(), resume ? 1u : 0u);
  }
}

// A small file size limit stands for a full disk; it also sends SIGXFSZ, which must not end the
// host.
TEST(Quantize, AFullDiskIsAStatusAndLeavesNothing) {
  Host host;
  auto checkpoint = host.Open(TinyPath());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  // The first cannot even write its journal, the second some of the model.
  for (const rlim_t bytes : {rlim_t{4}, rlim_t{200 << 10}}) {
    TemporaryFolder folder;
    const rlimit small{bytes, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const auto report =
        Quantize(&host, checkpoint, Options("int4", folder.File("x.qinfer"), nullptr));
    setrlimit(RLIMIT_FSIZE, &before);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), absl::StatusCode::kUnavailable) << report.status();
    const std::string message(report.status().message());
    EXPECT_NE(message.find(folder.File("x.qinfer")), std::string::npos) << message;
    EXPECT_NE(message.find("ulimit -f"), std::string::npos) << message;
    EXPECT_EQ(folder.entries(), 0u);
  }
}

TEST(Quantize, RefusesToResumeSomethingElse) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  const std::string path = folder.File("x.qinfer");
  QuantizeOptions first = Options("int4", path, nullptr);
  first.resume = true;
  {
    auto work = QuantizeWork::Create(checkpoint, std::move(first), host.context);
    ASSERT_TRUE(work.ok());
    Deadline smallest;
    smallest.until_ns = 0;
    ASSERT_TRUE((*work)->Step(smallest).ok());
  }
  QuantizeOptions other = Options("int8", path, nullptr);
  other.resume = true;
  const auto refused = QuantizeWork::Create(checkpoint, std::move(other), host.context);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.status().message()).find("another quantization"),
            std::string::npos);
  // Without resume it starts anew.
  EXPECT_TRUE(Quantize(&host, checkpoint, Options("int8", path, nullptr)).ok());
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Quantize, OverridesHeadAndEmbeddingAreObeyed) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  QuantizeOptions options = Options("int4", folder.File("x.qinfer"), nullptr);
  options.recipe.embedding = "int8";
  options.recipe.overrides = {{"*down_proj*", "int8"}, {"*layers.0.*down_proj*", "int6"}};
  auto report = Quantize(&host, checkpoint, std::move(options));
  ASSERT_TRUE(report.ok()) << report.status();
  const observe::Report* tensors = report->Find("tensors");
  for (size_t i = 0; i < tensors->size(); ++i) {
    const std::string name = tensors->at(i).Find("name")->AsString();
    const std::string format = tensors->at(i).Find("format")->AsString();
    const std::string role = tensors->at(i).Find("role")->AsString();
    if (role == "down") {
      EXPECT_EQ(format.substr(0, 4), name.find("layers.0.") != std::string::npos ? "int6" : "int8");
    } else if (role == "embedding") {
      EXPECT_EQ(format, "int8-g32-f16");
    } else if (role == "small") {
      EXPECT_EQ(format, "f16") << name;
    } else {
      EXPECT_EQ(format.substr(0, 4), role == "head" ? "int4" : "int4") << name;
    }
  }
}

TEST(Quantize, MistakesInARecipeAreExplained) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  const auto message = [&](QuantizeOptions options) {
    const auto work = QuantizeWork::Create(checkpoint, std::move(options), host.context);
    EXPECT_FALSE(work.ok());
    return work.ok() ? std::string() : std::string(work.status().message());
  };
  QuantizeOptions pattern = Options("int4", folder.File("x"), nullptr);
  pattern.recipe.overrides = {{"*donw_proj*", "int8"}};
  EXPECT_NE(message(std::move(pattern)).find("down_proj"), std::string::npos);
  QuantizeOptions norm = Options("int4", folder.File("x"), nullptr);
  norm.recipe.overrides = {{"*input_layernorm*", "int8"}};
  EXPECT_NE(message(std::move(norm)).find("never quantized"), std::string::npos);
  QuantizeOptions format = Options("int4", folder.File("x"), nullptr);
  format.recipe.overrides = {{"*", "int5"}};
  EXPECT_NE(message(std::move(format)).find("int5"), std::string::npos);
  QuantizeOptions method = Options("int4", folder.File("x"), nullptr);
  method.recipe.method = "magic";
  EXPECT_NE(message(std::move(method)).find("rtn"), std::string::npos);
  QuantizeOptions embedding = Options("int4", folder.File("x"), nullptr);
  embedding.recipe.embedding = "int4";
  EXPECT_NE(message(std::move(embedding)).find("embedding"), std::string::npos);
  QuantizeOptions nowhere = Options("int4", folder.File("no/such/folder/x"), nullptr);
  EXPECT_NE(message(std::move(nowhere)).find("no/such/folder"), std::string::npos);
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(Convert, IsExactAndOpens) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  auto sink = io::CreateFile(folder.File("c.qinfer"));
  ASSERT_TRUE(sink.ok());
  auto work = ConvertWork::Create(checkpoint, std::move(*sink), host.context);
  ASSERT_TRUE(work.ok()) << work.status();
  ASSERT_TRUE(Finish(work->get()).ok());
  const observe::Report report = (*work)->TakeReport();
  const observe::Report* tensors = report.Find("tensors");
  ASSERT_NE(tensors, nullptr);
  EXPECT_EQ(tensors->size(), checkpoint->tensors().size());
  for (size_t i = 0; i < tensors->size(); ++i) {
    EXPECT_EQ(tensors->at(i).Find("import")->AsString(), "exact");
  }
  auto opened = host.Open(folder.File("c.qinfer"));
  ASSERT_NE(opened, nullptr);
  ASSERT_NE(opened->qinfer(), nullptr);
  EXPECT_TRUE(opened->qinfer()->VerifyAll().ok());
  // Converting what was converted gives the same tensors again.
  auto again_sink = io::CreateFile(folder.File("d.qinfer"));
  auto again = ConvertWork::Create(opened, std::move(*again_sink), host.context);
  ASSERT_TRUE(again.ok()) << again.status();
  const Status finished = Finish(again->get());
  ASSERT_TRUE(finished.ok()) << finished;
  auto reopened = host.Open(folder.File("d.qinfer"));
  ASSERT_NE(reopened, nullptr);
  const auto a = opened->qinfer()->tensors(), b = reopened->qinfer()->tensors();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].checksum, b[i].checksum) << a[i].name;
  }
}

}  // namespace
}  // namespace qinfer::quant
