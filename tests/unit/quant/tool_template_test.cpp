// The template for conversations with tools, out of GGUF metadata, and kept by a file made from it.
#include <gtest/gtest.h>

#include <cstring>

#include "exec/text_parts.h"
#include "test_util.h"

namespace qinfer::quant {
namespace {

void AddText(std::string* out, std::string_view text) {
  const uint64_t size = text.size();
  out->append(reinterpret_cast<const char*>(&size), sizeof(size));
  out->append(text);
}

// The same file with further entries; the last one's text grows so that the data stays aligned.
std::string WithEntries(std::string gguf,
                        std::vector<std::pair<std::string, std::string>> entries) {
  constexpr size_t kHeader = 24, kCountAt = 16, kAlignment = 32;
  constexpr uint32_t kString = 8;
  const auto encode = [&] {
    std::string out;
    for (const auto& [key, text] : entries) {
      AddText(&out, key);
      out.append(reinterpret_cast<const char*>(&kString), sizeof(kString));
      AddText(&out, text);
    }
    return out;
  };
  while (encode().size() % kAlignment != 0) entries.back().second += ' ';
  uint64_t count = 0;
  std::memcpy(&count, gguf.data() + kCountAt, sizeof(count));
  count += entries.size();
  std::memcpy(gguf.data() + kCountAt, &count, sizeof(count));
  return gguf.insert(kHeader, encode());
}

void ExpectTemplates(const format::Checkpoint& checkpoint, Memory* memory) {
  auto parts = exec::LoadTextParts(checkpoint, nullptr, memory);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_NE(parts->chat_template, nullptr) << parts->chat_template_error;
  EXPECT_EQ(parts->chat_template->text(), "plain");
  tokenizer::RenderInput input;
  input.messages_json = "[]";
  EXPECT_EQ(*parts->chat_template->Render(input), "plain");
  input.tools_json = R"([{"name": "f"}])";
  EXPECT_EQ((*parts->chat_template->Render(input)).substr(0, 7), "tools f");
}

TEST(ToolTemplate, IsFoundInGgufAndKept) {
  Host host;
  TemporaryFolder folder;
  const std::string source = folder.File("model.gguf"), path = folder.File("model.qinfer");
  const std::string bytes =
      ReadText(std::string(QINFER_SOURCE_DIR "/tests/golden/gguf-models/qwen2moe.gguf"));
  std::ofstream(source, std::ios::binary)
      << WithEntries(bytes, {{"tokenizer.chat_template", "plain"},
                             {"tokenizer.chat_template.tool_use", "tools {{ tools[0].name }}"}});
  auto opened = host.Open(source);
  ASSERT_NE(opened, nullptr);
  ExpectTemplates(*opened, &host.memory);
  auto sink = io::CreateFile(path);
  ASSERT_TRUE(sink.ok());
  auto work = ConvertWork::Create(opened, std::move(*sink), host.context);
  ASSERT_TRUE(work.ok()) << work.status();
  ASSERT_TRUE(Finish(work->get()).ok());
  auto written = host.Open(path);
  ASSERT_NE(written, nullptr);
  ExpectTemplates(*written, &host.memory);
}

}  // namespace
}  // namespace qinfer::quant
