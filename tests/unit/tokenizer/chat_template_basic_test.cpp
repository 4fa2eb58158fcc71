// Chat templates through the public contract: variables, errors with their place, threads.
#include <gtest/gtest.h>

#include "tokenizer/chat_template.h"

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

}  // namespace
}  // namespace qinfer::tokenizer
