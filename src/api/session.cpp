// The session functions of generate.h, and prefill.
#include <memory_resource>
#include <utility>

#include "api/engine.h"
#include "api/structs.h"
#include "api/template.h"

namespace qinfer::api {
namespace {

// Runs body(session) as the session's one caller.
template <typename Body>
qinfer_status WithSession(const qinfer_session* session, qinfer_error* err, Body&& body) {
  return GuardHandle(err, session, "session", [&]() -> Outcome {
    QINFER_ASSIGN_OR_RETURN(const Claim claim, Claim::Enter(session->state->exclusive, "session"));
    return body(*session->state->session);
  });
}

Status AppendText(const SessionState& state, std::string_view text,
                  const tokenizer::EncodeOptions& options) {
  const ModelState& model = *state.engine->model;
  QINFER_RETURN_IF_ERROR(NeedTokenizer(model));
  std::pmr::vector<int32_t> ids(&model.runtime->memory);
  QINFER_RETURN_IF_ERROR(model.tokenizer()->Encode(text, options, &ids));
  return state.session->Append(absl::Span<const int32_t>(ids.data(), ids.size()));
}

}  // namespace
}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace
using qinfer::engine::Session;

extern "C" {

qinfer_status qinfer_session_create(qinfer_engine* engine, qinfer_session** out,
                                    qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, engine, "engine", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, engine->state->engine->NewSession());
    *out = NewHandle<qinfer_session>(
        engine->runtime, std::make_shared<SessionState>(engine->state, std::move(session)));
    return QINFER_OK;
  });
}

qinfer_status qinfer_session_append(qinfer_session* session, const int32_t* tokens, size_t count,
                                    qinfer_error* err) {
  return WithSession(session, err, [&](Session& inner) -> Outcome {
    QINFER_ASSIGN_OR_RETURN(const absl::Span<const int32_t> added, Array(tokens, count, "tokens"));
    return inner.Append(added);
  });
}

qinfer_status qinfer_session_append_text(qinfer_session* session, const char* text,
                                         size_t text_size, uint64_t flags, qinfer_error* err) {
  return WithSession(session, err, [&](Session& inner) -> Outcome {
    QINFER_RETURN_IF_ERROR(
        KnownFlags(flags, QINFER_ENCODE_NO_SPECIAL | QINFER_ENCODE_LITERAL, "flags"));
    QINFER_ASSIGN_OR_RETURN(const std::string_view added, Text(text, text_size, "text"));
    qinfer::tokenizer::EncodeOptions options;
    options.add_special = (flags & QINFER_ENCODE_NO_SPECIAL) == 0 && inner.length() == 0;
    options.parse_special = (flags & QINFER_ENCODE_LITERAL) == 0;
    return AppendText(*session->state, added, options);
  });
}

qinfer_status qinfer_session_append_chat(qinfer_session* session,
                                         const qinfer_render_options* options, qinfer_error* err) {
  return WithSession(session, err, [&](Session&) -> Outcome {
    const SessionState& state = *session->state;
    const qinfer::api::ModelState& model = *state.engine->model;
    qinfer::tokenizer::EncodeOptions encode;
    encode.add_special = false;  // the template writes them
    return RenderTemplate(&model, options, &model.runtime->memory,
                          [&](std::string_view text) { return AppendText(state, text, encode); });
  });
}

qinfer_status qinfer_session_length(const qinfer_session* session, uint32_t* out,
                                    qinfer_error* err) {
  if (out != nullptr) *out = 0;
  return WithSession(session, err, [&](Session& inner) -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    *out = inner.length();
    return QINFER_OK;
  });
}

qinfer_status qinfer_session_tokens(const qinfer_session* session, int32_t* ids, size_t capacity,
                                    size_t* out_count, qinfer_error* err) {
  if (out_count != nullptr) *out_count = 0;
  return WithSession(session, err, [&](Session& inner) -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out_count, "out_count"));
    return Deliver(inner.tokens(), ids, capacity, out_count, "ids");
  });
}

qinfer_status qinfer_session_prefill_begin(qinfer_session* session, qinfer_task** out,
                                           qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, session, "session", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    TaskParts task;
    task.kind = QINFER_TASK_PREFILL;
    QINFER_ASSIGN_OR_RETURN(Claim claim, Claim::Enter(session->state->exclusive, "session"));
    task.claims.push_back(std::move(claim));
    task.keep.push_back(session->state);
    QINFER_ASSIGN_OR_RETURN(task.work, session->state->session->Prefill());
    return MakeTask(session->runtime, std::move(task), out);
  });
}

qinfer_status qinfer_session_logits(const qinfer_session* session, float* logits, size_t capacity,
                                    size_t* out_count, qinfer_error* err) {
  if (out_count != nullptr) *out_count = 0;
  return WithSession(session, err, [&](Session& inner) -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out_count, "out_count"));
    QINFER_ASSIGN_OR_RETURN(const absl::Span<const float> row, inner.LastLogits());
    return Deliver(row, logits, capacity, out_count, "logits");
  });
}

qinfer_status qinfer_session_fork(const qinfer_session* session, qinfer_session** out,
                                  qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return WithSession(session, err, [&](Session& inner) -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_ASSIGN_OR_RETURN(std::shared_ptr<Session> second, inner.Fork());
    *out = NewHandle<qinfer_session>(
        session->runtime,
        std::make_shared<SessionState>(session->state->engine, std::move(second)));
    return QINFER_OK;
  });
}

qinfer_status qinfer_session_truncate(qinfer_session* session, uint32_t length, qinfer_error* err) {
  return WithSession(session, err,
                     [&](Session& inner) -> Outcome { return inner.Truncate(length); });
}

void qinfer_session_release(qinfer_session* session) { ReleaseHandle(session); }

}  // extern "C"
