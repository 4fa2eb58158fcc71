// ChatTemplate over the interpreter: parse once, render with the variables that transformers'
// apply_chat_template passes.
#include "tokenizer/chat_template.h"

#include <utility>

#include "tokenizer/jinja_interp.h"
#include "tokenizer/jinja_json.h"
#include "tokenizer/jinja_lexer.h"
#include "tokenizer/jinja_parser.h"

namespace qinfer::tokenizer {
namespace {

class JinjaTemplate final : public ChatTemplate {
 public:
  JinjaTemplate(std::string text, std::unique_ptr<jinja::Ast> ast)
      : text_(std::move(text)), ast_(std::move(ast)) {}

  const std::string& text() const override { return text_; }

  Status Render(const RenderInput& input, const RenderLimits& limits, Memory* memory,
                const TakeText& take) const override {
    bool taken = false;  // then what is thrown is the taker's
    try {
      return RenderWithin(input, limits, memory, [&](std::string_view text) {
        taken = true;
        return take(text);
      });
    } catch (const jinja::MemoryLimit&) {  // before the evaluator was there to catch it
      return BudgetError(StrCat("the variables of a template take more than max_memory_bytes = ",
                                limits.max_memory_bytes));
    } catch (const BudgetExceeded&) {
      if (taken || memory == nullptr) throw;
      return BudgetError(StrCat(
          "rendering the chat template would exceed host_bytes_limit (", memory->limit_bytes(),
          " bytes, ", memory->used_bytes() + memory->mapped_bytes(), " in use without it)"));
    }
  }

 private:
  Status RenderWithin(const RenderInput& input, const RenderLimits& limits, Memory* memory,
                      const TakeText& take) const {
    using jinja::Kind;
    using jinja::Value;
    jinja::Interp interp(ast_.get(), limits, memory, input.now_unix_seconds);
    QINFER_ASSIGN_OR_RETURN(Value messages,
                            jinja::ParseJson(&interp, input.messages_json, "messages"));
    if (!messages.Is(Kind::kList)) return MisuseError("messages: must be a JSON array");
    interp.SetVariable("messages", std::move(messages));
    Value tools = Value::None();
    if (!input.tools_json.empty()) {
      QINFER_ASSIGN_OR_RETURN(tools, jinja::ParseJson(&interp, input.tools_json, "tools"));
      if (!tools.Is(Kind::kList) && !tools.IsNone()) {
        return MisuseError("tools: must be a JSON array");
      }
    }
    interp.SetVariable("tools", std::move(tools));
    interp.SetVariable("documents", Value::None());
    interp.SetVariable("add_generation_prompt", Value::Bool(input.add_generation_prompt));
    interp.SetVariable("bos_token", interp.String(input.bos_token));
    interp.SetVariable("eos_token", interp.String(input.eos_token));
    if (!input.extra_json.empty()) {
      QINFER_ASSIGN_OR_RETURN(const Value extra,
                              jinja::ParseJson(&interp, input.extra_json, "extra variables"));
      if (!extra.Is(Kind::kDict)) return MisuseError("extra variables: must be a JSON object");
      for (const auto& [key, value] : extra.As<jinja::DictObject>()->entries) {
        interp.SetVariable(key.AsString(), value);
      }
    }
    QINFER_ASSIGN_OR_RETURN(const std::string_view text, interp.Run());
    return take(text);
  }

  const std::string text_;
  const std::unique_ptr<const jinja::Ast> ast_;
};

}  // namespace

StatusOr<std::string> ChatTemplate::Render(const RenderInput& input,
                                           const RenderLimits& limits) const {
  std::string copy;
  QINFER_RETURN_IF_ERROR(Render(input, limits, nullptr, [&copy](std::string_view text) {
    copy = text;
    return OkStatus();
  }));
  return copy;
}

StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view text,
                                                                  const std::string& name) {
  QINFER_ASSIGN_OR_RETURN(std::vector<jinja::Token> tokens, jinja::Tokenize(text, name));
  QINFER_ASSIGN_OR_RETURN(std::unique_ptr<jinja::Ast> ast,
                          jinja::Parser(std::move(tokens), name).Run());
  return std::shared_ptr<const ChatTemplate>(
      std::make_shared<JinjaTemplate>(std::string(text), std::move(ast)));
}

}  // namespace qinfer::tokenizer
