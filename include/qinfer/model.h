/* model.h - models: where their bytes come from, loading, what they are, their tokenizer and chat
 * template, and checking of contents. A model is immutable and may be used from any thread and by
 * several engines. */
#ifndef QINFER_MODEL_H
#define QINFER_MODEL_H

#include "qinfer/kv.h"
#include "qinfer/observe.h"
#include "qinfer/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sources ---- */
/* Where a model is: exactly one of `path`, `data` and `io`. The side documents belong to `data` and
 * `io` where the main file is a .safetensors, which holds none; for a path they are found beside
 * it, and a document given here wins. */
typedef struct qinfer_source {
  uint32_t struct_size;
  uint32_t reserved;
  /* A folder (config.json, *.safetensors or an index), a .safetensors, .gguf (any part of a split)
   * or .qinfer file; told apart by content. With QINFER_PARTS_VOCABULARY also a tokenizer.json,
   * with the tokenizer_config.json and chat_template.jinja beside it. */
  qinfer_str path;
  const void* data; /* borrowed until the model is released; 64-byte aligned to be used in place */
  uint64_t data_size;
  const qinfer_io* io; /* copied; its `drop` is called when the model needs it no more */
  qinfer_str name;     /* of `data` and `io`, for messages */
  qinfer_str config_json;
  qinfer_str generation_config_json;
  qinfer_str tokenizer_json;
  qinfer_str tokenizer_config_json;
  qinfer_str chat_template; /* Jinja text */
} qinfer_source;
#define QINFER_SOURCE_INIT                                                                         \
  {                                                                                                \
    (uint32_t)sizeof(qinfer_source), 0, {NULL, 0}, NULL, 0, NULL, {NULL, 0}, {NULL, 0}, {NULL, 0}, \
        {NULL, 0}, {NULL, 0}, {                                                                    \
      NULL, 0                                                                                      \
    }                                                                                              \
  }

/* Where a result is written: exactly one of `path` and `io`. A path is written beside its final
 * name and renamed when complete, so that a failed or cancelled task leaves no file. */
typedef struct qinfer_target {
  uint32_t struct_size;
  uint32_t reserved;
  qinfer_str path;
  const qinfer_write_io* io; /* copied */
  qinfer_str name;           /* of `io`, for messages */
} qinfer_target;
#define QINFER_TARGET_INIT                                           \
  {                                                                  \
    (uint32_t)sizeof(qinfer_target), 0, {NULL, 0}, NULL, { NULL, 0 } \
  }

/* ---- Loading ---- */
/* How a .qinfer file's weights are reached; other formats are always read and repacked. A map needs
 * a file that nobody changes while the model lives; a copy is for files that one does not trust. */
#define QINFER_LOAD_DEFAULT 0u /* map */
#define QINFER_LOAD_MAP 1u
#define QINFER_LOAD_COPY 2u

/* Which parts of a model are loaded. HEADER: no weights; metadata, tensor list and memory plan,
 * enough for calibration, conversion, quantization and verification. VOCABULARY: tokenizer and chat
 * template alone. */
#define QINFER_PARTS_ALL 0u
#define QINFER_PARTS_HEADER 1u
#define QINFER_PARTS_VOCABULARY 2u

#define QINFER_LOAD_VERIFY ((uint64_t)1 << 0) /* .qinfer: check every tensor's checksum */

typedef struct qinfer_load_options {
  uint32_t struct_size;
  uint32_t access; /* QINFER_LOAD_DEFAULT, _MAP or _COPY */
  uint32_t parts;  /* QINFER_PARTS_... */
  uint32_t reserved;
  uint64_t flags; /* QINFER_LOAD_VERIFY */
} qinfer_load_options;
#define QINFER_LOAD_OPTIONS_INIT \
  { (uint32_t)sizeof(qinfer_load_options), 0, 0, 0, 0 }

/* Bytes that loading and generating will take, computed from headers by the code that allocates. As
 * in host_bytes_limit and qinfer_memory_usage, memory that is the host's own (source.data, what
 * io.map gives) counts nowhere, also where weights are used in place there. */
typedef struct qinfer_memory_plan {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t mapped_bytes;    /* files that we map */
  uint64_t weight_bytes;    /* allocated */
  uint64_t tokenizer_bytes; /* vocabulary, template, documents */
  uint64_t load_peak_bytes; /* highest sum while loading */
  uint64_t kv_bytes;
  uint64_t workspace_bytes;
  uint64_t total_bytes; /* the peak of all: what host_bytes_limit must allow */
} qinfer_memory_plan;
#define QINFER_MEMORY_PLAN_INIT \
  { (uint32_t)sizeof(qinfer_memory_plan), 0, 0, 0, 0, 0, 0, 0, 0 }

/** As every *_init: zero `size` bytes and set struct_size. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_source_init(qinfer_source* source, size_t size);
QINFER_API void QINFER_CALL qinfer_target_init(qinfer_target* target, size_t size);
QINFER_API void QINFER_CALL qinfer_load_options_init(qinfer_load_options* options, size_t size);
QINFER_API void QINFER_CALL qinfer_memory_plan_init(qinfer_memory_plan* plan, size_t size);

/** What a model will need, before it is loaded: reads headers alone and is not itself limited by
 * host_bytes_limit.
 * @param runtime, source  not NULL; a `drop` in the source is called before the function returns
 * @param load             NULL = defaults
 * @param engine           the engine that will run it; NULL = defaults
 * @param out              not NULL, struct_size set
 * @return OK; E_MISUSE (options); E_IO; E_FORMAT; E_UNSUPPORTED (architecture). Any thread.
 * @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_model_plan(qinfer_runtime* runtime,
                                                       const qinfer_source* source,
                                                       const qinfer_load_options* load,
                                                       const qinfer_engine_options* engine,
                                                       qinfer_memory_plan* out, qinfer_error* err);

/** Begins to load a model; qinfer_task_take_model gives it when the task is finished. The task's
 * steps return, beside the common ones: E_IO; E_FORMAT; E_UNSUPPORTED; E_BUDGET; E_CANCELLED.
 * @param runtime, source  not NULL
 * @param load             NULL = defaults
 * @param out              the task, owned by the caller; not NULL
 * @return OK; E_MISUSE (options, or not exactly one source). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_model_load_begin(qinfer_runtime* runtime,
                                                             const qinfer_source* source,
                                                             const qinfer_load_options* load,
                                                             qinfer_task** out, qinfer_error* err);

/** Loads a model and returns when it is there: begin, wait, take in one. Parameters and statuses as
 * qinfer_model_load_begin and its task. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_model_load(qinfer_runtime* runtime,
                                                       const qinfer_source* source,
                                                       const qinfer_load_options* load,
                                                       qinfer_model** out, qinfer_error* err);

/** The same from a path with defaults. @param path UTF-8; QINFER_STRLEN if it ends with a NUL.
 * Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_model_load_path(qinfer_runtime* runtime,
                                                            const char* path, size_t path_size,
                                                            qinfer_model** out, qinfer_error* err);

/** One more owner of a model, who will release it too; returns `model`. NULL stays NULL. Any
 * thread.
 * @since 0.1 */
QINFER_API qinfer_model* QINFER_CALL qinfer_model_retain(qinfer_model* model);

/** Gives up a model. NULL is fine. Engines and tasks that use it go on working. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_model_release(qinfer_model* model);

/* ---- What a model is ---- */
#define QINFER_CONTAINER_SAFETENSORS 1u
#define QINFER_CONTAINER_GGUF 2u
#define QINFER_CONTAINER_QINFER 3u
#define QINFER_CONTAINER_CONFIG 4u    /* a configuration without weights */
#define QINFER_CONTAINER_TOKENIZER 5u /* a tokenizer.json alone */

#define QINFER_MODEL_HAS_WEIGHTS ((uint64_t)1 << 0)   /* loaded, an engine can be made */
#define QINFER_MODEL_HAS_SPEC ((uint64_t)1 << 1)      /* the sizes below are known */
#define QINFER_MODEL_HAS_TOKENIZER ((uint64_t)1 << 2) /* loaded */
#define QINFER_MODEL_HAS_TEMPLATE ((uint64_t)1 << 3)  /* loaded and valid */
#define QINFER_MODEL_TIED_HEAD ((uint64_t)1 << 4)     /* the head is the embedding */

typedef struct qinfer_model_info {
  uint32_t struct_size;
  uint32_t container;      /* QINFER_CONTAINER_... */
  uint64_t flags;          /* QINFER_MODEL_... */
  qinfer_str name;         /* path or the host's name */
  qinfer_str architecture; /* "llama", "gemma3"; empty where not known */
  uint64_t parameters;     /* elements of all tensors; from the sizes where there are no tensors */
  uint64_t tensor_bytes;   /* of all tensors as stored */
  uint64_t weight_bytes;   /* of all weights in use, mapped or allocated; 0 if not loaded */
  uint32_t tensor_count;
  uint32_t layers;
  uint32_t hidden_size;
  uint32_t intermediate_size; /* of the first layer; of one of its experts, if it has some */
  uint32_t heads;             /* of the first layer */
  uint32_t kv_heads;          /* of the first layer */
  uint32_t head_dim;          /* of the first layer */
  uint32_t vocab_size;
  uint32_t max_context; /* positions that the model was made for */
  uint32_t reserved;
} qinfer_model_info;
#define QINFER_MODEL_INFO_INIT                                                                     \
  {                                                                                                \
    (uint32_t)sizeof(qinfer_model_info), 0, 0, {NULL, 0}, {NULL, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        0, 0, 0                                                                                    \
  }

#define QINFER_IMPORT_EXACT 1u    /* every value is kept bit for bit, or is already in our format */
#define QINFER_IMPORT_MEASURED 2u /* converted; reports say how far it is off */
#define QINFER_IMPORT_NONE 3u     /* not readable by this build, or not a weight */

typedef struct qinfer_tensor_info {
  uint32_t struct_size;
  uint32_t rank;          /* 0 to 4 */
  uint64_t shape[4];      /* outermost first: a linear weight is [outputs, inputs]; unused are 1 */
  qinfer_str name;        /* as the file names it */
  qinfer_str source_type; /* the file's own word: "F16", "Q4_K" */
  qinfer_str format;      /* the format it is computed in, "int4-g32-f16"; empty where none */
  uint64_t elements;
  uint64_t bytes;        /* in the file */
  uint64_t offset;       /* in its file */
  uint64_t checksum;     /* XXH3-64 of the stored bytes, where the file states it */
  uint32_t has_checksum; /* 1: `checksum` is set */
  uint32_t import;       /* QINFER_IMPORT_... */
} qinfer_tensor_info;
#define QINFER_TENSOR_INFO_INIT                                                                   \
  {                                                                                               \
    (uint32_t)sizeof(qinfer_tensor_info), 0, {0, 0, 0, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, 0, 0, \
        0, 0, 0, 0                                                                                \
  }

/** As every *_init. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_model_info_init(qinfer_model_info* info, size_t size);
QINFER_API void QINFER_CALL qinfer_tensor_info_init(qinfer_tensor_info* info, size_t size);

/** Architecture, sizes and counts. @param out not NULL, struct_size set; its text lives as long as
 * the model. @return OK. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_model_info_get(const qinfer_model* model,
                                                           qinfer_model_info* out,
                                                           qinfer_error* err);

/** One tensor. @param index in [0, tensor_count), sorted by name. @param out not NULL, struct_size
 * set; its text lives as long as the model. @return OK; E_MISUSE (index). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_model_tensor(const qinfer_model* model, uint32_t index,
                                                         qinfer_tensor_info* out,
                                                         qinfer_error* err);

/* INFO: what qinfer_model_info says, tensors by type, the configuration of layers; "tokenizer"
 * (size, special tokens) and "chat_template" (whether there is one) where they are loaded, which
 * QINFER_PARTS_HEADER leaves out. TENSORS: {"tensors": [what qinfer_tensor_info says, ...]}. */
#define QINFER_MODEL_REPORT_INFO 1u
#define QINFER_MODEL_REPORT_TENSORS 2u

/** The metadata as a report. @param kind QINFER_MODEL_REPORT_...; @param out owned by the caller;
 * not NULL. @return OK; E_MISUSE (kind). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_model_report(const qinfer_model* model, uint32_t kind,
                                                         qinfer_report** out, qinfer_error* err);

/** Begins to read every byte of every tensor: computes checksums (XXH3-64 of the bytes as the file
 * stores them), compares those that the file states, and looks for values that are not finite in
 * float tensors. The report: {"ok", "tensors": [{"name", "bytes", "checksum", "ok", "problem"}, in
 * the order of qinfer_model_tensor], "bytes", "problems"}. A file that cannot be read ends the task
 * with E_IO; what is merely wrong is in the report.
 * @param model  opened with any parts but QINFER_PARTS_VOCABULARY; @param out not NULL
 * @return OK; E_MISUSE (QINFER_DETAIL_NOT_LOADED). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_verify_begin(const qinfer_model* model,
                                                         qinfer_task** out, qinfer_error* err);

/* ---- Tokenizer ---- */
/* All return E_MISUSE with QINFER_DETAIL_NOT_LOADED where the model has no tokenizer. */
/* NO_SPECIAL: add no BOS or EOS by itself. LITERAL: text that spells a special token is plain text,
 * for input that users have written. */
#define QINFER_ENCODE_NO_SPECIAL ((uint64_t)1 << 0)
#define QINFER_ENCODE_LITERAL ((uint64_t)1 << 1)

/** Text to token ids.
 * @param text      UTF-8 of text_size bytes, or QINFER_STRLEN
 * @param flags     QINFER_ENCODE_...
 * @param ids       room for `capacity` ids, or NULL with 0; text_size + 8 is nearly always enough
 * @param out_count how many ids the text has; not NULL
 * @return OK; E_MISUSE (QINFER_DETAIL_BUFFER_TOO_SMALL, flags, text that is not valid UTF-8: the
 *         message has the byte); E_UNSUPPORTED where a regular expression of the tokenizer takes
 * too long on this text. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_tokenizer_encode(const qinfer_model* model,
                                                             const char* text, size_t text_size,
                                                             uint64_t flags, int32_t* ids,
                                                             size_t capacity, size_t* out_count,
                                                             qinfer_error* err);

/* SKIP_SPECIAL: leave out special tokens. CONTINUE: the first id is not at the start of a text, so
 * that no leading space is dropped. */
#define QINFER_DECODE_SKIP_SPECIAL ((uint64_t)1 << 0)
#define QINFER_DECODE_CONTINUE ((uint64_t)1 << 1)

/** Token ids to the bytes of their text, which may end inside a UTF-8 character.
 * @param ids          [count]; ids out of range stand for nothing
 * @param flags        QINFER_DECODE_...
 * @param buffer       room for `capacity` bytes, or NULL with 0; no NUL is added
 * @param out_size     bytes of the text; not NULL
 * @param out_complete bytes up to the end of the last complete character; may be NULL
 * @return OK; E_MISUSE (QINFER_DETAIL_BUFFER_TOO_SMALL, flags). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_tokenizer_decode(
    const qinfer_model* model, const int32_t* ids, size_t count, uint64_t flags, char* buffer,
    size_t capacity, size_t* out_size, size_t* out_complete, qinfer_error* err);

#define QINFER_TOKEN_BOS 1u
#define QINFER_TOKEN_EOS 2u
#define QINFER_TOKEN_NONE ((int32_t)-1)

/** A special token's id. @param which QINFER_TOKEN_BOS or _EOS; @param out its id, or
 * QINFER_TOKEN_NONE; not NULL. @return OK; E_MISUSE (which). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_tokenizer_special(const qinfer_model* model,
                                                              uint32_t which, int32_t* out,
                                                              qinfer_error* err);

/** A token as the vocabulary spells it. @param id in [0, vocabulary size); @param out_text lives as
 * long as the model; not NULL; @param out_special 1 for special tokens; may be NULL.
 * @return OK; E_MISUSE (id). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_tokenizer_token(const qinfer_model* model, int32_t id,
                                                            qinfer_str* out_text,
                                                            int32_t* out_special,
                                                            qinfer_error* err);

/** The id of exactly this vocabulary entry. @param out its id, or QINFER_TOKEN_NONE; not NULL.
 * @return OK. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_tokenizer_find(const qinfer_model* model,
                                                           const char* text, size_t text_size,
                                                           int32_t* out, qinfer_error* err);

/** Ids are [0, *out). @param out not NULL. @return OK. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_tokenizer_size(const qinfer_model* model, uint32_t* out,
                                                           qinfer_error* err);

/* ---- Chat template ---- */
/* One turn of a conversation. This struct never changes; richer messages are given as JSON. */
typedef struct qinfer_message {
  qinfer_str role; /* "system", "user", "assistant" */
  qinfer_str content;
} qinfer_message;

/* Do not open the turn of the answer. */
#define QINFER_TEMPLATE_NO_GENERATION_PROMPT ((uint64_t)1 << 0)
#define QINFER_NOW_EPOCH INT64_MIN

typedef struct qinfer_render_options {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t flags; /* QINFER_TEMPLATE_NO_GENERATION_PROMPT */
  /* Either messages, or messages_json: an array of {"role", "content", ...}. */
  const qinfer_message* messages;
  uint64_t message_count;
  qinfer_str messages_json;
  qinfer_str tools_json;    /* an array of tools; empty = none */
  qinfer_str extra_json;    /* an object of further variables; empty = none */
  qinfer_str template_text; /* Jinja text instead of the model's own template */
  qinfer_str template_name; /* of template_text, for messages */
  qinfer_str bos_token;     /* texts that the template may use; empty = the model's */
  qinfer_str eos_token;
  int64_t now_unix_seconds; /* for strftime_now, in UTC; 0 = now; QINFER_NOW_EPOCH = 1970-01-01 */
  /* 0 = 64 MiB. A rendering takes at most 64 MiB of memory, or four times this if that is more. */
  uint64_t max_output_bytes;
  uint64_t max_steps; /* bound on the template's work; 0 = 10 million */
} qinfer_render_options;
#define QINFER_RENDER_OPTIONS_INIT                                                           \
  {                                                                                          \
    (uint32_t)sizeof(qinfer_render_options), 0, 0, NULL, 0, {NULL, 0}, {NULL, 0}, {NULL, 0}, \
        {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, 0, 0, 0                                  \
  }

/** As every *_init. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_render_options_init(qinfer_render_options* options, size_t size);

/** Messages to the text of a prompt, as transformers' apply_chat_template does. The text already
 * begins with BOS where the template writes it: encode it with QINFER_ENCODE_NO_SPECIAL.
 * @param runtime, model  one of them may be NULL: without a model, template_text must be set
 * @param options         not NULL
 * @param buffer          room for `capacity` bytes, or NULL with 0; no NUL is added
 * @param out_size        bytes of the text; not NULL
 * @return OK; E_MISUSE (QINFER_DETAIL_BUFFER_TOO_SMALL, options, messages that are no JSON, or the
 *         template's own raise_exception, with its text); E_FORMAT (the template does not parse;
 *         line and reason); E_BUDGET (a limit of its work, or host_bytes_limit); E_UNSUPPORTED.
 * Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_template_render(qinfer_runtime* runtime,
                                                            const qinfer_model* model,
                                                            const qinfer_render_options* options,
                                                            char* buffer, size_t capacity,
                                                            size_t* out_size, qinfer_error* err);

/** The Jinja text of the model's chat template. @param out lives as long as the model; empty where
 * there is none; not NULL. @return OK; E_FORMAT (there is one that does not parse: why).
 * Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_template_text(const qinfer_model* model,
                                                          qinfer_str* out, qinfer_error* err);

#ifdef __cplusplus
}
#endif
#endif /* QINFER_MODEL_H */
