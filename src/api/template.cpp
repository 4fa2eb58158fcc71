// Messages as JSON, limits, and the two ways to name a template.
#include "api/template.h"

#include <algorithm>
#include <chrono>
#include <memory_resource>
#include <string>
#include <utility>

#include "api/structs.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/utf8.h"

namespace qinfer::api {
namespace {

// What goes into a prompt is text: a byte that is none would be an error when it is tokenized.
Status CheckUtf8(std::string_view text, const std::string& name) {
  const size_t invalid = tokenizer::FindInvalidUtf8(text);
  if (invalid == std::string_view::npos) return OkStatus();
  return BadOption(StrCat(name, " is not valid UTF-8 at byte ", invalid));
}

void AppendQuoted(std::string_view text, std::pmr::string* out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out->push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      out->append("\\u00").append({kHex[byte >> 4], kHex[byte & 15]});
      continue;
    }
    if (c == '"' || c == '\\') out->push_back('\\');
    out->push_back(c);
  }
  out->push_back('"');
}

// The messages as JSON: those given, or made in `*own`.
StatusOr<std::string_view> MessagesJson(const qinfer_render_options& options,
                                        std::pmr::string* own) {
  QINFER_ASSIGN_OR_RETURN(const std::string_view given,
                          Text(options.messages_json, "messages_json"));
  QINFER_ASSIGN_OR_RETURN(
      const absl::Span<const qinfer_message> messages,
      Array(options.messages, options.message_count, "messages", uint64_t{1} << 20));
  if (!given.empty()) {
    if (!messages.empty()) {
      return BadOption("render options: messages and messages_json exclude each other");
    }
    return given;
  }
  if (messages.empty()) return std::string_view("[]");
  own->push_back('[');
  for (const qinfer_message& message : messages) {
    QINFER_ASSIGN_OR_RETURN(const std::string_view role, Text(message.role, "message.role"));
    QINFER_ASSIGN_OR_RETURN(const std::string_view content,
                            Text(message.content, "message.content"));
    const auto index = static_cast<size_t>(&message - messages.data());
    QINFER_RETURN_IF_ERROR(CheckUtf8(role, StrCat("the role of message ", index)));
    QINFER_RETURN_IF_ERROR(CheckUtf8(content, StrCat("the content of message ", index)));
    own->append(index == 0 ? R"({"role":)" : R"(,{"role":)");
    AppendQuoted(role, own);
    own->append(R"(,"content":)");
    AppendQuoted(content, own);
    own->push_back('}');
  }
  own->push_back(']');
  return std::string_view(*own);
}

int64_t UnixNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The text of a special token, which may be absent.
std::string_view TokenText(const ModelState* model, bool bos) {
  if (model == nullptr || model->tokenizer() == nullptr) return std::string_view();
  const int32_t id = bos ? model->tokenizer()->bos_id() : model->tokenizer()->eos_id();
  return id < 0 ? std::string_view() : model->tokenizer()->TokenText(id);
}

}  // namespace

Status RenderTemplate(const ModelState* model, const qinfer_render_options* options, Memory* memory,
                      const std::function<Status(std::string_view text)>& take) {
  QINFER_RETURN_IF_ERROR(NotNull(options, "options"));
  qinfer_render_options read;
  QINFER_RETURN_IF_ERROR(ReadStruct(options, "render options", &read));
  QINFER_RETURN_IF_ERROR(
      KnownFlags(read.flags, QINFER_TEMPLATE_NO_GENERATION_PROMPT, "render options.flags"));
  QINFER_RETURN_IF_ERROR(Reserved(read.reserved, "render options.reserved"));
  std::pmr::string messages(memory);
  tokenizer::RenderInput input;
  QINFER_ASSIGN_OR_RETURN(input.messages_json, MessagesJson(read, &messages));
  QINFER_ASSIGN_OR_RETURN(input.tools_json, Text(read.tools_json, "tools_json"));
  QINFER_ASSIGN_OR_RETURN(input.extra_json, Text(read.extra_json, "extra_json"));
  QINFER_ASSIGN_OR_RETURN(input.bos_token, Text(read.bos_token, "bos_token"));
  QINFER_ASSIGN_OR_RETURN(input.eos_token, Text(read.eos_token, "eos_token"));
  QINFER_RETURN_IF_ERROR(CheckUtf8(input.bos_token, "bos_token"));
  QINFER_RETURN_IF_ERROR(CheckUtf8(input.eos_token, "eos_token"));
  if (input.bos_token.empty()) input.bos_token = TokenText(model, true);
  if (input.eos_token.empty()) input.eos_token = TokenText(model, false);
  input.add_generation_prompt = (read.flags & QINFER_TEMPLATE_NO_GENERATION_PROMPT) == 0;
  input.now_unix_seconds = read.now_unix_seconds == 0                  ? UnixNow()
                           : read.now_unix_seconds == QINFER_NOW_EPOCH ? 0
                                                                       : read.now_unix_seconds;
  tokenizer::RenderLimits limits;
  if (read.max_output_bytes != 0) {
    limits.max_output_bytes = read.max_output_bytes;
    // Text that grows is there twice at times, and so is what it is made of.
    limits.max_memory_bytes =
        std::max(limits.max_memory_bytes, 4 * std::min(read.max_output_bytes, UINT64_MAX / 4));
  }
  if (read.max_steps != 0) limits.max_steps = read.max_steps;

  QINFER_ASSIGN_OR_RETURN(const std::string_view own, Text(read.template_text, "template_text"));
  if (!own.empty()) {
    QINFER_ASSIGN_OR_RETURN(std::string name, CopyText(read.template_name, "template_name"));
    if (name.empty()) name = "template_text";
    QINFER_ASSIGN_OR_RETURN(const std::shared_ptr<const tokenizer::ChatTemplate> parsed,
                            tokenizer::ChatTemplate::Parse(own, name));
    return parsed->Render(input, limits, memory, take);
  }
  if (model == nullptr) {
    return BadOption("without a model, render options.template_text must be set");
  }
  if (model->chat_template() == nullptr) {
    if (!model->chat_template_error().empty()) {
      return FormatError(
          StrCat("the chat template does not parse: ", model->chat_template_error()));
    }
    return Misuse(QINFER_DETAIL_NOT_LOADED,
                  StrCat(model->name,
                         " has no chat template, or was opened without it; give one in "
                         "render options.template_text"));
  }
  return model->chat_template()->Render(input, limits, memory, take);
}

}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace

extern "C" {

qinfer_status qinfer_template_render(qinfer_runtime* runtime, const qinfer_model* model,
                                     const qinfer_render_options* options, char* buffer,
                                     size_t capacity, size_t* out_size, qinfer_error* err) {
  if (out_size != nullptr) *out_size = 0;
  const auto render = [&]() -> Outcome {
    if (runtime != nullptr) QINFER_RETURN_IF_ERROR(CheckSecond(runtime, "runtime"));
    QINFER_RETURN_IF_ERROR(NotNull(out_size, "out_size"));
    qinfer::Memory* const memory =
        model == nullptr ? &runtime->runtime->memory : &model->runtime->memory;
    return RenderTemplate(model == nullptr ? nullptr : model->state.get(), options, memory,
                          [&](std::string_view text) {
                            return Deliver(absl::Span<const char>(text.data(), text.size()), buffer,
                                           capacity, out_size, "buffer");
                          });
  };
  if (model == nullptr) return GuardHandle(err, runtime, "runtime", render);
  return GuardHandle(err, model, "model", render);
}

qinfer_status qinfer_template_text(const qinfer_model* model, qinfer_str* out, qinfer_error* err) {
  if (out != nullptr) *out = qinfer_str{};
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    const ModelState& state = *model->state;
    if (!state.chat_template_error().empty()) {
      return qinfer::FormatError(
          qinfer::StrCat("the chat template does not parse: ", state.chat_template_error()));
    }
    if (state.chat_template() != nullptr) *out = Str(state.chat_template()->text());
    return QINFER_OK;
  });
}

}  // extern "C"
