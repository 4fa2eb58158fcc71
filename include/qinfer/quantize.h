/* quantize.h - calibration, lossless conversion and quantization: from any model that can be opened
 * to one .qinfer file and a report of what it cost. */
#ifndef QINFER_QUANTIZE_H
#define QINFER_QUANTIZE_H

#include "qinfer/model.h"
#include "qinfer/observe.h"
#include "qinfer/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Calibration ---- */
/* How values are observed. */
#define QINFER_OBSERVER_DEFAULT 0u /* histogram for activations, min-max for weights */
#define QINFER_OBSERVER_MINMAX 1u
#define QINFER_OBSERVER_HISTOGRAM 2u
#define QINFER_OBSERVER_EMA 3u
/* How a histogram becomes a range. */
#define QINFER_RANGE_DEFAULT 0u /* least squared error */
#define QINFER_RANGE_MINMAX 1u
#define QINFER_RANGE_PERCENTILE 2u
#define QINFER_RANGE_MSE 3u
#define QINFER_RANGE_KL 4u

typedef struct qinfer_calibration_options {
  uint32_t struct_size;
  uint32_t samples;       /* 0 = 128 */
  uint32_t sample_tokens; /* tokens per sample; 0 = 512 */
  uint32_t activations; /* QINFER_OBSERVER_...; of the many inputs of experts min-max alone is kept,
                           whatever this says: nothing uses more of them */
  uint32_t weights;     /* QINFER_OBSERVER_... */
  uint32_t range;       /* QINFER_RANGE_... */
  uint64_t seed;        /* which samples are drawn; any value */
  double ema_alpha;     /* (0, 1); 0 = 0.95 */
  double percentile;    /* (50, 100]; 0 = 99.99 */
} qinfer_calibration_options;
#define QINFER_CALIBRATION_OPTIONS_INIT \
  { (uint32_t)sizeof(qinfer_calibration_options), 0, 0, 0, 0, 0, 0, 0.0, 0.0 }

/** As every *_init. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_calibration_options_init(qinfer_calibration_options* options,
                                                            size_t size);

/** Empty statistics for a model. @param model opened with QINFER_PARTS_ALL or _HEADER; not NULL.
 * @param options NULL = defaults. @param out owned by the caller; not NULL.
 * @return OK; E_MISUSE (options, QINFER_DETAIL_NOT_LOADED); E_UNSUPPORTED. Any thread. @since 0.1
 */
QINFER_API qinfer_status QINFER_CALL
qinfer_calibration_create(qinfer_model* model, const qinfer_calibration_options* options,
                          qinfer_calibration** out, qinfer_error* err);

/** Adds text, which is cut into samples. May be called repeatedly. @param text UTF-8; QINFER_STRLEN
 * if it ends with a NUL. @return OK; E_MISUSE; E_BUSY. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_calibration_add_text(qinfer_calibration* calibration,
                                                                 const char* text, size_t text_size,
                                                                 qinfer_error* err);

/** Adds tokens as one text. @param tokens [count]. @return OK; E_MISUSE (an id out of range);
 * E_BUSY.
 * @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_calibration_add_tokens(qinfer_calibration* calibration,
                                                                   const int32_t* tokens,
                                                                   size_t count, qinfer_error* err);

/** Uses texts that the model writes itself, sampled from BOS at temperature 1, beside those that
 * were added; reports say so. @return OK; E_BUSY. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL
qinfer_calibration_self_generate(qinfer_calibration* calibration, qinfer_error* err);

/** Begins to run the samples added since the last run through the model, one layer at a time. Until
 * the task ends every other call on the calibration returns E_BUSY. A run that fails or is
 * cancelled leaves the statistics as they were. @param out the task, owned by the caller; not NULL.
 * @return OK; E_MISUSE (no samples); E_BUSY. The task's steps: E_IO; E_FORMAT; E_BUDGET. @since 0.1
 */
QINFER_API qinfer_status QINFER_CALL qinfer_calibration_run_begin(qinfer_calibration* calibration,
                                                                  qinfer_task** out,
                                                                  qinfer_error* err);

/** Adds the statistics of `other`, of the same model, which stays as it is. @return OK; E_MISUSE
 * (the models differ, or both are the same handle); E_BUSY (either of them). @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_calibration_merge(qinfer_calibration* calibration,
                                                              const qinfer_calibration* other,
                                                              qinfer_error* err);

/** Writes the statistics, versioned and with a checksum. @param target not NULL.
 * @return OK; E_MISUSE (target); E_IO; E_BUSY. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_calibration_save(const qinfer_calibration* calibration,
                                                             const qinfer_target* target,
                                                             qinfer_error* err);

/** Reads statistics. @param model what they were made of; not NULL. @param source a path, memory or
 * io table; not NULL; not needed after the call. @param out owned by the caller; not NULL.
 * @return OK; E_IO; E_FORMAT (corrupt); E_MISUSE (of another model). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_calibration_load(qinfer_model* model,
                                                             const qinfer_source* source,
                                                             qinfer_calibration** out,
                                                             qinfer_error* err);

/** Gives up a calibration. NULL is fine. Tasks that use it go on working. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_calibration_release(qinfer_calibration* calibration);

/* ---- Conversion ---- */
/** Begins to write any model as a .qinfer file, without loss where our formats allow; the report
 * says of each tensor whether it was: {"tensors": [{"name", "source_type", "format", "import":
 * "exact" or "measured", ...}], ...}.
 * @param model  opened with QINFER_PARTS_ALL or _HEADER; not NULL
 * @param target not NULL
 * @param out    the task, owned by the caller; not NULL
 * @return OK; E_MISUSE (target, also a path that is a file of the model; QINFER_DETAIL_NOT_LOADED);
 *         E_IO (the target cannot be made). The task's steps: E_IO; E_FORMAT; E_UNSUPPORTED;
 * E_BUDGET. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_convert_begin(const qinfer_model* model,
                                                          const qinfer_target* target,
                                                          qinfer_task** out, qinfer_error* err);

/* ---- Quantization ---- */
/* What becomes of tensors whose name matches. This struct never changes. */
typedef struct qinfer_override {
  qinfer_str pattern; /* of tensor names; * and ? are wildcards; the last match wins */
  qinfer_str format;  /* as `scheme`, or "keep" */
} qinfer_override;

#define QINFER_GROUP_DEFAULT 0u
#define QINFER_GROUP_ROW UINT32_MAX /* one scale per output row */

/* ASYMMETRIC: a minimum beside each scale. NO_CALIBRATION: treat all inputs alike. NO_SEARCH:
 * scales from the extremes. NO_EVALUATION: no perplexity and divergence at the end. RESUME: keep
 * and use PATH.partial/ of an earlier task: the calibration that it ran, and the layers that it
 * finished. STATIC_ACTIVATIONS: the scales of INT8
 * activations are fixed by the calibrated ranges, not taken from each block. */
#define QINFER_QUANTIZE_ASYMMETRIC ((uint64_t)1 << 0)
#define QINFER_QUANTIZE_NO_CALIBRATION ((uint64_t)1 << 1)
#define QINFER_QUANTIZE_NO_SEARCH ((uint64_t)1 << 2)
#define QINFER_QUANTIZE_NO_EVALUATION ((uint64_t)1 << 3)
#define QINFER_QUANTIZE_RESUME ((uint64_t)1 << 4)
#define QINFER_QUANTIZE_STATIC_ACTIVATIONS ((uint64_t)1 << 5)

typedef struct qinfer_quantize_options {
  uint32_t struct_size;
  uint32_t group_size; /* 32, 64, 128 or QINFER_GROUP_ROW; 0 = 32, or what `scheme` says */
  uint64_t flags;      /* QINFER_QUANTIZE_... */
  /* Of linear weights: "f32", "f16", "bf16", or KIND-GROUP-SCALE with an optional "-min" (a minimum
   * beside each scale; not with e8m0), for example "int4-g64-f16-min". KIND: int4, int6, int8.
   * GROUP, the weights of a scale: g32, g64, g128, row; g16 with int6. SCALE, its type: f16, f32,
   * e8m0; sub8 with int4 and int6 in g16 or g32. "int4", "int6" and "int8" alone: -g32-f16. Or
   * "fp4-g32-e8m0", in short "fp4": MXFP4. Empty = "int4". */
  qinfer_str scheme;
  qinfer_str method;    /* "rtn"; empty = "rtn" */
  qinfer_str embedding; /* "f16", "bf16", "int8" or "keep"; empty = "keep" */
  qinfer_str head;      /* of the output head: a format or "keep"; empty = `scheme` where it is a
                           tensor of its own, else shared with the embedding */
  const qinfer_override* overrides;
  uint64_t override_count;
  /* Statistics; samples that wait in it are run first, by this task and within its limit, and
   * their statistics stay in it. In use until the task ends. NULL = the model writes its own
   * samples. */
  qinfer_calibration* calibration;
  const qinfer_calibration_options* calibration_options; /* of own samples; NULL = defaults */
  /* Of what this task allocates, within host_bytes_limit; 0 = none beside that. Pieces shrink to
   * fit, and change no result but how many samples are evaluated. */
  uint64_t memory_limit_bytes;
} qinfer_quantize_options;
#define QINFER_QUANTIZE_OPTIONS_INIT                                                             \
  {                                                                                              \
    (uint32_t)sizeof(qinfer_quantize_options), 0, 0, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, \
        NULL, 0, NULL, NULL, 0                                                                   \
  }

/** As every *_init. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_quantize_options_init(qinfer_quantize_options* options,
                                                         size_t size);

/* Bytes that a quantization takes, from headers alone. */
typedef struct qinfer_quantize_plan {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t in_use_bytes;    /* now: the opened model and whatever else the runtime holds */
  uint64_t document_bytes;  /* making the tokenizer, writing it and other documents */
  uint64_t calibrate_bytes; /* running a calibration: one layer and hidden states */
  uint64_t layer_bytes;     /* quantizing and comparing a layer */
  uint64_t head_bytes;      /* embedding and head, in slices */
  uint64_t work_bytes;      /* the largest of these, with what lives all the time */
  uint64_t
      minimum_bytes;    /* the same with the smallest pieces: what memory_limit_bytes must allow */
  uint64_t total_bytes; /* in use and work: the peak */
} qinfer_quantize_plan;
#define QINFER_QUANTIZE_PLAN_INIT \
  { (uint32_t)sizeof(qinfer_quantize_plan), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** As every *_init. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_quantize_plan_init(qinfer_quantize_plan* plan, size_t size);

/** What qinfer_quantize_begin with the same options would need. Compiles the tokenizer, to measure
 * that, unless the model is loaded with it (QINFER_PARTS_ALL) or texts were added to the
 * calibration; so does qinfer_quantize_begin, whose task goes on with what it has made. @param
 * model opened with QINFER_PARTS_ALL or _HEADER; not NULL. @param options NULL = defaults. @param
 * out not NULL, struct_size set. @return OK; E_MISUSE (options, QINFER_DETAIL_NOT_LOADED);
 * E_UNSUPPORTED; E_BUSY (the calibration is in use). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL
qinfer_quantize_plan_get(const qinfer_model* model, const qinfer_quantize_options* options,
                         qinfer_quantize_plan* out, qinfer_error* err);

/** Begins to quantize a model layer by layer into a .qinfer file. The report holds errors per layer
 * and tensor, drift, and end-to-end perplexity and divergence; qinfer_report_render shows it as a
 * table, JSON or an HTML page.
 * @param model   opened with QINFER_PARTS_ALL or _HEADER; not NULL
 * @param options NULL = defaults
 * @param target  not NULL; QINFER_QUANTIZE_RESUME needs a path
 * @param out     the task, owned by the caller; not NULL
 * @return OK; E_MISUSE (options, target (also a path that is a file of the model), a format that is
 * not known, a calibration with nothing in it, QINFER_DETAIL_NOT_LOADED); E_BUDGET (a limit that is
 * too low, with the least that works); E_IO; E_UNSUPPORTED; E_BUSY (the calibration is in use). The
 * task's steps: E_IO; E_FORMAT; E_BUDGET. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_quantize_begin(const qinfer_model* model,
                                                           const qinfer_quantize_options* options,
                                                           const qinfer_target* target,
                                                           qinfer_task** out, qinfer_error* err);

#ifdef __cplusplus
}
#endif
#endif /* QINFER_QUANTIZE_H */
