// Chat templates through the public contract: variables, errors with their place, threads.
#include <gtest/gtest.h>

#include "tokenizer/chat_template.h"
#include "tokenizer/tool_template.h"

namespace qinfer::tokenizer {
namespace {

StatusOr<std::string> RenderText(std::string_view text, RenderInput input = {}) {
  if (input.messages_json.empty()) input.messages_json = "[]";
  auto parsed = ChatTemplate::Parse(text, "t");
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render(input);
}

TEST(ChatTemplate, RendersMessages) {
  RenderInput input;
  input.messages_json =
      R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}])";
  input.bos_token = "<s>";
  const auto out = RenderText(
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m['content'] }}\n{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}",
      input);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, "<s>[user]Hi\n[assistant]Yo\n[assistant]");
}

// As transformers chooses from a list of named templates: by whether tools are given at all.
TEST(ChatTemplate, ChoosesByTools) {
  const auto both = ParseTemplates("plain", "tools {{ tools | length }}", "t");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)->text(), "plain");
  const auto alone = ParseTemplates("", "tools {{ tools | length }}", "t");
  ASSERT_TRUE(alone.ok()) << alone.status();
  RenderInput input;
  input.messages_json = "[]";
  for (const char* none : {"", " null\n"}) {
    input.tools_json = none;
    EXPECT_EQ(*(*both)->Render(input), "plain") << none;
    EXPECT_EQ((*alone)->Render(input).status().code(), absl::StatusCode::kInvalidArgument);
  }
  for (const char* some : {"[]", " [ ]", "[3]"}) {
    input.tools_json = some;
    const char* expected = some[1] == '3' ? "tools 1" : "tools 0";
    EXPECT_EQ(*(*both)->Render(input), expected) << some;
    EXPECT_EQ(*(*alone)->Render(input), expected) << some;
  }
  const auto broken = ParseTemplates("plain", "{% for %}", "t");
  EXPECT_NE(broken.status().message().find("t (tool_use):1:8"), std::string::npos)
      << broken.status();
}

// What Python gives where the last piece keeps the white space that ends it.
TEST(ChatTemplate, SplitsAtMostSoOften) {
  const auto split = [](const std::string& call) {
    return RenderText(StrCat("{{ '  1  2   3  '.", call, " }}")).value_or("");
  };
  EXPECT_EQ(split("split(none, 1)"), "['1', '2   3  ']");
  EXPECT_EQ(split("split(none, 0)"), "['1  2   3  ']");
  EXPECT_EQ(split("rsplit(none, 1)"), "['  1  2', '3']");
  EXPECT_EQ(split("split(none, -5)"), "['1', '2', '3']");
}

}  // namespace
}  // namespace qinfer::tokenizer
