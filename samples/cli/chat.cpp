// qinfer chat: a conversation through the model's chat template, which goes on when its context is
// full and when an answer is interrupted.
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "generate.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

struct ChatOptions : GenerateOptions {
  bool has_prompt = false;
};

// Lines of standard input, waited for so that an interrupt is never missed.
class LineReader {
 public:
  enum class Result : uint8_t { kLine, kEnd, kInterrupted };

  Result Next(std::string* line) {
    while (true) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos || (ended_ && !buffer_.empty())) {
        *line = buffer_.substr(0, end);
        buffer_.erase(0, end == std::string::npos ? end : end + 1);
        return Result::kLine;
      }
      if (ended_) return Result::kEnd;
      if (!Wait()) {
        if (InterruptGuard::Seen()) return Result::kInterrupted;
        continue;
      }
      char block[4096];
      const ssize_t got = read(STDIN_FILENO, block, sizeof(block));
      if (got > 0) buffer_.append(block, static_cast<size_t>(got));
      ended_ = got == 0 || (got < 0 && errno != EINTR);
    }
  }

 private:
  // False where a signal came first: blocked up to here, so that it cannot come unseen in between.
  static bool Wait() {
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    fd_set input;
    FD_ZERO(&input);
    FD_SET(STDIN_FILENO, &input);
    const bool ready = !InterruptGuard::Seen() &&
                       pselect(STDIN_FILENO + 1, &input, nullptr, nullptr, nullptr, &before) > 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return ready;
  }

  std::string buffer_;
  bool ended_ = false;
};

// Brings the session to exactly `ids`, keeping what it has computed of them.
void MoveTo(qinfer_session* session, const std::vector<int32_t>& ids) {
  qinfer_error error = QINFER_ERROR_INIT;
  uint32_t length = 0;
  Check(qinfer_session_length(session, &length, &error), error, "session");
  std::vector<int32_t> have(length);
  size_t count = 0;
  Check(qinfer_session_tokens(session, have.data(), have.size(), &count, &error), error, "session");
  size_t same = 0;
  while (same < count && same < ids.size() && have[same] == ids[same]) ++same;
  if (same == ids.size() && same > 0) --same;  // something must be left to compute
  if (same < count && qinfer_session_truncate(session, static_cast<uint32_t>(same), &error) < 0) {
    same = 0;  // a sliding window has dropped what would be needed: begin anew
    Check(qinfer_session_truncate(session, 0, &error), error, "session");
  }
  Check(qinfer_session_append(session, ids.data() + same, ids.size() - same, &error), error,
        "conversation");
}

void CheckTemplate(const qinfer_model* model, const std::string& name) {
  qinfer_str text = {nullptr, 0};
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_template_text(model, &text, &error), error, "chat");
  qinfer_model_info info = QINFER_MODEL_INFO_INIT;
  Check(qinfer_model_info_get(model, &info, &error), error, "chat");
  if ((info.flags & QINFER_MODEL_HAS_TEMPLATE) != 0) return;
  throw Error(name +
              " has no chat template, which a conversation needs; qinfer generate continues a raw "
              "prompt");
}

class Conversation {
 public:
  Conversation(const Loaded& loaded, const ChatOptions& options)
      : loaded_(loaded), options_(options) {
    qinfer_engine_options engine = QINFER_ENGINE_OPTIONS_INIT;
    qinfer_error error = QINFER_ERROR_INIT;
    Check(qinfer_engine_options_get(loaded.engine.get(), &engine, &error), error, "chat");
    qinfer_model_info model = QINFER_MODEL_INFO_INIT;
    Check(qinfer_model_info_get(loaded.model.get(), &model, &error), error, "chat");
    context_ = engine.context_tokens;
    full_ = model.max_context != 0 && model.max_context <= context_;
    if (full_) context_ = model.max_context;
    Clear();
  }

  // All but the system message is forgotten.
  void Clear() {
    messages_ = Json::array();
    if (!options_.system.empty()) {
      messages_.push_back({{"role", "system"}, {"content", options_.system}});
    }
  }

  // Answers one message. Error, and all is as before, where it does not fit.
  void Answer(const std::string& text) {
    const Json before = messages_;
    messages_.push_back({{"role", "user"}, {"content", text}});
    Outcome outcome;
    try {
      MoveTo(loaded_.session.get(), Prompt());
      outcome = Generate(loaded_, options_, "");
    } catch (const Error&) {
      messages_ = before;
      throw;
    }
    if (options_.json) {
      PrintJson(outcome, options_);
    } else {
      std::printf("\n");
    }
    FlushOutput();
    if (outcome.finish == "interrupted") std::fprintf(stderr, "[The answer was stopped.]\n");
    if (outcome.finish == "context_full") {
      std::fprintf(stderr, "[The context of %llu tokens is full: the answer ends here.]\n",
                   static_cast<unsigned long long>(context_));
    }
    if (outcome.text.empty() && outcome.reasoning.empty()) {
      messages_.erase(messages_.size() - 1);  // stopped before a word came
      return;
    }
    messages_.push_back({{"role", "assistant"}, {"content", outcome.text}});
    // What becomes of it is the template's to say.
    if (!outcome.reasoning.empty()) messages_.back()["reasoning_content"] = outcome.reasoning;
  }

 private:
  // The conversation's tokens, without its oldest turns where those leave no room for an answer.
  std::vector<int32_t> Prompt() {
    const uint64_t room =
        std::min<uint64_t>(options_.max_tokens == 0 ? context_ : options_.max_tokens, context_ / 4);
    for (size_t dropped = 0;; ++dropped) {
      std::vector<int32_t> ids = Encode(loaded_.model.get(), Render(), QINFER_ENCODE_NO_SPECIAL);
      if (ids.size() + room > context_ && DropOldest()) continue;
      if (ids.size() >= context_) {
        throw Error("this message takes " + std::to_string(ids.size()) +
                    " tokens with what stands before it, and " +
                    (full_ ? "the model was made for " : "the context holds ") +
                    std::to_string(context_) + ": shorten it" +
                    (full_ ? "" : ", or start with a larger --context"));
      }
      if (dropped > 0) {
        std::fprintf(stderr, "[The context of %llu tokens is full: the oldest %s forgotten.]\n",
                     static_cast<unsigned long long>(context_),
                     dropped == 1 ? "turn is" : (std::to_string(dropped) + " turns are").c_str());
      }
      return ids;
    }
  }

  // The first message after the system's and its answer; false where it is the last message.
  bool DropOldest() {
    const size_t first = options_.system.empty() ? 0 : 1;
    size_t end = first + 1;
    while (end < messages_.size() && messages_[end]["role"] != "user") ++end;
    if (end >= messages_.size()) return false;
    messages_.erase(messages_.begin() + static_cast<ptrdiff_t>(first),
                    messages_.begin() + static_cast<ptrdiff_t>(end));
    return true;
  }

  std::string Render() const {
    const std::string json = messages_.dump(-1, ' ', false, Json::error_handler_t::replace);
    qinfer_render_options render = QINFER_RENDER_OPTIONS_INIT;
    render.messages_json = Str(json);
    return RenderPrompt(loaded_.runtime.get(), loaded_.model.get(), render);
  }

  const Loaded& loaded_;
  const ChatOptions& options_;
  uint64_t context_ = 0;
  bool full_ = false;  // that is all the model can have
  Json messages_;
};

void RunChat(const ChatOptions& options) {
  const Loaded loaded = Load(options);
  CheckTemplate(loaded.model.get(), options.model);
  Conversation conversation(loaded, options);
  if (options.has_prompt) {
    conversation.Answer(options.prompt);
    return;
  }
  const InterruptGuard guard(InterruptGuard::Signals::kInterrupt);
  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal) {
    std::fprintf(stderr,
                 "Ctrl-C stops an answer; /clear begins anew; an empty line, Ctrl-D or Ctrl-C ends "
                 "the conversation.\n");
  }
  LineReader reader;
  std::string line;
  size_t unanswered = 0;
  while (true) {
    if (terminal) {
      std::printf("> ");
      FlushOutput();
    }
    InterruptGuard::Clear();
    if (reader.Next(&line) != LineReader::Result::kLine) {
      if (terminal) std::printf("\n");
      break;
    }
    if (line.empty()) break;
    if (line == "/clear") {
      conversation.Clear();
      continue;
    }
    try {
      conversation.Answer(line);
    } catch (const Error& error) {
      Complain(error.what());
      ++unanswered;
    }
  }
  // Where nobody looks at stderr, the exit code is all that tells.
  if (terminal || unanswered == 0) return;
  throw Error(std::to_string(unanswered) + (unanswered == 1 ? " message was" : " messages were") +
              " not answered: see above");
}

}  // namespace

void AddChat(CLI::App* app) {
  auto chat = std::make_shared<ChatOptions>();
  chat->max_tokens = 512;
  CLI::App* sub = app->add_subcommand(
      "chat", "Talk to the model through its chat template; interactive without -p");
  sub->add_option("MODEL", chat->model, kModelHelp)->required();
  CLI::Option* prompt =
      sub->add_option("-p,--prompt", chat->prompt, "One message; its answer ends the program");
  sub->add_option("--system", chat->system, "The system message");
  AddContext(sub, chat.get(), "Tokens of KV cache (default: the model's context, up to 4096)");
  AddSampling(sub, chat.get());
  AddJson(sub, chat.get());
  AddMachine(sub, chat.get());
  AddLoad(sub, chat.get());
  AddEngine(sub, chat.get());
  AddDeterminism(sub, chat.get());
  sub->footer(
      "In a conversation each line is a message. Ctrl-C stops an answer; what has come of it "
      "stays.\n"
      "/clear forgets all but the system message. An empty line, Ctrl-D, or Ctrl-C at the prompt\n"
      "ends the program. When the context is full, the oldest turns are forgotten, but never the\n"
      "system message, and a line on stderr says so; --context makes room for more. A message "
      "that\n"
      "does not fit is an error, and the conversation goes on; where standard input is no "
      "terminal,\n"
      "the exit code is then 1.");
  sub->callback([chat, prompt] {
    chat->has_prompt = prompt->count() != 0;
    RunChat(*chat);
  });
}

}  // namespace cli
