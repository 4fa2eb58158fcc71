/* evaluate.h - measuring a model: perplexity on a text, and divergence from a reference model. */
#ifndef QINFER_EVALUATE_H
#define QINFER_EVALUATE_H

#include "qinfer/kv.h"
#include "qinfer/model.h"
#include "qinfer/observe.h"
#include "qinfer/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One scored row of logits, F32 [vocab_size], valid during the call; rows come in the order of the
 * text. An error ends the task with it. */
typedef qinfer_status(QINFER_CALL* qinfer_logits_fn)(void* user, const float* row,
                                                     uint32_t vocab_size);

typedef struct qinfer_perplexity_options {
  uint32_t struct_size;
  uint32_t context;               /* tokens per window, 4 to the context of the model and of the
                                     reference; the second half is scored; 0 = 512 */
  uint32_t max_windows;           /* 0 = all whole windows */
  uint32_t k_type;                /* QINFER_KV_...; 0 = F16 */
  uint32_t v_type;                /* QINFER_KV_...; 0 = F16 */
  uint32_t activations;           /* QINFER_ACTIVATIONS_... of the model */
  uint32_t reference_activations; /* of the reference; AUTO = float */
  uint32_t reserved;
  const qinfer_model* reference; /* of the same vocabulary; NULL = no divergence */
  qinfer_logits_fn logits;       /* NULL = none */
  void* logits_user;
} qinfer_perplexity_options;
#define QINFER_PERPLEXITY_OPTIONS_INIT \
  { (uint32_t)sizeof(qinfer_perplexity_options), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL }

/** As every *_init. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_perplexity_options_init(qinfer_perplexity_options* options,
                                                           size_t size);

/** Begins to measure perplexity on consecutive windows of a tokenized text, as llama.cpp's tool
 * does: the first token of each window is replaced by BOS where the tokenizer adds one, and the
 * second half of each window is scored. The report: perplexity, perplexity_stderr, tokens, windows,
 * context; with a reference also reference_perplexity, kl_mean, kl_median, kl_p99, kl_p999, kl_max,
 * top1.
 * @param model   loaded with QINFER_PARTS_ALL; not NULL
 * @param tokens  [count], at least one window; copied
 * @param options NULL = defaults
 * @param out     the task, owned by the caller; not NULL
 * @return OK; E_MISUSE (options, a text shorter than a window, vocabularies that differ,
 *         QINFER_DETAIL_NOT_LOADED); E_BUDGET. The task's steps: E_FORMAT (logits that are not
 *         finite), or what the logits callback returned. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_perplexity_begin(
    const qinfer_model* model, const int32_t* tokens, size_t count,
    const qinfer_perplexity_options* options, qinfer_task** out, qinfer_error* err);

#ifdef __cplusplus
}
#endif
#endif /* QINFER_EVALUATE_H */
