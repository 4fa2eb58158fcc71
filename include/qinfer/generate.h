/* generate.h - sessions, which are sequences of an engine, and the generation of text as a task
 * whose events are pulled. How a session's tokens are cached is in kv.h. */
#ifndef QINFER_GENERATE_H
#define QINFER_GENERATE_H

#include "qinfer/kv.h"
#include "qinfer/model.h"
#include "qinfer/observe.h"
#include "qinfer/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sessions ---- */
/* One caller at a time: another thread, or a task of this session that is not finished, makes every
 * call on it return E_BUSY. Sessions of one engine may be used on different threads. */

/** An empty sequence. @param engine not NULL; @param out owned by the caller; not NULL.
 * @return OK; E_BUDGET (max_sessions are alive). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_session_create(qinfer_engine* engine,
                                                           qinfer_session** out, qinfer_error* err);

/** Appends tokens; they are computed by the next prefill or generation.
 * @param tokens [count], ids of the model's vocabulary
 * @return OK; E_MISUSE (an id out of range); E_BUDGET (context_tokens); E_BUSY. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_session_append(qinfer_session* session,
                                                           const int32_t* tokens, size_t count,
                                                           qinfer_error* err);

/** Encodes text and appends it. @param flags QINFER_ENCODE_...; BOS is added to an empty session
 * alone. @return as qinfer_tokenizer_encode and qinfer_session_append. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_session_append_text(qinfer_session* session,
                                                                const char* text, size_t text_size,
                                                                uint64_t flags, qinfer_error* err);

/** Renders messages by the chat template, encodes and appends them.
 * @param options not NULL
 * @return as qinfer_template_render and qinfer_session_append. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_session_append_chat(
    qinfer_session* session, const qinfer_render_options* options, qinfer_error* err);

/** How many tokens the session holds, computed or not. @param out not NULL. @return OK; E_BUSY.
 * @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_session_length(const qinfer_session* session,
                                                           uint32_t* out, qinfer_error* err);

/** The tokens. @param ids room for `capacity`, or NULL with 0; @param out_count not NULL.
 * @return OK; E_MISUSE (QINFER_DETAIL_BUFFER_TOO_SMALL); E_BUSY. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_session_tokens(const qinfer_session* session,
                                                           int32_t* ids, size_t capacity,
                                                           size_t* out_count, qinfer_error* err);

/** Begins to compute what was appended, so that the logits are there. Where they are there already,
 * the task has nothing to do.
 * @param out the task, owned by the caller; not NULL. @return OK; E_MISUSE (the session is empty);
 * E_BUSY. The task's steps: E_BUDGET (context_tokens), E_FORMAT (logits that are not finite).
 * @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_session_prefill_begin(qinfer_session* session,
                                                                  qinfer_task** out,
                                                                  qinfer_error* err);

/** The logits for the token after the last computed one: F32 [vocab_size], before any sampling.
 * @param logits room for `capacity` floats, or NULL with 0; @param out_count vocab_size; not NULL.
 * @return OK; E_MISUSE (nothing computed yet, QINFER_DETAIL_BUFFER_TOO_SMALL); E_BUSY. @since 0.1
 */
QINFER_API qinfer_status QINFER_CALL qinfer_session_logits(const qinfer_session* session,
                                                           float* logits, size_t capacity,
                                                           size_t* out_count, qinfer_error* err);

/** A second session with the same tokens, which shares their cache until one of them writes.
 * @param out owned by the caller; not NULL. @return OK; E_BUDGET; E_BUSY. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_session_fork(const qinfer_session* session,
                                                         qinfer_session** out, qinfer_error* err);

/** Keeps the first `length` tokens. @return OK; E_MISUSE (longer than the session, or a sliding
 * window has already dropped what they need); E_BUSY. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_session_truncate(qinfer_session* session,
                                                             uint32_t length, qinfer_error* err);

/** Gives up a session. NULL is fine. A task of it goes on working. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_session_release(qinfer_session* session);

/* ---- Generation ---- */
typedef struct qinfer_logit_bias {
  int32_t token;
  float bias;
} qinfer_logit_bias; /* never changes */

#define QINFER_GENERATE_GREEDY ((uint64_t)1 << 0) /* the largest logit after penalties and bias */
#define QINFER_GENERATE_IGNORE_EOS ((uint64_t)1 << 1)
/* Zero fields take what the model's makers recommend, where they say something. */
#define QINFER_GENERATE_MODEL_DEFAULTS ((uint64_t)1 << 2)
/* Events say whether their text is reasoning (qinfer_event.channel), and the tags around it are
 * taken out. After a begin tag comes reasoning, after an end tag text; reasoning that no tag ends
 * goes on to the end. White space around tags stays. Tokens and logprobs do not change.
 * Where no tags are given and the vocabulary has Harmony's markers as special tokens (gpt-oss:
 * <|start|>, <|channel|>, <|message|>, <|end|>), messages of channel `final` and of none are text,
 * all others (analysis, commentary, calls of tools) reasoning; markers and headers are taken out.
 */
#define QINFER_GENERATE_SPLIT_REASONING ((uint64_t)1 << 3)
/* Guesses the next tokens from what the session's tokens say elsewhere and checks several in one
 * step: faster where the text repeats its prompt or itself. Tokens, logprobs and ends are those of
 * a generation without it, bit for bit, sampled ones too; events may come in bursts. Takes a small
 * index of memory, and no cache that anybody else needs. */
#define QINFER_GENERATE_PROMPT_LOOKUP ((uint64_t)1 << 4)

#define QINFER_TOP_K_OFF UINT32_MAX

/* Of the first text. DETECT: reasoning where the session's tokens end with the begin tag, but for
 * white space, as after templates that open the reasoning themselves, or inside a message of
 * reasoning; text otherwise. */
#define QINFER_REASONING_DETECT 0u
#define QINFER_REASONING_OUTSIDE 1u
#define QINFER_REASONING_INSIDE 2u /* also to go on after a generation that ended inside */

typedef struct qinfer_generate_options {
  uint32_t struct_size;
  uint32_t max_tokens;      /* 0 = until the context is full */
  uint64_t flags;           /* QINFER_GENERATE_... */
  uint64_t seed;            /* any value; the same seed gives the same text */
  float temperature;        /* > 0; 0 = 1 */
  uint32_t top_k;           /* 0 = off, or the model's; QINFER_TOP_K_OFF = off */
  float top_p;              /* (0, 1]; 0 = off, or the model's; 1 = off */
  float min_p;              /* [0, 1]; 0 = off, or the model's */
  float repetition_penalty; /* > 0; 0 = off, or the model's; 1 = off */
  float frequency_penalty;  /* [-2, 2]; 0 = off */
  float presence_penalty;   /* [-2, 2]; 0 = off */
  uint32_t logprobs;        /* the best n beside the chosen token's; 0 = none at all */
  const qinfer_logit_bias* logit_bias;
  uint64_t logit_bias_count;
  const int32_t*
      stop_tokens; /* beside the model's own ends; in [0, vocab_size), as in logit_bias */
  uint64_t stop_token_count;
  /* UTF-8; also across tokens; not part of the text. With SPLIT_REASONING they are looked for in
   * the reasoning, the text and the tags (special tokens too) together, as they come. */
  const qinfer_str* stop_strings;
  uint64_t stop_string_count;
  /* With SPLIT_REASONING only; both or none: empty = "<think>" and "</think>", or Harmony's
   * channels. Tags may be special tokens, or any tokens that have their text together; neither may
   * contain the other. */
  qinfer_str reasoning_begin, reasoning_end;
  uint32_t reasoning_start; /* QINFER_REASONING_... */
  uint32_t reserved;
} qinfer_generate_options;
#define QINFER_GENERATE_OPTIONS_INIT                                                              \
  {                                                                                               \
    (uint32_t)sizeof(qinfer_generate_options), 0, 0, 0, 0.0f, 0, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0, \
        NULL, 0, NULL, 0, NULL, 0, {NULL, 0}, {NULL, 0}, 0, 0                                     \
  }

#define QINFER_FINISH_NONE 0u
#define QINFER_FINISH_EOS 1u
#define QINFER_FINISH_STOP_TOKEN 2u
#define QINFER_FINISH_STOP_STRING 3u
#define QINFER_FINISH_MAX_TOKENS 4u
#define QINFER_FINISH_CONTEXT_FULL 5u

typedef struct qinfer_token_logprob {
  int32_t token;
  float logprob;        /* natural logarithm */
} qinfer_token_logprob; /* never changes */

#define QINFER_CHANNEL_TEXT 0u
#define QINFER_CHANNEL_REASONING 1u /* with QINFER_GENERATE_SPLIT_REASONING only */

typedef struct qinfer_event {
  uint32_t struct_size;
  int32_t token; /* QINFER_TOKEN_NONE: text alone, held back until now, or of another channel than
                    the rest of its token's, which came before */
  uint32_t finish_reason; /* QINFER_FINISH_..., set on the last event */
  uint32_t channel; /* QINFER_CHANNEL_... of the text, or, where that is empty, of what comes */
  qinfer_str text;  /* complete UTF-8, may be empty: what may become a stop string is held back */
  const qinfer_token_logprob* logprobs; /* the chosen token first */
  uint64_t logprob_count;
} qinfer_event;
#define QINFER_EVENT_INIT \
  { (uint32_t)sizeof(qinfer_event), 0, 0, 0, {NULL, 0}, NULL, 0 }

/** As every *_init. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_generate_options_init(qinfer_generate_options* options,
                                                         size_t size);
QINFER_API void QINFER_CALL qinfer_event_init(qinfer_event* event, size_t size);

/** Begins to generate after the session's tokens, which are computed first. What is generated
 * becomes part of the session, token by token; when the task is cancelled or fails, the session
 * keeps the tokens committed until then.
 * @param options NULL = defaults; @param out the task, owned by the caller; not NULL
 * @return OK; E_MISUSE (options; an empty session); E_BUSY. The task's steps: E_BUDGET
 *         (context_tokens), E_FORMAT (logits that are not finite). @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_generate_begin(qinfer_session* session,
                                                           const qinfer_generate_options* options,
                                                           qinfer_task** out, qinfer_error* err);

/** The next event of a generation. One that waits is returned at once; otherwise the task is
 * stepped as by qinfer_task_step, or, where others step it, waited for, for about `budget_ns`.
 * @param event not NULL, struct_size set; its text and logprobs live until the next call of this
 *              function on this task, or its release
 * @return OK: an event; PENDING: none within the budget; END: all have been returned; E_MISUSE (not
 *         a generation); E_BUSY (another thread is in this function); else what ended the task,
 *         after the events that came before. Any thread, one at a time. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_generate_next(qinfer_task* task, uint64_t budget_ns,
                                                          qinfer_event* event, qinfer_error* err);

/** Tokens of the prompt and tokens generated so far. @param out_prompt, out_generated may be NULL.
 * @return OK; E_MISUSE (not a generation). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_generate_counts(const qinfer_task* task,
                                                            uint32_t* out_prompt,
                                                            uint32_t* out_generated,
                                                            qinfer_error* err);

/** What QINFER_GENERATE_PROMPT_LOOKUP has done so far; zeros without it. Depends on measured times,
 * unlike the tokens.
 * @param out_drafted guessed tokens that were computed; @param out_accepted those of them that
 *        became output; @param out_steps steps that decoded, with and without guesses. May be NULL.
 * @return OK; E_MISUSE (not a generation). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_generate_lookup_counts(const qinfer_task* task,
                                                                   uint64_t* out_drafted,
                                                                   uint64_t* out_accepted,
                                                                   uint64_t* out_steps,
                                                                   qinfer_error* err);

#ifdef __cplusplus
}
#endif
#endif /* QINFER_GENERATE_H */
