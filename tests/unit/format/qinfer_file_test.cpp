// The .qinfer container: what is written is read back in place, headers that lie are refused, and a
// writer that fails leaves nothing.
#include "format/qinfer_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "bytes.h"
#include "format/checkpoint.h"
#include "format/json_stream.h"
#include "format/path_info.h"
#include "format/safetensors.h"
#include "string_sink.h"

namespace qinfer::format {
namespace {

using testing::Span;
using testing::StringSink;

const std::string kWeight(100, 'w');  // padded to 128
const std::string kNorm(64, 'n');     // needs no padding
const std::string kTokenizer = "{\"added_tokens\":[]}";

// Two weights and a side file; `reversed`: the data is written in another order.
Status WriteSmall(std::unique_ptr<io::Sink> sink, bool reversed = false) {
  QINFER_ASSIGN_OR_RETURN(auto writer, QinferWriter::Create(std::move(sink)));
  QINFER_RETURN_IF_ERROR(writer->SetMetadata(kMetaConfig, "{\"model_type\":\"x\xc3\xa9\"}"));
  QinferWriter::Declaration weight;
  weight.name = "model.w";
  weight.format = "int4 g32 f16";
  weight.shape = {5, 33};
  weight.bytes = kWeight.size();
  weight.source_name = "blk.0.w";
  weight.source_dtype = "Q4_0";
  weight.import = "exact";
  QINFER_ASSIGN_OR_RETURN(const uint32_t w, writer->DeclareTensor(weight));
  QinferWriter::Declaration norm;
  norm.name = "model.norm";
  norm.format = "f32";
  norm.shape = {16};
  norm.bytes = kNorm.size();
  QINFER_ASSIGN_OR_RETURN(const uint32_t n, writer->DeclareTensor(norm));
  QINFER_ASSIGN_OR_RETURN(const uint32_t t,
                          writer->DeclareSideFile(kSideTokenizerJson, kTokenizer.size()));
  QINFER_RETURN_IF_ERROR(writer->Begin(200));
  if (reversed) QINFER_RETURN_IF_ERROR(writer->Write(t, 0, Span(kTokenizer)));
  QINFER_RETURN_IF_ERROR(writer->Write(w, 0, Span(kWeight.substr(0, 30))));
  QINFER_RETURN_IF_ERROR(writer->Write(n, 0, Span(kNorm)));
  QINFER_RETURN_IF_ERROR(writer->Write(w, 30, Span(kWeight.substr(30))));
  if (!reversed) QINFER_RETURN_IF_ERROR(writer->Write(t, 0, Span(kTokenizer)));
  QINFER_RETURN_IF_ERROR(writer->SetMetadata(kMetaReport, "{\"kl\":0.01}"));
  return writer->Finish();
}

std::string SmallFile() {
  std::string bytes;
  EXPECT_TRUE(WriteSmall(std::make_unique<StringSink>(&bytes)).ok());
  return bytes;
}

std::string HeaderOf(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  return file.substr(8, length);
}

Status OpenStatus(const std::string& bytes) {
  Memory memory;
  return QinferFile::Open(testing::Borrow(bytes), &memory).status();
}

// The small file with one text of its header replaced by another of any length.
std::string Edited(const std::string& from, const std::string& to) {
  const std::string file = SmallFile();
  std::string header = HeaderOf(file);
  const size_t data = 8 + header.size();
  const size_t at = header.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  header.replace(at, from.size(), to);
  header.erase(header.find_last_not_of(' ') + 1);
  header.resize((header.size() + 8 + 63) / 64 * 64 - 8, ' ');
  return testing::SafetensorsBytes(header, std::string_view(file).substr(data));
}

void ExpectError(const std::string& bytes, absl::StatusCode code, const std::string& part) {
  const Status status = OpenStatus(bytes);
  EXPECT_EQ(status.code(), code) << part << ": " << status;
  EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
}

TEST(QinferFile, ReadsWhatWasWritten) {
  const testing::TempFolder folder;
  const std::string path = folder.Write("m.qinfer", SmallFile());
  for (const io::Access access : {io::Access::kMap, io::Access::kCopy}) {
    Memory memory;
    const auto source = io::OpenFile(path, access, &memory);
    ASSERT_TRUE(source.ok());
    const auto opened = QinferFile::Open(*source, &memory);
    ASSERT_TRUE(opened.ok()) << opened.status();
    const QinferFile& file = **opened;
    EXPECT_EQ(file.features(), 1u);
    EXPECT_EQ(file.Metadata(kMetaConfig), "{\"model_type\":\"x\xc3\xa9\"}");
    EXPECT_EQ(file.Metadata(kMetaReport), "{\"kl\":0.01}");
    EXPECT_EQ(file.Metadata("absent"), "");
    ASSERT_EQ(file.tensors().size(), 2u);
    ASSERT_EQ(file.side_tensors().size(), 1u);
    EXPECT_EQ(file.tensors()[0].name, "model.norm");
    const QinferTensor* w = file.Find("model.w");
    ASSERT_NE(w, nullptr);
    EXPECT_EQ(w->format, "int4 g32 f16");
    EXPECT_EQ(w->rank, 2u);
    EXPECT_EQ(w->shape[0], 5u);
    EXPECT_EQ(w->shape[1], 33u);
    EXPECT_EQ(w->bytes, 100u);
    EXPECT_EQ(w->stored_bytes, 128u);
    EXPECT_EQ(w->offset % 64, 0u);
    EXPECT_EQ(w->source_name, "blk.0.w");
    EXPECT_EQ(w->source_dtype, "Q4_0");
    EXPECT_EQ(w->import, "exact");
    EXPECT_EQ(file.Find("model.norm")->import, "");
    EXPECT_EQ(file.Find("absent"), nullptr);
    EXPECT_EQ(file.Find("qinfer.absent"), nullptr);

    const absl::Span<const uint8_t> mapped = file.Map(*w);
    if (access == io::Access::kMap) {
      EXPECT_EQ(mapped, Span(kWeight));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped.data()) % 64, 0u);
    } else {
      EXPECT_TRUE(mapped.empty());
      EXPECT_EQ(memory.mapped_bytes(), 0u);
    }
    uint8_t out[5];
    ASSERT_TRUE(file.Read(*w, 95, out).ok());
    EXPECT_EQ(out[4], 'w');
    EXPECT_FALSE(file.Read(*w, 96, out).ok());
    const auto tokenizer = file.Load(*file.Find(kSideTokenizerJson), &memory);
    ASSERT_TRUE(tokenizer.ok());
    EXPECT_EQ(tokenizer->text(), kTokenizer);
    EXPECT_TRUE(file.VerifyAll().ok());
  }
}

TEST(QinferFile, IsSafetensorsAndAligned) {
  const std::string bytes = SmallFile();
  Memory memory;
  SafetensorsTables tables(&memory);
  const auto layout = ParseSafetensors(*testing::Borrow(bytes), 0, &memory, &tables);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->data_begin % 64, 0u);
  EXPECT_EQ(bytes.size(), layout->data_begin + 128 + 64 + 64);
  EXPECT_EQ(HeaderOf(bytes).substr(0, kQinferHeaderStart.size()), kQinferHeaderStart);
  // Padding is zero, and every byte of the file was written.
  EXPECT_EQ(bytes.substr(layout->data_begin + 100, 28), std::string(28, '\0'));
  EXPECT_EQ(bytes.find('\xee'), std::string::npos);
}

TEST(QinferFile, OrderOfWritesDoesNotShow) {
  std::string other;
  ASSERT_TRUE(WriteSmall(std::make_unique<StringSink>(&other), /*reversed=*/true).ok());
  EXPECT_EQ(other, SmallFile());
}

TEST(QinferFile, ChangedBytesAreFound) {
  std::string bytes = SmallFile();
  for (const size_t from_end : {size_t{1}, size_t{64 + 1}, size_t{128 + 28}, size_t{256}}) {
    std::string changed = bytes;
    changed[bytes.size() - from_end] = static_cast<char>(changed[bytes.size() - from_end] ^ 0x10);
    Memory memory;
    const auto file = QinferFile::Open(testing::Borrow(changed), &memory);
    ASSERT_TRUE(file.ok());
    const Status status = (*file)->VerifyAll();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << from_end;
    EXPECT_NE(status.message().find("checksum of tensor"), absl::string_view::npos) << status;
    OpenOptions options;
    options.memory = &memory;
    EXPECT_TRUE(OpenCheckpoint(testing::Borrow(changed), {}, options).ok());
  }
}

TEST(QinferFile, HeadersThatLie) {
  const auto format_error = absl::StatusCode::kDataLoss;
  const auto unsupported = absl::StatusCode::kUnimplemented;
  EXPECT_TRUE(OpenStatus(Edited("0:panel16", "0:panel16")).ok());
  ExpectError(Edited("version\":\"1", "version\":\"2"), unsupported, "version 2");
  ExpectError(Edited("version\":\"1", "version\":\"x"), format_error, "qinfer.version");
  ExpectError(Edited("0:panel16", "0:panel16,7:quux"), unsupported, "quux (bit 7)");
  ExpectError(Edited("0:panel16", "panel16"), format_error, "BIT:NAME");
  ExpectError(Edited("0:panel16", "99999999999:a"), format_error, "BIT:NAME");
  ExpectError(Edited("\"model.w\":{", "\"model.v\":{"), format_error, "model.v");
  ExpectError(Edited("\"tensor:model.w\"", "\"tensor:model.x\""), format_error, "model.w");
  ExpectError(Edited("\"tensor:model.w\"", "\"zzz\""), format_error, "model.w");
  ExpectError(Edited("\"qinfer.report\"", "\"tensor:zzz\""), format_error, "zzz");
  ExpectError(Edited("\\\"bytes\\\":100", "\\\"bytes\\\":129"), format_error, "claims 129");
  ExpectError(Edited("\\\"bytes\\\":100", "\\\"bytes\\\":64"), format_error, "claims 64");
  ExpectError(Edited("\\\"bytes\\\":100", "\\\"bytes\\\":-1"), format_error, "negative");
  ExpectError(Edited("\\\"bytes\\\":100", "\\\"b\\\":{\\\"x\\\":[1,null]}"), format_error, "lacks");
  ExpectError(Edited("[5,33]", "[0,33]"), format_error, "dimension of 0");
  ExpectError(Edited("[5,33]", "[5,33,1,1,1]"), format_error, "4 dimensions");
  ExpectError(Edited("[5,33]", "[4294967296,4294967296]"), format_error, "overflows");
  ExpectError(Edited("[5,33]", "[[5]]"), format_error, "unexpected");
  ExpectError(Edited("int4 g32 f16", ""), format_error, "format");
  ExpectError(Edited("int4 g32 f16", std::string(65, 'x')), format_error, "format");
  ExpectError(Edited("\\\"import\\\":", "\\\"dtype\\\":"), format_error, "twice");
  ExpectError(Edited("\"U8\",\"shape\":[128]", "\"F16\",\"shape\":[64]"), format_error,
              "stored as F16");
  ExpectError(Edited("\"shape\":[128]", "\"shape\":[64,2]"), format_error, "rank 2");
  // Unknown members of a tensor's entry are allowed, for later additions.
  EXPECT_TRUE(
      OpenStatus(Edited("\\\"import\\\":", "\\\"later\\\":[{\\\"a\\\":true}],\\\"import\\\":"))
          .ok());
  // Data that begins off a multiple of 64.
  const std::string file = SmallFile();
  const std::string header = HeaderOf(file);
  ExpectError(testing::SafetensorsBytes(StrCat(header, " "),
                                        std::string_view(file).substr(8 + header.size())),
              format_error, "multiple of 64");
  // A checksum that is no number.
  const size_t at = header.find("xxh3\\\":\\\"") + 9;
  ExpectError(Edited(header.substr(at, 16), "123"), format_error, "16 hexadecimal");
}

TEST(QinferFile, CutAndFlipped) {
  const std::string file = SmallFile();
  testing::TruncateAndFlip(file, 8 + HeaderOf(file).size(), [](const std::string& bytes) {
    Memory memory;
    const auto opened = QinferFile::Open(testing::Borrow(bytes), &memory);
    if (opened.ok()) (void)(*opened)->VerifyAll();
    return opened.ok();
  });
}

TEST(QinferFile, OpensAsACheckpoint) {
  const testing::TempFolder folder;
  const std::string path = folder.Write("anything.bin", SmallFile());
  EXPECT_EQ(*DescribePath(path), Content::kQinfer);
  for (const io::Access access : {io::Access::kMap, io::Access::kCopy}) {
    Memory memory;
    OpenOptions options;
    options.memory = &memory;
    options.access = access;
    const auto opened = OpenCheckpoint(path, options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->container(), Container::kQinfer);
    ASSERT_NE((*opened)->qinfer(), nullptr);
    EXPECT_EQ((*opened)->side_files().config_json.text(), "{\"model_type\":\"x\xc3\xa9\"}");
    ASSERT_EQ((*opened)->tensors().size(), 2u);
    const TensorInfo* w = (*opened)->Find("model.w");
    EXPECT_EQ(w->dtype_name, "int4 g32 f16");
    EXPECT_EQ(w->bytes, 100u);
    std::vector<uint8_t> out(100);
    ASSERT_TRUE((*opened)->Read(*w, 0, absl::MakeSpan(out)).ok());
    EXPECT_EQ(absl::MakeConstSpan(out), Span(kWeight));
    EXPECT_EQ(memory.mapped_bytes() != 0, access == io::Access::kMap);
    // Cut under our hands: an error that names the file, where the data is read and not mapped.
    if (access == io::Access::kCopy) {
      std::filesystem::resize_file(path, w->offset + 10);
      const Status status = (*opened)->Read(*w, 0, absl::MakeSpan(out));
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
    }
  }
}

TEST(QinferWriter, MisuseIsRefused) {
  std::string bytes;
  auto made = QinferWriter::Create(std::make_unique<StringSink>(&bytes));
  ASSERT_TRUE(made.ok());
  QinferWriter& writer = **made;
  const auto misuse = [](const Status& status) {
    return status.code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(misuse(writer.SetMetadata("qinfer.version", "9")));
  EXPECT_TRUE(misuse(writer.SetMetadata("tensor:x", "9")));
  EXPECT_TRUE(misuse(writer.SetMetadata("x", "\xff")));
  EXPECT_TRUE(misuse(writer.SetMetadata("x", std::string(5 << 20, 'x'))));
  EXPECT_TRUE(misuse(writer.RequireFeature(9)));
  EXPECT_TRUE(misuse(writer.DeclareSideFile("tokenizer", 5).status()));
  QinferWriter::Declaration d;
  d.name = "w";
  d.format = "f32";
  d.shape = {4};
  d.bytes = 16;
  const auto with = [&](const std::function<void(QinferWriter::Declaration*)>& change) {
    QinferWriter::Declaration changed = d;
    change(&changed);
    return misuse(writer.DeclareTensor(changed).status());
  };
  EXPECT_TRUE(with([](auto* x) { x->name = std::string(""); }));
  EXPECT_TRUE(with([](auto* x) { x->name = std::string("qinfer.x"); }));
  EXPECT_TRUE(with([](auto* x) { x->name = std::string("\xff"); }));
  EXPECT_TRUE(with([](auto* x) { x->format = std::string(""); }));
  EXPECT_TRUE(with([](auto* x) { x->shape = {}; }));
  EXPECT_TRUE(with([](auto* x) { x->shape = {1, 1, 1, 1, 1}; }));
  EXPECT_TRUE(with([](auto* x) { x->shape = {0}; }));
  EXPECT_TRUE(with([](auto* x) { x->bytes = 0; }));
  EXPECT_TRUE(misuse(writer.Write(0, 0, Span(kNorm))));
  EXPECT_TRUE(misuse(writer.Finish()));
  ASSERT_TRUE(writer.DeclareTensor(d).ok());
  ASSERT_TRUE(writer.Begin(0).ok());
  EXPECT_TRUE(misuse(writer.Begin(0)));
  EXPECT_TRUE(misuse(writer.DeclareTensor(d).status()));
  EXPECT_TRUE(misuse(writer.Write(1, 0, Span(kNorm))));
  EXPECT_TRUE(misuse(writer.Write(0, 1, Span(kNorm.substr(0, 4)))));
  EXPECT_TRUE(misuse(writer.Write(0, 0, Span(kNorm))));
  EXPECT_TRUE(writer.Write(0, 0, Span(kNorm.substr(0, 8))).ok());
  EXPECT_TRUE(misuse(writer.Write(0, 0, Span(kNorm.substr(0, 8)))));
  EXPECT_TRUE(misuse(writer.Finish()));
  EXPECT_TRUE(writer.Write(0, 8, Span(kNorm.substr(0, 8))).ok());
  ASSERT_TRUE(writer.SetMetadata("late", std::string(1000, 'x')).ok());
  EXPECT_TRUE(misuse(writer.Finish()));  // does not fit
  ASSERT_TRUE(writer.SetMetadata("late", "").ok());
  EXPECT_EQ(writer.Finish().ok(), true);
  EXPECT_TRUE(misuse(writer.Finish()));
  EXPECT_EQ(bytes.size(), writer.file_bytes());
  EXPECT_TRUE(OpenStatus(bytes).ok());
}

TEST(QinferWriter, TwoOfOneNameAreRefusedAtBegin) {
  std::string bytes;
  auto writer = QinferWriter::Create(std::make_unique<StringSink>(&bytes));
  QinferWriter::Declaration d;
  d.name = "w";
  d.format = "f32";
  d.shape = {4};
  d.bytes = 16;
  ASSERT_TRUE((*writer)->DeclareTensor(d).ok());
  ASSERT_TRUE((*writer)->DeclareTensor(d).ok());
  EXPECT_NE((*writer)->Begin(0).message().find("twice"), absl::string_view::npos);
}

TEST(QinferWriter, EveryFailedWriteIsAStatus) {
  const size_t whole = SmallFile().size();
  for (uint64_t capacity = 0; capacity < whole; capacity += 8) {
    std::string bytes;
    EXPECT_FALSE(WriteSmall(std::make_unique<StringSink>(&bytes, capacity)).ok()) << capacity;
  }
}

TEST(QinferWriter, FullDiskLeavesNothing) {
  const testing::TempFolder folder;
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto sink = io::CreateFile(folder.path() + "/out.qinfer");
  ASSERT_TRUE(sink.ok());
  const rlimit small{256, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = WriteSmall(std::move(*sink));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Json, QuotesAndBounds) {
  EXPECT_EQ(QuoteJson("a\"b\n\xc3\xa9"), "\"a\\\"b\\n\xc3\xa9\"");
  EXPECT_EQ(QuoteJson("\xff"), "\"\xef\xbf\xbd\"");
  class Accept final : public JsonEvents {
   public:
    Status OnStartArray() override { return OkStatus(); }
    Status OnEndArray() override { return OkStatus(); }
    Status OnUint(uint64_t) override { return OkStatus(); }
    Status OnString(std::string_view) override { return OkStatus(); }
  } accept;
  const JsonLimits limits{.max_depth = 2, .max_token_bytes = 10};
  EXPECT_TRUE(ParseJson("[[1,\"12345678\"]]", "x", limits, &accept).ok());
  EXPECT_FALSE(ParseJson("[[[1]]]", "x", limits, &accept).ok());
  EXPECT_FALSE(ParseJson("[\"123456789\"]", "x", limits, &accept).ok());
  EXPECT_FALSE(ParseJson("[12345678901]", "x", limits, &accept).ok());
  EXPECT_FALSE(ParseJson("[true]", "x", limits, &accept).ok());
  EXPECT_FALSE(ParseJson("", "x", limits, &accept).ok());
}

// One tensor, and ranges as given; the feature is what makes them count.
StatusOr<float> ScaleOf(const std::string& ranges, bool feature) {
  std::string bytes;
  QINFER_ASSIGN_OR_RETURN(auto writer, QinferWriter::Create(std::make_unique<StringSink>(&bytes)));
  if (feature) QINFER_RETURN_IF_ERROR(writer->RequireFeature(kFeatureStaticActivations));
  if (!ranges.empty()) {
    QINFER_RETURN_IF_ERROR(writer->SetMetadata(kMetaActivationRanges, ranges));
  }
  QinferWriter::Declaration norm;
  norm.name = "w";
  norm.format = "f32";
  norm.shape = {16};
  norm.bytes = kNorm.size();
  QINFER_ASSIGN_OR_RETURN(const uint32_t n, writer->DeclareTensor(norm));
  QINFER_RETURN_IF_ERROR(writer->Begin(200));
  QINFER_RETURN_IF_ERROR(writer->Write(n, 0, Span(kNorm)));
  QINFER_RETURN_IF_ERROR(writer->Finish());
  Memory memory;
  QINFER_ASSIGN_OR_RETURN(const auto file,
                          QinferFile::Open(io::BorrowMemory(Span(bytes), "f"), &memory));
  return file->Find("w")->activation_scale;
}

TEST(QinferFile, ActivationScalesCountWithTheirFeature) {
  const std::string good = R"({"w":{"min":-3,"max":1.5,"scale":0.25}})";
  EXPECT_EQ(*ScaleOf(good, true), 0.25f);
  EXPECT_EQ(*ScaleOf(good, false), 0.0f);
  EXPECT_EQ(*ScaleOf("{}", true), 0.0f);
  EXPECT_EQ(*ScaleOf(R"({"w":{"scale":2}})", true), 2.0f);
  const std::pair<const char*, const char*> bad[] = {
      {"", "missing"},
      {"{", "not valid JSON"},
      {R"({"v":{"scale":0.25}})", "no tensor"},
      {R"({"w":{"scale":0}})", "scale"},
      {R"({"w":{"scale":-1}})", "scale"},
      {R"({"w":{"scale":1e300}})", "scale"},
      {R"({"w":{"scale":"x"}})", "text"},
      {R"({"w":0.25})", "number"},
      {R"({"w":{"scale":{"scale":1}}})", "nested deeper"},
      {R"([{"w":{"scale":1}}])", "array"},
  };
  for (const auto& [ranges, reason] : bad) {
    const auto scale = ScaleOf(ranges, true);
    ASSERT_FALSE(scale.ok()) << ranges;
    EXPECT_EQ(scale.status().code(), absl::StatusCode::kDataLoss) << ranges;
    EXPECT_NE(std::string(scale.status().message()).find(reason), std::string::npos)
        << scale.status();
  }
}

}  // namespace
}  // namespace qinfer::format
