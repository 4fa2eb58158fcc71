// Templates against what jinja2 made of them: our own with their whole output, third-party ones by
// length and hash where they are at hand. The files come from tests/golden/make_templates.py.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tokenizer/chat_template.h"

namespace qinfer::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Json ReadGolden(const std::string& name) {
  return Json::parse(ReadFile(std::string(QINFER_SOURCE_DIR "/tests/golden/") + name));
}

StatusOr<std::string> RenderWith(const std::string& text, Json variables, int64_t now) {
  auto parsed = ChatTemplate::Parse(text, "template");
  if (!parsed.ok()) return parsed.status();
  RenderInput input;
  const std::string messages = variables.value("messages", Json::array()).dump();
  const std::string tools = variables.contains("tools") ? variables["tools"].dump() : "";
  input.add_generation_prompt = variables.value("add_generation_prompt", true);
  for (const char* own : {"messages", "tools", "add_generation_prompt"}) variables.erase(own);
  const std::string extra = variables.dump();
  input.messages_json = messages;
  input.tools_json = tools;
  input.extra_json = extra;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now_unix_seconds = now;
  return (*parsed)->Render(input);
}

std::string HashOf(const std::string& text) {
  uint64_t value = 0xCBF29CE484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%zu:%016llx", text.size(),
                static_cast<unsigned long long>(value));
  return buffer;
}

// The variables as they stand in the file, on a line of their own: a parsed number would lose the
// integers beyond 64 bits.
std::string CaseVariables() {
  const std::string text = ReadFile(QINFER_SOURCE_DIR "/tests/golden/template_cases.json");
  const std::string mark = "\"variables\": ";
  const size_t start = text.find(mark) + mark.size();
  return text.substr(start, text.find(",\n", start) - start);
}

void ExpectCase(const std::string& text, const Json& expected, const std::string& variables,
                int64_t now) {
  auto parsed = ChatTemplate::Parse(text, "template");
  StatusOr<std::string> output = std::string();
  if (!parsed.ok()) {
    output = parsed.status();
  } else {
    RenderInput input;
    input.messages_json = "[]";  // the variables hold the messages
    input.extra_json = variables;
    input.bos_token = "<s>";
    input.eos_token = "</s>";
    input.now_unix_seconds = now;
    output = (*parsed)->Render(input);
  }
  if (expected.is_null()) {
    EXPECT_FALSE(output.ok()) << text << "\nrendered to: " << *output;
  } else if (!output.ok()) {
    ADD_FAILURE() << text << "\nexpected: " << expected << "\n" << output.status();
  } else {
    EXPECT_EQ(*output, expected.get<std::string>()) << text;
  }
}

TEST(ChatTemplateGolden, OurOwnTemplates) {
  const Json golden = ReadGolden("template_cases.json");
  ASSERT_GT(golden["cases"].size(), 200u);
  const std::string variables = CaseVariables();
  for (const Json& item : golden["cases"]) {
    ExpectCase(item["template"], item["output"], variables, golden["now"]);
  }
}

TEST(ChatTemplateGolden, RandomTemplates) {
  const Json golden = ReadGolden("template_cases.json");
  ASSERT_GT(golden["random"].size(), 300u);
  const std::string variables = CaseVariables();
  for (const Json& item : golden["random"]) {
    ExpectCase(item[0], item[1], variables, golden["now"]);
  }
}

// Those that tests/fetch_models.sh brought, or that lie beside the project.
std::string ThirdParty(const std::string& file) {
  const char* home = std::getenv("HOME");
  const std::string text =
      ReadFile(std::string(home == nullptr ? "" : home) + "/.cache/qinfer/templates/" + file);
  return text.empty() ? ReadFile(QINFER_SHARED_DIR "/data/templates/" + file) : text;
}

TEST(ChatTemplateGolden, ThirdPartyTemplates) {
  const Json golden = ReadGolden("templates.json");
  size_t compared = 0;
  for (const auto& [file, row] : golden["results"].items()) {
    const std::string text = ThirdParty(file);
    if (text.empty()) continue;
    for (const auto& [name, expected] : row.items()) {
      const auto output = RenderWith(text, golden["sets"][name], golden["now"]);
      const std::string got = output.ok() ? HashOf(*output) : "error";
      EXPECT_EQ(got, expected.get<std::string>())
          << file << " with " << name << ": "
          << (output.ok() ? *output : output.status().ToString());
      ++compared;
    }
  }
  if (compared == 0) GTEST_SKIP() << "no templates in ~/.cache/qinfer/templates";
  EXPECT_GT(compared, 1000u);
}

}  // namespace
}  // namespace qinfer::tokenizer
