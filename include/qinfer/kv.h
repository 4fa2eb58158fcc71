/* kv.h - engines: a model made ready to run, with the pool of key-value pages that its sessions
 * share. Sessions and what they generate are in generate.h. */
#ifndef QINFER_KV_H
#define QINFER_KV_H

#include "qinfer/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types of the key-value cache. */
#define QINFER_KV_DEFAULT 0u /* INT8 in engines, F16 in evaluation */
#define QINFER_KV_F32 1u
#define QINFER_KV_F16 2u
#define QINFER_KV_INT8 3u

/* How inputs reach quantized weights; float weights always take float inputs. AUTO is INT8 with a
 * second INT8 plane, of what the first leaves over, for the inputs of q, k, v, gate, up and the
 * head, in blocks with outliers alone: closest to float at little cost. INT8 has one plane
 * everywhere, which is faster for long prompts. */
#define QINFER_ACTIVATIONS_AUTO 0u
#define QINFER_ACTIVATIONS_INT8 1u
#define QINFER_ACTIVATIONS_FLOAT 2u

/* What results may depend on. STRICT: on the model, the tokens and the options. FAST: also on how a
 * prompt was cut into steps and on what else was in them, where that makes it faster; still not on
 * threads. It concerns long prompts of models with latent attention (DeepSeek), whose keys and
 * values of heads are then made for a step of one session with many tokens. */
#define QINFER_DETERMINISM_STRICT 0u
#define QINFER_DETERMINISM_FAST 1u

typedef struct qinfer_engine_options {
  uint32_t struct_size;
  uint32_t max_sessions;   /* 0 = 8 */
  uint64_t context_tokens; /* room of all sessions together; 0 = the model's context, up to 4096 */
  uint32_t batch_tokens;   /* tokens per forward step; 0 = 512 */
  uint32_t k_type;         /* QINFER_KV_... */
  uint32_t v_type;
  uint32_t activations; /* QINFER_ACTIVATIONS_... */
  uint32_t determinism; /* QINFER_DETERMINISM_... */
  uint32_t reserved;
} qinfer_engine_options;
#define QINFER_ENGINE_OPTIONS_INIT \
  { (uint32_t)sizeof(qinfer_engine_options), 0, 0, 0, 0, 0, 0, 0, 0 }

/** As every *_init. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_engine_options_init(qinfer_engine_options* options, size_t size);

/** Makes an engine: allocates the key-value pool and the workspace; nothing is allocated for them
 * later. @param model loaded with QINFER_PARTS_ALL; not NULL. @param options NULL = defaults.
 * @param out owned by the caller; not NULL.
 * @return OK; E_MISUSE (options, QINFER_DETAIL_NOT_LOADED); E_BUDGET. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_engine_create(qinfer_model* model,
                                                          const qinfer_engine_options* options,
                                                          qinfer_engine** out, qinfer_error* err);

/** The options with every default filled in. @param out not NULL, struct_size set. @return OK.
 * Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_engine_options_get(const qinfer_engine* engine,
                                                               qinfer_engine_options* out,
                                                               qinfer_error* err);

/** Gives up an engine. NULL is fine. Its sessions go on working. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_engine_release(qinfer_engine* engine);

#ifdef __cplusplus
}
#endif
#endif /* QINFER_KV_H */
