// qinfer tokenize and render: text to token ids, messages to the text of a prompt.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common.h"

namespace cli {
namespace {

struct TokenizeOptions : Common {
  std::string model, text, file;
  bool no_bos = false, no_parse_special = false;
};

struct RenderOptions : Common {
  std::string model, messages, tools, extra;
  bool no_generation_prompt = false;
  int64_t now = 0;
  bool has_now = false;
};

void RunTokenize(const TokenizeOptions& options) {
  const Runtime runtime = MakeRuntime(options);
  const Model model = OpenModel(runtime.get(), options.model, options, QINFER_PARTS_VOCABULARY);
  const std::string text = options.file.empty() ? options.text : ReadFile(options.file);
  uint64_t flags = 0;
  if (options.no_bos) flags |= QINFER_ENCODE_NO_SPECIAL;
  if (options.no_parse_special) flags |= QINFER_ENCODE_LITERAL;
  const std::vector<int32_t> ids = Encode(model.get(), text, flags);
  nlohmann::ordered_json json;
  json["ids"] = ids;
  std::printf("%s\n", json.dump().c_str());
}

bool IsTemplate(const std::string& path) {
  const std::string ending = ".jinja";
  return path.size() > ending.size() &&
         path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
}

void RunRender(const RenderOptions& options) {
  const Runtime runtime = MakeRuntime(options);
  Model model;
  std::string template_text;
  qinfer_render_options render = QINFER_RENDER_OPTIONS_INIT;
  if (IsTemplate(options.model)) {
    template_text = ReadFile(options.model);
    if (template_text.empty()) throw Error(options.model + ": the template is empty");
    render.template_text = Str(template_text);
    render.template_name = Str(options.model);
  } else {
    model = OpenModel(runtime.get(), options.model, options, QINFER_PARTS_VOCABULARY);
  }
  const std::string messages = ReadFile(options.messages);
  if (messages.empty()) throw Error(options.messages + ": the file of messages is empty");
  const std::string tools = options.tools.empty() ? "" : ReadFile(options.tools);
  const std::string extra = options.extra.empty() ? "" : ReadFile(options.extra);
  render.messages_json = Str(messages);
  render.tools_json = Str(tools);
  render.extra_json = Str(extra);
  if (options.has_now) {
    // The smallest number is the library's word for 0.
    render.now_unix_seconds =
        options.now == 0 ? QINFER_NOW_EPOCH : std::max(options.now, QINFER_NOW_EPOCH + 1);
  }
  if (options.no_generation_prompt) render.flags |= QINFER_TEMPLATE_NO_GENERATION_PROMPT;
  const std::string text = RenderPrompt(runtime.get(), model.get(), render);
  if (options.json) {
    nlohmann::ordered_json json;
    json["text"] = text;
    std::printf("%s\n",
                json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    const std::string shown = ForStream(text, stdout);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
  }
}

}  // namespace

void AddText(CLI::App* app) {
  auto tokenize = std::make_shared<TokenizeOptions>();
  CLI::App* sub = app->add_subcommand("tokenize", "Text to token ids, as JSON");
  sub->add_option("MODEL", tokenize->model,
                  "A model, a GGUF with a vocabulary alone, or a tokenizer.json")
      ->required();
  CLI::Option* text = sub->add_option("--text", tokenize->text, "The text");
  CLI::Option* file =
      sub->add_option("--file", tokenize->file, "A file with the text; - for standard input");
  text->excludes(file);
  sub->add_flag("--no-bos", tokenize->no_bos, "Add no BOS or EOS");
  sub->add_flag("--no-parse-special", tokenize->no_parse_special,
                "Text that spells a special token is plain text");
  AddJson(sub, tokenize.get());
  sub->callback([tokenize, text, file] {
    if (text->count() + file->count() == 0) throw Error("tokenize: give --text or --file", 2);
    RunTokenize(*tokenize);
  });

  auto render = std::make_shared<RenderOptions>();
  sub = app->add_subcommand("render", "Messages to the text of a prompt, by a chat template");
  sub->add_option("MODEL", render->model, "A model, or a TEMPLATE.jinja")->required();
  sub->add_option("--messages", render->messages, "JSON file: [{\"role\", \"content\"}, ...]")
      ->required();
  sub->add_option("--tools", render->tools, "JSON file with a list of tools");
  sub->add_option("--variables", render->extra, "JSON file with an object of further variables");
  sub->add_flag("--no-generation-prompt", render->no_generation_prompt,
                "Do not open the turn of the answer");
  CLI::Option* now = sub->add_option("--now", render->now, "Unix time for strftime_now")
                         ->transform(Whole<int64_t>());
  AddJson(sub, render.get());
  sub->callback([render, now] {
    render->has_now = now->count() != 0;
    RunRender(*render);
  });
}

}  // namespace cli
