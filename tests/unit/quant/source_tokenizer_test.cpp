// Who needs the tokenizer of a source shares one: it is compiled once however much of a
// quantization wants it, and not at all where a loaded model has it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "quant/calibration_data.h"
#include "quant/source_tokenizer.h"
#include "test_util.h"

namespace qinfer::quant {
namespace {

// Counts blocks of one size: that of the compiled tokenizer.
struct Counter {
  size_t watched = 0;
  int made = 0;
  static void* Alloc(void* user, size_t size, size_t align) {
    auto* self = static_cast<Counter*>(user);
    if (size == self->watched) ++self->made;
    return std::aligned_alloc(align, (size + align - 1) / align * align);
  }
  static void Free(void*, void* block, size_t, size_t) { std::free(block); }
};

struct CountingHost {
  CountingHost() : memory({&counter, Counter::Alloc, Counter::Free}) {
    executor = CreateThreadPool(1).value();
    context = {&memory, executor.get(), kernels::SelectTable(kernels::Isa::kAuto)};
    format::OpenOptions options;
    options.memory = &memory;
    checkpoint = *format::OpenCheckpoint(TinyPath(), options);
    const auto measured = SourceTokenizer::Make(*checkpoint, &memory);
    EXPECT_TRUE(measured.ok()) << measured.status();
    counter.watched = (*measured)->get()->compiled().size();
    EXPECT_GT(counter.watched, 50000u);
    EXPECT_GE((*measured)->bytes(), counter.watched);
    EXPECT_GT((*measured)->peak_bytes(), (*measured)->bytes());
  }
  ~CountingHost() {
    checkpoint.reset();
    EXPECT_EQ(memory.used_bytes(), 0u);
  }
  Counter counter;
  Memory memory;
  std::unique_ptr<Executor> executor;
  exec::Context context;
  std::shared_ptr<format::Checkpoint> checkpoint;
};

class SharedTokenizer : public ::testing::Test {
 protected:
  QuantizeOptions Options() const {
    QuantizeOptions options;
    options.output_path = folder_.File("x.qinfer");
    options.calibration_options.samples = 2;
    options.calibration_options.sample_tokens = 16;
    options.evaluate = false;
    options.recipe.search_scales = kSearchSampleModel;
    return options;
  }
  // How often a quantization compiles the tokenizer.
  int Made(QuantizeOptions options) {
    host_.counter.made = 0;
    auto work = QuantizeWork::Create(host_.checkpoint, std::move(options), host_.context);
    EXPECT_TRUE(work.ok()) << work.status();
    EXPECT_LE(host_.counter.made, 1);
    EXPECT_TRUE(Finish(work->get()).ok());
    return host_.counter.made;
  }
  CountingHost host_;
  TemporaryFolder folder_;
};

TEST_F(SharedTokenizer, IsMadeOnce) {
  EXPECT_EQ(Made(Options()), 1);  // the plan, the model's own samples, the documents
  QuantizeOptions none = Options();
  none.calibrate = false;
  EXPECT_EQ(Made(std::move(none)), 1);
}

TEST_F(SharedTokenizer, IsThatOfTheCalibration) {
  QuantizeOptions options = Options();
  options.calibration =
      Calibration::Create(host_.checkpoint, options.calibration_options, host_.context).value();
  host_.counter.made = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(options.calibration->AddText("In the beginning God created the heaven").ok());
  }
  EXPECT_EQ(host_.counter.made, 1);
  const auto plan = PlanQuantizeMemory(*host_.checkpoint, options, host_.context);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(host_.counter.made, 1);
  const std::shared_ptr<Calibration> calibration = options.calibration;
  EXPECT_EQ(Made(std::move(options)), 0);
  // It went with the quantization; further texts make another.
  host_.counter.made = 0;
  EXPECT_TRUE(calibration->AddText("And God said, Let there be light").ok());
  EXPECT_EQ(host_.counter.made, 1);
  // Where a run does not finish, nothing stays with the calibration either.
  calibration->data().ReleaseTokenizer();
  const uint64_t before = host_.memory.used_bytes();
  QuantizeOptions again = Options();
  again.calibration = calibration;
  auto work = QuantizeWork::Create(host_.checkpoint, std::move(again), host_.context);
  ASSERT_TRUE(work.ok()) << work.status();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE((*work)->Step({.until_ns = 0}).ok());
  work->reset();
  EXPECT_EQ(host_.memory.used_bytes(), before);
}

TEST_F(SharedTokenizer, IsThatOfALoadedModel) {
  const auto loaded = SourceTokenizer::Make(*host_.checkpoint, &host_.memory);
  ASSERT_TRUE(loaded.ok());
  QuantizeOptions options = Options();
  options.tokenizer = Share(*loaded);
  EXPECT_EQ(Made(std::move(options)), 0);
  host_.counter.made = 0;
  const auto calibration =
      Calibration::Create(host_.checkpoint, CalibrationOptions(), host_.context, Share(*loaded))
          .value();
  EXPECT_TRUE(calibration->AddText("In the beginning").ok());
  auto sink = io::CreateFile(folder_.File("y.qinfer"));
  ASSERT_TRUE(sink.ok());
  auto work =
      ConvertWork::Create(host_.checkpoint, *std::move(sink), host_.context, Share(*loaded));
  ASSERT_TRUE(work.ok());
  EXPECT_TRUE(Finish(work->get()).ok());
  EXPECT_EQ(host_.counter.made, 0);
  // The file has it all the same.
  format::OpenOptions open;
  open.memory = &host_.memory;
  const auto written = format::OpenCheckpoint(folder_.File("y.qinfer"), open);
  ASSERT_TRUE(written.ok());
  const format::QinferTensor* compiled = (*written)->qinfer()->Find(format::kSideTokenizerCompiled);
  ASSERT_NE(compiled, nullptr);
  EXPECT_EQ((*written)->qinfer()->Map(*compiled), (*loaded)->get()->compiled());
}

TEST_F(SharedTokenizer, ConversionMakesItOnceInPieces) {
  host_.counter.made = 0;
  auto sink = io::CreateFile(folder_.File("z.qinfer"));
  ASSERT_TRUE(sink.ok());
  auto work = ConvertWork::Create(host_.checkpoint, *std::move(sink), host_.context);
  ASSERT_TRUE(work.ok());
  EXPECT_EQ(host_.counter.made, 0);
  EXPECT_TRUE(Finish(work->get()).ok());
  EXPECT_EQ(host_.counter.made, 1);
}

// What waits for the disk is a step of its own, with a name, whatever the budget.
TEST_F(SharedTokenizer, WaitingForTheDiskIsAStepOfItsOwn) {
  QuantizeOptions options = Options();
  auto work = QuantizeWork::Create(host_.checkpoint, std::move(options), host_.context);
  ASSERT_TRUE(work.ok()) << work.status();
  int waits = 0;
  for (bool done = false; !done;) {
    const bool waiting = (*work)->waits_next();
    EXPECT_EQ(std::string((*work)->progress().phase.load()) == "sync", waiting);
    EXPECT_EQ(std::filesystem::exists(folder_.File("x.qinfer")), false);
    const StatusOr<bool> stepped = (*work)->Step(Deadline{});
    ASSERT_TRUE(stepped.ok());
    done = *stepped;
    waits += waiting ? 1 : 0;
    EXPECT_TRUE(waiting || !done);
  }
  EXPECT_GE(waits, 6 + 2);  // the calibration, each layer, the file
  EXPECT_TRUE(std::filesystem::exists(folder_.File("x.qinfer")));
}

}  // namespace
}  // namespace qinfer::quant
