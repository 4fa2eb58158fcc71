// The choice between two templates.
#include "tokenizer/tool_template.h"

#include <utility>

namespace qinfer::tokenizer {
namespace {

// Whether tools are given at all: an empty list is one too, as in transformers.
bool HasTools(std::string_view json) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = json.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return false;
  return json.substr(begin, json.find_last_not_of(kSpace) + 1 - begin) != "null";
}

class ByTools final : public ChatTemplate {
 public:
  ByTools(std::shared_ptr<const ChatTemplate> plain, std::shared_ptr<const ChatTemplate> tool_use,
          std::string name)
      : plain_(std::move(plain)), tool_use_(std::move(tool_use)), name_(std::move(name)) {}

  Status Render(const RenderInput& input, const RenderLimits& limits, Memory* memory,
                const TakeText& take) const override {
    if (HasTools(input.tools_json)) return tool_use_->Render(input, limits, memory, take);
    if (plain_ != nullptr) return plain_->Render(input, limits, memory, take);
    return MisuseError(
        StrCat(name_, ": a template for conversations with tools alone; give tools"));
  }
  const std::string& text() const override { return plain_ != nullptr ? plain_->text() : none_; }

 private:
  const std::shared_ptr<const ChatTemplate> plain_;  // null = none
  const std::shared_ptr<const ChatTemplate> tool_use_;
  const std::string name_, none_;
};

}  // namespace

StatusOr<std::shared_ptr<const ChatTemplate>> ParseTemplates(std::string_view text,
                                                             std::string_view tool_use,
                                                             const std::string& name) {
  if (tool_use.empty()) return ChatTemplate::Parse(text, name);
  std::shared_ptr<const ChatTemplate> plain;
  if (!text.empty()) {
    QINFER_ASSIGN_OR_RETURN(plain, ChatTemplate::Parse(text, name));
  }
  QINFER_ASSIGN_OR_RETURN(std::shared_ptr<const ChatTemplate> with_tools,
                          ChatTemplate::Parse(tool_use, StrCat(name, " (tool_use)")));
  return std::shared_ptr<const ChatTemplate>(
      std::make_shared<ByTools>(std::move(plain), std::move(with_tools), name));
}

}  // namespace qinfer::tokenizer
