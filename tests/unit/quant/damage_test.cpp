// What OUT.partial/ holds when a quantization is resumed: damage of any kind means computing again
// and never another file, and what is another's stays as it is.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "format/qinfer_file.h"
#include "quant/partial_store.h"
#include "test_util.h"

namespace qinfer::quant {
namespace {

namespace fs = std::filesystem;

void WriteText(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class Damaged : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kLayers = 3;  // finished when the run is interrupted

  // Half a quantization, and a whole one.
  void SetUp() override {
    checkpoint_ = host_.Open(TinyPath());
    if (GetParam()) calibration_ = Calibrated(&host_, checkpoint_, 8, 32);
    straight_ = folder_.File("straight.qinfer");
    ASSERT_TRUE(Run(straight_).ok());
    expected_ = ReadText(straight_);
    auto work = QuantizeWork::Create(checkpoint_, Options(folder_.File("kept")), host_.context);
    ASSERT_TRUE(work.ok()) << work.status();
    Deadline smallest;
    smallest.until_ns = 0;
    // The embedding and some layers, and a little of the next.
    uintmax_t size = 0;
    for (int grown = 0, more = 3; more > 0;) {
      auto done = (*work)->Step(smallest);
      ASSERT_TRUE(done.ok() && !*done) << done.status();
      const uintmax_t now = fs::file_size(folder_.File("kept.partial/journal"));
      if (now > size && size != 0) ++grown;
      size = now;
      if (grown == 1 + kLayers) --more;
    }
  }

  QuantizeOptions Options(const std::string& output) {
    QuantizeOptions options;
    options.calibration = calibration_;
    options.calibrate = options.evaluate = calibration_ != nullptr;
    options.output_path = output;
    options.resume = true;
    return options;
  }

  StatusOr<observe::Report> Run(const std::string& output) {
    QINFER_ASSIGN_OR_RETURN(auto work,
                            QuantizeWork::Create(checkpoint_, Options(output), host_.context));
    QINFER_RETURN_IF_ERROR(Finish(work.get()));
    return work->TakeReport();
  }

  // `damage` gets the path of the interrupted run's folder.
  void Expect(const std::string& what, int reused, const std::function<void(std::string)>& damage) {
    SCOPED_TRACE(what);
    const std::string output = folder_.File("x.qinfer"), partial = output + ".partial";
    fs::copy(folder_.File("kept.partial"), partial, fs::copy_options::recursive);
    damage(partial);
    const auto report = Run(output);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->Find("resume.layers_reused")->AsNumber(), reused);
    EXPECT_TRUE(ReadText(output) == expected_);
    EXPECT_FALSE(fs::exists(partial));
    fs::remove(output);
  }
  void ExpectChanged(const std::string& what, const std::string& file, int reused,
                     const std::function<void(std::string*)>& change) {
    Expect(StrCat(what, " of ", file), reused, [&](const std::string& partial) {
      std::string bytes = ReadText(partial + "/" + file);
      ASSERT_FALSE(bytes.empty());
      change(&bytes);
      WriteText(partial + "/" + file, bytes);
    });
  }
  // Where a tensor begins in the output.
  size_t At(const std::string& name) {
    const auto opened = host_.Open(straight_);
    const format::QinferTensor* tensor = opened->qinfer()->Find(name);
    EXPECT_NE(tensor, nullptr) << name;
    return tensor == nullptr ? 0 : tensor->offset;
  }

  Host host_;
  TemporaryFolder folder_;
  std::shared_ptr<format::Checkpoint> checkpoint_;
  std::shared_ptr<Calibration> calibration_;
  std::string straight_, expected_;
};

TEST_P(Damaged, DataAreComputedAgain) {
  const size_t embedding = At("model.embed_tokens.weight"),
               first = At("model.layers.0.mlp.down_proj.weight"),
               last = At("model.layers.2.self_attn.k_proj.weight");
  // Hidden states of the last two groups are kept; where none are compared, every group will do.
  const int before_first = 0, before_last = kLayers - 1;
  Expect("nothing", kLayers, [](const std::string&) {});
  ExpectChanged("a flip in the embedding", "model.qinfer", 0,
                [&](std::string* bytes) { bytes->at(embedding + 77) ^= 1; });
  ExpectChanged("a flip in the first layer", "model.qinfer", before_first,
                [&](std::string* bytes) { bytes->at(first + 5) ^= 64; });
  ExpectChanged("a flip in the last layer", "model.qinfer", before_last,
                [&](std::string* bytes) { bytes->at(last) ^= 1; });
  ExpectChanged("zeros in the last layer", "model.qinfer", before_last,
                [&](std::string* bytes) { bytes->replace(last, 64, 64, '\0'); });
  ExpectChanged("a flip in the header", "model.qinfer", kLayers,
                [&](std::string* bytes) { bytes->at(20) ^= 1; });
  ExpectChanged("a cut in the last layer", "model.qinfer", before_last,
                [&](std::string* bytes) { bytes->resize(last + 10); });
  ExpectChanged("a cut at the beginning", "model.qinfer", 0,
                [&](std::string* bytes) { bytes->clear(); });
  ExpectChanged("bytes at the end", "model.qinfer", kLayers,
                [&](std::string* bytes) { bytes->resize(expected_.size() + 5000, 'x'); });
  Expect("no data", 0,
         [](const std::string& partial) { ASSERT_TRUE(fs::remove(partial + "/model.qinfer")); });
}
TEST_P(Damaged, JournalsAndStatesMeanComputingAgain) {
  ExpectChanged("a flip in the last record", "journal", kLayers - 1,
                [&](std::string* bytes) { bytes->at(bytes->size() - 9) ^= 1; });
  ExpectChanged("a cut in the last record", "journal", kLayers - 1,
                [&](std::string* bytes) { bytes->pop_back(); });
  ExpectChanged("bytes at the end", "journal", kLayers,
                [&](std::string* bytes) { bytes->append(1000, '\0'); });
  ExpectChanged("a flip in the first record", "journal", 0,
                [&](std::string* bytes) { bytes->at(50) ^= 1; });
  if (!GetParam()) return;
  // Group 3 is the third layer.
  ExpectChanged("a flip", "state-hidden-1", kLayers - 1,
                [&](std::string* bytes) { bytes->at(500) ^= 1; });
  ExpectChanged("a cut", "state-hidden-1", kLayers - 1,
                [&](std::string* bytes) { bytes->pop_back(); });
  ExpectChanged("an end", "state-hidden-1", kLayers - 1,
                [&](std::string* bytes) { *bytes += 'x'; });
  Expect("no states", 0, [](const std::string& partial) {
    ASSERT_TRUE(fs::remove(partial + "/state-hidden-0"));
    ASSERT_TRUE(fs::remove(partial + "/state-hidden-1"));
  });
}
INSTANTIATE_TEST_SUITE_P(All, Damaged, ::testing::Bool());

// Names alone do not make a folder ours, nor is anything written under a second name of a file.
TEST(PartialStore, TouchesOnlyWhatARunHasBegun) {
  TemporaryFolder folder;
  const std::string output = folder.File("x"), partial = output + ".partial";
  const auto expect = [&](const Status& status, const char* why) {
    EXPECT_NE(status.message().find(why), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("choose another output"), absl::string_view::npos) << status;
  };
  const auto refused = [&](absl::StatusCode code, const char* why) {
    for (const bool resume : {false, true}) {
      const auto store = PartialStore::Open(output, 7, resume);
      EXPECT_EQ(store.status().code(), code) << why << ": " << store.status();
      expect(store.status(), why);
    }
  };
  for (const char* name : {"model.qinfer", "state-of-mind"}) {
    fs::create_directory(partial);
    WriteText(partial + "/" + name, "dear");
    refused(absl::StatusCode::kInvalidArgument, name);
    EXPECT_EQ(ReadText(partial + "/" + name), "dear");
    EXPECT_FALSE(fs::exists(partial + "/journal"));
    for (const char* journal : {"Dear diary, today I had a model", "", "QINF"}) {
      WriteText(partial + "/journal", journal);
      refused(absl::StatusCode::kDataLoss, "journal");
      EXPECT_EQ(ReadText(partial + "/" + name), "dear");
      EXPECT_EQ(ReadText(partial + "/journal"), journal);
    }
    fs::remove_all(partial);
  }
  fs::create_directory(partial);
  WriteText(partial + "/journal", "Dear diary");
  refused(absl::StatusCode::kDataLoss, "journal");
  EXPECT_EQ(ReadText(partial + "/journal"), "Dear diary");
  // One that was cut at its beginning, with nothing beside it, is as good as none.
  WriteText(partial + "/journal", "QINF");
  ASSERT_TRUE(PartialStore::Open(output, 7, true).ok());
  EXPECT_FALSE(fs::exists(partial));

  auto store = PartialStore::Open(output, 7, false);
  ASSERT_TRUE(store.ok()) << store.status();
  (*store)->set_keep(true);
  store->reset();
  ASSERT_TRUE(fs::exists(partial + "/journal"));
  for (const char* name : {"model.qinfer", "journal"}) {
    const std::string other = folder.File("other");
    fs::create_hard_link(partial + "/" + name, other);
    const std::string bytes = ReadText(other);
    refused(absl::StatusCode::kInvalidArgument, "hard link");
    EXPECT_EQ(ReadText(other), bytes);
    fs::remove(other);
  }
  EXPECT_TRUE(PartialStore::Open(output, 7, false).ok());
  EXPECT_FALSE(fs::exists(partial));
}

}  // namespace
}  // namespace qinfer::quant
