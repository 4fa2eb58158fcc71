// Opening paths: folders, shards and their indices, side documents, splits, configurations alone,
// and what is none of these.
#include "format/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "bytes.h"
#include "format/gguf.h"
#include "format/path_info.h"

namespace qinfer::format {
namespace {

using testing::Bytes;
using testing::SafetensorsBytes;

std::string OneTensor(const std::string& name, const std::string& data) {
  return SafetensorsBytes("{\"" + name + R"(":{"dtype":"U8","shape":[)" +
                              std::to_string(data.size()) + R"(],"data_offsets":[0,)" +
                              std::to_string(data.size()) + "]}}",
                          data);
}

class CheckpointTest : public ::testing::Test {
 protected:
  StatusOr<std::shared_ptr<Checkpoint>> Open(const std::string& path) {
    OpenOptions options;
    options.memory = &memory_;
    return OpenCheckpoint(path, options);
  }
  void ExpectError(const std::string& path, const std::string& part) {
    const auto opened = Open(path);
    ASSERT_FALSE(opened.ok()) << part;
    EXPECT_NE(opened.status().message().find(part), absl::string_view::npos) << opened.status();
    EXPECT_EQ(memory_.used_bytes() + memory_.mapped_bytes(), 0u);
  }
  void WriteShards() {
    folder_.Write("model-00001-of-00002.safetensors", OneTensor("b", "1234"));
    folder_.Write("model-00002-of-00002.safetensors", OneTensor("a", "56"));
    folder_.Write("config.json", R"({"model_type":"llama"})");
    WriteIndex(
        R"({"metadata":{"total_size":6,"x":[{}]},"weight_map":{)"
        R"("b":"model-00001-of-00002.safetensors","a":"model-00002-of-00002.safetensors"}})");
  }
  void WriteIndex(const std::string& text) { folder_.Write("model.safetensors.index.json", text); }
  testing::TempFolder folder_;
  Memory memory_;
};

TEST_F(CheckpointTest, SingleFileWithSideDocuments) {
  const std::string path = folder_.Write("model.safetensors", OneTensor("t", "hello"));
  folder_.Write("config.json", "{\"model_type\":\"llama\"}");
  folder_.Write("generation_config.json", "{}");
  folder_.Write("tokenizer.json", "{\"added_tokens\":[]}");
  folder_.Write("tokenizer_config.json", "{ }");
  folder_.Write("chat_template.json",
                R"({"x":{"chat_template":"no"},"chat_template":"{{ \"hi\" }}"})");
  for (const std::string& name : {folder_.path(), path, folder_.path() + "/"}) {
    const auto opened = Open(name);
    ASSERT_TRUE(opened.ok()) << opened.status();
    const Checkpoint& checkpoint = **opened;
    EXPECT_EQ(checkpoint.container(), Container::kSafetensors);
    const TensorInfo* tensor = checkpoint.Find("t");
    ASSERT_NE(tensor, nullptr);
    std::vector<uint8_t> out(3);
    ASSERT_TRUE(checkpoint.Read(*tensor, 2, absl::MakeSpan(out)).ok());
    EXPECT_EQ(std::string(out.begin(), out.end()), "llo");
    EXPECT_EQ(checkpoint.Read(*tensor, 3, absl::MakeSpan(out)).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(checkpoint.side_files().config_json.text(), "{\"model_type\":\"llama\"}");
    EXPECT_EQ(checkpoint.side_files().tokenizer_json.text(), "{\"added_tokens\":[]}");
    EXPECT_EQ(checkpoint.side_files().tokenizer_config_json.text(), "{ }");
    EXPECT_EQ(checkpoint.side_files().generation_config_json.text(), "{}");
    EXPECT_EQ(checkpoint.side_files().chat_template_jinja.text(), "{{ \"hi\" }}");
    EXPECT_EQ(memory_.mapped_bytes(), 0u);  // only .qinfer is mapped
  }
}

TEST_F(CheckpointTest, FileCutAfterOpening) {
  const std::string path =
      folder_.Write("model.safetensors", OneTensor("t", std::string(100, 'x')));
  OpenOptions options;
  options.memory = &memory_;
  options.access = io::Access::kCopy;
  const auto opened = OpenCheckpoint(path, options);
  ASSERT_TRUE(opened.ok());
  const TensorInfo* tensor = (*opened)->Find("t");
  std::filesystem::resize_file(path, tensor->offset + 40);
  std::vector<uint8_t> out(100);
  const Status status = (*opened)->Read(*tensor, 0, absl::MakeSpan(out));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find(std::to_string(tensor->offset + 40)), absl::string_view::npos);
}

TEST_F(CheckpointTest, Shards) {
  WriteShards();
  for (const char* name :
       {"", "/model.safetensors.index.json", "/model-00002-of-00002.safetensors"}) {
    const auto opened = Open(folder_.path() + name);
    ASSERT_TRUE(opened.ok()) << opened.status();
    ASSERT_EQ((*opened)->tensors().size(), 2u);
    EXPECT_EQ((*opened)->tensors()[0].name, "a");
    EXPECT_EQ((*opened)->tensors()[0].source, 1u);
    std::vector<uint8_t> out(4);
    ASSERT_TRUE((*opened)->Read((*opened)->tensors()[1], 0, absl::MakeSpan(out)).ok());
    EXPECT_EQ(std::string(out.begin(), out.end()), "1234");
    EXPECT_FALSE((*opened)->side_files().config_json.empty());
  }
  std::filesystem::remove(folder_.path() + "/model.safetensors.index.json");
  ASSERT_TRUE(Open(folder_.path()).ok());  // the names say that they belong together
  EXPECT_EQ((*Open(folder_.path() + "/model-00002-of-00002.safetensors"))->tensors().size(), 1u);
  std::filesystem::remove(folder_.path() + "/model-00001-of-00002.safetensors");
  EXPECT_TRUE(Open(folder_.path()).ok());
}

TEST_F(CheckpointTest, WrongIndices) {
  WriteShards();
  const auto map = [&](const std::string& entries) {
    WriteIndex(R"({"weight_map":{)" + entries + "}}");
  };
  map(R"("a":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors")");
  ExpectError(folder_.path(), "the tensor c is not in");
  map(R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors")");
  ExpectError(folder_.path(), "where the index puts it");
  map(R"("a":"model-00002-of-00002.safetensors","b":"model-00003-of-00003.safetensors")");
  ExpectError(folder_.path(), "is missing");
  map(R"("a":"model-00002-of-00002.safetensors","a":"model-00002-of-00002.safetensors")");
  ExpectError(folder_.path(), "twice");
  for (const char* name :
       {"../x.safetensors", "sub/x.safetensors", "/etc/x.safetensors", "..", ".safetensors",
        "model.safetensors.index.json", "", "x\\\\y.safetensors", "a\\u0000.safetensors"}) {
    map(std::string("\"a\":\"") + name + "\"");
    ExpectError(folder_.path(), "plain name");
  }
  map(R"("a":1)");
  ExpectError(folder_.path(), "not a file name");
  map(R"("a":{"b":"c"})");
  ExpectError(folder_.path(), "object");
  map("");
  ExpectError(folder_.path(), "no weight_map");
  WriteIndex(R"({"weight_map":"x.safetensors"})");
  ExpectError(folder_.path(), "");
  WriteIndex("{}");
  ExpectError(folder_.path(), "no weight_map");
  WriteIndex("");
  ExpectError(folder_.path(), "JSON");
  // The same tensor in two shards.
  WriteShards();
  folder_.Write("model-00002-of-00002.safetensors", OneTensor("b", "56"));
  map(R"("b":"model-00001-of-00002.safetensors","a":"model-00002-of-00002.safetensors")");
  ExpectError(folder_.path(), "twice");
}

TEST_F(CheckpointTest, FoldersThatAreNotClear) {
  ExpectError(folder_.path(), "no model in this folder");
  folder_.Write("one.safetensors", OneTensor("a", "1"));
  EXPECT_TRUE(Open(folder_.path()).ok());
  folder_.Write("adapter_model.safetensors", OneTensor("a", "1"));
  EXPECT_TRUE(Open(folder_.path()).ok());
  folder_.Write("two.safetensors", OneTensor("a", "1"));
  ExpectError(folder_.path(), "name the one to open");
  folder_.Write("model.safetensors", OneTensor("a", "1"));
  EXPECT_TRUE(Open(folder_.path()).ok());
}

TEST_F(CheckpointTest, AFolderThatContainsItself) {
  std::filesystem::create_directory_symlink(folder_.path(), folder_.path() + "/model.safetensors");
  ExpectError(folder_.path(), "folder");
}

TEST_F(CheckpointTest, ConfigurationAlone) {
  const std::string path = folder_.Write("config.json", R"({"architectures":["X"]})");
  for (const std::string& name : {path, folder_.path()}) {
    const auto opened = Open(name);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->container(), Container::kConfigOnly);
    EXPECT_EQ((*opened)->side_files().config_json.text(), R"({"architectures":["X"]})");
    EXPECT_TRUE((*opened)->tensors().empty());
  }
  const std::string other = folder_.Write("other.json", R"({"model_type":"y"})");
  EXPECT_EQ((*Open(other))->side_files().config_json.text(), R"({"model_type":"y"})");
}

TEST_F(CheckpointTest, SideDocumentTooLarge) {
  folder_.Write("model.safetensors", OneTensor("a", "1"));
  folder_.Write("config.json", std::string((16u << 20) + 1, ' '));
  ExpectError(folder_.path(), "config.json has 16777217 bytes");
}

TEST_F(CheckpointTest, GgufAndItsParts) {
  const auto part = [](uint16_t number, std::string_view tensor) {
    Bytes b;
    b.GgufHeader(1, 2);
    b.Key("split.no", 2).Put(number).Key("split.count", 2).Put<uint16_t>(2);
    b.Tensor(tensor, {8}, 0, 0).Pad(32);
    b.data.resize(b.data.size() + 32, static_cast<char>('0' + number));
    return b.data;
  };
  folder_.Write("m-00001-of-00002.gguf", part(0, "x"));
  const std::string second = folder_.Write("m-00002-of-00002.gguf", part(1, "y"));
  for (const std::string& name : {second, folder_.path()}) {
    const auto opened = Open(name);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->container(), Container::kGguf);
    ASSERT_NE((*opened)->gguf(), nullptr);
    ASSERT_EQ((*opened)->sources().size(), 2u);
    std::vector<uint8_t> out(1);
    ASSERT_TRUE((*opened)->Read(*(*opened)->Find("y"), 31, absl::MakeSpan(out)).ok());
    EXPECT_EQ(out[0], '1');
  }
  std::filesystem::remove(second);
  ExpectError(folder_.path() + "/m-00001-of-00002.gguf", "is missing");
  // The name alone decides where parts are looked for; the file's own word is checked.
  std::filesystem::rename(folder_.path() + "/m-00001-of-00002.gguf", folder_.path() + "/m.gguf");
  ExpectError(folder_.path() + "/m.gguf", "one of 2 parts");
}

TEST_F(CheckpointTest, WhatAPathIs) {
  const auto content = [&](const std::string& name, const std::string& bytes) {
    return *DescribePath(folder_.Write(name, bytes));
  };
  EXPECT_EQ(*DescribePath(folder_.path()), Content::kFolder);
  EXPECT_EQ(content("a", testing::SmallGguf()), Content::kGguf);
  EXPECT_EQ(content("b", OneTensor("a", "1")), Content::kSafetensors);
  EXPECT_EQ(content("c", R"( {"version":"1.0","truncation":null,"added_tokens":[{"id":0)"),
            Content::kTokenizerJson);
  EXPECT_EQ(content("d", R"({"x":{"weight_map":1},"architectures":["A"]})"), Content::kConfigJson);
  EXPECT_EQ(content("e", R"({"metadata":{},"weight_map":{}})"), Content::kShardIndex);
  EXPECT_EQ(content("f", ""), Content::kUnknown);
  EXPECT_EQ(content("g", "{{ messages }}"), Content::kUnknown);
  EXPECT_EQ(content("h", "\xef\xbb\xbf{\"model_type\":1}"), Content::kConfigJson);
  EXPECT_FALSE(DescribePath(folder_.path() + "/missing").ok());
  ExpectError(folder_.path() + "/c", "a tokenizer, not a model");
  ExpectError(folder_.path() + "/f", "not a model file");
  ExpectError(folder_.path() + "/missing", "check the path");
}

TEST_F(CheckpointTest, BytesOfTheHost) {
  OpenOptions options;
  options.memory = &memory_;
  SideFiles side;
  side.config_json = Document::Borrow("{}");
  const std::string bytes = OneTensor("t", "hello");
  const auto opened = OpenCheckpoint(testing::Borrow(bytes, "asset"), side, options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->name(), "asset");
  EXPECT_EQ((*opened)->side_files().config_json.text(), "{}");
  const std::string gguf = testing::SmallGguf();
  EXPECT_EQ((*OpenCheckpoint(testing::Borrow(gguf), {}, options))->container(), Container::kGguf);
  EXPECT_FALSE(OpenCheckpoint(testing::Borrow("nonsense"), {}, options).ok());
  EXPECT_FALSE(OpenCheckpoint(nullptr, {}, options).ok());
  Memory tiny({}, 10);
  options.memory = &tiny;
  EXPECT_EQ(OpenCheckpoint(testing::Borrow(bytes), {}, options).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(CheckpointTest, ShippedModels) {
  for (const char* model : {"tiny-llama", "tiny-deepseek"}) {
    const auto opened = Open(std::string(QINFER_SOURCE_DIR "/samples/models/") + model);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_NE((*opened)->Find("model.embed_tokens.weight"), nullptr);
    EXPECT_FALSE((*opened)->side_files().tokenizer_json.empty());
    ASSERT_EQ((*opened)->metadata().size(), 1u);
    EXPECT_EQ((*opened)->metadata()[0].value, "pt");
  }
}

}  // namespace
}  // namespace qinfer::format
